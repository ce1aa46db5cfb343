"""Owns what the loop knows of a simulated machine and of a simulated process: how its clock runs, whether it may run at all.

Holds no behaviour of machines beyond that; fairlead/sim/machines.py builds on it. Read by fairlead/sim/loop.py at every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

# The shortest wait there is. A clock that counts from far away is coarser than true time: who waits for less than it can show
# would be woken when by that clock no time has passed, and wait again without end.
WAIT_MIN_S: Final = 1e-9


class HostClock:
    """A machine's own reckoning: it began somewhere and runs a little too fast or too slow."""

    __slots__ = ("_at", "_local", "rate", "wall_s")

    def __init__(self, local_s: float = 0.0, rate: float = 1.0, wall_s: float = 0.0) -> None:
        self._at = 0.0
        self._local = local_s
        self.rate = rate
        self.wall_s = wall_s  # what the wall clock shows beyond the monotonic one; a step changes it

    def local(self, now_s: float) -> float:
        return self._local + (now_s - self._at) * self.rate

    def due(self, local_s: float, now_s: float, waits: bool) -> float:
        """The true time at which a timer for that moment rings. `waits`: it was set for later than now."""
        true_s = self._at + (local_s - self._local) / self.rate
        return now_s + WAIT_MIN_S if waits and true_s - now_s < WAIT_MIN_S else true_s

    def run_at(self, rate: float, now_s: float) -> None:
        """From now on it runs at another rate. Timers that stand keep the moment they were set for."""
        self._local, self._at, self.rate = self.local(now_s), now_s, rate


class Process:
    """Whose steps they are. Made by the world's machines; the loop only asks whether it may run."""

    __slots__ = ("clock", "dead", "kept", "name", "parked", "paused")

    def __init__(self, name: str, clock: HostClock) -> None:
        self.name = name
        self.clock = clock
        self.paused = False
        self.dead = False
        self.parked: list[Any] = []  # what would have run while it was paused
        self.kept: list[Any] = []  # of a dead one: destroying its coroutines would run their `finally`


def label_of(callback: Callable[..., object]) -> str:
    return getattr(callback, "__qualname__", None) or type(callback).__name__


def place_of(task: asyncio.Task[Any]) -> str:
    """Where it waits, for people to read."""
    frames = task.get_stack(limit=1)
    if not frames:
        return "no frame"
    code = frames[-1].f_code
    return f"{code.co_qualname}:{frames[-1].f_lineno}"
