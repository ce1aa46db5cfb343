"""What is left of a region that is heard: has it lost most of its nodes, a zone, or sight of what it is told? Pure.

The region counts its own nodes and says so with its sign of life; here that is judged. Nodes that people have closed are not
missing, nor are those that were never heard. Used by mirror-up, which counts, and by the region controller, which says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.model.kinds.quota import GrantTerm

ZONES_MAX: Final = 64  # said one by one; the rest together
BEHIND_S: Final = 45.0  # a missed event is found within 35 s (L3), and what follows is said within seconds

Standing = tuple[str, str]  # zone; Ready, Suspect or Away


class Part(NamedTuple):
    reason: str  # NodesLost, ZoneLost or WatchBehind; empty: it is whole
    why: str


def standing(node: Node) -> Standing | None:
    """How a node counts; None: not at all."""
    health = node.status.health
    if not health or node.spec.unschedulable or node.spec.drain is not None:
        return None
    suspect = any(c.type == "ObservationSuspect" and c.status == "True" for c in node.status.conditions)
    return node.spec.zone, "Suspect" if suspect else "Ready" if health == "Ready" else "Away"


def zones_of(counts: Mapping[Standing, int]) -> tuple[ZoneNodes, ...]:
    zones: dict[str, dict[str, int]] = {}
    for (zone, how), count in sorted(counts.items()):
        found = zones.setdefault(zone if zone in zones or len(zones) < ZONES_MAX else "", {})
        found[how] = found.get(how, 0) + count
    return tuple(
        ZoneNodes(zone=zone, nodes=sum(found.values()), ready=found.get("Ready", 0), suspect=found.get("Suspect", 0))
        for zone, found in sorted(zones.items())
    )


def untaken(term: GrantTerm | None) -> int:
    """The number of the answer that lies here for a region and that it has not said to have seen; 0: it has seen the last."""
    if term is None:
        return 0
    spec, status = term.spec, term.status
    waits = spec.asker == status.incarnation and spec.answered == status.asked > status.taken
    return spec.answered if waits else 0


def judge_part(zones: Sequence[ZoneNodes], behind_s: float) -> Part:
    """`behind_s`: for how long the region has not seen what was answered to it. The worst is its reason, all of it in words."""
    nodes, ready, suspect = (sum(getattr(zone, name) for zone in zones) for name in ("nodes", "ready", "suspect"))
    empty = [zone.zone or "others" for zone in zones if zone.nodes and not zone.ready + zone.suspect]
    found = []
    if 2 * (ready + suspect) < nodes:
        found.append(("NodesLost", f"{nodes - ready - suspect} of {nodes} nodes are not heard"))
    if empty:
        found.append(("ZoneLost", f"no node of {', '.join(empty)} is heard"))
    if 2 * suspect > nodes:
        found.append(("WatchBehind", f"it suspects its own observation of {suspect} of {nodes} nodes"))
    if behind_s > BEHIND_S:
        found.append(("WatchBehind", f"it has not seen for {behind_s:.0f} s what it was answered"))
    return Part(found[0][0], "; ".join(why for _, why in found)) if found else Part("", f"{ready} of {nodes} nodes are well")
