"""Silent regions as values: when one is Unknown, when Lost, and when it is rather us who do not hear; and what a workload then
says of them."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.assigning import Choice
from fairlead.decide.folding import fold
from fairlead.decide.regions import Health, RegionFacts, RegionRules, RegionVerdict, judge_regions
from fairlead.model.kinds.intent import JobRule, StageCounts, Workload, WorkloadSpec, WorkloadStatus
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Condition, Metadata

RULES = RegionRules()
NOW, LEASE = 1_000_000, 10_100
LATE = LEASE + 6_001


def region(name: str, quiet_ms: int = 0, health: Health = "Healthy", renewed_ms: int | None = None) -> RegionFacts:
    return RegionFacts(name, health, NOW - quiet_ms if renewed_ms is None else renewed_ms, 10.0)


def judge(*regions: RegionFacts, since_ms: int = 0, deaf_ms: int = 0) -> dict[str, RegionVerdict]:
    return {v.name: v for v in judge_regions(regions, since_ms, NOW, RULES, deaf_ms)}


def health(*regions: RegionFacts, since_ms: int = 0, deaf_ms: int = 0) -> dict[str, Health]:
    return {name: v.health for name, v in judge(*regions, since_ms=since_ms, deaf_ms=deaf_ms).items()}


def test_a_region_is_unknown_after_its_lease_and_lost_within_twenty_seconds() -> None:
    assert health(region("a", LEASE), region("b", LEASE + 1), region("c"))["a"] == "Healthy"
    assert health(region("a"), region("b", LEASE + 1))["b"] == "Unknown"
    assert health(region("a"), region("b", LATE - 1, "Unknown"))["b"] == "Unknown"
    assert health(region("a"), region("b", LATE, "Unknown"))["b"] == "Lost"
    assert health(region("a"), region("b", LATE, "Healthy"))["b"] == "Unknown", "it passes through Unknown always"
    assert LATE + 3_000 < 20_000, "a renewal is at most three seconds old when a region dies"


def test_a_lost_region_stays_lost_until_it_is_heard() -> None:
    assert health(region("a"), region("b", LEASE + 1, "Lost"))["b"] == "Lost"
    assert health(region("a"), region("b", 0, "Lost"))["b"] == "Healthy"


def test_a_new_observer_says_nothing_before_a_full_lease_of_its_own() -> None:
    assert health(region("a"), region("b", 60_000), since_ms=NOW - LEASE)["b"] == "Healthy"
    assert health(region("a"), region("b", 60_000), since_ms=NOW - LEASE - 1)["b"] == "Unknown"
    assert health(region("a"), region("b", 60_000, "Lost"), since_ms=NOW - 1)["b"] == "Lost", "silence is no sign of life"


def test_when_no_region_is_heard_it_is_rather_us() -> None:
    found = judge(region("a", LATE, "Unknown"), region("b", LATE))
    assert {v.health for v in found.values()} == {"Unknown", "Healthy"}
    assert all(v.mass_silence for v in found.values())


def test_who_is_heard_some_seconds_after_the_first_when_nobody_was_is_not_lost_in_between() -> None:
    first, unknown, well = region("a"), region("b", 90_000, "Unknown"), region("c", 90_000)
    assert health(first, unknown, well, deaf_ms=NOW - 100) == {"a": "Healthy", "b": "Unknown", "c": "Healthy"}
    assert health(first, unknown, well, deaf_ms=NOW - LEASE - 1) == {"a": "Healthy", "b": "Unknown", "c": "Unknown"}
    assert health(first, unknown, well, deaf_ms=NOW - LATE)["b"] == "Lost", "it is silent by itself"
    assert health(first, region("b", 90_000, "Lost"), deaf_ms=NOW - 100)["b"] == "Lost", "and silence is no sign of life"


def test_several_silent_ones_are_declared_and_said_to_be_several() -> None:
    found = judge(region("a"), region("b", LATE, "Unknown"), region("c", LATE, "Unknown"))
    assert {name: (v.health, v.mass_silence) for name, v in found.items()} == {
        "a": ("Healthy", False), "b": ("Lost", True), "c": ("Lost", True),
    }  # fmt: skip
    assert not judge(region("a"), region("b", LATE))["b"].mass_silence


def test_a_region_that_never_reported_is_not_judged() -> None:
    assert health(region("a"), region("new", health="", renewed_ms=0))["new"] == ""


# --- what a workload says of a silent region


def told(region: str, **counts: int) -> Assignment:
    return Assignment(
        metadata=Metadata(name=f"w.{region}", namespace="risk"),
        spec=AssignmentSpec(workload="w", workload_uid="u", generation=1, region=region),
        status=AssignmentStatus(replicas=StageCounts(**counts)),
    )


def folded(choice: Choice, silent: set[str], *assignments: Assignment, job: JobRule | None = None) -> WorkloadStatus:
    workload = Workload(metadata=Metadata(name="w", namespace="risk"), spec=WorkloadSpec(replicas=4, job=job))
    return fold(workload, choice, "w.g1", 4, assignments, NOW, silent)


def test_what_a_silent_region_carried_is_unknown_and_not_serving() -> None:
    here, there = told("a", bound=2, started=2, ready=2, serving=2), told("b", bound=2, started=2, ready=2, serving=2)
    status = folded(Choice({"a": 2, "b": 2}), {"b"}, here, there)
    assert (status.replicas.bound, status.replicas.serving, status.replicas.unknown) == (4, 2, 2)
    assert {row.region: row.replicas.unknown for row in status.regions} == {"a": 0, "b": 2}
    assert status.pending == ()


def test_how_far_a_silent_region_is_was_said_before() -> None:
    conditions = (Condition(type="Progressing", status="True", reason="Complete", message="2 of 2 serve"),)
    one = told("b", bound=2)
    there = replace(
        one, metadata=replace(one.metadata, generation=1),
        status=replace(one.status, observed_generation=1, generation=1, conditions=conditions),
    )  # fmt: skip
    for silent, said in ((set[str](), "b: 2 of 2 serve"), ({"b"}, "b: not heard any more; it said last: 2 of 2 serve")):
        found = folded(Choice({"b": 2}), silent, there)
        assert next(c.message for c in found.conditions if c.type == "Progressing") == said


def test_counts_taken_under_another_revision_say_of_no_slot_that_it_is_up_to_date() -> None:
    before = told("a", bound=4, serving=4, updated=4)
    now = replace(before, status=replace(before.status, generation=1))
    of = {name: folded(Choice({"a": 4}), set(), each).replicas for name, each in (("before", before), ("now", now))}
    assert {name: (counts.serving, counts.updated) for name, counts in of.items()} == {"before": (4, 0), "now": (4, 4)}


def test_work_that_may_not_leave_a_lost_region_says_so_though_it_was_placed() -> None:
    choice = Choice({"b": 4}, "ResidencyBlocked", "must stay in eu; b is lost")
    status = folded(choice, {"b"}, told("b", bound=3, started=3), job=JobRule(completions=4))
    assert [(one.reason, one.count, one.next_owner) for one in status.pending] == [("ResidencyBlocked", 4, "operator")]
    assert (status.replicas.unknown, status.replicas.pending) == (3, 0), "bound slots are not pending as well"


def given(region: str, last: int, generation: int = 1, seen: int = 0, **counts: int) -> Assignment:
    """A region with slots 0 to `last`, of whose generations it has seen some."""
    one = told(region, **counts)
    return replace(
        one,
        metadata=replace(one.metadata, generation=generation),
        spec=replace(one.spec, slots=(SlotRange(first=0, last=last),)),
        status=replace(one.status, observed_generation=seen),
    )


def test_what_a_silent_region_was_given_and_never_answered_waits_with_a_reason() -> None:
    """L12: not even the region knows what it waits for, so it is said here, with whoever acts next."""
    status = folded(Choice({"a": 2, "b": 2}), {"b"}, given("a", 1, seen=1, bound=2, serving=2), given("b", 1))
    assert [(one.reason, one.count, one.next_owner) for one in status.pending] == [("RegionSilent", 2, "region-controller")]
    assert "2 in b" in status.pending[0].detail
    assert (status.replicas.pending, status.replicas.bound) == (2, 2)
    half = folded(Choice({"b": 4}), {"b"}, given("b", 3, generation=2, seen=1, bound=1, serving=1))
    assert [(one.reason, one.count) for one in half.pending] == [("RegionSilent", 3)], "one it had bound before it fell silent"
    known = folded(Choice({"b": 4}), {"b"}, given("b", 3, seen=1, bound=3, pending=1))
    assert [(one.reason, one.count) for one in known.pending] == [("RegionSilent", 1)], "it said of one that it waits"
    assert folded(Choice({"a": 2, "b": 2}), set(), given("b", 1)).pending == (), "a region that is heard says it itself"
