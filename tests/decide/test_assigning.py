"""Which regions carry a workload, as values: rules in words, and properties of the split."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.assigning import (
    BLOCK,
    BLOCKS,
    INCARNATIONS,
    SPARE_FIRST,
    RegionFacts,
    block_of,
    choose,
    next_block,
    room_for,
    slots_in,
    spare_in,
)
from fairlead.decide.folding import revision_for
from fairlead.decide.spans import holds, indices, joined, missing, size, spans_of
from fairlead.model.kinds.intent import (
    DisruptionRule,
    JobRule,
    Locality,
    Placement,
    Preference,
    RegionRule,
    Template,
    Workload,
    WorkloadSpec,
)
from fairlead.model.kinds.work import SlotRange
from fairlead.model.meta import Metadata
from fairlead.model.report import COUNT_MAX
from fairlead.model.resources import Resources

EU, US = frozenset({"eu"}), frozenset({"us"})


def facts(*names: str, room: int = 100, **of: RegionFacts) -> dict[str, RegionFacts]:
    return {name: RegionFacts(name, EU if name.startswith("eu") else US, True, room) for name in names} | of


def spec(*allowed: str, least: int = 0, **fields: object) -> WorkloadSpec:
    place = Placement(regions=RegionRule(allowed=allowed, per_region_minimum=least))
    return WorkloadSpec(placement=place, **fields)  # type: ignore[arg-type]


def test_a_first_choice_spreads_evenly_by_name() -> None:
    assert choose(spec(), 7, None, facts("a", "b", "c"), {}).counts == {"a": 3, "b": 2, "c": 2}


def rather(*regions: str, **fields: object) -> WorkloadSpec:
    wish = Preference(weight=10, locality=Locality(regions=regions))
    return WorkloadSpec(placement=Placement(preferences=(wish,)), **fields)  # type: ignore[arg-type]


def test_what_cannot_be_even_goes_where_it_would_rather_be() -> None:
    assert choose(rather("c"), 1, None, facts("a", "b", "c"), {}).counts == {"a": 0, "b": 0, "c": 1}
    assert choose(rather("c"), 4, None, facts("a", "b", "c"), {}).counts == {"a": 1, "b": 1, "c": 2}
    full = facts("c", room=0)
    assert choose(rather("c"), 1, None, facts("a", "b") | full, {}).counts["a"] == 1, "there is no room"
    gone = {"c": RegionFacts("c", US, True, 100, lost=True)}
    assert choose(rather("c"), 1, None, facts("a", "b") | gone, {}).counts["a"] == 1, "it is lost"


def test_scaling_down_takes_what_is_lost_before_anything_that_runs() -> None:
    gone = {"a": RegionFacts("a", US, True, 100, lost=True)}
    assert choose(spec(), 4, None, facts("b") | gone, {"a": 4, "b": 4}).counts == {"a": 0, "b": 4}
    assert choose(spec(), 3, None, facts("b") | gone, {"a": 1, "b": 4}).counts == {"a": 0, "b": 3}
    assert choose(spec(least=1), 4, None, facts("b") | gone, {"a": 4, "b": 4}).counts == {"a": 1, "b": 3}, "its floor stays"


def test_a_job_goes_where_it_would_rather_be_if_there_is_room_for_it() -> None:
    job = rather("c", job=JobRule(completions=3, parallelism=3))
    assert choose(job, 3, None, facts("a", room=100) | facts("c", room=3), {}).counts == {"c": 3}
    assert choose(job, 3, None, facts("a", room=100) | facts("c", room=2), {}).counts == {"a": 3}
    assert choose(job, 3, None, facts("a", room=100) | facts("c", room=9), {"a": 3}).counts == {"a": 3}, "what lies there stays"


def test_only_allowed_regions_inside_the_areas_are_taken() -> None:
    regions = facts("eu-1", "eu-2", "us-1")
    assert choose(spec(), 4, EU, regions, {}).counts == {"eu-1": 2, "eu-2": 2}
    assert choose(spec("eu-2", "us-1"), 4, EU, regions, {}).counts == {"eu-2": 4}
    none = choose(spec("us-1"), 4, EU, regions, {})
    assert (none.counts, none.reason) == ({}, "ResidencyBlocked")
    assert choose(spec(), 4, frozenset(), regions, {}).reason == "ResidencyBlocked", "no area left means nowhere"


def test_when_every_region_it_must_stay_in_is_lost_it_says_so_and_keeps_its_place() -> None:
    gone = {"eu-1": RegionFacts("eu-1", EU, True, 10, lost=True)}
    found = choose(spec(), 2, EU, facts("us-1") | gone, {"eu-1": 2})
    assert (found.reason, found.counts) == ("ResidencyBlocked", {"eu-1": 2})
    assert "eu-1 is lost" in found.detail


def test_a_region_without_a_grant_gets_nothing() -> None:
    bare = RegionFacts("b", US, False, 0)
    assert choose(spec(), 4, None, facts("a", b=bare), {}).counts == {"a": 4}
    assert choose(spec(), 4, None, {"b": bare}, {}).reason == "WaitingForQuota"


def test_what_runs_somewhere_stays_when_another_region_appears() -> None:
    assert choose(spec(), 4, None, facts("a", "b"), {"a": 4}).counts == {"a": 4, "b": 0}
    assert choose(spec(), 6, None, facts("a", "b"), {"a": 4}).counts == {"a": 4, "b": 2}
    assert choose(spec(), 2, None, facts("a", "b"), {"a": 4}).counts == {"a": 2, "b": 0}


def test_each_region_gets_its_minimum_first() -> None:
    assert choose(spec(least=2), 5, None, facts("a", "b", "c"), {}).counts == {"a": 2, "b": 2, "c": 1}


def test_a_job_lies_in_one_region_with_the_most_room_and_stays_there() -> None:
    regions = facts("a", room=3) | facts("b", room=9)
    job = spec(job=JobRule(completions=8, parallelism=4))
    assert choose(job, 4, None, regions, {}).counts == {"b": 4}
    assert choose(job, 4, None, regions, {"a": 8}).counts == {"a": 4}


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 40), st.integers(0, 4), st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.lists(st.integers(0, 20), min_size=5, max_size=5),
)  # fmt: skip
def test_every_split_places_all_keeps_minimums_and_fills_room_before_it_overflows(
    slots: int, least: int, rooms: list[int], now: list[int]
) -> None:
    regions = {f"r{n}": RegionFacts(f"r{n}", US, True, room) for n, room in enumerate(rooms)}
    before = {f"r{n}": now[n] for n in range(len(rooms))}
    counts = choose(spec(least=least), slots, None, regions, before).counts
    assert sum(counts.values()) == slots
    assert all(count >= 0 for count in counts.values())
    if slots >= least * len(rooms):
        assert min(counts.values()) >= least
    fresh = choose(spec(least=least), slots, None, regions, {}).counts
    over = [name for name, count in fresh.items() if count > max(regions[name].room, least)]
    assert not over or all(fresh[name] >= regions[name].room for name in fresh), "nobody overflows while another has room"
    assert choose(spec(least=least), slots, None, regions, counts).counts == counts, "a choice is at rest"


@settings(max_examples=200, deadline=None)
@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(0, 20))
def test_ranges_say_the_same_as_sets(one: set[int], other: set[int], limit: int, count: int) -> None:
    spans = spans_of(one)
    assert set(indices(spans)) == one
    assert size(spans) == len(one)
    assert set(indices(joined(spans, other))) == one | other
    assert missing(spans, limit, count) == [n for n in range(limit) if n not in one][:count]
    assert all(holds(spans, n) == (n in one) for n in range(61))


def test_no_index_belongs_to_two_regions_nor_to_both_halves() -> None:
    spans = [slots_in(block, 10_000)[0] for block in range(3)] + [spare_in(block, 10_000) for block in range(3)]
    assert size(tuple(spans)) == len({n for span in spans for n in range(span.first, span.last + 1)})
    assert [block_of(spare_in(n, 0)) for n in range(3)] == [0, 1, 2]
    assert slots_in(1, 2) == (SlotRange(first=BLOCK, last=BLOCK + 1),)


def test_room_is_what_the_tightest_dimension_leaves() -> None:
    assert room_for(Resources(4000, 100), Resources(1000, 0), Resources(1000, 50)) == 2
    assert room_for(Resources(), Resources(), Resources()) > 1_000_000


# --- revisions


def workload(generation: int, **fields: object) -> Workload:
    made = WorkloadSpec(template=Template(command=("serve",)))
    made = replace(made, **fields)
    return Workload(metadata=Metadata(name="api", namespace="t", uid="u", generation=generation), spec=made)  # type: ignore[arg-type]


def test_only_what_a_slot_runs_makes_a_revision() -> None:
    first, new = revision_for(workload(1), 500, [])
    assert (first.metadata.name, new) == ("api.g1", True)
    same = [
        workload(2, replicas=9),
        workload(3, disruption=DisruptionRule(min_serving=1)),
        workload(4, placement=Placement(regions=RegionRule(per_region_minimum=2))),
    ]
    assert [revision_for(each, 700, [first]) for each in same] == [(first, False)] * 3
    other, new = revision_for(workload(5, template=Template(command=("other",))), 500, [first])
    assert (other.metadata.name, new) == ("api.g5", True)
    assert revision_for(workload(6), 500, [first, other]) == (first, False), "an undo goes back"


def test_a_label_makes_no_revision_because_no_generation_begins_with_it() -> None:
    first, _ = revision_for(workload(1), 500, [])
    labelled = workload(1)
    labelled = replace(labelled, metadata=replace(labelled.metadata, labels={"tier": "gold"}))
    assert revision_for(labelled, 500, [first]) == (first, False), "its name is taken"


def test_what_runs_after_an_end_is_settled_in_the_revision_and_saying_what_holds_anyway_restarts_nothing() -> None:
    def policy(job: JobRule | None, said: Any) -> str | None:
        made = workload(1, job=job, template=Template(command=("run",), restart_policy=said))
        return revision_for(made, 500, [])[0].spec.template.restart_policy

    assert [policy(JobRule(), said) for said in (None, "OnFailure", "Never")] == ["OnFailure", "OnFailure", "Never"]
    assert [policy(None, said) for said in (None, "Always", "OnFailure", "Never")] == [None, None, "OnFailure", "Never"]


def test_another_workload_of_the_same_name_has_revisions_of_its_own() -> None:
    first, _ = revision_for(workload(1), 500, [])
    again = workload(1)
    again = replace(again, metadata=replace(again.metadata, uid="v"))
    assert revision_for(again, 500, [first])[1]


def test_a_restored_plane_gives_no_block_that_it_may_have_given_since_the_backup() -> None:
    assert [next_block(taken, 1) for taken in ((), (0,), (0, 1), (1,))] == [0, 1, 2, 0]
    before = {next_block(range(n), 1) for n in range(BLOCKS)}
    assert next_block((0,), 2) not in before, "a region that is cut off may have been given any of them"
    assert next_block((0, next_block((0,), 2)), 2) not in before | {next_block((0,), 2)}
    assert next_block((0,), 3) not in before | {next_block(range(n), 2) for n in range(2 * BLOCKS)}
    last = slots_in(next_block((), INCARNATIONS) + BLOCKS, SPARE_FIRST)
    assert last[0].last <= COUNT_MAX, "an index has room for it"
