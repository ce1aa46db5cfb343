"""What Fairlead asks of the world: time, randomness, ids, tasks. The only module (with main.py) that may touch the real ones.

Everything else takes these as parameters, so that the simulator can supply its own and a seed reproduces a run exactly.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random as _random
import secrets
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self


class Clock(Protocol):
    """Two clocks with different jobs: `monotonic` measures, `wall` is for display and for a cold start only (P5)."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Random(Protocol):
    def random(self) -> float: ...

    def randrange(self, start: int, stop: int | None = None, step: int = 1, /) -> int: ...


class Ids(Protocol):
    def token(self) -> str:
        """A new unguessable name, unique for ever: a holder, a session, a client."""


class Kept(Protocol):
    """A small file that is replaced whole: its reader finds the old content or the new one."""

    def read(self) -> bytes | None:
        """None where there is none. Raises OSError."""

    def write(self, data: bytes, *, durable: bool) -> None:
        """Durable: returns when it would survive a power cut. Raises OSError."""


def write_all(fd: int, data: bytes, at: int | None = None) -> None:
    """All of it, or OSError: a disk that is nearly full takes a part and says so only when it is asked again. `at`: in place."""
    done = 0
    while done < len(data):
        rest = data[done:]
        took = os.write(fd, rest) if at is None else os.pwrite(fd, rest, at + done)
        if not took:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done += took


def sync_directory(directory: Path) -> None:
    """Without it a file that was made or renamed there may be gone, or back under its old name, after a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class KeptFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, data: bytes, *, durable: bool) -> None:
        fresh = self._path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        fresh.rename(self._path)
        if durable:
            sync_directory(self._path.parent)


class InPlaceFile(KeptFile):
    """A few bytes, always as many, that are written over themselves again and again: a hundredth of the cost of a file that is
    replaced. A process that ends leaves the old content or the new one; a power cut may leave neither, so the content says
    whether it is whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._has_name = False  # that a power cut leaves it

    def write(self, data: bytes, *, durable: bool) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data, 0)
            if durable:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        if durable and not self._has_name:
            sync_directory(self._path.parent)
            self._has_name = True


class SystemClock:
    def monotonic(self) -> float:
        # CLOCK_BOOTTIME goes on while a machine sleeps, so a resumed leader or agent knows how long it was away (P9).
        if sys.platform == "linux":
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemIds:
    def token(self) -> str:
        return secrets.token_hex(8)


def system_random() -> Random:
    return _random.Random(secrets.randbits(64))


class Signal:
    """asyncio.Event for tasks of one loop, which it does not ask for at every wait: whatever is followed waits like this, once or
    more for each change."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Who was woken before and has not run yet is awake all the same."""
        self._is_set = False

    async def wait(self) -> None:
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiters:  # nobody has set it: else whoever waits with a limit again and again would pile up
                self._waiters.remove(waiter)
            raise


def next_turn(call: Callable[..., None], *arguments: Any) -> None:
    """Called after all who are ready now. Whoever it wakes runs one turn later, when what those wrote to sockets has left."""
    asyncio.get_running_loop().call_soon(call, *arguments)


async def wait_signal(signal: Signal, seconds: float | None) -> None:
    """Until it is set, or for so long, after which it is set as well. A timer of the loop's: whoever waits like this wakes often,
    and a timeout that ends in an exception costs several times as much."""
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), signal.set) if seconds is not None else None
    try:
        await signal.wait()
    finally:
        if timer is not None:
            timer.cancel()


TASKS_DONE_MAX = 32  # kept by a group with nobody in it: a callback for each that ends would cost more than all of them weigh


class Tasks:
    """A group of tasks that live no longer than the block that opened it. The one place where tasks are made."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[Any]] = []  # in the order they were started; those that are done go now and then
        self._tidy_at = TASKS_DONE_MAX

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.cancel()
        await self._group.__aexit__(kind, error, trace)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self._group.create_task(work, name=name)
        self._tasks.append(task)
        if len(self._tasks) > self._tidy_at:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tidy_at = 2 * len(self._tasks) + TASKS_DONE_MAX
        return task

    def cancel(self) -> None:
        """In the order they were started: a set's order would differ from run to run."""
        for task in list(self._tasks):
            task.cancel()
