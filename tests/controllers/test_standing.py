"""Which rooms of a recovery budget count: those that could be claimed now. Others are placed elsewhere, or count for nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fairlead.controllers.contract import Result, View
from fairlead.controllers.standing import StandingController
from fairlead.model.commands import Put, PutStatus, ReleaseReservation
from fairlead.model.kinds.capacity import (
    BudgetShape,
    DrainOrder,
    HeldShape,
    Holding,
    HoldingSpec,
    Node,
    NodeSpec,
    NodeStatus,
    Reservation,
    ReservationSpec,
)
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import OPERATOR, ok
from tests.controllers.test_recovery import two_regions

SHAPE = Resources(1000, 1 << 30)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)
KEY = ("risk", "eu")


class Rooms:
    """A region that is to hold two rooms: one on n1 in zone a, one on n2 in zone b."""

    def __init__(self) -> None:
        self.controller = StandingController("west")
        self.view = View(StandingController.indexes, {})
        self._position = 0
        self.woken: list[tuple[str, str]] = []
        spec = HoldingSpec(budget="eu", budget_uid="u", region="west", shapes=(BudgetShape(requests=SHAPE, count=2),))
        self.put("holdings", "risk", "eu.west", Holding(Metadata(name="eu.west", namespace="risk"), spec))
        for index, (name, zone) in enumerate((("n1", "a"), ("n2", "b"))):
            self.node(name, zone)
            room = ReservationSpec(node=name, requests=SHAPE, token=Token(1, 1, 1), budget="eu", index=index)
            meta = Metadata(name=f"standing.eu-{index}", namespace="risk")
            self.put("reservations", "risk", meta.name, Reservation(meta, room))

    def put(self, plural: str, tenant: str, name: str, hot: Any) -> None:
        self._position += 1
        raw = b"x" if hot is not None else None
        change: Any = SimpleNamespace(plural=plural, tenant=tenant, name=name, position=self._position, raw=raw, hot=hot)
        self.woken = []
        for each in self.view.cache.apply(change):
            if each is not None:
                self.woken += self.controller.keys(self.view, each, False)

    def node(self, name: str, zone: str, *, health: Any = "Ready", schedulable: bool = True, **spec: Any) -> None:
        made = Node(
            Metadata(name=name), NodeSpec(region="west", zone=zone, **spec), NodeStatus(health=health, schedulable=schedulable)
        )
        self.put("nodes", "", name, made)

    def avoid(self, **scope: tuple[str, ...]) -> None:
        spec = OverrideSpec(kind="zone-avoidance", reason="water", ttl_seconds=60, requester="ada", scope=OverrideScope(**scope))
        meta = Metadata(name="wet", namespace="risk", creation_time=BEGAN)
        self.put("overrides", "risk", "wet", Override(meta, spec))

    def look(self, after_s: float = 1.0) -> Result:
        return self.controller.reconcile(KEY, self.view, BEGAN_MS + int(after_s * 1000))

    def said(self, after_s: float = 1.0) -> tuple[int, int, int]:
        """Rooms that count, that count for nothing, and that are looked for."""
        (shape,) = next(body.status.shapes for body in self.look(after_s).bodies if isinstance(body, PutStatus))
        return shape.held, shape.silent, shape.waiting

    def zones(self) -> tuple[int, ...]:
        (shape,) = next(body.status.shapes for body in self.look().bodies if isinstance(body, PutStatus))
        return tuple(shape.zones)

    def given_up(self) -> list[str]:
        return [body.name for body in self.look().bodies if isinstance(body, ReleaseReservation)]


def test_rooms_on_nodes_that_take_work_count() -> None:
    rooms = Rooms()
    assert (rooms.said(), rooms.given_up()) == ((2, 0, 0), [])


def test_a_room_on_a_node_that_is_closed_is_placed_elsewhere() -> None:
    for closed in ({"unschedulable": True}, {"unschedulable": True, "drain": DrainOrder()}, {"health": "Lost"}):
        rooms = Rooms()
        rooms.node("n1", "a", **closed)
        assert rooms.woken == [KEY], f"{closed} is looked at when it happens"
        assert (rooms.said(), rooms.given_up()) == ((1, 0, 1), ["standing.eu-0"])


def test_a_room_on_a_node_that_is_not_heard_or_has_not_shaken_hands_is_kept_and_counts_for_nothing() -> None:
    for shut in ({"health": "Unknown"}, {"schedulable": False}):
        rooms = Rooms()
        rooms.node("n1", "a", **shut)
        assert rooms.woken == [KEY]
        assert (rooms.said(), rooms.given_up()) == ((1, 1, 0), [])


def test_a_room_in_a_zone_to_be_avoided_counts_for_nothing_until_that_ends() -> None:
    rooms = Rooms()
    rooms.avoid(zones=("a",))
    assert rooms.woken == [KEY]
    assert (rooms.said(), rooms.given_up()) == ((1, 1, 0), [])
    assert rooms.look().wake_ms == BEGAN_MS + 60_000, "it ends by itself"
    assert rooms.said(60.0) == (2, 0, 0)


def test_a_zone_that_others_are_to_avoid_is_no_matter() -> None:
    for scope in ({"tenants": ("web",)}, {"regions": ("east",)}, {"workloads": ("api",)}):
        rooms = Rooms()
        rooms.avoid(zones=("a",), **scope)
        assert rooms.said() == (2, 0, 0), scope


def test_zones_count_while_a_node_there_takes_work_whether_or_not_it_has_room() -> None:
    rooms = Rooms()
    assert rooms.zones() == (1, 1)
    rooms.node("n3", "c", health="Unknown")
    assert rooms.zones() == (1, 1)
    rooms.node("n3", "c")
    assert (rooms.woken, rooms.zones()) == ([KEY], (1, 1, 0))
    rooms.node("n3", "b")
    assert (rooms.woken, rooms.zones()) == ([KEY], (1, 1)), "it has moved"
    rooms.avoid(zones=("a",))
    assert rooms.zones() == (1, 0), "a spread is measured over zones to be avoided too"
    rooms.node("n1", "a", unschedulable=True)
    assert rooms.zones() == (1,)


async def test_readiness_ends_when_the_nodes_are_cordoned_and_comes_back_with_them() -> None:
    async with two_regions() as r:
        w = r.w
        await w.until(lambda: (o := r.outlook("west")) is not None and (o.spec.ready, o.spec.short) == (1, 0))

        async def close(closed: bool) -> None:
            for name in w.low.plane.authority._ctx.ledger.nodes:
                node = w.low.get("nodes", name, "")
                ok(await w.low.plane.send(OPERATOR, Put("Node", replace(node, spec=replace(node.spec, unschedulable=closed)))))

        await close(True)
        await w.until(lambda: (o := r.outlook("west")) is not None and [one.missing for one in o.spec.services] == [2])
        assert r.held() == HeldShape(requests=SHAPE, waiting=2)
        await close(False)
        await w.until(lambda: (o := r.outlook("west")) is not None and (o.spec.ready, o.spec.short) == (1, 0))


async def test_one_that_must_be_even_over_zones_is_ready_with_rooms_in_each_and_claims_them() -> None:
    async with two_regions(rooms=3, placement=Placement(spread=(SpreadRule(topology_key="zone"),))) as r:  # three zones
        w = r.w
        await w.until(lambda: (o := r.outlook("west")) is not None and (o.spec.ready, o.spec.short) == (1, 0))
        await r.health("west", "Lost")
        await w.until(lambda: r.held() == HeldShape(requests=SHAPE, held=1, claimed=2))
        await w.until(lambda: len(w.low.serving()) == 4)
