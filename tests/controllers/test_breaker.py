"""The breaker over regions (P15): while several are silent at once stand-ins are ordered a few at a time, and soon enough all the
same; when all are silent, none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairlead.controllers.contract import View
from fairlead.controllers.recovery import RecoveryController, RecoveryRules
from fairlead.decide.recovery import TURN
from fairlead.model.commands import Delete, Put
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, HeldShape, Holding, HoldingSpec, HoldingStatus
from fairlead.model.kinds.intent import RecoveryRule, Region, RegionStatus, ResourceSpec, Workload, WorkloadSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources

SHAPE, RULES = Resources(100, 1 << 20), RecoveryRules()
SERVICES, MINIMUM = 400, 4  # as in `fairlead bench recovery`


class Rig:
    """Three regions: a is there and holds room for all; each service has two slots in b and two in c."""

    def __init__(self, services: int = SERVICES) -> None:
        self.controller = RecoveryController()
        self.view = View(RecoveryController.indexes, {})
        self.now_ms, self._position = 1_000_000, 0
        for name in "abc":
            self.health(name, "Healthy")
        self.put("grants", "risk", "a", Grant(Metadata(name="a", namespace="risk"), GrantSpec("a", 1, Resources(1, 1))))
        held = HoldingStatus(shapes=(HeldShape(requests=SHAPE, held=MINIMUM * services),))
        spec = HoldingSpec(budget="critical", budget_uid="u", region="a")
        self.put("holdings", "risk", "critical.a", Holding(Metadata(name="critical.a", namespace="risk"), spec, held))
        rule = RecoveryRule(budget_name="critical", min_serving=MINIMUM)
        for number in range(services):
            name = f"s{number:03}"
            meta = Metadata(name=name, namespace="risk", uid=Uid(name))
            self.put("workloads", "risk", name, Workload(meta, WorkloadSpec(resources=ResourceSpec(SHAPE), recovery=rule)))
            for region in "bc":
                order = AssignmentSpec(name, name, 1, region, slots=(SlotRange(first=0, last=1),))
                made = Assignment(Metadata(name=f"{name}.{region}", namespace="risk"), order)
                self.put("assignments", "risk", made.metadata.name, made)

    def put(self, plural: str, tenant: str, name: str, hot: Any) -> None:
        self._position += 1
        raw = b"x" if hot is not None else None
        change: Any = SimpleNamespace(plural=plural, tenant=tenant, name=name, position=self._position, raw=raw, hot=hot)
        old, new = self.view.cache.apply(change)
        for each in (old, new):
            if each is not None:
                self.controller.keys(self.view, each, False)

    def health(self, name: str, health: Any, *, mass: bool = False) -> None:
        said = Condition(type="MassSilence", status="True" if mass else "False", reason="ManySilent")
        self.put("regions", "", name, Region(Metadata(name=name), status=RegionStatus(health=health, conditions=(said,))))

    def look(self, after_s: float = 1.0) -> int:
        """How many slots are ordered by then, in all."""
        self.now_ms += int(after_s * 1000)
        result = self.controller.reconcile(("", "all"), self.view, self.now_ms)
        for body in result.bodies:
            if isinstance(body, Put) and body.kind == "RecoveryOrder":
                self.put("recoveryorders", "risk", body.object.metadata.name, body.object)
            elif isinstance(body, Delete) and body.kind == "RecoveryOrder":  # its holding has no budget here, and stays
                self.put("recoveryorders", body.tenant, body.name, None)
        self.wake_ms = result.wake_ms
        return sum(sum(order.spec.regions.values()) for order in self.orders())

    def orders(self) -> list[Any]:
        return [item.hot for item in self.view.cache.all("recoveryorders")]


def test_one_lost_region_is_stood_in_for_at_once() -> None:
    rig = Rig()
    rig.health("b", "Lost")
    assert rig.look() == SERVICES * MINIMUM


def test_while_two_are_silent_slots_are_ordered_a_few_a_second_and_all_within_a_minute() -> None:
    rig = Rig()
    for name in "bc":
        rig.health(name, "Lost", mass=True)
    total = rig.look()
    assert total == RULES.slots_per_s
    assert rig.wake_ms == rig.now_ms + RULES.look_ms, "the next are ordered soon"
    waiting = [order.spec for order in rig.orders() if not order.spec.regions]
    assert len(waiting) > SERVICES // 2
    assert {(spec.why, spec.missing) for spec in waiting} == {(TURN, MINIMUM)}
    for urgent in range(5):  # a region that comes and goes makes nobody look more often than it lets slots through
        rig.health("c", "Unknown" if urgent % 2 else "Lost", mass=True)
        assert rig.look(0.001) - total <= 1
    total = rig.look(0.0)
    began_ms = rig.now_ms
    while total < SERVICES * MINIMUM:
        before, total = total, rig.look()
        assert total - before <= RULES.slots_per_s + 1
        assert rig.now_ms - began_ms < 40_000, f"{total} are ordered"
    assert {order.spec.missing for order in rig.orders()} == {0}


def test_a_loss_before_the_others_fell_silent_is_not_held_against_them() -> None:
    rig = Rig()
    rig.health("b", "Lost")
    assert rig.look() == SERVICES * MINIMUM
    assert rig.look() == SERVICES * MINIMUM
    fresh = Rig(30)
    fresh.health("b", "Lost")
    fresh.health("c", "Unknown", mass=True)
    assert fresh.look() == RULES.slots_per_s


def test_nothing_new_is_ordered_while_every_region_is_silent() -> None:
    """It is rather us. What was ordered stays."""
    rig = Rig(30)
    for name in "bc":
        rig.health(name, "Lost", mass=True)
    total = rig.look()
    rig.health("a", "Healthy", mass=True)
    for _ in range(10):
        assert rig.look() == total
    rig.health("a", "Healthy")
    rig.look()
    assert rig.look() == 30 * MINIMUM
