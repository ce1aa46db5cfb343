"""What agents hold for firm, and until when the rest may run: asked of a model in which words come late and out of order."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.escrow import Amounts, smallest, within
from fairlead.decide.granting import in_force
from fairlead.decide.lasting import AS_TOLD, Granted, GrantWord, Leases, is_settled, leases_at, staying, word_of
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

END = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
END_MS = round(END.timestamp() * 1000)
TERM = GrantTerm(Metadata(name="us"), GrantTermSpec("us"), GrantTermStatus(incarnation=1, end_time=END))


def grant(after: int, **fields: object) -> Grant:
    status = GrantStatus(accepted_version=1, during=Resources(4_000, 0), after=Resources(after, 0), incarnation=1, **fields)  # type: ignore[arg-type]
    spec = GrantSpec("us", 1, Resources(4_000, 0), Resources(after, 0), lease_seconds=600)
    return Grant(Metadata(name="us", namespace="risk"), spec, status)


def test_those_who_use_more_than_stays_or_have_a_lease_of_their_own_are_named() -> None:
    own = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    grants = {"within": grant(1_000), "above": grant(1_000), "outrun": grant(1_000, lease_end_time=own)}
    used: dict[str, Amounts] = {"within": {"cpu": 1_000}, "above": {"cpu": 1_001}, "outrun": {"cpu": 1}}
    found = leases_at(7, grants, TERM, 1, used)
    assert found == Leases(7, END_MS, {"above": END_MS, "outrun": END_MS - 300_000})
    assert word_of(found, END_MS - 1_500) == GrantWord(7, 1.5, {"above": 1.5, "outrun": 0.0})
    assert leases_at(7, grants, TERM, 2, used) is None, "in another history nothing was leased yet"
    assert leases_at(7, grants, None, 1, used) is None
    assert leases_at(7, {}, TERM, 1, {}) == Leases(7, 0, {}), "where nothing is leased, all that is there stays"
    assert [is_settled(grants[name], TERM, 1, used[name]) for name in grants] == [True, False, False]
    assert not is_settled(grants["within"], TERM, 2, {})
    assert not is_settled(grants["within"], None, 1, {})
    assert is_settled(None, TERM, 1, {"cpu": 9})


def test_the_answer_that_leases_the_others_prolongs_nothing_of_a_tenant_whose_offer_was_taken_in_lost_history() -> None:
    """Its region has not taken one since: what is above `after` may be another region's when the lease that it had is over."""
    again = replace(TERM, status=replace(TERM.status, incarnation=2))
    taken = grant(1_000)
    grants = {"taken": replace(taken, status=replace(taken.status, incarnation=2)), "lost": taken}
    found = leases_at(7, grants, again, 2, {"taken": {"cpu": 1}, "lost": {"cpu": 1}})
    assert found == Leases(7, END_MS, {"lost": AS_TOLD})
    word = word_of(found, END_MS - 60_000)
    for before, until in ((GrantWord(9, 5.0, {}), 4.0), (GrantWord(9, 90.0, {"lost": 8.0}), 7.0)):
        told = Granted().told(before, 0.0, 0.0, 1.0).told(word, 2.0, 0.0, 1.0)
        assert (told.until("lost"), told.is_firm("lost", 1)) == (until, False)
        assert (told.until("taken"), told.is_firm("taken", 7)) == (61.0, True)
        assert told.told(word, 3.0, 0.0, 1.0).until("lost") == until, "however often it is said"
    assert Granted().told(word, 2.0, 0.0, 1.0).until("lost") == -math.inf, "nothing was said of it yet"


def test_what_an_emergency_added_does_not_stay_and_nothing_does_in_another_history() -> None:
    for after, stays in ((3_000, 1_500), (2_000, 1_500), (1_000, 1_000)):  # of 4,000, with the emergency's
        given_more = grant(after, emergency=Resources(2_500, 0), emergency_end_time=END)
        assert staying(given_more, 1)["cpu"] == stays
        for minutes in (-1, 0, 60):  # the emergency ends with the lease here
            allowed = in_force(given_more, TERM, 1, END_MS + minutes * 60_000)
            assert allowed.after.cpu == stays, "agents are told what the authority goes by"
            assert allowed.limit.cpu == (4_000 if minutes < 0 else stays)
    assert staying(grant(3_000), 1)["cpu"] == 3_000
    assert staying(grant(3_000), 2) == {}


def test_an_agent_counts_from_when_it_asked_with_a_clock_that_may_be_slow_and_hears_no_older_word() -> None:
    nothing = Granted()
    assert (nothing.until("risk"), nothing.is_firm("risk", 0)) == (-math.inf, False)
    told = nothing.told(GrantWord(5, 100.0, {"risk": 10.0}), 50.0, 0.01, 1.0)
    assert (told.until("risk"), told.until("search")) == (50.0 + 9.9 - 1.0, 50.0 + 99.0 - 1.0)
    assert (told.is_firm("search", 5), told.is_firm("search", 6), told.is_firm("risk", 5)) == (True, False, False)
    assert told.told(GrantWord(9, 1_000.0, {}), 49.0, 0.01, 1.0) is told


class Bound(NamedTuple):
    position: int
    amount: int
    provisional: bool


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["bind", "end", "offer", "look", "hear", "confirm"]), st.integers(0, 9)), max_size=60))
def test_what_agents_hold_for_firm_never_exceeds_what_stays(steps: list[tuple[str, int]]) -> None:
    """One tenant. `look` makes a word, `hear` delivers any of those made so far: late, twice, in any order."""
    after, position = 4, 0
    running: dict[int, Bound] = {}
    firm: set[int] = set()
    words: list[GrantWord] = []
    for step, n in steps:
        used = sum(bound.amount for bound in running.values())
        if step == "bind" and used + n <= 12:
            position += 1
            running[position] = Bound(position, n, not within({"cpu": used + n}, {"cpu": after}))
        elif step == "end" and running:
            position += 1
            running.pop(sorted(running)[n % len(running)])
        elif step == "offer" and within(smallest({"cpu": used}, {"cpu": after}), {"cpu": n}):  # as granting.take has it
            position, after = position + 1, n
        elif step == "look":
            made = leases_at(position, {"risk": grant(after)}, TERM, 1, {"risk": {"cpu": used}})
            assert made is not None
            words.append(word_of(made, 0))
        elif step == "hear" and words:
            heard = Granted().told(words[n % len(words)], 0.0, 0.01, 1.0)
            firm |= {key for key, bound in running.items() if heard.is_firm("risk", bound.position)}
        elif step == "confirm" and running and is_settled(grant(after), TERM, 1, {"cpu": used}):
            position += 1  # it is written into the binding, which agents hear of as it is, late or never
            key = sorted(running)[n % len(running)]
            running[key] = Bound(position, running[key].amount, provisional=False)
        lasting = sum(b.amount for key, b in running.items() if key in firm or not b.provisional)
        assert lasting <= after
