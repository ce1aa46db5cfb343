"""A region goes dark or is cut off under the simulator, and critical services are back elsewhere in time (L5)."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import RecoveryRule, Workload, WorkloadSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Assignment, AssignmentSpec, Binding, BindingSpec, BindingStatus, SlotRange
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.sim.campaign import scenario_of
from fairlead.sim.losses import RECOVERED_S, Losses, Objects
from fairlead.sim.world import Verdict, run_scenario


@pytest.fixture(scope="module")
def lost() -> Verdict:
    scenario = scenario_of(5, "regions", 2.0)
    return run_scenario(replace(
        scenario, faults=replace(scenario.faults, region=2.0, crash=0.0), servers=1, nodes=2, settle_s=100.0, quiet_s=10.0,
    ))  # fmt: skip


def test_critical_services_are_back_within_a_minute_of_the_loss_of_their_region(lost: Verdict) -> None:
    assert lost.counts["F_region"] >= 1
    assert lost.findings == []
    assert len(lost.recovered_s) >= 3
    assert max(lost.recovered_s) < 60


def test_the_loss_is_what_was_waited_for_and_not_a_coincidence(lost: Verdict) -> None:
    """A region is declared lost after its lease and six seconds: whoever had not enough elsewhere took longer than that."""
    assert any(seconds > 10 for seconds in lost.recovered_s)


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
    assert losses.recovered_s == [17.5]
    assert losses.look(9000.0) == []


def test_what_serves_in_the_lost_region_itself_does_not_count() -> None:
    now = planes(3)
    now["east"], now["west"] = now["west"], {}
    losses = Losses(lambda plane: now[plane], ("east", "west"), Counter())
    losses.struck("east", 0.0)
    assert losses.look(301.0) != []
