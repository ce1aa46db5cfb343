"""S7 asked of what comes before a binding: a slot is queued, reserved and put back by whoever owns that step in the lifecycle
table, and a reservation is there exactly while its slot is said to be reserved; and S8 of a budget's room that is given back.

Owns what the present entry did to requests and reservations, and nothing beyond it. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fairlead.model.kinds.capacity import Reservation
from fairlead.model.kinds.work import Binding, SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState, may_step
from fairlead.observe.given_back import is_for_sale

Found = Callable[[str, str], None]
At = tuple[str, str]  # tenant and name

_PUT_BACK: Final = (SlotState.RESERVED, SlotState.PENDING)


class QueuedChecker:
    """Tell it of every change before it is applied, and when the entry is over."""

    def __init__(self, objects: Mapping[str, Mapping[At, Any]], found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._reserved: list[At] = []  # slots that were reserved, or whose reservation ended or began
        self._rooms: list[At] = []  # of budgets, that are held anew
        self._given_back: dict[At, Binding] = {}  # rooms, and their claimers that were released

    def request(self, at: At, old: SchedulingRequest | None, new: SchedulingRequest | None, role: Role | None) -> None:
        if new is None:
            return
        self._checked["S7"] += 1
        if old is not None and old.metadata.uid != new.metadata.uid:
            self._found("S7", f"request {at[1]} became another one while it waited")
        before, after = self._state(at, old), new.status.state
        if old is not None and before is after:
            return
        if SlotState.RESERVED in (before, after):
            self._reserved.append(at)
        if not _may(before, after, role, standing=new.spec.standing):
            was = before.value if before is not None else "new"
            self._found("S7", f"request {at[1]} went from {was} to {after.value} by {role}")

    def reservation(self, at: At, old: Reservation | None, new: Reservation | None, role: Role | None) -> None:
        if old is not None and new is not None:
            return  # what may change of one is StepChecker's
        one = new or old
        assert one is not None, "something has changed"
        if not one.spec.budget:
            self._reserved.append(at)
        elif new is not None and role is not Role.SCHEDULER:
            self._rooms.append(at)
        if new is not None and not new.spec.budget and role is not Role.SCHEDULER:
            self._found("S7", f"{at[1]} was reserved on {new.spec.node} by {role}")

    def binding(self, at: At, old: Binding | None, new: Binding | None) -> None:
        ended = old is not None and new is not None and new.status.state is SlotState.RELEASED is not old.status.state
        if ended and new is not None and new.spec.claimed:
            self._given_back[at[0], new.spec.claimed] = new

    def entry_ended(self, role: Role | None, incarnation: int, now_ms: int) -> None:
        """Everything is applied."""
        if not (self._reserved or self._rooms or self._given_back):
            return
        for at in dict.fromkeys(self._reserved):
            request = self._objects["schedulingrequests"].get(at)
            held = self._objects["reservations"].get(at)
            said = request is not None and request.status.state is SlotState.RESERVED
            if said is not (held is not None and not held.spec.budget):
                self._found("S7", f"{at[1]} {'is' if said else 'is not'} said to be reserved, and its reservation says otherwise")
        for at in self._rooms:
            if at not in self._given_back:
                self._found("S7", f"room {at[1]} is held by {role}, and nobody gave it back")
        for at, released in self._given_back.items():
            self._checked["S8"] += 1
            if is_for_sale(released, self._objects, incarnation, now_ms):
                self._found("S8", f"room {at[1]} was given back by {released.metadata.name}, and is held by nobody")
        self._reserved.clear()
        self._rooms.clear()
        self._given_back.clear()

    def _state(self, at: At, old: SchedulingRequest | None) -> SlotState | None:
        """What its slot is so far. Where nothing waits, the life before this one may be there still."""
        if old is not None:
            return old.status.state
        binding: Binding | None = self._objects["bindings"].get(at)
        return binding.status.state if binding is not None else None


def _may(before: SlotState | None, after: SlotState, role: Role | None, *, standing: bool) -> bool:
    if role is None:
        return False
    if standing and before is None:
        return role is Role.RECOVERY and after is SlotState.PENDING  # a budget's room, which no order has
    return may_step(before, after, role) or ((before, after) == _PUT_BACK and role is Role.REPAIR)
