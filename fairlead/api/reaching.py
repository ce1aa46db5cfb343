"""What an override will touch, told as a warning to whoever creates one, also in a dry run. Called by writing.py.

Owns the counting and its words; whom an override is about, decide/overrides.py says. Counts are of the moment, and bounded: more
workloads than it looks at are said to be more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from fairlead.api.calls import Call
from fairlead.api.members import Member
from fairlead.decide.overrides import EVERYONE, Where, concerns, node_words, tenants_of, touches
from fairlead.model import codec
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import SlotState

LOOKED_AT_MAX: Final = 5_000
_decode = codec.decoder(Workload).decode
_decode_binding = codec.decoder(Binding).decode

T = TypeVar("T")


async def warn_of_reach(call: Call, member: Member, override: Override) -> None:
    workloads = slots = serving = looked = 0
    async for workload in _all(member, "workloads", override, _decode):
        looked += 1
        if _is_touched(override, workload):
            counts = workload.status.replicas
            workloads, slots, serving = workloads + 1, slots + counts.bound, serving + counts.serving
    if not looked:  # a region's plane has no workloads, only what is bound of them there
        names, scope = set(), override.spec.scope
        zone = next(iter(scope.zones), "")
        async for binding in _all(member, "bindings", override, _decode_binding):
            looked += 1
            name = (binding.metadata.namespace, binding.spec.slot.workload)
            if any(concerns(override, Where(*name, region, zone)) for region in scope.regions or ("",)):
                names.add(name)
                slots, serving = slots + 1, serving + (binding.status.state is SlotState.SERVING)
        workloads = len(names)
    more = "at least " if looked >= LOOKED_AT_MAX else ""
    nodes = f"; {node_words(override)}" if override.spec.kind == "autoscaler-pause" else ""
    call.warn(f"this override touches {more}{workloads} workloads with {slots} slots, {serving} of them serving{nodes}")


async def _all(member: Member, plural: str, override: Override, decode: Callable[[bytes], T]) -> AsyncIterator[T]:
    """Those of the tenants it is about, as many as are looked at."""
    tenants, looked = tenants_of(override), 0
    for tenant in (None,) if EVERYONE in tenants else tenants:
        after = ("", "")
        while looked < LOOKED_AT_MAX:
            page = await member.plane.page(plural, tenant, after=after)
            for change in page.items:
                if change.raw is not None:
                    looked += 1
                    yield decode(change.raw)
            if not page.next_name:
                break
            after = (page.next_tenant, page.next_name)


def _is_touched(override: Override, workload: Workload) -> bool:
    meta = workload.metadata
    return touches(override, meta.namespace, meta.name, {row.region for row in workload.status.regions})
