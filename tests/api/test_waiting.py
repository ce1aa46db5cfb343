"""`why` names what a stuck replica really waits for, and who owes the next move. One case each; what a whole server makes of them
is in test_asking.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.api.explaining import _summary
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


def workload(serving: int, job: Any = None) -> Any:
    status = SimpleNamespace(observed_generation=1, replicas=SimpleNamespace(desired=6, serving=serving))
    metadata = SimpleNamespace(generation=1, deletion_time=None, finalizers=())
    return SimpleNamespace(metadata=metadata, status=status, spec=SimpleNamespace(replicas=6, job=job))


def test_a_status_that_is_late_is_called_so() -> None:
    assert "the status is late; next is workload-controller" in _summary(workload(4), [], [], [])
    assert _summary(workload(6), [], [], []) == "nothing waits: 6 of 6 serve"
    assert _summary(workload(0, job=object()), [], [], []).startswith("nothing waits"), "a job serves nobody"


def test_a_region_that_cannot_be_reached_is_not_called_settled() -> None:
    got = _summary(workload(4), [], [], ["eu-central"])
    assert got == "4 of 6 serve; of eu-central nothing is known: it cannot be reached"


def test_quota_and_capacity_are_told_in_the_controllers_own_words() -> None:
    for reason, owner in (("WaitingForQuota", "quota-controller"), ("WaitingForCapacity", "scheduler")):
        pending = [{"reason": reason, "count": 2, "detail": "2 CPU are missing", "nextOwner": owner}]
        assert _summary(workload(4), pending, [], []) == f"2 of 6 wait: {reason}: 2 CPU are missing; next is {owner}"
