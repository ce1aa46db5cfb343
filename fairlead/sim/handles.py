"""Owns what the seeded loop hands out and what it raises: futures, tasks, handles of callbacks and timers, errors.

The handles are asyncio's without what a loop in debug mode keeps; there are some of them for every step. Never runs anything
itself: fairlead/sim/loop.py does.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# A step of a task: asyncio keeps no handle of these, and there are more of them than of all else, so they have none.
Call = tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]


class SimError(Exception):
    """The simulation itself cannot go on. Never raised for what the simulated program does."""


class SimDeadlock(SimError):
    """Nothing is ready and no timer is set, yet the main task waits."""


class SimOverrun(SimError):
    """More steps than any real run needs."""


class SimForbidden(SimError):
    """The program reached for a thread."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a run came to. Two runs of one seed are equal in every field."""

    value: T
    steps: int
    simulated_s: float
    trace: str


class SimFuture(asyncio.Future[T]):
    """A future whose hash is its serial number in its loop, which gives it that as it makes it."""

    __slots__ = ("serial",)

    serial: int

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[T]):
    """A task whose hash and default name come from its serial number in its loop."""

    __slots__ = ("process", "serial")

    def __init__(
        self,
        serial: int,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        loop: Any,
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self.serial = serial  # Before super(): the base class already puts the task into a set.
        self.process = loop.current
        super().__init__(coro, loop=loop, name=name or f"task-{serial}", context=context)

    def __hash__(self) -> int:
        return self.serial


class SimHandle(asyncio.Handle):
    __slots__ = ()

    _repr = None  # what only a debugging loop fills in, set once for all
    _source_traceback = None
    _context: contextvars.Context
    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _cancelled: bool

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: contextvars.Context | None = None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]  # what it holds may go


class SimTimer(asyncio.TimerHandle):
    __slots__ = ()

    _repr = None
    _source_traceback = None
    _context: contextvars.Context
    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _cancelled: bool
    _scheduled: bool

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: contextvars.Context | None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            self._loop._timer_handle_cancelled(self)
