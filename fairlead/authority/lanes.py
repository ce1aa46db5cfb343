"""The queue before the judge: three lanes with bounds. Leases and the authority's own work never wait behind anyone's bulk; a
full lane says so at once instead of growing. In the lane of people each tenant has a queue of its own: they are served in turn,
and none may wait with more than it leaves free, so that nobody's flood keeps anybody else out or waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from fairlead.model.commands import Command, LeaseAcquire, LeaseRelease, LeaseRenew, Outcome, Refused
from fairlead.model.lifecycle import Role

SYSTEM: Final = 0
COMPONENTS: Final = 1
TENANTS: Final = 2

# Commands that may wait in each lane. At 20,000 a second the longest wait is a few seconds; beyond that, waiting is failing.
LANE_COMMANDS_MAX: Final = (10_000, 50_000, 20_000)
_LEASES: Final = frozenset({LeaseAcquire, LeaseRenew, LeaseRelease})
PEOPLE: Final = (Role.USER, Role.OPERATOR)
# Of every four turns the components' lane gets three, so neither starves the other.
_TURNS: Final = (COMPONENTS, COMPONENTS, COMPONENTS, TENANTS)


class Call:
    """Commands sent together. Each is judged alone; the caller hears when all have an answer."""

    __slots__ = ("commands", "done", "history", "is_of_people", "next", "outcomes", "waiting")

    def __init__(self, commands: list[Command], done: asyncio.Future[list[Outcome]]) -> None:
        self.commands = commands
        self.is_of_people = commands[0].caller.role in PEOPLE
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
    return TENANTS if first.caller.role in PEOPLE else COMPONENTS


class _Queue:
    """Of one tenant, or of one person who has none."""

    __slots__ = ("calls", "waiting", "who")

    def __init__(self, who: str) -> None:
        self.who = who
        self.calls: deque[Call] = deque()
        self.waiting = 0  # commands


class _People:
    """Their lane. Whoever has something waiting is in `_turns` once."""

    __slots__ = ("_of", "_turns")

    def __init__(self) -> None:
        self._of: dict[str, _Queue] = {}
        self._turns: deque[_Queue] = deque()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def waiting(self, call: Call) -> int:
        queue = self._of.get(_who(call))
        return queue.waiting if queue is not None else 0

    def append(self, call: Call) -> None:
        queue = self._queue(call)
        queue.calls.append(call)
        queue.waiting += len(call.commands)

    def appendleft(self, call: Call) -> None:
        """Before whatever else its sender has here; it is the others' turn first, or a long call would be one long turn."""
        queue = self._queue(call)
        queue.calls.appendleft(call)
        queue.waiting += len(call.commands) - call.next

    def popleft(self) -> Call:
        queue = self._turns.popleft()
        call = queue.calls.popleft()
        queue.waiting -= len(call.commands) - call.next
        if queue.calls:
            self._turns.append(queue)
        else:
            del self._of[queue.who]
        return call

    def __iter__(self) -> Iterator[Call]:
        return (call for queue in self._turns for call in queue.calls)

    def clear(self) -> None:
        self._of.clear()
        self._turns.clear()

    def _queue(self, call: Call) -> _Queue:
        who = _who(call)
        queue = self._of.get(who)
        if queue is None:
            queue = self._of[who] = _Queue(who)
            self._turns.append(queue)
        return queue


def _who(call: Call) -> str:
    caller = call.commands[0].caller
    return caller.tenant or caller.actor


class Lanes:
    def __init__(self, bounds: tuple[int, int, int] = LANE_COMMANDS_MAX) -> None:
        self._bounds = bounds
        self._people = _People()
        self._calls: tuple[deque[Call], deque[Call], _People] = (deque(), deque(), self._people)
        self._waiting = [0, 0, 0]
        self._turn = 0
        self.history = 0

    def __len__(self) -> int:
        system, components, tenants = self._waiting
        return system + components + tenants

    def put(self, call: Call) -> Refused | None:
        lane = lane_of(call.commands)
        waiting = self._waiting[lane]
        # A tenant may wait with as much as it leaves free: alone with half of the lane, as one of two that flood it with a third.
        own = self._people.waiting(call) if lane == TENANTS else 0
        if waiting and own + waiting + len(call.commands) > self._bounds[lane]:
            return Refused(
                "Overloaded", f"{own or waiting} commands wait already", {"waiting": own or waiting}, retry_after_s=1.0
            )
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
