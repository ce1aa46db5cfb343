"""How long services are short after the loss of a region (L5), asked of planes that no platform wrote."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import (
    BudgetShape,
    Node,
    NodeSpec,
    NodeStatus,
    RecoveryBudget,
    RecoveryBudgetSpec,
    Reservation,
    ReservationSpec,
)
from fairlead.model.kinds.intent import JobRule, RecoveryRule, ResourceSpec, Workload, WorkloadSpec
from fairlead.model.kinds.recovery import RecoveryOrder, RecoveryOrderSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Assignment, AssignmentSpec, Binding, BindingSpec, BindingStatus, SlotRange
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.losses import RECOVERED_S, SEEN_S, Losses, Objects

KEY = ("risk", "api")


def planes(serving: int) -> dict[str, Objects]:
    workload = Workload(metadata=Metadata(name="api", namespace="risk", uid=Uid("u-1")),
                        spec=WorkloadSpec(replicas=4, recovery=RecoveryRule(min_serving=3)))  # fmt: skip
    spec = AssignmentSpec(workload="api", workload_uid="u-1", generation=1, region="east", slots=(SlotRange(first=0, last=1),))
    east = Assignment(metadata=Metadata(name="api.east", namespace="risk"), spec=spec)
    bindings = {
        ("risk", f"api-{index}"): Binding(
            metadata=Metadata(name=f"api-{index}", namespace="risk"),
            spec=BindingSpec(slot=SlotRef(workload="api", uid="u-1", index=index), node="n", token=Token(1, 1, 1)),
            status=BindingStatus(state=SlotState.SERVING),
        )
        for index in range(serving)
    }
    top: Objects = {"workloads": {KEY: workload}, "assignments": {("risk", "api.east"): east}}
    return {"": top, "east": {}, "west": {"bindings": bindings}}


def test_a_service_that_is_not_back_in_time_is_found_and_one_that_is_counts_its_seconds() -> None:
    now = planes(2)
    losses = Losses(lambda plane: now[plane], ("east", "west"), Counter())
    losses.struck("east", 100.0)
    assert losses.look(100.0 + RECOVERED_S) == []
    assert losses.look(101.0 + RECOVERED_S) == ["risk/api has not its minimum 300 s after east was lost"]
    now = planes(3)
    losses.struck("east", 1000.0)
    assert losses.look(1017.5) == []
    assert losses.look(1000.0 + SEEN_S) == []
    assert losses.recovered_s == [17.5]
    assert losses.look(9000.0) == []


@pytest.mark.parametrize("kind", [{"gang": True}, {"job": JobRule()}, {"execution": "Exclusive"}], ids=str)
def test_what_is_never_recovered_is_not_waited_for(kind: dict[str, Any]) -> None:
    now = planes(2)
    workload = now[""]["workloads"][KEY]
    made = replace(workload, spec=replace(workload.spec, **kind))
    now[""] = {**now[""], "workloads": {KEY: made}}
    losses = Losses(lambda plane: now[plane], ("east", "west"), Counter())
    losses.struck("east", 100.0)
    assert losses.look(101.0 + RECOVERED_S) == []


def standing_in(*, back: bool) -> Losses:
    """Two of it are east's own; two stand in for them in west, which is lost after east, or after east was back."""
    now, own = planes(2), SlotRange(first=900, last=901)
    spec = AssignmentSpec(workload="api", workload_uid="u-1", generation=1, region="west", slots=(own,), recovery=own)
    orders = {**now[""]["assignments"], ("risk", "api.west"): Assignment(metadata=Metadata(name="api.west"), spec=spec)}
    now |= {"": {**now[""], "assignments": orders}, "north": {}}
    losses = Losses(lambda plane: now[plane], ("east", "west", "north"), Counter())
    losses.struck("east", 100.0)
    if back:
        losses.ended("east")
    losses.struck("west", 200.0)
    return losses


def test_a_service_that_lost_nothing_but_stand_ins_for_a_region_that_is_back_has_nothing_to_recover() -> None:
    assert not standing_in(back=True).open


def test_a_service_that_lost_its_stand_ins_while_their_region_is_away_has_to_recover_again() -> None:
    late = standing_in(back=False).look(201.0 + RECOVERED_S)
    assert "risk/api has not its minimum 300 s after west was lost" in late


def test_what_stood_in_for_an_earlier_loss_counts_once_the_new_one_is_known() -> None:
    """Until then it may be let go by those who do not know: that is no dip, and it has to be back in time."""
    now = planes(3)
    losses = Losses(lambda plane: now[plane], ("east", "west"), Counter())
    losses.struck("east", 100.0)
    assert losses.findings(101.0, strict=True) == []
    now = planes(2)
    assert losses.findings(107.0, strict=True) == []
    now = planes(3)
    assert losses.findings(130.0, strict=True) == []
    assert losses.recovered_s == [30.0]
    now = planes(2)
    assert losses.findings(131.0, strict=True) == [("L5", "risk/api had recovered, and 2 of at least 3 serve")]


def test_what_serves_in_the_lost_region_itself_does_not_count() -> None:
    now = planes(3)
    now["east"], now["west"] = now["west"], {}
    losses = Losses(lambda plane: now[plane], ("east", "west"), Counter())
    losses.struck("east", 0.0)
    assert losses.look(301.0) != []


# --- where it is said that there is no room --------------------------------------------------------------------------------


def short(held: int, health: Literal["Ready", "Lost"] = "Ready", claimed: int = 0) -> dict[str, Objects]:
    """East is lost, two of three serve in west, and the order says that there is no room for the third."""
    size = Resources(100, 1)
    now = {name: {plural: dict(of) for plural, of in objects.items()} for name, objects in planes(2).items()}
    rule = RecoveryRule(min_serving=3, budget_name="critical")
    spec = WorkloadSpec(replicas=4, recovery=rule, resources=ResourceSpec(requests=size))
    now[""]["workloads"][KEY] = replace(now[""]["workloads"][KEY], spec=spec)
    order = RecoveryOrderSpec(workload="api", workload_uid="u-1", missing=1)
    now[""]["recoveryorders"] = {KEY: RecoveryOrder(Metadata(name="api", namespace="risk"), order)}
    budget = RecoveryBudgetSpec(shapes=(BudgetShape(requests=size, count=2),))
    now[""]["recoverybudgets"] = {("risk", "critical"): RecoveryBudget(Metadata(name="critical", namespace="risk"), budget)}
    now["west"]["nodes"] = {("", "n"): Node(Metadata(name="n"), NodeSpec(region="west"), NodeStatus(health=health))}
    room = ReservationSpec("n", size, budget="critical")
    now["west"]["reservations"] = {
        ("risk", f"r{number}"): Reservation(Metadata(name=f"r{number}", namespace="risk"), room) for number in range(held)
    }
    for (tenant, name), binding in list(now["west"]["bindings"].items())[:claimed]:
        now["west"]["bindings"][tenant, name] = replace(binding, spec=replace(binding.spec, claimed="standing.critical-0"))
    return now  # type: ignore[return-value]


def looked(now: dict[str, Objects], place: str = "", barren: frozenset[str] = frozenset()) -> tuple[list[str], Counter[str]]:
    counts: Counter[str] = Counter()
    losses = Losses(lambda plane: now[plane], ("east", "west"), counts, lambda region, request, objects: place, lambda: barren)
    losses.struck("east", 0.0)
    return losses.look(RECOVERED_S + 1), counts


def test_that_there_is_no_room_is_believed_only_where_sums_prove_it() -> None:
    for now in (short(0), short(2, "Lost"), short(0, claimed=2)):
        assert looked(now) == ([], Counter(excused_no_budget=1))
    (late,), counts = looked(short(1))
    assert late.endswith("it is said that there is no room, and west has 1 rooms for the 1 that it lacks there")
    assert not counts


def test_rooms_that_a_budget_should_hold_and_nodes_have_place_for_are_rooms() -> None:
    assert looked(short(0), place="n")[0]
    assert not looked(short(0, claimed=2), place="n")[0], "all of them are claimed"
    assert not looked(short(2, "Lost"), place="n")[0], "all of them are held, where they are worth nothing"


def test_rooms_in_which_nothing_comes_up_are_none() -> None:
    assert looked(short(2), barren=frozenset({"west"})) == ([], Counter(excused_no_budget=1))


def test_the_rest_of_a_claimed_room_is_no_room() -> None:
    now = short(2, claimed=2)
    rest = {key: replace(room, spec=replace(room.spec, claimer="api-0")) for key, room in now["west"]["reservations"].items()}
    assert not looked({**now, "west": {**now["west"], "reservations": rest}})[0]
