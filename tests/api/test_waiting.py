"""`why` names what a stuck replica really waits for, and who owes the next move. One case each; what a whole server makes of them
is in test_asking.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.api.columns import COLUMNS
from fairlead.api.explaining import _next_look
from fairlead.api.steps import steps_of
from fairlead.api.summary import summary_of
from fairlead.api.waiting import LATE_S, OLD_S, late_of, next_of
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


def binding(state: SlotState, execution: str = "Replicated") -> Any:
    status = SimpleNamespace(state=state, last_transition=SimpleNamespace(time=NOW), drain_deadline_time=None)
    return SimpleNamespace(status=status, spec=SimpleNamespace(node="n7", execution=execution), metadata=None)


def said(state: SlotState, health: str = "Ready", execution: str = "Replicated", waits: str = "", message: str = "") -> Any:
    instance = SimpleNamespace(message=message, restarts=0) if message else None
    return next_of(binding(state, execution), instance, health, waits)


def test_bound_and_its_agent_is_well_but_slow() -> None:
    got = said(SlotState.BOUND)
    assert (got["reason"], got["nextOwner"]) == ("WaitingForAgent", "agent")


@pytest.mark.parametrize("health", ["Unknown", "Lost"])
@pytest.mark.parametrize("state", [SlotState.BOUND, SlotState.STARTING, SlotState.READY])
def test_placed_and_its_agent_is_silent(state: SlotState, health: str) -> None:
    got = said(state, health)
    assert (got["reason"], got["nextOwner"]) == ("NodeSilent", "node-controller")
    assert "n7" in got["detail"]


def test_started_and_not_ready_tells_what_its_process_says() -> None:
    got = said(SlotState.STARTING, message="readiness: connection refused")
    assert (got["reason"], got["nextOwner"]) == ("WaitingForProbes", "agent")
    assert "connection refused" in got["detail"]


def test_a_process_that_ends_again_and_again_is_told_from_one_that_is_slow() -> None:
    instance = SimpleNamespace(message="exited with code 2", restarts=3)
    got = next_of(binding(SlotState.STARTING), instance, "Ready")
    assert (got["reason"], got["nextOwner"], got["restarts"]) == ("Restarting", "agent", 3)
    assert "3 times" in got["detail"]
    assert "exited with code 2" in got["detail"]
    assert next_of(binding(SlotState.STARTING), instance, "Lost")["reason"] == "NodeSilent", "nobody starts it again there"
    assert next_of(binding(SlotState.READY), instance, "Ready")["reason"] == "WaitingForTraffic", "it runs now"


def test_exclusive_work_of_a_silent_node_waits_for_its_fence() -> None:
    got = said(SlotState.UNKNOWN, "Unknown", "Exclusive")
    assert (got["reason"], got["nextOwner"]) == ("WaitingForFence", "repair-controller")
    assert said(SlotState.UNKNOWN, "Unknown")["reason"] == "NodeSilent", "what may be replaced does not wait for it"


def test_repairs_that_wait_for_a_second_person_say_so() -> None:
    got = said(SlotState.UNKNOWN, "Lost", "Exclusive", waits="look-first: we want to see why")
    assert (got["reason"], got["nextOwner"]) == ("WaitingForApproval", "approver")
    assert "look-first" in got["detail"]
    assert said(SlotState.BOUND, waits="look-first")["reason"] == "WaitingForAgent", "nothing of it is to be repaired"


def test_a_scheduler_that_is_late_or_behind_is_named() -> None:
    due = NOW - timedelta(seconds=LATE_S)
    assert late_of(due, NOW, 0.1) == ""
    assert "does not get on" in late_of(due - timedelta(seconds=1), NOW, 0.1)
    assert "behind the plane" in late_of(None, NOW, OLD_S + 1)
    assert late_of(None, NOW, None) == ""
    assert late_of(NOW + timedelta(hours=1), NOW, OLD_S) == ""


def workload(serving: int, job: Any = None, workload_class: str = "standard", conditions: tuple[Condition, ...] = ()) -> Any:
    replicas = SimpleNamespace(desired=6, serving=serving, started=3)
    status = SimpleNamespace(observed_generation=1, replicas=replicas, conditions=conditions, pending=())
    metadata = SimpleNamespace(generation=1, deletion_time=None, finalizers=(), name="crunch", namespace="demo")
    spec = SimpleNamespace(replicas=6, job=job, workload_class=workload_class)
    return SimpleNamespace(metadata=metadata, status=status, spec=spec)


def test_a_status_that_is_late_is_called_so() -> None:
    assert "the status is late; next is workload-controller" in summary_of(workload(4), [], [], [])
    assert summary_of(workload(6), [], [], []) == "nothing waits: 6 of 6 serve"


def test_slots_that_are_started_and_fail_are_not_taken_for_a_late_status() -> None:
    failure = {"note": "slot 0 has failed on n7: driver 'docker' is not allowed on this node", "count": 6, "ageSeconds": 3.0}
    said = summary_of(workload(0), [], [], [], failure)
    assert (
        said == f"0 of 6 serve, and what is started fails: {failure['note']} (6 times, last 3 s ago); next is repair-controller"
    )
    assert summary_of(workload(6), [], [], [], failure) == "nothing waits: 6 of 6 serve"


def job_condition(kind: str, status: Any, reason: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message="0 of 2 completions, 2 failures")


RUNNING = (job_condition("Complete", "False", "Running"), job_condition("Failed", "False", "Running"))
SPENT = (RUNNING[0], job_condition("Failed", "True", "RetriesSpent"))
COMPLETE = (job_condition("Complete", "True", "Complete"), RUNNING[1])


def test_a_job_is_told_by_what_it_has_done_and_never_by_who_serves() -> None:
    assert summary_of(workload(0, job=object(), conditions=RUNNING), [], [], []) == (
        "nothing waits: 3 run, 0 of 2 completions, 2 failures"
    )
    assert summary_of(workload(0, job=object(), conditions=COMPLETE), [], [], []) == (
        "it is complete: 0 of 2 completions, 2 failures"
    )
    apart = summary_of(workload(0, job=object(), conditions=RUNNING), [], [], ["eu-central (Lost)"])
    assert apart.startswith("3 run, ")
    assert "of eu-central (Lost) nothing is known" in apart


def test_a_job_that_was_given_up_says_why_what_failed_last_and_what_to_do() -> None:
    failure = {"note": "slot 1 has failed on n7: exited with code 1", "count": 2, "ageSeconds": 7000.0}
    said = summary_of(workload(0, job=object(), conditions=SPENT), [], [], [], failure)
    assert said.startswith("Failed: RetriesSpent: 0 of 2 completions, 2 failures; the last: slot 1 has failed on n7: exited with")
    for part in ("`fairlead logs wl/crunch -n demo`", "raise spec.job.retries", "delete it and apply it anew"):
        assert part in said
    assert "the last" not in summary_of(workload(0, job=object(), conditions=SPENT), [], [], [])


def test_a_table_says_how_a_job_ended() -> None:
    reason = next(column.cell for column in COLUMNS["workloads"] if column.name == "Reason")
    for conditions, wanted in ((RUNNING, "Running"), (SPENT, "Failed (RetriesSpent)"), (COMPLETE, "Complete")):
        assert reason(workload(0, job=object(), conditions=conditions)) == wanted


def test_a_slot_of_a_job_waits_for_no_traffic_and_its_way_ends_before_the_serving() -> None:
    got = next_of(binding(SlotState.READY), None, "Ready", job=True)
    assert (got["reason"], got["nextOwner"]) == ("Running", "agent")
    assert next_of(binding(SlotState.READY), None, "Lost", job=True)["reason"] == "NodeSilent"
    way = {step["step"]: step for step in steps_of(placed(SlotState.READY), None, {}, "7", job=True)}
    assert way["serving"] == {"step": "serving", "state": "not needed"}
    assert not [step for step in way.values() if step["state"] == "stuck"]


def test_what_serves_in_place_of_a_lost_region_is_told_of() -> None:
    stands = Condition(type="Recovering", status="True", reason="RegionLost", message="for eu-central: 2 in us-west")
    said = summary_of(workload(6, conditions=(stands,)), [], [], [])
    assert said == "nothing waits: 6 of 6 serve; RegionLost, for eu-central: 2 in us-west"
    apart = summary_of(workload(6, conditions=(stands,)), [], [], ["eu-central (Lost)"])
    assert apart.startswith("6 of 6 serve; of eu-central (Lost) nothing is known")
    assert "2 in us-west" in apart


def test_a_region_that_cannot_be_reached_is_not_called_settled() -> None:
    said = "4 of 6 serve; of eu-central (Lost) nothing is known: it cannot be reached; "
    assert summary_of(workload(4), [], [], ["eu-central (Lost)"]) == said + "it must come back"
    assert summary_of(workload(4, None, "critical"), [], [], ["eu-central (Lost)"]) == said + "next is recovery-controller"


def test_quota_and_capacity_are_told_in_the_controllers_own_words() -> None:
    for reason, owner in (("WaitingForQuota", "quota-controller"), ("WaitingForCapacity", "scheduler")):
        pending = [{"reason": reason, "count": 2, "detail": "2 CPU are missing", "nextOwner": owner}]
        assert summary_of(workload(4), pending, [], []) == f"2 of 6 wait: {reason}: 2 CPU are missing; next is {owner}"


# --- step by step --------------------------------------------------------------------------------------------------------


def walked(slot: Any, instance: Any = None, **shown: Any) -> dict[str, str]:
    return {step["step"]: step["state"] for step in steps_of(slot, instance, shown, "7")}


def told(slot: Any, step: str, instance: Any = None, **shown: Any) -> str:
    return str(next(one for one in steps_of(slot, instance, shown, "7") if one["step"] == step).get("evidence", ""))


def request(state: SlotState = SlotState.PENDING) -> Any:
    status = SimpleNamespace(state=state, last_transition=SimpleNamespace(time=NOW, by="scheduler-0", before=None))
    spec = SimpleNamespace(generation=3, epoch=9, priority=500)
    return SimpleNamespace(status=status, spec=spec, metadata=SimpleNamespace(creation_time=NOW))


def placed(state: SlotState, before: SlotState | None = None) -> Any:
    last = SimpleNamespace(time=NOW, by="us-east-server", to=state, before=before)
    status = SimpleNamespace(state=state, last_transition=last, before_unknown=before if state is SlotState.UNKNOWN else None)
    spec = SimpleNamespace(
        generation=3, node="n7", token=SimpleNamespace(incarnation=1, epoch=9, attempt=2), policy_revision=4, grant_version=5,
        decision="d1", claimed="",
    )  # fmt: skip
    return SimpleNamespace(status=status, spec=spec, metadata=SimpleNamespace(creation_time=NOW))


WAY = ("desired", "queued", "reserved", "bound", "started", "ready", "serving", "repaired")


@pytest.mark.parametrize(
    ("slot", "states"),
    [
        (request(), "done done ahead stuck ahead ahead ahead not-needed"),
        (request(SlotState.RESERVED), "done done done stuck ahead ahead ahead not-needed"),
        (placed(SlotState.BOUND), "done done not-needed done stuck ahead ahead not-needed"),
        (placed(SlotState.STARTING), "done done not-needed done done stuck ahead not-needed"),
        (placed(SlotState.READY), "done done not-needed done done done stuck not-needed"),
        (placed(SlotState.SERVING), "done done not-needed done done done done not-needed"),
        (placed(SlotState.UNKNOWN, SlotState.SERVING), "done done not-needed done done done done stuck"),
        (placed(SlotState.FAILED, SlotState.STARTING), "done done not-needed done done ahead ahead stuck"),
        (placed(SlotState.DRAINING, SlotState.READY), "done done not-needed done done done ahead stuck"),
    ],
)
def test_a_slots_way_shows_what_was_done_and_the_one_step_at_which_it_stands_still(slot: Any, states: str) -> None:
    assert walked(slot) == dict(zip(WAY, (state.replace("-", " ") for state in states.split()), strict=True))


def test_each_step_of_the_way_has_its_evidence() -> None:
    decision = {
        "policyRevision": 4, "detail": "of 5 nodes: 5 cpu", "nodes": {"lookedAt": 5, "feasible": 0, "ruledOut": {"cpu": 5}},
        "evidence": {"observedRevision": "88", "ageSeconds": 0.25}, "epoch": 9, "queuedSeconds": 2.5,
    }  # fmt: skip
    waits = {"reason": "WaitingForCapacity", "detail": "of 5 nodes: 5 cpu", "nextOwner": "scheduler", "lastDecision": decision}
    assert told(request(), "queued") == "epoch 9, priority 500, revision 7"
    stuck = told(request(), "bound", **waits)
    for part in ("WaitingForCapacity", "next is scheduler", "policy 4", "0 of 5 nodes", "5 ruled out by cpu", "88", "0.2 s old"):
        assert part in stuck
    assert told(request(), "bound") == "no scheduler has decided about it yet"
    bound = placed(SlotState.STARTING)
    assert told(bound, "queued", lastDecision=decision) == "epoch 9, 2.5 s until it was decided"
    assert told(bound, "bound") == "n7, token 1.9.2, policy 4, grant 5, decision d1"
    instance = SimpleNamespace(started_time=NOW, ready_time=None, ready=False, restarts=2)
    assert told(bound, "started", instance) == "started again 2 times"
    assert "us-east-server" in told(placed(SlotState.SERVING), "serving")


def test_the_next_look_is_the_one_that_was_decided_last_of_this_life() -> None:
    said_at, decided_at = NOW, NOW + timedelta(seconds=50)
    request = SimpleNamespace(status=SimpleNamespace(next_attempt_time=said_at), spec=SimpleNamespace(epoch=9))

    def decided(epoch: int, when: datetime) -> Any:
        return SimpleNamespace(attempt=SimpleNamespace(epoch=epoch, next_attempt_ms=int(when.timestamp() * 1000)))

    assert _next_look(request, None) == said_at
    assert _next_look(request, decided(8, decided_at)) == said_at, "of an earlier life"
    assert _next_look(request, decided(9, decided_at)) == decided_at, "a status is not written again for the same reason"
    assert _next_look(request, decided(9, said_at - timedelta(seconds=5))) == said_at
