"""While it waits: every reason, the backoff, the resync, the holds, and what is said at each moment."""

from __future__ import annotations

import pytest

from fairlead.model.kinds.work import SchedulingRequestStatus
from fairlead.model.lifecycle import SlotState
from fairlead.scheduler.units import NEXT_OWNER
from fairlead.scheduler.wakeups import NodeFreed
from tests.scheduler.queues import GI, T0, at, names, queue, request, said

REASONS = (
    "Deactivated, OnHold, Misconfigured, NoMatchingCapacity, ResidencyBlocked, PolicyAuthorityUnreachable, Suspended, Gated, "
    "ExceedsMaxQuota, WaitingForQuota, WaitingForCapacity, TopologyBlocked, WaitingForGang, WaitingForVictims, BackingOff, "
    "PendingEvaluation"
)


def test_the_reasons_are_those_of_the_conventions_in_their_order() -> None:
    assert ", ".join(NEXT_OWNER) == REASONS


def test_before_the_first_try_a_request_is_pending_evaluation_and_due_now() -> None:
    made = queue(request())
    assert said(made, "api-0") == ("risk", "api-0", "PendingEvaluation", T0, "scheduler", T0, "", False)


@pytest.mark.parametrize("reason", sorted(NEXT_OWNER))
def test_a_failure_is_said_with_its_reason_since_owner_and_next_attempt(reason: str) -> None:
    made = queue(request())
    made.failed(made.take(1, T0)[0], reason, {"cpu": 3}, "needs 1 cpu", T0 + 40)
    got = said(made, "api-0")
    assert (got.reason, got.detail, got.next_owner) == (reason, "needs 1 cpu", NEXT_OWNER[reason])
    assert got.since_ms == (T0 if reason == "PendingEvaluation" else T0 + 40)
    assert T0 + 840 <= got.next_attempt_ms <= T0 + 1_240


def test_an_unknown_reason_is_a_bug() -> None:
    made = queue(request())
    with pytest.raises(AssertionError, match="not a pending reason"):
        made.failed(made.take(1, T0)[0], "Pending", (), "", T0)


def test_since_tells_when_the_reason_began_not_when_it_was_last_found() -> None:
    made = queue(request())
    now = T0
    for _ in range(3):
        made.failed(made.take(1, now)[0], "WaitingForCapacity", ("cpu",), f"at {now - T0}", now)
        now = said(made, "api-0").next_attempt_ms
        made.due(now)
    assert said(made, "api-0").since_ms == T0
    assert said(made, "api-0").detail != "at 0", "the detail is the latest"


def test_the_wait_doubles_with_jitter_up_to_the_resync() -> None:
    made = queue(request(), seed=5)
    now, delays = T0, []
    for _ in range(9):
        made.failed(made.take(1, now)[0], "WaitingForCapacity", ("cpu",), "", now)
        until = said(made, "api-0").next_attempt_ms
        delays.append(until - now)
        assert made.due(until - 1) == 0
        assert made.due(until) == 1
        now = until
    for number, delay in enumerate(delays):
        base = min(1_000 * 2**number, 25_000)
        assert 0.8 * base <= delay <= 1.2 * base
    assert max(delays) <= 30_000
    assert len({delay % 1_000 for delay in delays}) > 5, "the jitter is drawn anew each time"


def test_the_wait_goes_up_to_its_own_limit_where_the_resync_is_longer() -> None:
    made = queue(request(), resync_ms=600_000)
    now = T0
    for _ in range(8):
        made.failed(made.take(1, now)[0], "WaitingForCapacity", ("cpu",), "", now)
        delay = said(made, "api-0").next_attempt_ms - now
        now += delay
        made.due(now)
    assert 48_000 <= delay <= 72_000


def test_requests_that_fail_together_come_back_apart() -> None:
    made = queue(*(request(name=f"w-{i}") for i in range(50)))
    for item in made.take(50, T0):
        made.failed(item, "WaitingForCapacity", ("cpu",), "", T0)
    assert len({pending.next_attempt_ms for pending in made.pending()}) > 40


def test_a_lost_race_costs_nothing_three_times_and_then_a_wait() -> None:
    made = queue(request())
    for _ in range(3):
        made.give_back(made.take(1, T0)[0], T0)
    made.give_back(made.take(1, T0)[0], T0)
    assert made.take(1, T0) == []
    got = said(made, "api-0")
    assert (got.reason, got.next_owner, got.detail) == ("BackingOff", "scheduler", "lost 4 races for a place")
    assert T0 + 800 <= got.next_attempt_ms <= T0 + 1_200


def test_what_may_not_be_bound_before_a_moment_is_tried_then_however_often_it_was_put_off() -> None:
    made, now = queue(request()), T0
    for left_ms in (32_000, 20_000, 7_000):
        made.put_off(made.take(1, now)[0], left_ms, "a node that is forgotten may run it", now)
        got = said(made, "api-0")
        assert (got.reason, got.detail) == ("BackingOff", "a node that is forgotten may run it")
        assert got.next_attempt_ms == now + min(left_ms, 30_000), "no later than the resync"
        now = got.next_attempt_ms
        assert made.due(now) == 1


def test_what_is_put_off_until_nobody_knows_when_is_asked_again_every_few_seconds() -> None:
    made, now, delays = queue(request()), T0, []
    for _ in range(8):
        made.put_off(made.take(1, now)[0], 0, "a node has not said what it runs", now)
        delays.append(said(made, "api-0").next_attempt_ms - now)
        now += delays[-1]
        made.due(now)
    assert 800 <= delays[0] <= 1_200
    assert delays[-3:] == [5_000] * 3


def test_races_lost_for_one_place_after_another_cost_nothing_however_long_it_waits() -> None:
    made = queue(request())
    for _ in range(10):
        made.give_back(made.take(1, T0)[0], T0)
        made.failed(made.take(1, T0)[0], "WaitingForCapacity", ("cpu",), "", T0)
        assert made.wake(NodeFreed("n1", {"cpu": 1_000, "memory": GI}), T0) == 1, "it hears of the next place"
    made.give_back(made.take(1, T0)[0], T0)
    assert made.ready_slots == 1


def test_progress_that_only_the_resync_made_is_counted() -> None:
    made = queue(request(name="a-0"), request(name="b-0"), request(name="c-0"))
    first, second, third = made.take(3, T0)
    made.failed(first, "WaitingForCapacity", ("cpu",), "", T0)
    made.failed(second, "WaitingForCapacity", ("cpu",), "", T0)
    made.placed(third)
    assert made.wake(NodeFreed("n1", {"cpu": 1_000, "memory": GI}), T0) == 1
    made.placed(made.take(1, T0)[0])
    assert made.meters(T0).resync_only_progress_total == 0
    assert made.due(T0 + 2_000) == 1
    made.placed(made.take(1, T0)[0])
    assert made.meters(T0).resync_only_progress_total == 1


def test_a_wake_up_after_a_resync_that_did_not_help_is_no_progress_of_the_resync() -> None:
    made = queue(request())
    made.failed(made.take(1, T0)[0], "WaitingForCapacity", ("cpu",), "", T0)
    assert made.due(T0 + 2_000) == 1
    made.failed(made.take(1, T0 + 2_000)[0], "WaitingForCapacity", ("cpu",), "", T0 + 2_000)
    assert made.wake(NodeFreed("n1", {"cpu": 1_000, "memory": GI}), T0 + 2_001) == 1
    made.placed(made.take(1, T0 + 2_001)[0])
    assert made.meters(T0).resync_only_progress_total == 0


def test_a_race_that_had_to_wait_is_no_missed_wake_up() -> None:
    made = queue(request(), races_at_once=0)
    made.give_back(made.take(1, T0)[0], T0)
    made.due(T0 + 2_000)
    made.placed(made.take(1, T0)[0])
    assert made.meters(T0).resync_only_progress_total == 0


def test_next_due_is_the_earliest_timer_and_none_when_nothing_waits() -> None:
    made = queue(request(name="a-0"), request(name="b-0"))
    assert made.next_due_ms() is None
    first, second = made.take(2, T0)
    made.failed(second, "WaitingForCapacity", ("cpu",), "", T0 + 5_000)
    made.failed(first, "WaitingForCapacity", ("cpu",), "", T0)
    assert made.next_due_ms() == said(made, "a-0").next_attempt_ms
    made.remove("risk", "a-0")
    assert made.next_due_ms() == said(made, "b-0").next_attempt_ms


def test_one_call_of_due_is_bounded_and_the_next_goes_on() -> None:
    made = queue(*(request(name=f"w-{i}") for i in range(10)), due_max=4)
    for item in made.take(10, T0):
        made.failed(item, "WaitingForCapacity", ("cpu",), "", T0)
    assert [made.due(T0 + 5_000) for _ in range(4)] == [4, 4, 2, 0]


def test_a_suspended_request_is_tried_by_nobody_until_it_is_resumed() -> None:
    made = queue(request(suspend=True))
    for now in (T0, T0 + 31_000, T0 + 62_000):
        made.due(now)
        assert made.take(1, now) == []
    got = said(made, "api-0")
    assert (got.reason, got.next_owner, got.since_ms) == ("Suspended", "user", T0)
    assert T0 + 62_000 < got.next_attempt_ms <= T0 + 92_000
    assert made.meters(T0).pending["held"] == 1
    made.upsert(request(generation=2), T0 + 70_000)
    assert names(made.take(1, T0 + 70_000)) == ["api-0"]


def test_a_request_that_is_suspended_while_it_waits_stops_waiting() -> None:
    made = queue(request())
    made.upsert(request(suspend=True, generation=2), T0)
    assert made.take(1, T0) == []
    assert said(made, "api-0").reason == "Suspended"


def test_a_tenant_on_hold_is_passed_over_and_said_to_be_held() -> None:
    made = queue(request("a", "x-0"), request("b", "y-0", created=1))
    made.hold("a", "", "ada: incident 7", T0 + 60_000, T0)
    assert names(made.take(5, T0)) == ["y-0"]
    got = said(made, "x-0", "a")
    assert (got.reason, got.next_owner, got.since_ms, got.next_attempt_ms) == ("OnHold", "operator", T0, T0 + 60_000)
    assert "ada: incident 7" in got.detail
    assert made.meters(T0).reasons == {"OnHold": 1, "PendingEvaluation": 1}
    made.release("a", "", T0 + 10)
    assert names(made.take(5, T0 + 10)) == ["x-0"]


@pytest.mark.parametrize("workload", ["", "x"])
def test_what_waits_for_something_else_says_that_again_when_a_hold_is_over(workload: str) -> None:
    made = queue(request("a", "x-0"))
    made.failed(made.take(1, T0)[0], "WaitingForQuota", {"cpu": 3}, "5 more cpu", T0)
    made.said(10)
    made.hold("a", workload, "ada", T0 + 60_000, T0)
    ((held, _),) = made.said(10)
    assert (held.reason, held.next_attempt_ms) == ("OnHold", T0 + 60_000)
    made.hold("a", workload, "ada, for longer", T0 + 90_000, T0)
    ((held, _),) = made.said(10)
    assert held.next_attempt_ms == T0 + 90_000
    made.release("a", workload, T0 + 90_000)
    ((waits, _),) = made.said(10)
    assert (waits.reason, waits.detail) == ("WaitingForQuota", "5 more cpu")


def test_a_hold_ends_by_itself() -> None:
    made = queue(request("a", "x-0"))
    made.hold("a", "", "ada", T0 + 60_000, T0)
    assert made.take(5, T0) == []
    assert made.next_due_ms() == T0 + 60_000
    made.due(T0 + 60_000)
    assert names(made.take(5, T0 + 60_000)) == ["x-0"]


def test_an_extended_hold_does_not_end_at_its_first_time() -> None:
    made = queue(request("a", "x-0"))
    made.hold("a", "", "ada", T0 + 60_000, T0)
    made.hold("a", "", "ada", T0 + 90_000, T0)
    made.due(T0 + 60_000)
    assert made.take(5, T0 + 60_000) == []
    made.due(T0 + 90_000)
    assert names(made.take(5, T0 + 90_000)) == ["x-0"]


def test_one_workload_on_hold_does_not_hold_the_tenants_others() -> None:
    made = queue(request(name="x-0"), request(name="x-1"), request(name="y-0", created=1))
    made.hold("risk", "x", "ada", T0 + 60_000, T0)
    assert said(made, "x-0").reason == "OnHold", "at once, before it came up"
    assert names(made.take(5, T0)) == ["y-0"]
    assert {said(made, f"x-{i}").reason for i in range(2)} == {"OnHold"}
    assert made.meters(T0).pending["held"] == 2
    made.due(T0 + 31_000)
    assert made.take(5, T0 + 31_000) == [], "a look at the resync does not let it go"
    made.release("risk", "x", T0 + 32_000)
    assert made.next_due_ms() == T0 + 32_000
    made.due(T0 + 32_000)
    assert names(made.take(5, T0 + 32_000)) == ["x-0", "x-1"]
    assert said(made, "x-0").reason == "PendingEvaluation"


def test_a_deadline_that_cannot_be_met_is_reported_and_still_tried() -> None:
    made = queue(request(name="late-0", deadline=5_000), request(name="fine-0", deadline=60_000), min_start_ms=2_000)
    assert made.next_due_ms() == T0 + 3_000
    made.due(T0 + 2_999)
    assert list(made.hopeless()) == []
    made.due(T0 + 3_000)
    assert names(list(made.hopeless())) == ["late-0"]
    got = said(made, "late-0")
    assert got.hopeless
    assert "deadline" in got.detail
    assert not said(made, "fine-0").hopeless
    late = made.take(1, T0 + 3_000)[0]
    assert (late.name, late.hopeless) == ("late-0", True)
    made.placed(late)
    assert list(made.hopeless()) == []
    assert made.meters(T0).hopeless == 0


def test_a_request_keeps_its_place_when_only_its_status_changes() -> None:
    made = queue(request())
    made.failed(made.take(1, T0)[0], "WaitingForCapacity", ("cpu",), "full", T0)
    made.upsert(request(status=SchedulingRequestStatus(reason="WaitingForCapacity", since_time=at(0))), T0 + 10)
    assert said(made, "api-0").reason == "WaitingForCapacity"
    assert made.take(1, T0 + 10) == []


def test_a_new_generation_is_evaluated_at_once() -> None:
    made = queue(request())
    made.failed(made.take(1, T0)[0], "WaitingForCapacity", ("cpu",), "full", T0)
    made.upsert(request(generation=2, cpu=500), T0 + 10)
    assert made.take(1, T0 + 10)[0].request.spec.generation == 2


def test_what_is_in_hand_is_never_changed_and_its_late_report_is_harmless() -> None:
    made = queue(request())
    old = made.take(1, T0)[0]
    made.upsert(request(generation=2), T0)
    assert old.request.spec.generation == 1
    new = made.take(1, T0)[0]
    made.failed(old, "WaitingForCapacity", ("cpu",), "", T0)
    assert said(made, "api-0").reason == "PendingEvaluation", "the report is about another generation"
    made.placed(new)
    made.placed(new)
    assert list(made.pending()) == []
    assert made.meters(T0).pending == {"ready": 0, "taken": 0, "backoff": 0, "held": 0}


def test_a_withdrawn_request_is_gone_from_everywhere() -> None:
    made = queue(request(name="a-0"), request(name="b-0"), request(name="c-0"))
    first, second = made.take(2, T0)
    made.failed(second, "WaitingForCapacity", ("cpu",), "", T0)
    for name in ("a-0", "b-0", "c-0", "never-0"):
        made.remove("risk", name)
    made.give_back(first, T0)
    assert list(made.pending()) == []
    assert made.due(T0 + 60_000) == 0
    assert made.wake(NodeFreed("n1", {"cpu": 9_000, "memory": 9 * GI}), T0) == 0
    assert made.take(5, T0) == []


def test_a_reserved_slot_is_not_handed_out_again() -> None:
    made = queue(request(status=SchedulingRequestStatus(state=SlotState.RESERVED)))
    assert made.take(1, T0) == []
    assert said(made, "api-0").reason == "WaitingForVictims"
    made.upsert(request(), T0)
    assert names(made.take(1, T0)) == ["api-0"]


def test_a_slot_reserved_while_in_hand_stays_in_hand() -> None:
    made = queue(request())
    item = made.take(1, T0)[0]
    made.upsert(request(status=SchedulingRequestStatus(state=SlotState.RESERVED)), T0)
    assert made.take(1, T0) == []
    assert made.meters(T0).pending == {"ready": 0, "taken": 1, "backoff": 0, "held": 0}
    made.failed(item, "WaitingForCapacity", ("cpu",), "", T0)
    assert said(made, "api-0").reason == "WaitingForVictims"
    assert made.take(1, T0) == []


def test_what_another_scheduler_said_holds_until_it_is_tried_again() -> None:
    status = SchedulingRequestStatus(reason="WaitingForQuota", detail="asks 4, 1 left", since_time=at(-9_000))
    made = queue(request(status=status))
    assert said(made, "api-0")[2:4] == ("WaitingForQuota", T0 - 9_000)
    assert names(made.take(1, T0)) == ["api-0"]


def test_what_changed_is_said_once_the_longest_unsaid_first() -> None:
    made = queue(*(request(name=f"w-{i}") for i in range(4)))
    assert made.said(9) == [], "what a new request's status says is true"
    items = made.take(4, T0)
    for item in (items[2], items[0], items[3]):
        made.failed(item, "WaitingForCapacity", ("cpu",), "full", T0)
    made.remove("risk", "w-3")
    assert [pending.name for pending, _ in made.said(1)] == ["w-2"]
    assert [pending.name for pending, _ in made.said(9)] == ["w-0"]
    assert made.said(9) == []
    made.upsert(request(name="w-0", status=SchedulingRequestStatus(reason="WaitingForCapacity", detail="full")), T0)
    made.due(T0 + 2_000)
    for item in made.take(2, T0 + 2_000):
        made.failed(item, "TopologyBlocked", ("spread",), "zones", T0 + 2_000)
    assert [pending.reason for pending, _ in made.said(9)] == ["TopologyBlocked"] * 2


def test_the_meters_count_slots_by_place_and_reason_and_the_oldest() -> None:
    made = queue(
        request(name="a-0", created=-4_000), request(name="b-0", suspend=True), *(request(name=f"c-{i}") for i in range(3))
    )
    taken = made.take(3, T0)
    made.failed(taken[1], "WaitingForQuota", ("quota",), "", T0)
    meters = made.meters(T0 + 1_000)
    assert meters.pending == {"ready": 1, "taken": 2, "backoff": 1, "held": 1}
    assert meters.reasons == {"PendingEvaluation": 3, "Suspended": 1, "WaitingForQuota": 1}
    assert meters.oldest_age_ms == 5_000
    made.placed(taken[0])
    assert made.meters(T0 + 1_000).oldest_age_ms == 1_000


def test_usage_that_includes_what_is_in_hand_does_not_count_it_twice() -> None:
    made = queue(*(request(t, f"{t}-{i}", cpu=1_000, memory=0) for t in "ab" for i in range(9)))
    first = made.take(2, T0)
    made.set_usage("a", {"cpu": 1_000}, with_taken=True)
    made.set_usage("b", {"cpu": 0})
    assert [made._tenants[t].used["cpu"] for t in "ab"] == [1_000, 1_000]
    for item in first:
        made.placed(item)
    made.set_usage("a", {"cpu": 1_000})
    assert made._tenants["a"].used["cpu"] == 1_000
    item = made.take(1, T0)[0]
    made.set_usage(item.tenant, {"cpu": 2_000}, with_taken=True)
    made.give_back(item, T0)
    assert made._tenants[item.tenant].used["cpu"] == 1_000
