"""What is found where more run of what runs once than is wanted (S12): over true runs, and in the global plane's journal."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import JobRule, StageCounts, Workload, WorkloadSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata
from fairlead.observe.copies import Copies
from fairlead.observe.handing_over import HandingOverChecker
from fairlead.observe.intervals import Interval, overlaps


def workload(replicas: int = 1, generation: int = 1, **spec: Any) -> Workload:
    meta = Metadata(name="api", namespace="risk", uid=Uid("u"), generation=generation)
    return Workload(meta, WorkloadSpec(replicas=replicas, execution="Exclusive", **spec))


def run(name: str, begin: float, end: float | None, exclusive: Any = "region", uid: str = "u") -> Interval:
    return Interval("risk", name, Token(1, 1, 1), "n1", begin, end, exclusive, uid)


def too_many(*runs: Interval, wanted: tuple[tuple[float, Workload], ...] = ((0.0, workload()),)) -> list[str]:
    copies = Copies()
    for at_s, each in wanted:
        copies.wanted(each, at_s)
    return copies.too_many(runs)


def test_a_copy_under_another_number_is_found_by_the_count() -> None:
    beside = run("api-0", 0, 10), run("api-10000", 9, None)
    assert too_many(*beside) == [
        "risk: at 9.000 2 copies ran of what is to run 1 times at most: api-0 on n1, api-10000 on n1"
    ]  # fmt: skip
    assert not overlaps(beside), "two slots by their names"
    assert not too_many(run("api-0", 0, 9), run("api-10000", 9, None))
    assert not too_many(run("api-0", 0, 10, ""), run("api-10000", 9, None, "")), "replicated work may"
    assert not too_many(run("api-0", 0, 10), run("api-10000", 9, None, uid="v")), "nor is it another workload's"


def test_what_was_wanted_once_counts_from_then_on() -> None:
    both = run("api-0", 4, None), run("api-1", 5, None)
    assert not too_many(*both, wanted=((0.0, workload(2)), (3.0, workload(1))))
    assert not too_many(*both, wanted=((0.0, workload(1)), (5.0, workload(2))))
    assert too_many(*both, wanted=((0.0, workload(1)), (6.0, workload(2))))


def test_of_a_job_as_many_run_as_may_at_once() -> None:
    job = workload(job=JobRule(completions=5, parallelism=2))
    both = run("api-0", 0, None), run("api-1", 0, None)
    assert not too_many(*both, wanted=((0.0, job),))
    assert too_many(*both, run("api-2", 1, None), wanted=((0.0, job),))


# --- in the journal --------------------------------------------------------------------------------------------------------


def given(region: str, slots: int, *, told: bool = True, of: int = 1, **fields: Any) -> Assignment:
    status = fields.pop("status", AssignmentStatus())
    first = 0 if region == "east" else 20_000
    spec = AssignmentSpec(
        "api", "u", 1, region, slots=(SlotRange(first=first, last=first + slots - 1),) if slots else (), workload_generation=of,
        **{"execution": "Exclusive", **fields},
    )  # fmt: skip
    said = replace(status, observed_generation=1 if told else 0)
    return Assignment(Metadata(name=f"api.{region}", namespace="risk", generation=1), spec, said)


def found(*steps: Assignment | Workload, regions: tuple[str, ...] = ("east", "west")) -> list[str]:
    objects: dict[str, dict[tuple[str, str], Any]] = {"regions": {("", region): object() for region in regions}}
    said: list[str] = []
    checker = HandingOverChecker(objects, lambda invariant, detail: said.append(f"{invariant}: {detail}"))
    there: dict[str, Assignment] = {}
    for step in steps:
        if isinstance(step, Workload):
            checker.workload(step)
        else:
            checker.assignment(there.get(step.spec.region), step)
            there[step.spec.region] = step
    return said


EARLY = "S12: risk/api has 2 slots that run once, and with those given to west {} may run"
LEFT = AssignmentStatus(unwanted=1)
BOUND = AssignmentStatus(replicas=StageCounts(bound=2))


@pytest.mark.parametrize(
    ("steps", "total"),
    [
        ((given("west", 2),), 4),
        ((given("east", 0, told=False), given("west", 2)), 4),
        ((given("east", 0, status=LEFT), given("west", 2)), 3),
        ((given("east", 0, status=LEFT), given("west", 1)), 0),
        ((given("east", 0, status=BOUND), given("west", 2)), 4),
        ((given("east", 0, told=False), given("east", 0), given("west", 2)), 0),
        ((given("east", 1, told=False), given("west", 1)), 3),
        ((given("east", 1, told=False), given("east", 2, told=False)), 0),
    ],
)
def test_no_region_is_given_what_another_has_not_let_go_of(steps: tuple[Assignment, ...], total: int) -> None:
    assert found(workload(2), given("east", 2), *steps) == ([EARLY.format(total)] if total else [])


def test_an_order_is_asked_by_what_it_was_decided_on() -> None:
    more, fewer = workload(4, 2), workload(2, 3)
    assert found(workload(2), given("east", 2), more, fewer, given("west", 2, of=2)) == []
    assert found(workload(2), given("east", 2), more, fewer, given("west", 2, of=3)) == [EARLY.format(4)]


def test_replicas_jobs_and_what_was_written_off_are_not_asked() -> None:
    moved = given("east", 2), given("west", 2)
    assert found(workload(2), *(replace(one, spec=replace(one.spec, execution="Replicated")) for one in moved)) == []
    assert found(workload(2), *(replace(one, spec=replace(one.spec, job=JobRule())) for one in moved)) == []
    assert found(workload(2), *moved, regions=("west",)) == []
    alone = [replace(one, spec=replace(one.spec, exclusive="global")) for one in moved]
    assert found(workload(2), *alone, regions=("west",)) == [EARLY.format(4)]
    assert found(*moved) == [], "a region's plane has copies, and no workloads"
