"""Who may leave: eviction requests against budgets, as values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.disruption import WITHDRAW_MS, Asked, Budget, Ruling, rule
from fairlead.decide.slots import Slot
from fairlead.model.lifecycle import SlotState

_S = SlotState
NOW = 1_000_000


def asked(index: int, *, approved_ms: int = 0, deadline_ms: int = 0) -> Asked:
    return Asked(f"api-{index}", index, index, approved_ms, deadline_ms)


def serving(*indices: int, **fields: object) -> dict[int, Slot]:
    return {i: Slot(i, _S.SERVING, 1, 1, in_traffic=True, **fields) for i in indices}  # type: ignore[arg-type]


def steps(rulings: list[Ruling]) -> list[str]:
    return [ruling.step for ruling in rulings]


def budget(least: int, desired: int = 3) -> Budget:
    return Budget("risk/api", least, desired)


def test_each_approval_counts_against_the_next() -> None:
    found = rule([asked(0), asked(1), asked(2)], serving(0, 1, 2), budget(2), NOW)
    assert steps(found) == ["Approve", "Block", "Block"]
    assert found[1].why == "disruption budget of risk/api: 2 serve, minServing is 2"


def test_one_approved_before_counts_until_it_is_gone() -> None:
    world = serving(1, 2) | {0: Slot(0, _S.SERVING, 1, 1, in_traffic=True, leaving=True, approved=True)}
    assert steps(rule([asked(0, approved_ms=NOW - 1), asked(1)], world, budget(2), NOW)) == ["Wait", "Block"]


def test_the_last_copy_stays_while_others_are_wanted() -> None:
    world = serving(0) | {1: Slot(1, _S.STARTING, 1, 1)}
    found = rule([asked(0)], world, budget(0, 2), NOW)
    assert (found[0].step, "last copy" in found[0].why) == ("Block", True)
    assert steps(rule([asked(0)], serving(0), budget(0, 1), NOW)) == ["Approve"], "an only copy can be moved no other way"
    assert steps(rule([asked(0)], serving(0), budget(0, 0), NOW)) == ["Approve"], "the workload goes away"


def test_what_does_not_serve_leaves_without_asking_the_budget() -> None:
    world = serving(0, 1) | {2: Slot(2, _S.STARTING, 1, 1)}
    assert steps(rule([asked(2)], world, budget(2), NOW)) == ["Approve"]


def test_a_slot_drains_only_when_its_traffic_is_withdrawn_or_nobody_withdraws_it() -> None:
    one = asked(0, approved_ms=NOW - 1)
    assert steps(rule([one], serving(0, 1), budget(0), NOW)) == ["Wait"]
    ready = {0: Slot(0, _S.READY, 1, 1), **serving(1)}
    assert steps(rule([one], ready, budget(0), NOW)) == ["Drain"]
    still_named = {0: Slot(0, _S.READY, 1, 1, in_traffic=True), **serving(1)}
    assert steps(rule([one], still_named, budget(0), NOW)) == ["Wait"]
    assert steps(rule([asked(0, approved_ms=NOW - WITHDRAW_MS)], serving(0, 1), budget(0), NOW)) == ["Drain"]


def test_a_deadline_ends_a_request_and_breaks_no_budget() -> None:
    found = rule([asked(0, deadline_ms=NOW)], serving(0, 1), budget(2), NOW)
    assert (found[0].step, "minServing is 2" in found[0].why) == ("Expired", True)
    assert steps(rule([asked(0, deadline_ms=NOW)], serving(0, 1, 2), budget(2), NOW)) == ["Approve"]


def test_what_is_gone_is_done_and_what_is_silent_waits() -> None:
    assert steps(rule([asked(0)], {}, budget(0), NOW)) == ["Gone"]
    assert steps(rule([asked(0)], {0: Slot(0, _S.DRAINING, 1, 1)}, budget(0), NOW)) == ["Gone"]
    assert steps(rule([asked(0)], {0: Slot(0, _S.UNKNOWN, 1, 1)}, budget(0), NOW)) == ["Block"]


def test_who_runs_where_a_request_is_about_an_earlier_life_is_not_counted_on() -> None:
    world = serving(0, 1, 2)
    assert steps(rule([asked(0)], world, budget(2), NOW)) == ["Approve"]
    assert steps(rule([asked(0), asked(2)], world, budget(2), NOW, {2})) == ["Block", "Gone"]


_slot = st.builds(
    Slot, st.just(0), st.sampled_from(list(SlotState)), st.just(1), st.just(1), in_traffic=st.booleans(), approved=st.booleans()
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(_slot, max_size=6), st.sets(st.integers(0, 6)), st.integers(0, 3), st.sets(st.integers(0, 6)))
def test_a_request_about_a_life_that_is_over_is_ruled_as_if_its_slot_were_not_there(
    slots: list[Slot], over: set[int], least: int, wants: set[int]
) -> None:
    world = {index: replace(slot, index=index) for index, slot in enumerate(slots)}
    left = {index: slot for index, slot in world.items() if index not in over}
    requests = [asked(index, approved_ms=NOW - 1 if index in world and world[index].approved else 0) for index in sorted(wants)]
    assert rule(requests, world, budget(least), NOW, over) == rule(requests, left, budget(least), NOW)
