"""Commands with parts: a cycle's proposals, a range of new slots. Each part is judged alone, by the judge of the single command,
on the state those before it leave; the answer names the ones that were refused.

What the parts share (caller, lease, evidence, the audit record) is judged, encoded and stored once. Parts are applied as they
are judged; whoever rejects the draft after all takes them back.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairlead.authority.judge.context import Context, Draft, Effect, Judgement, put
from fairlead.authority.judge.kinds import refuse_put
from fairlead.authority.judge.objects import put_object
from fairlead.authority.judge.placing import bind
from fairlead.decide.admission import faults
from fairlead.model.commands import BindMany, Caller, Enqueue, Put, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.meta import Evidence
from fairlead.model.registry import KINDS
from fairlead.model.settling import settled

# At 30 us each a command of this many parts keeps the loop for 8 ms (P17: no callback over 10 ms), and its entry stays far below
# what a batch may hold.
PARTS_MAX: Final = 256

_REQUESTS: Final = "schedulingrequests"
_INFO: Final = KINDS[_REQUESTS]


class _Parts:
    """What the parts of one command have done so far."""

    def __init__(self, ctx: Context) -> None:
        self._state = ctx.state
        self._place = ctx.state.place
        self._mark = ctx.state.position
        self.effects: list[Effect] = []
        self.soft: dict[str, int] = {}
        self.refused: list[tuple[int, Refused]] = []
        self.last = self._mark

    def take(self, index: int, judged: Judgement) -> None:
        if type(judged) is Refused:
            self.refused.append((index, judged))
            return
        for effect in judged.effects:
            self._place(effect)
        self.effects += judged.effects
        for node, observed_ms in judged.soft:
            self.soft[node] = observed_ms

    def undo(self) -> None:
        self._state.undo_to(self._mark)

    def draft(self, object_key: str) -> Draft:
        return Draft(
            self.effects,
            object_key,
            position=self._state.position,
            soft=tuple(self.soft.items()),
            placed=True,
            refused=tuple(self.refused),
        )


def bind_many(ctx: Context, caller: Caller, body: BindMany, evidence: Evidence | None) -> Judgement:
    if not 1 <= len(body.binds) <= PARTS_MAX:
        return Refused("TooLarge", f"{len(body.binds)} binds in one command, from 1 to {PARTS_MAX}; send several")
    parts = _Parts(ctx)
    try:
        for index, one in enumerate(body.binds):
            parts.take(index, bind(ctx, caller, one, evidence))
    except BaseException:
        parts.undo()
        raise
    last = body.binds[-1]
    return parts.draft(key("bindings", last.tenant, last.name))


def enqueue(ctx: Context, caller: Caller, body: Enqueue, evidence: Evidence | None) -> Judgement:
    if not 1 <= body.count <= PARTS_MAX:
        return Refused("TooLarge", f"{body.count} slots in one command, from 1 to {PARTS_MAX}; send several")
    first = settled(body.request)
    found = faults(_INFO, first, None)
    if found:
        detail = f"SchedulingRequest {first.metadata.name}: {found[0].path}: {found[0].message}"
        return Refused("Invalid", detail, faults=found)
    parts = _Parts(ctx)
    try:
        for index in range(body.count):
            parts.take(index, _enqueue_one(ctx, caller, first, index))
    except BaseException:
        parts.undo()
        raise
    if len(parts.refused) == body.count:
        return parts.refused[0][1]
    slot = first.spec.slot
    return parts.draft(key(_REQUESTS, first.metadata.namespace, f"{slot.workload}-{slot.index + body.count - 1}"))


def _enqueue_one(ctx: Context, caller: Caller, first: SchedulingRequest, offset: int) -> Judgement:
    slot = first.spec.slot
    name, tenant = f"{slot.workload}-{slot.index + offset}", first.metadata.namespace
    metadata = replace(first.metadata, name=name, uid=ctx.next_uid(), generation=1, creation_time=ctx.now, deletion_time=None)
    spec = replace(first.spec, slot=replace(slot, index=slot.index + offset))
    if ctx.state.get(_REQUESTS, tenant, name) is not None:
        return put_object(ctx, caller, Put("SchedulingRequest", SchedulingRequest(metadata=replace(metadata, uid=""), spec=spec)))
    request = SchedulingRequest(metadata=metadata, spec=spec)
    refused = refuse_put(ctx, caller, _INFO, request, None)
    if refused is not None:
        return refused
    if ctx.state.get("bindings", tenant, name) is not None:  # a next life: repair's step, one slot at a time
        return put_object(ctx, caller, Put("SchedulingRequest", SchedulingRequest(metadata=replace(metadata, uid=""), spec=spec)))
    return Draft([put(_REQUESTS, tenant, name, request)])
