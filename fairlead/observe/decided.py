"""Asked of a journal: what a placement says it was decided on was in force when it was committed. The slot's epoch (S9), the
generation (S7), the grant's version (S4), a reservation that had not run out (S8), and one life at a time (S1). That a slot is
never bound under a token that is not above all it had (S9). And what was reserved for a slot, or held and claimed by it, has
ended with the entry that binds it (S8); and its node was heard of late (S2).

Owns its own memory of requests and tokens, and shares nothing with the judge but the model. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fairlead.model.commands import Bind, BindGang, BindMany, Body, Reserve
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.policy import SchedulerPolicy
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]
_ONE: Final = (Bind, Reserve)
_SEVERAL: Final = (BindMany, BindGang)


class DecidedChecker:
    """Tell it of every change of an entry before it is applied, and of the entry's end."""

    def __init__(self, objects: Objects, found: Found) -> None:
        self._objects = objects
        self._found = found
        self._requests: dict[Slot, Any] = {}  # as they were before this entry changed them
        self._reservations: dict[Slot, Any] = {}  # that ended in this entry
        self._placed: list[Slot] = []
        self._tokens: dict[Slot, Token] = {}  # the last that each slot was bound under, ever
        self._taken: list[tuple[Slot, Slot]] = []  # what was bound, and the reservations it stands in the place of

    def changed(self, plural: str, slot: Slot, old: Any, new: Any) -> None:
        if plural == "schedulingrequests" and old is not None:
            self._requests.setdefault(slot, old)
        elif plural == "reservations":
            if new is None and old is not None:
                self._reservations[slot] = old
            elif old is None and new is not None and new.spec.slot is not None:
                self._placed.append(slot)
        elif plural == "bindings" and new is not None:
            if old is None or old.spec.token != new.spec.token:
                self._begins(slot, new)
            if old is None:
                self._placed.append(slot)
                self._taken.append((slot, slot))
                if new.spec.claimed:
                    self._taken.append((slot, (slot[0], new.spec.claimed)))
            elif old.spec.token != new.spec.token:
                self._found("S1", f"{slot[0]}/{slot[1]} was bound again while it was {old.status.state.value}")

    def _begins(self, slot: Slot, binding: Binding) -> None:
        """Agents refuse a lower token; the same one again they would take for the life that had it before. Asked of what was
        ordered: of a slot that has no assignment nobody keeps which epochs it had."""
        last, token = self._tokens.get(slot), binding.spec.token
        node = self._objects["nodes"].get(("", binding.spec.node))
        order = f"{binding.spec.slot.workload}.{node.spec.region}" if node is not None else ""
        if last is not None and token <= last and (slot[0], order) in self._objects["assignments"]:
            self._found("S9", f"{slot[0]}/{slot[1]} was bound under token {_text(token)}, after {_text(last)}")
        self._tokens[slot] = token

    def entry_ended(self, body: Body | None, time_ms: int, actor: str, heard: Sequence[tuple[str, int]] = ()) -> None:
        """`heard`: of the nodes that were judged, when each was heard last."""
        for bind in _placements(body):
            slot = (bind.tenant, bind.name)
            if slot in self._placed:
                self._judge(bind, slot, time_ms, actor)
                if slot not in self._reservations:  # that was asked when it was reserved
                    self._heard(bind, time_ms, dict(heard))
        for slot, reserved in self._taken:
            left = self._objects["reservations"].get(reserved)
            if left is not None and left.spec.claimer != slot[1]:  # else it is the rest of a room that was larger
                self._found("S8", f"{'/'.join(slot)} was bound, and reservation {reserved[1]} is there still")
        self._taken.clear()
        self._requests.clear()
        self._reservations.clear()
        self._placed.clear()

    def _judge(self, bind: Bind | Reserve, slot: Slot, time_ms: int, actor: str) -> None:
        request = self._requests.get(slot)
        if request is None:
            return  # S6 says that nobody had asked for it
        name = f"{slot[0]}/{slot[1]}"
        if bind.epoch != request.spec.epoch:
            self._found("S9", f"{name} was placed for slot epoch {bind.epoch}; it waits at {request.spec.epoch}")
        if bind.generation != request.spec.generation:
            self._found("S7", f"{name} was placed for generation {bind.generation}; it waits at {request.spec.generation}")
        grants: list[Grant] = [g for (tenant, _), g in self._objects["grants"].items() if tenant == slot[0]]
        if grants and not any(bind.grant_version in _versions(grant) for grant in grants):
            self._found("S4", f"{name} was placed under grant version {bind.grant_version}, which is not in force")
        held = self._reservations.get(slot)
        if held is not None and held.spec.expiry_time is not None and held.spec.expiry_time.timestamp() * 1000 <= time_ms:
            self._found("S8", f"{name} was bound by a reservation that had run out")
        if held is not None and (held.spec.node, held.spec.owner) != (bind.node, actor):
            whose = f"{held.spec.owner} had reserved on {held.spec.node}"
            self._found("S8", f"{name} was bound to {bind.node} by {actor}; {whose}")

    def _heard(self, bind: Bind | Reserve, time_ms: int, heard: dict[str, int]) -> None:
        """No later than any class of work may rely on under that policy (P10): a node that nobody hears may not be there."""
        policy: SchedulerPolicy | None = self._objects["schedulerpolicies"].get(("", f"r{bind.policy_revision}"))
        if policy is None or bind.node not in heard:
            return
        spec = policy.spec
        bound_s = max([spec.max_observation_age_seconds, *(each.max_observation_age_seconds for each in spec.workload_classes)])
        if time_ms - heard[bind.node] > bound_s * 1000:
            ago_s = (time_ms - heard[bind.node]) / 1000
            self._found("S2", f"{bind.tenant}/{bind.name} was placed on {bind.node}, which was heard {ago_s:.0f} s before")


def _text(token: Token) -> str:
    return f"{token.incarnation}-{token.epoch}-{token.attempt}"


def _placements(body: Body | None) -> Iterable[Bind | Reserve]:
    if isinstance(body, _ONE):
        return (body,)
    return body.binds if isinstance(body, _SEVERAL) else ()


def _versions(grant: Grant) -> set[int]:
    """The offer itself; with leases, also those the region may still stand on (P13)."""
    return {grant.spec.version, grant.status.accepted_version, *(offer.version for offer in grant.spec.offers)} - {0}
