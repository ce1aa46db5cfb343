"""Every workload with a recovery minimum, and whether it has that again after a region was lost (L5).

Owns which these are and how they are counted: from outside where the drill's census counts them, else by what the planes of the
regions say. Called by regions.py.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.drills.asking import Tree
from fairlead.drills.census import Workload
from fairlead.drills.scene import Scene


class Critical(NamedTuple):
    workload: Workload
    least: int
    deadline_s: float
    in_all: bool  # its slots run once in the world and are no copies of each other: the sum over regions counts

    @property
    def name(self) -> str:
        return "/".join(self.workload)


async def critical_in(scene: Scene, region: str) -> list[Critical]:
    """Those that have slots in this region, and that may be recovered elsewhere."""
    there = {
        (str(one["metadata"]["namespace"]), str(one["spec"]["workload"]))
        for one in await scene.asking.items("assignments", "", "global")
        if one["spec"]["region"] == region and one["spec"].get("slots")
    }
    found = [_critical(one) for one in await scene.asking.items("workloads", "", "global")]
    return sorted(one for one in found if one is not None and one.workload in there)


def _critical(workload: Tree) -> Critical | None:
    spec, meta = workload["spec"], workload["metadata"]
    rule = spec.get("recovery") or {}
    alone = spec.get("execution") == "Exclusive"
    stays = alone and spec.get("exclusive", "region") == "region"  # it never fails over
    if not rule.get("minServing") or not spec.get("replicas", 1) or stays or meta.get("deletionTimestamp"):
        return None
    named = (str(meta["namespace"]), str(meta["name"]))
    return Critical(named, int(rule["minServing"]), float(rule.get("deadlineSeconds", 300)), alone)


async def check_recovered(scene: Scene, wanted: list[Critical], healthy: tuple[str, ...]) -> None:
    """Each has its minimum within one of these regions, in the time it asks for. What was seen of each is in the result."""
    after_s: dict[str, float] = {}
    serving: dict[str, dict[str, int]] = {}

    async def all_have() -> bool:
        for one in wanted:
            if one.name not in after_s:
                counts = serving[one.name] = await _serving(scene, one.workload, healthy)
                if (sum(counts.values()) if one.in_all else max(counts.values())) >= one.least:
                    after_s[one.name] = round(scene.since_s(), 2)
        return len(after_s) == len(wanted)

    limit_s = max((one.deadline_s for one in wanted), default=0.0)
    await scene.until("every critical workload has its minimum", all_have, max(5.0, limit_s - scene.since_s()))
    scene.check("there are critical workloads", bool(wanted), ", ".join(one.name for one in wanted) or "none has slots there")
    told = scene.figures["critical"] = {}
    for one in wanted:
        took_s, counts = after_s.get(one.name), serving.get(one.name, {})
        outside = one.workload in scene.census.looks
        passed = took_s is not None and took_s <= one.deadline_s
        told[one.name] = {
            "least": one.least, "deadline_s": one.deadline_s, "serving": counts, "after_s": took_s, "from_outside": outside,
            "passed": passed,
        }  # fmt: skip
        where = "in all regions" if one.in_all else "within one healthy region"
        seen = f"{counts} " + (f"after {took_s:.1f} s" if took_s is not None else "at the end")
        seen += ", counted from outside" if outside else ", as the planes say"
        scene.check(f"{one.name}: at least {one.least} serve {where} within {one.deadline_s:g} s", passed, seen)


async def _serving(scene: Scene, workload: Workload, regions: tuple[str, ...]) -> dict[str, int]:
    if workload in scene.census.looks:
        look = scene.census.last(workload)
        counts = look.by_region() if look is not None and look.at_s >= scene.began_s else {}
        return {region: counts.get(region, 0) for region in regions}
    out = {}
    for region in regions:
        found = await scene.asking.slots("bindings", *workload, region)
        out[region] = sum((one.get("status") or {}).get("state") == "Serving" for one in found)
    return out
