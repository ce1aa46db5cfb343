"""`?region=`: what of a kind belongs to one region. Pure, but for the warning it leaves on the call.

Kinds that lie on the planes of regions are asked of that plane alone, which is the front door's to do. Of kinds that the global
plane keeps for all regions, this says which objects concern the one that is asked for. Called by whatever lists or watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.api.calls import Call
from fairlead.model.registry import KindInfo

Belongs = Callable[[Any], bool]  # of a served object


def belonging(call: Call) -> Belongs | None:
    """None: the kind, or the plane it is asked of, makes any choice needless. Warns where a kind knows no regions."""
    region, info = call.region, call.info
    if not region or call.front.is_regional(info):
        return None
    call.front.serving(info, region)  # 400 for a region that is not there
    found = _of_kind(info, region)
    if found is None:
        call.warn(f"{call.resource.plural} belong to no region; all of them are shown")
    return found


def _of_kind(info: KindInfo, region: str) -> Belongs | None:
    if info.plural == "workloads":
        return lambda workload: _runs_in(workload, region)
    if info.plural == "regions":
        return lambda one: bool(one.metadata.name == region)
    if "region" in info.spec_fields:
        return lambda one: bool(one.spec.region == region)
    return None


def _runs_in(workload: Any, region: str) -> bool:
    """It has replicas there or is to have some; before anybody has decided, it may go there."""
    for part in workload.status.regions:
        if part.region == region:
            counts = part.replicas
            return bool(counts.desired or counts.bound)
    allowed = workload.spec.placement.regions.allowed
    return not workload.status.regions and (not allowed or region in allowed)
