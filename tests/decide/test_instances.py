"""What an agent does and says, as truth tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fairlead.decide.instances import (
    BACKOFF_MOST_S,
    STABLE_S,
    Action,
    Again,
    Condition,
    Contact,
    Forget,
    Life,
    Order,
    Start,
    Stop,
    Wait,
    after_exit,
    decide,
    steps_to_report,
)
from fairlead.decide.inventory import to_stop
from fairlead.decide.probing import Streak, observe
from fairlead.model.kinds.intent import Probe
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role, SlotState, may_step

S = SlotState
TOKEN = Token(1, 1, 1)
FRESH = Contact(True, 5.0, 3600.0)
CUT = Contact(False, -1.0, 3600.0)
ALONE = Contact(False, -1.0, -1.0)
USURPED = Contact(True, 5.0, 3600.0, superseded=True)
LEAVING = Contact(True, 5.0, 3600.0, leaving=True)
UNLEASED = Contact(True, 5.0, 3600.0, -1.0)
ABSENT, RUNNING, STOPPING, ENDED = Life(), Life("running"), Life("stopping"), Life("ended", "again")


def order(state: SlotState = S.BOUND, execution: Any = "Replicated") -> Order:
    return Order(TOKEN, state, execution)


PROVISIONAL = Order(TOKEN, S.BOUND, provisional=True)


@pytest.mark.parametrize(
    ("wanted", "life", "contact", "expected"),
    [
        (order(), ABSENT, FRESH, Start),
        (order(), ABSENT, CUT, Wait),
        (PROVISIONAL, ABSENT, FRESH, Start),
        (PROVISIONAL, ABSENT, UNLEASED, Wait),
        (PROVISIONAL, ENDED, UNLEASED, Wait),
        (PROVISIONAL, ENDED, CUT, Start),
        (PROVISIONAL, RUNNING, UNLEASED, Stop),
        (PROVISIONAL, STOPPING, UNLEASED, Stop),  # at once: there is no time left to ask nicely
        (order(), RUNNING, UNLEASED, Wait),
        (order(S.READY), ABSENT, FRESH, Start),  # the machine was restarted: it comes back in place
        (order(S.UNKNOWN), ABSENT, FRESH, Wait),
        (order(S.DRAINING), ABSENT, FRESH, Wait),
        (order(S.READY), ENDED, CUT, Start),  # cut off, Replicated work is still restarted
        (order(S.UNKNOWN), ENDED, CUT, Start),
        (order(S.READY), ENDED, ALONE, Wait),
        (order(S.READY), RUNNING, CUT, Wait),
        (order(S.READY), RUNNING, ALONE, Stop),
        (order(S.READY, "Exclusive"), ENDED, CUT, Wait),
        (order(S.UNKNOWN, "Exclusive"), ENDED, FRESH, Wait),  # it may be released at any moment
        (order(S.READY, "Exclusive"), ENDED, FRESH, Start),
        (order(S.READY, "Exclusive"), RUNNING, FRESH, Wait),
        (order(S.READY), Life("ended", "again", due=False), FRESH, Wait),
        (order(S.READY), Life("ended", "failed"), FRESH, Wait),
        (order(S.STARTING), Life("ended", "succeeded"), FRESH, Wait),
        (order(S.DRAINING), RUNNING, FRESH, Stop),
        (order(S.RELEASED), RUNNING, FRESH, Stop),
        (order(S.FAILED), RUNNING, FRESH, Stop),
        (order(S.DRAINING), STOPPING, FRESH, Wait),
        (None, RUNNING, FRESH, Stop),
        (None, STOPPING, FRESH, Wait),
        (None, ENDED, FRESH, Forget),
        (None, ABSENT, FRESH, Forget),
        (None, Life("launching"), FRESH, Wait),
        (order(), ABSENT, USURPED, Wait),
        (order(S.SERVING), RUNNING, USURPED, Stop),
        (order(S.SERVING), RUNNING, LEAVING, Stop),
        (order(S.SERVING), ENDED, LEAVING, Wait),
    ],
)
def test_what_is_done(wanted: Order | None, life: Life, contact: Contact, expected: type[Action]) -> None:
    assert type(decide(wanted, life, contact)) is expected


@pytest.mark.parametrize("phase", ["running", "stopping"])
@pytest.mark.parametrize("contact", [CUT, ALONE, USURPED])
@pytest.mark.parametrize("state", [S.BOUND, S.STARTING, S.READY, S.SERVING, S.UNKNOWN, S.DRAINING])
def test_exclusive_work_is_killed_at_once_when_its_lease_is_over(phase: Any, contact: Contact, state: SlotState) -> None:
    got = decide(order(state, "Exclusive"), Life(phase), contact)
    assert isinstance(got, Stop)
    assert got.at_once


def test_what_must_end_first_is_named() -> None:
    assert decide(order(), ABSENT, FRESH, "risk/old-0") == Wait("waits for risk/old-0 to end")


def test_nothing_exclusive_is_started_without_a_fresh_lease() -> None:
    lives = [Life(phase, verdict) for phase, verdict in itertools.product(("absent", "ended"), ("", "again"))]  # type: ignore[arg-type]
    contacts = [Contact(synced, left, 3600.0) for synced, left in ((False, 5.0), (True, 0.0), (False, -1.0))]
    for life, contact, state in itertools.product(lives, contacts, SlotState):
        assert not isinstance(decide(order(state, "Exclusive"), life, contact), Start)


# --- restarts -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Always", 0, Again(0.5, 1)),
        ("Always", 3, Again(0.5, 1)),
        ("OnFailure", 0, "succeeded"),
        ("OnFailure", 3, Again(0.5, 1)),
        ("Never", 0, "succeeded"),
        ("Never", 3, "failed"),
    ],
)
def test_the_restart_policy(policy: Any, code: int, expected: object) -> None:
    assert after_exit(policy, 5, 0, code, 1.0, excused=False) == expected


def test_pauses_double_up_to_a_bound_and_end_when_the_policy_is_spent() -> None:
    delays = []
    restarts = 0
    while isinstance(got := after_exit("Always", 9, restarts, 1, 0.0, excused=False), Again):
        delays.append(got.delay_s)
        restarts = got.restarts
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, BACKOFF_MOST_S, BACKOFF_MOST_S]
    assert got == "failed"


def test_a_long_run_pays_for_the_failures_before_it() -> None:
    assert after_exit("Always", 5, 5, 1, STABLE_S, excused=False) == Again(0.5, 1)
    assert after_exit("Always", 5, 5, 1, STABLE_S - 1, excused=False) == "failed"


def test_a_run_ended_by_its_fence_is_not_counted() -> None:
    assert after_exit("Never", 0, 0, 137, 1.0, excused=True) == Again(0.0, 0)


# --- reports --------------------------------------------------------------------------------------------------------------------

CONDITIONS: tuple[Condition, ...] = ("none", "starting", "ready", "succeeded", "failed", "gone")


@pytest.mark.parametrize(("state", "condition"), list(itertools.product(SlotState, CONDITIONS)))
def test_every_reported_step_is_the_agents_to_make(state: SlotState, condition: Condition) -> None:
    here = state
    for step in steps_to_report(state, condition):
        assert may_step(here, step, Role.AGENT), f"{here} -> {step}"
        here = step


@pytest.mark.parametrize(
    ("state", "condition", "steps"),
    [
        (S.BOUND, "ready", (S.STARTING, S.READY)),
        (S.STARTING, "ready", (S.READY,)),
        (S.SERVING, "ready", ()),
        (S.SERVING, "starting", ()),  # the rollout controller withdraws traffic first
        (S.SERVING, "succeeded", ()),
        (S.SERVING, "failed", (S.FAILED,)),
        (S.READY, "starting", (S.STARTING,)),
        (S.READY, "gone", (S.STARTING,)),
        (S.BOUND, "succeeded", (S.STARTING, S.SUCCEEDED)),
        (S.BOUND, "failed", (S.FAILED,)),
        (S.DRAINING, "ready", ()),
        (S.DRAINING, "gone", (S.RELEASED,)),
        (S.DRAINING, "failed", (S.RELEASED,)),
        (S.DRAINING, "none", (S.RELEASED,)),
        (S.UNKNOWN, "ready", ()),
        (S.UNKNOWN, "failed", ()),
        (S.BOUND, "none", ()),
    ],
)
def test_the_steps_reported(state: SlotState, condition: Condition, steps: tuple[SlotState, ...]) -> None:
    assert steps_to_report(state, condition) == steps


# --- probes and inventory -------------------------------------------------------------------------------------------------------


def test_a_probes_verdict_changes_only_after_enough_in_a_row() -> None:
    probe = Probe(success_threshold=2, failure_threshold=3)
    streak, verdicts = Streak(), []
    for success in (True, False, True, True, False, False, True, False, False, False, True):
        streak = observe(streak, probe, success)
        verdicts.append(streak.passing)
    assert verdicts == [None, None, None, True, True, True, True, True, True, False, False]


def test_only_the_present_life_of_a_slot_bound_here_is_kept() -> None:
    bound = {
        "kept-0": ("n1", S.SERVING, TOKEN),
        "lost-0": ("n1", S.UNKNOWN, TOKEN),
        "moved-0": ("n2", S.SERVING, TOKEN),
        "newer-0": ("n1", S.BOUND, Token(1, 2, 1)),
        "done-0": ("n1", S.RELEASED, TOKEN),
    }
    running = [("risk", name, TOKEN) for name in (*bound, "never-0")]
    stopped = to_stop("n1", running, lambda tenant, name: bound.get(name))
    assert [name for _, name, _ in stopped] == ["moved-0", "newer-0", "done-0", "never-0"]
