"""S7 asked of a journal: every step of a slot that is bound is an edge of the lifecycle table, made by its owner; where a slot
is, what it holds and under which token are decided once, when it is placed; a generation of a workload names one template. With
it S1 (one binding a slot), and S9 of the token a step came under, and of the session of the agent that made it.

Owns which slot is bound as what, and which reservations have ended. What comes before a binding is queued.py's. Fed by
JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.commands import Command, Move, Report
from fairlead.model.kinds.capacity import Node, Reservation
from fairlead.model.kinds.intent import Template
from fairlead.model.kinds.work import Binding, Revision
from fairlead.model.lifecycle import AUTHORITY_STEPS, STEPS, Role, SlotState

BATCH_MS: Final = 1_000  # a batch has the time at which it was begun; whoever is judged by the clock may have come later

Found = Callable[[str, str], None]


class StepChecker:
    """Tell it of every change before it is applied."""

    def __init__(self, objects: Mapping[str, Mapping[tuple[str, str], Any]], found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._slots: dict[tuple[str, int], tuple[str, str]] = {}
        self._ended: set[str] = set()  # reservations, by uid
        self._templates: dict[tuple[str, int], Template] = {}  # of each generation of a workload, by its uid

    def binding(self, command: Command | None, old: Binding | None, new: Binding | None) -> bool:
        """Whether something may use more than before."""
        self._checked["S7"] += 1
        role = command.caller.role if command is not None else None
        if new is None:
            if old is not None:
                self._gone(old)
            return False
        if old is None:
            self._bound(new, role)
            return True
        if old.status.state is not new.status.state:
            self._step(command, old, new)
        if old.spec == new.spec and old.metadata.uid == new.metadata.uid:
            return False
        return self._changed(old, new, role)

    def reservation(self, command: Command | None, old: Reservation | None, new: Reservation | None, now_ms: int) -> bool:
        """The same. What is reserved is never changed: it ends, once (S8). But of a room that a budget holds a claimer may take a
        part, and give it back; neither raises anything, as the claimer's binding begins or ends in the same entry."""
        if old is None:
            return new is not None
        if new is not None:
            changed = old.spec != new.spec or old.metadata.uid != new.metadata.uid
            if not changed or _is_shared(old, new):
                return False
            self._found("S7", f"reservation {new.metadata.name} was changed while it was held")
            return True
        self._checked["S8"] += 1
        end = old.spec.expiry_time
        by_repair = command is not None and command.caller.role is Role.REPAIR
        if by_repair and end is not None and now_ms + BATCH_MS < end.timestamp() * 1000:
            self._found("S7", f"reservation {old.metadata.name} was ended by repair before it ran out")
        if old.metadata.uid in self._ended:
            self._found("S8", f"reservation {old.metadata.name} ended twice")
        self._ended.add(old.metadata.uid)
        return False

    def _revision(self, new: Revision) -> None:
        """Regions and agents tell what runs by its generation alone: one that named two templates would leave the first running.
        A region's history shows it also where the global plane lost the first."""
        template = new.spec.template
        if self._templates.setdefault((new.spec.workload_uid, new.spec.generation), template) != template:
            self._found("S7", f"{new.metadata.namespace}/{new.metadata.name} was of another template before")

    def generation(self, plural: str, old: Any, new: Any) -> None:
        if plural == "revisions" and new is not None:
            self._revision(new)
        if old is None or new is None or plural in ("bindings", "instances") or old.metadata.uid != new.metadata.uid:
            return
        if new.metadata.generation < old.metadata.generation:
            self._found("S7", f"{plural} {new.metadata.name}: generation went back")
        before = getattr(old.status, "observed_generation", 0)
        if getattr(new.status, "observed_generation", 0) < before:
            self._found("S7", f"{plural} {new.metadata.name}: observedGeneration went back")
        if getattr(new.status, "as_of", 0) < getattr(old.status, "as_of", 0):
            self._found("S7", f"{plural} {new.metadata.name}: an older report of its region took the place of a newer one")

    def _gone(self, old: Binding) -> None:
        if old.status.state not in (SlotState.RELEASED, SlotState.SUCCEEDED):
            self._found("S7", f"{old.metadata.name} vanished while {old.status.state.value}")
        self._slots.pop((old.spec.slot.uid, old.spec.slot.index), None)

    def _bound(self, new: Binding, role: Role | None) -> None:
        self._checked["S1"] += 1
        slot = (new.spec.slot.uid, new.spec.slot.index)
        other = self._slots.get(slot)
        if other is not None:
            self._found("S1", f"slot {slot} is bound as {other} and as {new.metadata.name}")
        self._slots[slot] = (new.metadata.namespace, new.metadata.name)
        if role is not Role.SCHEDULER:
            self._found("S7", f"{new.metadata.name} was bound by {role}")
        if new.status.state is not SlotState.BOUND:
            self._found("S7", f"{new.metadata.name} was {new.status.state.value} when it was bound")

    def _changed(self, old: Binding, new: Binding, role: Role | None) -> bool:
        """All that may change is that a provisional one comes to stay: the authority's own word, which uses nothing more."""
        name = new.metadata.name
        if new.spec.token != old.spec.token or new.spec.node != old.spec.node:
            self._found("S7", f"{name} changed its token or node while bound")
            return True
        if replace(old.spec, provisional_until_time=None) != new.spec or old.metadata.uid != new.metadata.uid:
            self._found("S7", f"{name} was changed while bound: what it holds, or whose it is")
            return True
        if role is not Role.AUTHORITY:
            self._found("S7", f"{name} was said to stay by {role}")
        return False

    def _step(self, command: Command | None, old: Binding, new: Binding) -> None:
        role = command.caller.role if command is not None else None
        before, after = old.status.state, new.status.state
        step = STEPS.get((before, after))
        by_claim = (before, after) in AUTHORITY_STEPS and role in (Role.SCHEDULER, Role.AUTHORITY)
        if step is None or (step.owner is not role and not by_claim):
            self._found("S7", f"{new.metadata.name} went from {before.value} to {after.value} by {role}")
        if role is Role.AGENT and command is not None and command.caller.node != old.spec.node:
            self._found("S7", f"{new.metadata.name} on {old.spec.node} was moved by the agent of {command.caller.node or 'none'}")
        if command is not None and isinstance(command.body, Move | Report) and command.body.token != old.spec.token:
            self._found("S9", f"{new.metadata.name} moved under token {command.body.token}, which is not its own")
        if command is not None and isinstance(command.body, Report):
            self._spoke(command.body, old)

    def _spoke(self, said: Report, old: Binding) -> None:
        """Of an agent whose session was over the newer one knows better: it may run this very life by now."""
        node: Node | None = self._objects["nodes"].get(("", old.spec.node))
        if node is not None and 0 < said.session < node.status.session:
            newer = f"session {node.status.session} speaks for {old.spec.node}"
            self._found("S9", f"{old.metadata.name} was moved by session {said.session}, and {newer}")


def _is_shared(old: Reservation, new: Reservation) -> bool:
    """One slot took a part of a budget's room, or gave it back."""
    before, after = old.spec, new.spec
    same = (old.metadata.uid, before.node, before.budget, before.index) == (
        new.metadata.uid,
        after.node,
        after.budget,
        after.index,
    )
    if not before.budget or not same or bool(before.claimer) == bool(after.claimer):
        return False
    return not after.requests.exceeding(before.requests) if after.claimer else after.owner == before.claimer
