"""`why` names what a stuck replica really waits for, and who owes the next move. One case each; what a whole server makes of them
is in test_asking.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.api.explaining import _next_look, _summary
from fairlead.api.steps import steps_of
from fairlead.api.waiting import LATE_S, OLD_S, late_of, next_of
from fairlead.model.lifecycle import SlotState

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


def workload(serving: int, job: Any = None, workload_class: str = "standard") -> Any:
    status = SimpleNamespace(observed_generation=1, replicas=SimpleNamespace(desired=6, serving=serving))
    metadata = SimpleNamespace(generation=1, deletion_time=None, finalizers=())
    spec = SimpleNamespace(replicas=6, job=job, workload_class=workload_class)
    return SimpleNamespace(metadata=metadata, status=status, spec=spec)


def test_a_status_that_is_late_is_called_so() -> None:
    assert "the status is late; next is workload-controller" in _summary(workload(4), [], [], [])
    assert _summary(workload(6), [], [], []) == "nothing waits: 6 of 6 serve"
    assert _summary(workload(0, job=object()), [], [], []).startswith("nothing waits"), "a job serves nobody"


def test_a_region_that_cannot_be_reached_is_not_called_settled() -> None:
    said = "4 of 6 serve; of eu-central (Lost) nothing is known: it cannot be reached; "
    assert _summary(workload(4), [], [], ["eu-central (Lost)"]) == said + "it must come back"
    assert _summary(workload(4, None, "critical"), [], [], ["eu-central (Lost)"]) == said + "next is recovery-controller"


def test_quota_and_capacity_are_told_in_the_controllers_own_words() -> None:
    for reason, owner in (("WaitingForQuota", "quota-controller"), ("WaitingForCapacity", "scheduler")):
        pending = [{"reason": reason, "count": 2, "detail": "2 CPU are missing", "nextOwner": owner}]
        assert _summary(workload(4), pending, [], []) == f"2 of 6 wait: {reason}: 2 CPU are missing; next is {owner}"


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
