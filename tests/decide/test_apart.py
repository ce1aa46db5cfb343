"""Since when a region is without the global plane, by two signs that may come together: one cut is one cut."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.decide.apart import Contact, answered, is_open, is_unreported, looked, placed_since_ms, with_ended
from fairlead.decide.cut_off import missed_ms
from fairlead.decide.escrow import RHO, holder_ms
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.quota import EndedApart, GrantTerm, GrantTermSpec, GrantTermStatus, MergeReport
from fairlead.model.meta import Metadata
from tests.decide.test_merging import bound

LEASE_S, PATIENCE_MS = 600, 10_100
WORD_MS = 1_000_000  # when the last lease was asked for


def term(**status: Any) -> GrantTerm:
    end = instant(WORD_MS + holder_ms(LEASE_S * 1000, RHO))
    said = GrantTermStatus(incarnation=1, asked=1, taken=1, knows=1, end_time=end, **status)
    return GrantTerm(Metadata(name="us"), GrantTermSpec("us", lease_seconds=LEASE_S), said)


def contact(heard_ms: int | None, began_ms: int = 0, since_ms: int = 0) -> Contact:
    return Contact(began_ms, heard_ms, since_ms, PATIENCE_MS)


def told(made: GrantTerm, status: GrantTermStatus) -> GrantTerm:
    return replace(made, status=status)


def reported(made: GrantTerm) -> GrantTerm:
    return told(made, replace(made.status, merge=MergeReport(cut_time=made.status.cut_time)))


def test_a_silence_opens_a_cut_at_the_last_answer_and_the_next_one_ends_it() -> None:
    heard = WORD_MS + 50_000
    assert looked(term(), contact(heard), heard + PATIENCE_MS) == term().status
    opened = looked(term(), contact(heard), heard + PATIENCE_MS + 1)
    assert (opened.cut_time, opened.healed_time) == (instant(heard), None)
    assert is_open(opened)
    later = told(term(), opened)
    assert looked(later, contact(heard), heard + 60_000) == opened, "written once"
    healed = looked(later, contact(heard + 61_500, since_ms=heard + 61_000), heard + 62_000)
    assert (healed.cut_time, healed.healed_time) == (instant(heard), instant(heard + 61_000))
    assert is_unreported(healed)
    assert not is_unreported(reported(told(term(), healed)).status)


def test_a_leader_that_never_heard_anything_begins_with_the_last_word_that_was_written_down() -> None:
    began = WORD_MS + 100_000
    assert looked(term(), contact(None, began), began + PATIENCE_MS) == term().status
    opened = looked(term(), contact(None, began), began + PATIENCE_MS + 1)
    assert opened.cut_time == instant(WORD_MS)
    never = GrantTerm(Metadata(name="us"), GrantTermSpec("us"))
    assert looked(never, contact(None, began), began + 90_000) == never.status, "one that never had a word is not cut off"


def test_an_answer_ends_the_cut_that_is_open_and_makes_no_other_of_it() -> None:
    heard = WORD_MS + 50_000
    opened = told(term(), looked(term(), contact(heard), heard + 300_000))
    ended = answered(opened, 1, heard + 301_000)
    assert (ended.cut_time, ended.healed_time) == (instant(heard), instant(heard + 301_000))
    after = reported(told(opened, ended))
    assert looked(after, contact(heard), heard + 301_000 + PATIENCE_MS) == after.status, "an answer is a word, whoever brought it"
    again = looked(after, contact(heard), heard + 301_000 + PATIENCE_MS + 1)
    assert again.cut_time == instant(heard + 301_000)


def test_what_was_reported_by_its_silence_is_not_reported_again_with_the_answer() -> None:
    made = term(cut_time=instant(WORD_MS + 50_000), healed_time=instant(WORD_MS + 290_000))
    after = reported(made)
    assert answered(after, 1, WORD_MS + 291_000) == after.status
    silent_ms = WORD_MS + 290_000 + missed_ms(made)  # reports go up, and no answer comes
    found = answered(after, 1, silent_ms)
    assert (found.cut_time, found.healed_time) == (instant(WORD_MS + 290_000), instant(silent_ms))
    assert answered(made, 1, silent_ms) == made.status, "one after the other"


def test_two_unanswered_questions_are_a_cut_though_reports_went_up() -> None:
    made = term()
    assert answered(made, 1, WORD_MS + missed_ms(made) - 1) == made.status
    found = answered(made, 1, WORD_MS + missed_ms(made))
    assert (found.cut_time, found.healed_time) == (instant(WORD_MS), instant(WORD_MS + missed_ms(made)))
    assert answered(made, 2, WORD_MS + missed_ms(made)) == made.status, "of another history"


def test_what_counts_as_placed_apart_begins_where_the_report_will_say_that_the_cut_did() -> None:
    quiet_ms = WORD_MS + missed_ms(term())
    assert placed_since_ms(term(), 1, quiet_ms - 1) is None, "it is in touch"
    assert placed_since_ms(term(), 1, quiet_ms) == WORD_MS
    assert millis(answered(term(), 1, quiet_ms).cut_time) == WORD_MS
    opened = term(cut_time=instant(WORD_MS + 7))
    healed = term(cut_time=instant(WORD_MS + 7), healed_time=instant(quiet_ms))
    assert placed_since_ms(opened, 1, WORD_MS + 8) == placed_since_ms(healed, 1, quiet_ms) == WORD_MS + 7
    assert placed_since_ms(reported(healed), 1, quiet_ms) is None


def test_a_binding_that_is_removed_is_counted_once_if_it_was_made_in_the_cut() -> None:
    cut, healed = WORD_MS + 100, WORD_MS + 200
    made, now_ms = term(cut_time=instant(cut), healed_time=instant(healed)), WORD_MS + 300
    for at_ms in (cut - 1, healed):
        assert with_ended(made, 1, now_ms, bound("api-0", at_ms)) == made.status
    for at_ms, until in ((cut, None), (healed - 1, instant(now_ms))):
        made = told(made, with_ended(made, 1, now_ms, bound("api-0", at_ms, until=until)))
    assert made.status.ended == EndedApart(since_time=instant(cut), tenants={"risk": 2}, provisional=1)
    assert with_ended(reported(made), 1, now_ms, bound("api-0", cut)) == reported(made).status
    again = told(made, replace(made.status, cut_time=instant(healed + 50), healed_time=None))
    counted = with_ended(again, 1, now_ms, bound("api-0", healed + 60)).ended
    assert counted == EndedApart(since_time=instant(healed + 50), tenants={"risk": 1}), "each cut for itself"
