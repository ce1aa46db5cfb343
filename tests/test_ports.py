"""What the ports themselves promise: a wait for a signal or a moment, and groups of tasks, in virtual time; files kept whole."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest

from fairlead.ports import TASKS_DONE_MAX, InPlaceFile, KeptFile, Signal, Tasks, wait_signal
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep


def test_a_signal_ends_a_wait_before_its_time_and_no_timer_is_left() -> None:
    async def main(loop: SimLoop) -> tuple[float, bool]:
        signal = Signal()
        loop.after(1.0, signal.set)
        await wait_signal(signal, 5.0)
        at = loop.now
        signal.clear()
        await sleep(10.0)
        return at, signal.is_set()

    assert sim.run(main, 1).value == (1.0, False)


def test_a_wait_without_a_signal_ends_in_its_time() -> None:
    async def main(loop: SimLoop) -> tuple[float, float]:
        await wait_signal(Signal(), 5.0)
        ended = loop.now
        await wait_signal(Signal(), -1.0)
        return ended, loop.now

    assert sim.run(main, 1).value == (5.0, 5.0)


def test_a_wait_without_an_end_is_for_the_signal_alone() -> None:
    async def main(loop: SimLoop) -> float:
        signal = Signal()
        loop.after(1000.0, signal.set)
        await wait_signal(signal, None)
        return loop.now

    assert sim.run(main, 1).value == 1000.0


def test_a_signal_wakes_all_who_wait_also_when_it_is_cleared_before_they_run() -> None:
    async def main(loop: SimLoop) -> list[float]:
        signal, woken = Signal(), list[float]()

        async def waits() -> None:
            await signal.wait()
            woken.append(loop.now)

        async with Tasks() as tasks:
            for _ in range(3):
                tasks.start(waits(), "waits")
            await sleep(2.0)
            signal.set()
            signal.clear()
        await wait_signal(signal, 1.0)
        return [*woken, loop.now]

    assert sim.run(main, 1).value == [2.0, 2.0, 2.0, 3.0]


def test_whoever_gives_up_waiting_leaves_nothing_behind_and_takes_no_wake_up_with_it() -> None:
    async def main(loop: SimLoop) -> tuple[int, float]:
        signal = Signal()
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await signal.wait()
        left = len(signal._waiters)
        loop.after(1.0, signal.set)
        await signal.wait()
        return left, loop.now

    assert sim.run(main, 1).value == (0, 6.0)


def test_a_group_forgets_those_who_are_done_and_ends_the_others_in_the_order_of_their_start() -> None:
    async def main(loop: SimLoop) -> tuple[int, list[str]]:
        ended: list[str] = []

        async def stays(name: str) -> None:
            try:
                await loop.create_future()
            finally:
                ended.append(name)

        async with Tasks() as tasks:
            for name in ("a", "b", "c"):
                tasks.start(stays(name), name)
            for _ in range(20 * TASKS_DONE_MAX):
                await tasks.start(sleep(0.001), "short")
            kept = len(tasks._tasks)
            loop.seeded = (0, 0)  # whoever is cancelled first ends first
            tasks.cancel()
        return kept, ended

    kept, ended = sim.run(main, 1).value
    assert kept <= 2 * TASKS_DONE_MAX
    assert ended == ["a", "b", "c"]


class NearlyFull:
    """A disk that takes a few bytes at a time, and after `room` of them none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self._room, self._write, self._pwrite = room, os.write, os.pwrite
        monkeypatch.setattr(os, "write", lambda fd, data: self._write(fd, self._taken(data)))
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: self._pwrite(fd, self._taken(data), at))

    def _taken(self, data: bytes) -> bytes:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = data[: min(3, self._room)]
        self._room -= len(part)
        return part


@pytest.mark.parametrize("kind", [KeptFile, InPlaceFile])
def test_a_file_that_is_kept_for_good_keeps_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KeptFile]
) -> None:
    """A rename, and a new file, is in the directory: a power cut takes it back as long as that is not synced as well."""
    named: list[bytes] = []  # what the name led to each time the directory was synced
    path = tmp_path / "kept"
    fsync = os.fsync

    def watched(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            named.append(path.read_bytes())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    kept = kind(path)
    kept.write(b"passing", durable=False)
    assert named == []
    kept.write(b"for good", durable=True)
    assert named == [b"for good"]
    kept.write(b"for ever", durable=True)
    assert named[1:] == ([b"for ever"] if kind is KeptFile else []), "what is written in place has had its name since"


@pytest.mark.parametrize("kind", [KeptFile, InPlaceFile])
def test_a_kept_file_is_written_whole_by_a_disk_that_takes_it_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KeptFile]
) -> None:
    kept = kind(tmp_path / "kept")
    kept.write(b"0123456789", durable=False)
    with monkeypatch.context() as patched:
        NearlyFull(patched, 100)
        kept.write(b"abcdefghij", durable=True)
    assert kept.read() == b"abcdefghij"


@pytest.mark.parametrize("kind", [KeptFile, InPlaceFile])
def test_a_disk_that_takes_a_part_only_has_not_taken_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KeptFile]
) -> None:
    kept = kind(tmp_path / "kept")
    kept.write(b"0123456789", durable=False)
    with monkeypatch.context() as patched:
        NearlyFull(patched, 5)
        with pytest.raises(OSError, match="No space"):
            kept.write(b"abcdefghij", durable=True)
    assert kept.read() == (b"0123456789" if kind is KeptFile else b"abcde56789")
