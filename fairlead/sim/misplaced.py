"""Owns slots that are asked for where they may not be: in a region, a zone or an area that their own workload or the policy in
force rules out.

The global plane asks no region for such a slot, so no request of one ever waits there, and whatever a proposal is wrong about,
none of these guards is asked. Here one is asked for all the same, by whoever was late. Pure. Called by strays.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.kinds.intent import RegionRule, Residency
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.meta import Metadata

RULES: Final = ("regions", "zones", "areas", "policy")  # that keep a slot away
ELSEWHERE: Final = "elsewhere"  # the name of no region, zone or area
FIRST: Final = 900  # of the indices that no workload reaches
EPOCH: Final = 1 << 20  # above all that the slots of a run have had: else the authority refuses it for that


def kept_away(objects: Mapping[str, Mapping[tuple[str, str], Any]], region: str) -> frozenset[str]:
    """The tenants that the policy in force keeps from a region, by rules that name no labels."""
    channel, here = objects.get("policychannels", {}).get(("", "default")), objects.get("regions", {}).get(("", region))
    policy = objects.get("schedulerpolicies", {}).get(("", f"r{channel.spec.current}")) if channel is not None else None
    if policy is None or here is None:
        return frozenset()
    rules = [rule for rule in policy.spec.residency if not rule.labels and not set(rule.areas) & set(here.spec.areas)]
    return frozenset(tenant for rule in rules for tenant in rule.tenants)


def misplaced(request: SchedulingRequest, rule: str, number: int, epoch: int = EPOCH) -> SchedulingRequest:
    """The like of a slot that once waited, under an index of its own, which that rule keeps away."""
    spec, place = request.spec, request.spec.ask.placement
    place = {
        "regions": replace(place, regions=RegionRule(allowed=(ELSEWHERE,))),
        "zones": replace(place, zones=(ELSEWHERE,)),
        "areas": replace(place, residency=Residency(areas=(ELSEWHERE,))),
    }.get(rule, place)
    slot = replace(spec.slot, index=FIRST + number)
    named = Metadata(name=f"{slot.workload}-{slot.index}", namespace=request.metadata.namespace)
    return SchedulingRequest(metadata=named, spec=replace(spec, slot=slot, epoch=epoch, ask=replace(spec.ask, placement=place)))
