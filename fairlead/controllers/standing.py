"""Keeps the rooms that a region is to hold of recovery budgets: asks for those that are missing, gives up those that should not
be, and says how many there are. Finding a node is the scheduler's, claiming one is the binder's. Runs in every region plane.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.decide.overrides import Where, all_in_force, ends_ms, in_force
from fairlead.decide.standing import Here, bodies, lent_of, shapes_of, wanted
from fairlead.model.commands import Body, PutStatus
from fairlead.model.kinds.capacity import Holding, NodeSpec, Reservation
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.slot import STANDING
from fairlead.model.lifecycle import HOLDS_CAPACITY

_HOLDINGS: Final = "holdings"
_AVOIDANCE: Final = "zone-avoidance"


def _of_reservation(item: Item) -> Hashable:
    return (item.tenant, item.hot.spec.budget) if item.hot.spec.budget else None


def _of_request(item: Item) -> Hashable:
    return (item.tenant, item.hot.spec.budget_name) if item.hot.spec.standing else None


def _of_claimer(item: Item) -> Hashable:
    claimed: str = item.hot.claimed
    return (item.tenant, claimed.rpartition("-")[0].removeprefix(STANDING)) if claimed else None


def _node_of_room(item: Item) -> Hashable:
    return item.hot.spec.node if item.hot.spec.budget else None


def _node_of_borrower(item: Item) -> Hashable:
    return item.hot.node if item.hot.borrowed and item.hot.state in HOLDS_CAPACITY else None


def _open_zone(item: Item) -> Hashable:
    """Of a node on which slots may be placed, as spread counts it: also of one that is drained and not closed."""
    spec, status = item.hot.spec, item.hot.status
    return spec.zone or None if status.health == "Ready" and status.schedulable and not spec.unschedulable else None


class StandingController:
    name = "standing"
    follows = (_HOLDINGS, "nodes", "reservations", "bindings", "schedulingrequests", "overrides")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {
        "nodes": {"open zone": _open_zone},
        "reservations": {"budget": _of_reservation, "node": _node_of_room},
        "schedulingrequests": {"budget": _of_request},
        # Borrowers wake nobody, there are too many of them: what they use is counted at the next look, a resync at the latest.
        "bindings": {"budget": _of_claimer, "borrowed": _node_of_borrower},
    }
    indexes_other: Indexes = {}
    hears = False
    for_many = True  # a budget has many rooms, and what is said of it holds up none

    def __init__(self, region: str) -> None:
        self._region = region

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "holdings":
                return ((item.tenant, item.hot.spec.budget),)
            case "overrides":
                return self.resync(view) if item.hot.spec.kind == _AVOIDANCE else ()
            case "nodes":
                return self.resync(view) if _counts_as(item) != _counts_as(view.cache.item("nodes", *item.key)) else ()
            case "reservations":
                found = _of_reservation(item)
            case "schedulingrequests":
                found = _of_request(item)
            case _:
                found = _of_claimer(item)
        return (found,) if isinstance(found, tuple) else ()

    def resync(self, view: View) -> Iterable[Name]:
        keys = {(item.tenant, item.hot.spec.budget): None for item in view.cache.all(_HOLDINGS)}
        keys |= {(item.tenant, item.hot.spec.budget): None for item in view.cache.all("reservations") if item.hot.spec.budget}
        return keys

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        name = f"{key[1]}.{self._region}"
        holding: Holding | None = cache.get(_HOLDINGS, key[0], name)
        want = wanted(holding, now_ms)
        avoiding = all_in_force((item.hot for item in cache.all("overrides")), _AVOIDANCE, now_ms)
        here = self._here(cache, key, avoiding, now_ms)
        out: list[Body] = bodies(holding, want, here)
        if holding is None:
            return Result(out)
        meta, ends = holding.metadata, holding.spec.expiry_time
        said = replace(holding.status, observed_generation=meta.generation, shapes=shapes_of(holding, want, here))
        if said != holding.status:
            out.append(PutStatus("Holding", key[0], name, said, uid=meta.uid))
        wake = [ends_ms(each) for each in avoiding]  # they end by themselves
        if ends is not None:
            wake.append(round(ends.timestamp() * 1000))
        return Result(out, min((each for each in wake if each > now_ms), default=None))

    def _here(self, cache: Cache, key: Name, avoiding: list[Override], now_ms: int) -> Here:
        rooms = [item.hot for item in cache.by("reservations", "budget", key)]
        claimers = [item.hot for item in cache.by("bindings", "budget", key)]
        nodes = {room.spec.node: cache.item("nodes", "", room.spec.node) for room in rooms}
        standing = {name: _standing_of(node) for name, node in nodes.items()}
        for name, node in nodes.items() if avoiding else ():
            if not standing[name] and node is not None and _is_avoided(avoiding, key[0], node.hot.spec, now_ms):
                standing[name] = "silent"
        return Here(
            rooms,
            [item.hot for item in cache.by("schedulingrequests", "budget", key)],
            frozenset(int(hot.claimed.rpartition("-")[2]) for hot in claimers if hot.state in HOLDS_CAPACITY),
            frozenset(node for node, how in standing.items() if how == "gone"),
            frozenset(node for node, how in standing.items() if how == "silent"),
            frozenset(room.spec.index for node in standing for room in self._lent(cache, node, key)),
            {name: node.hot.spec.zone for name, node in nodes.items() if node is not None},
            frozenset(str(zone) for zone in cache.values("nodes", "open zone")),
        )

    @staticmethod
    def _lent(cache: Cache, node: str, key: Name) -> Iterable[Reservation]:
        if not cache.any("bindings", "borrowed", node):
            return ()
        rooms = lent_of(
            (item.hot for item in cache.by("reservations", "node", node)),
            (item.hot.requests for item in cache.by("bindings", "borrowed", node)),
        )
        return [room for room in rooms if (room.metadata.namespace, room.spec.budget) == key]


def _standing_of(node: Item | None) -> str:
    """What room on this node is worth: kept, nothing for now, or to be found elsewhere. Nobody may claim one that is closed."""
    if node is None or node.hot.status.health == "Lost" or node.hot.spec.drain is not None or node.hot.spec.unschedulable:
        return "gone"
    return "" if node.hot.status.health == "Ready" and node.hot.status.schedulable else "silent"


def _counts_as(node: Item | None) -> tuple[str, Hashable]:
    """What about a node changes what is said of rooms."""
    return _standing_of(node), _open_zone(node) if node is not None else None


def _is_avoided(avoiding: list[Override], tenant: str, node: NodeSpec, now_ms: int) -> bool:
    """By all of the tenant's work. What only some of its workloads are to avoid is room for the others."""
    return in_force(avoiding, _AVOIDANCE, now_ms, Where(tenant, "", node.region, node.zone)) is not None
