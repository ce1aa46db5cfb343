"""Owns commands that come in pairs nobody would send: a slot's request as it once was and a placement by it, a reservation and
what must not come of it, the end of what is nobody else's to end.

Each asks one guard of a commit alone, and what follows in the same call shows the harm where that guard is out: a slot that lives
under a token it had before, say. The authority must refuse the first of them, and then the rest. Pure. Called by strays.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.queueing import first_epoch
from fairlead.model.commands import (
    Bind,
    Caller,
    Command,
    Delete,
    Enqueue,
    Move,
    Put,
    PutStatus,
    ReleaseReservation,
    Report,
    Reserve,
)
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Assignment, Binding, SchedulingRequest
from fairlead.model.lifecycle import STEPS, Role, SlotState
from fairlead.model.resources import Resources
from fairlead.sim.misplaced import misplaced
from fairlead.sim.spoilt import ACTOR, HELD_S

LONG_S: Final = 400.0  # longer than anybody may reserve
TOO_LARGE: Final = 1_000_000  # a thousand cores
_GONE: Final = (SlotState.RELEASED, SlotState.SUCCEEDED)
_STRANGER: Final = Role.ROLLOUT  # to queueing and reserving; it acts in every region
_RUNS: Final = (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING)

Objects = Mapping[str, Mapping[tuple[str, str], Any]]
Slot = tuple[str, str]
Then = Callable[[Bind, Caller, SchedulingRequest], list[Command]]  # what follows on a reservation


class Ground(NamedTuple):
    """What a meddler has to go by: a plane's objects, requests as they were when they were first seen, whoever may speak, how a
    request is proposed to be bound, and whether a workload stays: what is begun in the name of one whose order is gone when it
    comes belongs to nobody, and nobody but an impostor of the assignment controller begins it."""

    objects: Objects
    region: str
    before: Mapping[Slot, SchedulingRequest]
    caller: Callable[[Role], Caller | None]
    proposal: Callable[[SchedulingRequest], Bind | None]
    stays: Callable[[SchedulingRequest], bool]

    def first(self, slot: Slot) -> SchedulingRequest | None:
        """Its request as it was once, without its status."""
        request = self.before.get(slot)
        return replace(request, status=type(request.status)()) if request is not None else None

    def order(self, slot: Slot) -> Assignment | None:
        workload = slot[1].rpartition("-")[0]
        found: Assignment | None = self.objects.get("assignments", {}).get((slot[0], f"{workload}.{self.region}"))
        return found

    def waits(self, slot: Slot) -> bool:
        return slot in self.objects.get("schedulingrequests", {})

    def bound(self, slot: Slot) -> Binding | None:
        found: Binding | None = self.objects.get("bindings", {}).get(slot)
        return found


def _vanish(ground: Ground, at: float) -> list[Command]:
    """A binding is deleted while its slot lives."""
    live = [slot for slot, binding in ground.objects.get("bindings", {}).items() if binding.status.state not in _GONE]
    slot, caller = _pick(live, at), ground.caller(Role.ASSIGNMENT)
    return [Command(caller, Delete("Binding", *slot))] if slot is not None and caller is not None else []


def _forget(ground: Ground, at: float) -> list[Command]:
    """A binding that has ended is deleted before its epoch is on record, and its slot begins as it once did."""
    slot, caller = _pick(_can_end(ground), at), ground.caller(Role.ASSIGNMENT)
    ended = _ends(ground, slot) if slot is not None else []
    if not ended or caller is None:
        return []
    return [*ended, Command(caller, Delete("Binding", *slot)), *_begins(ground, slot)]


def _begin_again(ground: Ground, at: float) -> list[Command]:
    """A slot of which nothing is here any more begins as it once did."""
    slot = _pick([slot for slot in ground.before if _is_gone(ground, slot)], at)
    return _begins(ground, slot) if slot is not None else []


def _lower_floor(ground: Ground, at: float) -> list[Command]:
    """The same, after its order was told that no epoch is on record."""
    slot, caller = _pick([slot for slot in ground.before if _is_gone(ground, slot)], at), ground.caller(Role.ASSIGNMENT)
    order = ground.order(slot) if slot is not None else None
    if slot is None or order is None or caller is None:
        return []
    status = PutStatus("Assignment", slot[0], order.metadata.name, replace(order.status, epoch_floor=0))
    return [Command(caller, status), *_begins(ground, slot)]


def _enlarge(ground: Ground, at: float) -> list[Command]:
    """What has its place reserved is replaced by what is far too large for it."""

    def then(found: Bind, caller: Caller, request: SchedulingRequest) -> list[Command]:
        assignment, spec = ground.caller(Role.ASSIGNMENT), request.spec
        asked = replace(spec.ask, requests=spec.ask.requests + Resources(cpu=TOO_LARGE))
        larger = replace(request, spec=replace(spec, generation=spec.generation + 1, ask=asked))
        if assignment is None:
            return []
        return [
            Command(assignment, Put("SchedulingRequest", larger)),
            Command(caller, replace(found, generation=larger.spec.generation)),
        ]

    return _on_its_own(ground, at, then)


def _reserve_twice(ground: Ground, at: float) -> list[Command]:
    """On one node, and then on another."""

    def then(found: Bind, caller: Caller, request: SchedulingRequest) -> list[Command]:
        others = sorted(name for _, name in ground.objects.get("nodes", {}) if name != found.node)
        other = _pick(others, at * 7919 % 1)
        return [Command(caller, _reserve(replace(found, node=other), HELD_S))] if other is not None else []

    return _on_its_own(ground, at, then)


def _reserve_long(ground: Ground, at: float) -> list[Command]:
    found, caller = _proposed(ground, at), ground.caller(Role.SCHEDULER)
    return [Command(caller, _reserve(found, LONG_S))] if found is not None and caller is not None else []


def _reserved_grant(ground: Ground, at: float) -> list[Command]:
    """What is reserved is bound on the strength of another grant."""
    return _on_its_own(
        ground, at, lambda found, caller, request: [Command(caller, replace(found, grant_version=found.grant_version + 7))]
    )


def _ask_twice(ground: Ground, at: float) -> list[Command]:
    """Whatever was said to it the first time."""
    found, caller = _proposed(ground, at), ground.caller(Role.SCHEDULER)
    return [Command(caller, found), Command(caller, found)] if found is not None and caller is not None else []


def _mended(ground: Ground, at: float) -> list[Command]:
    """Repair ends a reservation that has not run out."""

    def then(found: Bind, caller: Caller, request: SchedulingRequest) -> list[Command]:
        repair, lease = ground.caller(Role.REPAIR), ground.objects["leases"]["", caller.lease]
        token = Token(lease.spec.incarnation, found.epoch, 1)
        return [Command(repair, ReleaseReservation(found.tenant, found.name, token))] if repair is not None else []

    return _on_its_own(ground, at, then)


def _superseded(ground: Ground, at: float) -> list[Command]:
    """An agent says of a slot what it is not any more, and its session is over."""
    said = []
    for slot, binding in ground.objects.get("bindings", {}).items():
        node = ground.objects.get("nodes", {}).get(("", binding.spec.node))
        if node is None or node.status.session < 2:
            continue
        ends = [to for (before, to), step in STEPS.items() if before is binding.status.state and step.owner is Role.AGENT]
        said += [Report(*slot, binding.spec.token, to, session=node.status.session - 1) for to in ends]
    report = _pick(said, at)
    if report is None:
        return []
    node = ground.objects["bindings"][report.tenant, report.name].spec.node
    return [Command(Caller(ACTOR, Role.AGENT, node=node), report)]


def _queue_anothers(ground: Ground, at: float) -> list[Command]:
    """A slot of which nothing is here any more is asked for by whoever has no say in that."""
    slot = _pick([slot for slot in ground.before if _is_gone(ground, slot)], at)
    request, caller = ground.first(slot) if slot is not None else None, ground.caller(_STRANGER)
    return [Command(caller, Enqueue(request))] if request is not None and caller is not None else []


def _again_anothers(ground: Ground, at: float) -> list[Command]:
    """Of a slot that has ended its assignment begins the next life, which is repair's to begin."""
    slot, caller = _pick(_can_end(ground), at), ground.caller(Role.ASSIGNMENT)
    binding, request = (ground.bound(slot), ground.first(slot)) if slot is not None else (None, None)
    ended = _ends(ground, slot) if slot is not None else []
    if not ended or caller is None or binding is None or request is None:
        return []
    spec = replace(request.spec, epoch=binding.spec.token.epoch + 1, generation=binding.spec.generation)
    return [*ended, Command(caller, Put("SchedulingRequest", replace(request, spec=spec)))]


def _reserve_anothers(ground: Ground, at: float) -> list[Command]:
    return _on_its_own(ground, at, lambda found, caller, request: [], by=_STRANGER)


MEDDLING: Final[Mapping[str, Callable[[Ground, float], list[Command]]]] = {
    "vanish": _vanish,
    "forget": _forget,
    "begin-again": _begin_again,
    "lower-floor": _lower_floor,
    "enlarge": _enlarge,
    "reserve-twice": _reserve_twice,
    "reserve-long": _reserve_long,
    "reserved-grant": _reserved_grant,
    "mended": _mended,
    "ask-twice": _ask_twice,
    "superseded": _superseded,
    "queue-anothers": _queue_anothers,
    "again-anothers": _again_anothers,
    "reserve-anothers": _reserve_anothers,
}


# --- parts -----------------------------------------------------------------------------------------------------------------


def _is_gone(ground: Ground, slot: Slot) -> bool:
    there = ground.waits(slot) or ground.bound(slot) is not None or ground.order(slot) is None
    return not there and ground.stays(ground.before[slot])


def _can_end(ground: Ground) -> list[Slot]:
    """Slots that may be said to have failed whatever they do: nothing is promised of how many copies of them run."""
    return [
        slot
        for slot, binding in ground.objects.get("bindings", {}).items()
        if binding.status.state in _RUNS
        and binding.spec.execution != "Exclusive"
        and slot in ground.before
        and ground.before[slot].spec.slot == binding.spec.slot
        and ground.stays(ground.before[slot])
    ]


def _ends(ground: Ground, slot: Slot) -> list[Command]:
    """As its agent and repair would say it."""
    spec, repair = ground.objects["bindings"][slot].spec, ground.caller(Role.REPAIR)
    if repair is None:
        return []
    failed = Command(Caller(ACTOR, Role.AGENT, node=spec.node), Report(*slot, spec.token, SlotState.FAILED))
    return [failed, Command(repair, Move(*slot, spec.token, SlotState.RELEASED, ACTOR))]


def _begins(ground: Ground, slot: Slot) -> list[Command]:
    request, caller = ground.first(slot), ground.caller(Role.ASSIGNMENT)
    if request is None or caller is None:
        return []
    return [Command(caller, Enqueue(request)), *_placed(ground, request)]


def _placed(ground: Ground, request: SchedulingRequest) -> list[Command]:
    bind, caller = ground.proposal(request), ground.caller(Role.SCHEDULER)
    return [Command(caller, bind)] if bind is not None and caller is not None else []


def _on_its_own(ground: Ground, at: float, then: Then, by: Role = Role.SCHEDULER) -> list[Command]:
    """The like of a slot that once waited is asked for under an index of its own, reserved, and withdrawn after what is to be
    refused: few wait at any moment."""
    known = _pick([request for slot, request in ground.before.items() if ground.order(slot) is not None], at)
    assignment, scheduler = ground.caller(Role.ASSIGNMENT), ground.caller(by)
    order = ground.order((known.metadata.namespace, known.metadata.name)) if known is not None else None
    # Under an epoch that its assignment may give it: one beyond all that were given out would stay on record.
    request = misplaced(known, "", int(at * 100), first_epoch(order)) if known is not None and order is not None else None
    bind = ground.proposal(request) if request is not None else None
    if request is None or bind is None or assignment is None or scheduler is None:
        return []
    asked, held = Command(assignment, Enqueue(request)), Command(scheduler, _reserve(bind, HELD_S))
    withdrawn = Command(assignment, Delete("SchedulingRequest", bind.tenant, bind.name))
    return [asked, held, *then(bind, scheduler, request), withdrawn]


def _proposed(ground: Ground, at: float) -> Bind | None:
    waiting = [r for r in ground.objects.get("schedulingrequests", {}).values() if r.status.state is SlotState.PENDING]
    request = _pick(waiting, at)
    return ground.proposal(request) if request is not None else None


def _reserve(bind: Bind, ttl_s: float) -> Reserve:
    return Reserve(
        bind.tenant, bind.name, bind.epoch, bind.generation, bind.node, bind.policy_revision, bind.grant_version, ttl_s
    )


def _pick(options: Sequence[Any], at: float) -> Any:
    return options[int(at * len(options))] if options else None
