"""What a change means to people, as values."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.decide import narrating
from fairlead.decide.narrating import REASONS, Told
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Workload, WorkloadSpec, WorkloadStatus
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Assignment, AssignmentSpec, InstanceStatus, SlotRange
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import NOTHING

_S = SlotState


def bound(state: SlotState = _S.BOUND, *, epoch: int = 1, start_after: tuple[str, ...] = ()) -> BindingHot:
    return BindingHot("n1", state, Token(1, epoch, 1), NOTHING, (), False, 0, 1, "u-api", 3, start_after=start_after)


def said(old: BindingHot | None, new: BindingHot | None) -> list[tuple[str, str]]:
    return [(t.reason, t.note) for t in narrating.of_binding("risk", "api-3", old, new)]


def test_each_step_that_people_care_about_is_told_once() -> None:
    assert said(None, bound()) == [("Scheduled", "slot 3 is to run on n1")]
    assert said(bound(), bound(_S.STARTING)) == [("Started", "slot 3 was started on n1")]
    assert said(bound(_S.STARTING), bound(_S.FAILED)) == [("Failed", "slot 3 has failed on n1")]
    assert said(bound(_S.SERVING), bound(_S.UNKNOWN)) == [("NodeSilent", "slot 3 is on n1, which is not heard")]
    assert said(bound(_S.SERVING), bound(_S.DRAINING)) == [("Draining", "slot 3 is to leave n1")]
    assert said(bound(_S.RELEASED), bound(epoch=2)) == [("Scheduled", "slot 3 is to run on n1")]


def test_a_slot_that_failed_is_told_of_with_what_its_agent_said_last() -> None:
    (told,) = narrating.of_binding("risk", "api-3", bound(), bound(_S.FAILED), "driver 'docker' is not allowed on this node")
    assert told.note == "slot 3 has failed on n1: driver 'docker' is not allowed on this node"
    (told,) = narrating.of_binding("risk", "api-3", bound(), bound(_S.STARTING), "of an earlier life")
    assert told.note == "slot 3 was started on n1"


def test_what_is_no_news_is_not_told() -> None:
    for old, new in ((bound(_S.READY), bound(_S.READY)), (bound(_S.STARTING), bound(_S.READY)), (bound(_S.READY), None)):
        assert said(old, new) == []
    assert said(bound(_S.READY), bound(_S.STARTING)) == []  # it lost readiness; it was started long ago


def test_a_victim_is_told_in_its_own_tenant_and_learns_nothing_of_another() -> None:
    told = list(narrating.of_binding("risk", "api-3", None, bound(start_after=("risk/old-0", "lab/batch-7"))))
    victims = [(t.regarding, t.tenant, t.note, t.warning) for t in told if t.reason == "Preempted"]
    assert victims == [
        ("workloads/risk/old", "risk", "slot 0 must leave for risk/api", True),
        ("workloads/lab/batch", "lab", "slot 7 must leave for work of higher priority", True),
    ]


def instance(old: InstanceStatus | None, **new: Any) -> list[str]:
    return [f"{t.reason}: {t.note}" for t in narrating.of_instance("risk", "api-3", old, InstanceStatus(**new))]


def test_probes_and_restarts_are_told_when_they_are_new() -> None:
    assert instance(None, ready=True) == []
    assert instance(None, message="liveness probe: 503") == ["Unhealthy: slot 3: liveness probe: 503"]
    assert instance(InstanceStatus(message="liveness probe: 503"), message="liveness probe: 503") == []
    crashed = InstanceStatus(message="exited with code 1", restarts=1)
    assert instance(crashed, message="exited with code 1", restarts=2) == [
        "BackOff: slot 3: exited with code 1; started again 2 times on this node"
    ]
    assert instance(None, message="exited with code 1", restarts=1) == [
        "BackOff: slot 3: exited with code 1; started again once on this node"
    ]
    assert instance(crashed, message="exited with code 0", restarts=1) == []


def test_slots_that_wait_are_counted_by_reason() -> None:
    reasons = {0: "WaitingForCapacity", 1: "WaitingForQuota", 4: "WaitingForCapacity"}
    assert narrating.waiting("risk", "api", "u-1", reasons, 4, "0 of 9 nodes fit") == Told(
        "workloads/risk/api", "risk", "FailedScheduling",
        "3 slots wait: 2 WaitingForCapacity, 1 WaitingForQuota; slot 4: 0 of 9 nodes fit", True, "u-1",
    )  # fmt: skip
    assert narrating.waiting("risk", "api", "u-1", {0: "OnHold"}, 0, "").note == "1 slot waits: 1 OnHold"


def node(health: Any = "Ready", *, unschedulable: bool = False, conditions: tuple[Condition, ...] = ()) -> Node:
    status = NodeStatus(health=health, conditions=conditions)
    return Node(metadata=Metadata(name="n1"), spec=NodeSpec(region="eu", unschedulable=unschedulable), status=status)


def of_node(old: Node | None, new: Node | None) -> list[str]:
    return [t.reason for t in narrating.of_node(old, new)]


def test_a_node_that_comes_goes_or_is_drained_is_told() -> None:
    assert of_node(None, node()) == ["NodeReady"]
    assert of_node(node(), node("Unknown")) == ["NodeSilent"]
    assert of_node(node("Unknown"), node("Lost")) == ["NodeLost"]
    assert of_node(node(), node()) == of_node(node(), None) == []
    assert of_node(node(), node(unschedulable=True)) == ["Cordoned"]
    assert of_node(node(unschedulable=True), node()) == ["Uncordoned"]
    evicting = Condition(type="Drained", status="False", reason="Evicting", message="2 slots are still here")
    blocked = replace(evicting, reason="Blocked", message="risk/api-1: budget")
    empty = Condition(type="Drained", status="True", reason="Empty")
    assert of_node(node(), node(conditions=(evicting,))) == []
    assert of_node(node(conditions=(evicting,)), node(conditions=(blocked,))) == ["DrainBlocked"]
    assert of_node(node(conditions=(blocked,)), node(conditions=(blocked,))) == []
    assert of_node(node(conditions=(blocked,)), node(conditions=(empty,))) == ["Drained"]


def workload(replicas: int = 3, *conditions: Condition) -> Workload:
    metadata = Metadata(name="api", namespace="risk")
    return Workload(metadata=metadata, spec=WorkloadSpec(replicas=replicas), status=WorkloadStatus(conditions=conditions))


def of_workload(old: Workload | None, new: Workload | None) -> list[str]:
    return [t.reason for t in narrating.of_workload(old, new)]


def progressing(reason: str, message: str = "", status: Any = "True") -> Condition:
    return Condition(type="Progressing", status=status, reason=reason, message=message)


def test_a_rollout_is_told_step_by_step() -> None:
    assert of_workload(workload(3), workload(5)) == ["Scaled"]
    assert of_workload(workload(), workload(3, progressing("RollingOut", "1 of 3"))) == ["RolloutProgress"]
    assert of_workload(workload(3, progressing("RollingOut", "1 of 3")), workload(3, progressing("Complete"))) == [
        "RolloutComplete"
    ]
    late = workload(3, progressing("ProgressDeadlineExceeded", "stands still", "False"))
    assert of_workload(workload(3, progressing("RollingOut")), late) == ["ProgressDeadlineExceeded"]
    assert of_workload(late, late) == of_workload(None, late) == of_workload(late, None) == []


def test_serving_and_jobs_are_told_when_they_turn() -> None:
    good = Condition(type="Serving", status="True", reason="MinServingMet", message="3 of 3 serve")
    bad = Condition(type="Serving", status="False", reason="BelowMinServing", message="1 of 3 serve")
    asleep = Condition(type="Serving", status="False", reason="Suspended")
    assert of_workload(workload(3, good), workload(3, bad)) == ["ServingBelowMin"]
    assert of_workload(workload(3, bad), workload(3, good)) == ["Serving"]
    assert of_workload(workload(3, good), workload(3, replace(good, message="4 of 4 serve"))) == []
    assert of_workload(workload(3, good), workload(3, asleep)) == []
    begun, done = Condition(type="Complete", status="False", reason="Running"), Condition(type="Complete", status="True")
    assert of_workload(workload(1, begun), workload(1, done)) == ["JobComplete"]


def test_a_region_that_is_to_run_more_or_less_is_told() -> None:
    def order(last: int) -> Assignment:
        spec = AssignmentSpec(workload="api", workload_uid="u", generation=1, region="eu", slots=(SlotRange(first=0, last=last),))
        return Assignment(metadata=Metadata(name="api.eu", namespace="risk"), spec=spec)

    assert [t.note for t in narrating.of_assignment(order(2), order(4))] == ["eu is to run 5 slots, 3 before"]
    assert [t.note for t in narrating.of_assignment(None, order(0))] == ["eu is to run 1 slots, 0 before"]
    assert list(narrating.of_assignment(order(2), order(2))) == []


def test_reasons_are_listed_once() -> None:
    assert len({row.reason for row in REASONS}) == len(REASONS)
