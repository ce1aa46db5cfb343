"""L4 asked of nodes: one that truly is there is Ready and takes work again.

What waits has no room on a node that is called silent, so that it is proven to wait rightly (waiting.py) proves nothing if nodes
stay silent for ever: whoever stands outside knows better. A node that came and went is watched for a while (docs/agents.md), and
so long it is an allowed wait. Its own sums, nothing of the node controller's. Called by the simulator after healing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fairlead.observe.differing import Difference, Objects

STEADY_S: Final = 5.0  # heard for this long, doubled with every flap
FLAPS_MAX: Final = 6
# From when it truly is there until it is heard by who leads now: the lease of the node that a new leader listens for first, the
# handshake, and messages between them.
HEARD_S: Final = 30.0


class _Seen(NamedTuple):
    life: str
    since_s: float
    lacked: bool


class ReturnChecker:
    """Look every second or so; it remembers since when each was there without a break."""

    def __init__(self) -> None:
        self.checked = 0  # nodes that lacked something, and came back
        self._seen: dict[tuple[str, str], _Seen] = {}

    def look(self, now_s: float, region: str, objects: Objects, there: Mapping[str, str]) -> list[Difference]:
        """What is not as it should be by now; whoever is watched still is not said. `there`: nodes whose machine, disk and links
        are well and whose agent runs, each with the life of that and of who leads: with either, who is heard is counted anew."""
        out = []
        for name, life in there.items():
            node, before = objects.get("nodes", {}).get(("", name)), self._seen.get((region, name))
            since_s = before.since_s if before is not None and before.life == life else now_s
            why = _lacks(node)
            self.checked += before is not None and before.lacked and not why
            self._seen[region, name] = _Seen(life, since_s, bool(why))
            if why and now_s - since_s >= watched_s(node):
                out.append(Difference(f"{name} is there, and in {region} it is {why}", region=region))
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != region or key[1] in there}
        return out


def _lacks(node: Any) -> str:
    """Why no work is placed there; empty: it may be. What its people or its pool closed is Ready all the same. One that they
    deleted does not come back before they approve it anew."""
    if node is None or node.metadata.deletion_time is not None:
        return ""
    if node.status.health != "Ready":
        return node.status.health or "not Ready"
    return "" if node.status.schedulable else "not schedulable"


def watched_s(node: Any) -> float:
    """For so long it may be Unknown because it came and went, from when it is there. Nothing else that it lacks may wait."""
    if node.status.health != "Unknown" or not node.status.flaps:
        return 0.0
    return HEARD_S + STEADY_S * float(1 << min(node.status.flaps, FLAPS_MAX))
