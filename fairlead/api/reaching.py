"""What an override will touch, told as a warning to whoever creates one, also in a dry run. Called by writing.py.

Owns the counting and its words; whom an override is about, decide/overrides.py says. Counts are of the moment, and bounded: more
workloads than it looks at are said to be more.
"""

from __future__ import annotations

from typing import Final

from fairlead.api.calls import Call
from fairlead.api.members import Member
from fairlead.decide.overrides import EVERYONE, Where, concerns, tenants_of
from fairlead.model import codec
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.policy import Override

LOOKED_AT_MAX: Final = 5_000
_decode = codec.decoder(Workload).decode


async def warn_of_reach(call: Call, member: Member, override: Override) -> None:
    tenants = tenants_of(override)
    workloads = slots = serving = looked = 0
    more = ""
    for tenant in (None,) if EVERYONE in tenants else tenants:
        after = ("", "")
        while looked < LOOKED_AT_MAX:
            page = await member.plane.page("workloads", tenant, after=after)
            for change in page.items:
                workload = _decode(change.raw) if change.raw is not None else None
                looked += 1
                if workload is not None and _is_touched(override, workload):
                    counts = workload.status.replicas
                    workloads, slots, serving = workloads + 1, slots + counts.bound, serving + counts.serving
            if not page.next_name:
                break
            after = (page.next_tenant, page.next_name)
        else:
            more = "at least "
    call.warn(f"this override touches {more}{workloads} workloads with {slots} slots, {serving} of them serving")


def _is_touched(override: Override, workload: Workload) -> bool:
    scope, meta = override.spec.scope, workload.metadata
    regions = {row.region for row in workload.status.regions} or set(scope.regions)
    zone = next(iter(scope.zones), "")
    where = [Where(meta.namespace, meta.name, region, zone) for region in sorted(regions) or [""]]
    return any(concerns(override, each) for each in where)
