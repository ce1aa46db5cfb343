"""A region's merge report, held against what a drill counts itself. Called by the drills in which regions are cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from fairlead.drills.asking import Tree
from fairlead.drills.scene import Scene


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


async def report_of(scene: Scene, region: str, plane: str = "") -> Tree:
    """The one of this cut: it ended after the drill had begun. As the region itself has it, or as another plane was told."""
    found = await scene.asking.get("grantterms", "", region, plane or region) or {}
    report: Tree = (found.get("status") or {}).get("merge") or {}
    if not report.get("healedTime"):
        return {}
    age_s = scene.clock.wall() - instant(report["healedTime"]).timestamp()
    return report if age_s < scene.since_s() else {}


def differs(report: Tree, bindings: Iterable[Tree]) -> list[str]:
    """What a merge report says otherwise than the region's bindings, as they were listed just before the cut was over."""
    cut, healed = report.get("cutTime"), report.get("healedTime")
    if not cut or not healed or instant(cut) >= instant(healed):
        return [f"it says it was cut off from {cut} to {healed}"]
    out, made = [], _made_since(cut, bindings)
    said = _still_there(report)
    if said != made:
        out.append(f"it counts {dict(said)} that are still known, there are {dict(made)}")
    if not made or report.get("placed", 0) != sum((report.get("tenants") or {}).values()):
        out.append(f"it says {report.get('placed', 0)} were placed, by tenant {report.get('tenants') or {}}")
    return out + _wrong(report)


def lacks(report: Tree, bindings: Iterable[Tree], tenants: Collection[str], cut_s: float) -> list[str]:
    """The same of a cut of so long, of tenants whose work does not end by itself, and that had something placed meanwhile; what
    others did is counted and not compared."""
    cut, healed = report.get("cutTime"), report.get("healedTime")
    if not cut or not healed or (instant(healed) - instant(cut)).total_seconds() < cut_s:
        return [f"it says it was cut off from {cut} to {healed}, and that was {cut_s:g} s"]
    made, said = _made_since(cut, bindings), _still_there(report)
    out = [
        f"it counts {said[tenant]} of {tenant}, there are {made[tenant]}" for tenant in tenants if said[tenant] != made[tenant]
    ]
    if report.get("placed", 0) != sum((report.get("tenants") or {}).values()):
        out.append("what was placed is not what its tenants placed")
    if not any(made[tenant] for tenant in tenants):
        out.append("nothing of theirs was placed there meanwhile")
    return out + _wrong(report)


def _made_since(cut: str, bindings: Iterable[Tree]) -> Counter[str]:
    since = instant(cut)
    return Counter(one["metadata"]["namespace"] for one in bindings if instant(one["metadata"]["creationTimestamp"]) >= since)


def _still_there(report: Tree) -> Counter[str]:
    """What it counts by tenant, without what is gone since: no list of bindings shows that."""
    return Counter(report.get("tenants") or {}) - Counter(report.get("ended") or {})


def _wrong(report: Tree) -> list[str]:
    out = []
    if sum(report.get(part, 0) for part in ("confirmed", "lasting", "released")) != report.get("placed", 0):
        out.append("what stays and what leaves is not what was placed")
    if report.get("over"):
        out.append(f"it says that {', '.join(report['over'])} use more than they were offered")
    return out
