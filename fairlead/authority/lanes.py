"""The queue before the judge: three lanes with bounds. Leases and the authority's own work never wait behind anyone's bulk; a
full lane says so at once instead of growing."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from fairlead.model.commands import Command, LeaseAcquire, LeaseRelease, LeaseRenew, Outcome, Refused
from fairlead.model.lifecycle import Role

SYSTEM: Final = 0
COMPONENTS: Final = 1
TENANTS: Final = 2

# Commands that may wait in each lane. At 20,000 a second the longest wait is a few seconds; beyond that, waiting is failing.
LANE_COMMANDS_MAX: Final = (10_000, 50_000, 20_000)
_LEASES: Final = frozenset({LeaseAcquire, LeaseRenew, LeaseRelease})
# Of every four turns the components' lane gets three, so neither starves the other.
_TURNS: Final = (COMPONENTS, COMPONENTS, COMPONENTS, TENANTS)


class Call:
    """Commands sent together. Each is judged alone; the caller hears when all have an answer."""

    __slots__ = ("commands", "done", "history", "next", "outcomes", "waiting")

    def __init__(self, commands: list[Command], done: asyncio.Future[list[Outcome]]) -> None:
        self.commands = commands
        self.done = done
        self.next = 0  # the first command not judged yet
        self.history = 0  # how often a batch had been taken back when this was sent
        self.waiting = len(commands)
        self.outcomes: list[Outcome | None] = [None] * len(commands)

    def answer(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        self.waiting -= 1
        if self.waiting == 0 and not self.done.done():
            self.done.set_result(self.outcomes)  # type: ignore[arg-type]


def lane_of(commands: list[Command]) -> int:
    first = commands[0]
    if type(first.body) in _LEASES or first.caller.role is Role.AUTHORITY:
        return SYSTEM
    return TENANTS if first.caller.role in (Role.USER, Role.OPERATOR) else COMPONENTS


class Lanes:
    def __init__(self, bounds: tuple[int, int, int] = LANE_COMMANDS_MAX) -> None:
        self._bounds = bounds
        self._calls: tuple[deque[Call], deque[Call], deque[Call]] = (deque(), deque(), deque())
        self._waiting = [0, 0, 0]
        self._turn = 0
        self.history = 0

    def __len__(self) -> int:
        system, components, tenants = self._waiting
        return system + components + tenants

    def put(self, call: Call) -> Refused | None:
        lane = lane_of(call.commands)
        waiting = self._waiting[lane]
        if waiting and waiting + len(call.commands) > self._bounds[lane]:
            return Refused("Overloaded", f"{waiting} commands wait already", {"waiting": waiting}, retry_after_s=1.0)
        call.history = self.history
        self._calls[lane].append(call)
        self._waiting[lane] += len(call.commands)
        return None

    def take(self) -> Call | None:
        """The call whose turn it is. Put it back with `unfinished` if commands of it remain."""
        if self._calls[SYSTEM]:
            return self._pop(SYSTEM)
        for _ in _TURNS:
            lane = _TURNS[self._turn]
            self._turn = (self._turn + 1) % len(_TURNS)
            if self._calls[lane]:
                return self._pop(lane)
        return None

    def _pop(self, lane: int) -> Call:
        call = self._calls[lane].popleft()
        self._waiting[lane] -= len(call.commands) - call.next
        return call

    def unfinished(self, call: Call) -> None:
        lane = lane_of(call.commands)
        self._calls[lane].appendleft(call)
        self._waiting[lane] += len(call.commands) - call.next

    def drain(self) -> list[Call]:
        out = [call for lane in self._calls for call in lane]
        for lane in self._calls:
            lane.clear()
        self._waiting = [0, 0, 0]
        return out
