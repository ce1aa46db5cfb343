"""What the journal's checker finds in slots on their way to another region (S1)."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.model.kinds.intent import Workload, WorkloadSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata
from fairlead.observe.moving import MovingChecker

KEY = ("risk", "api")


def order(slots: int, give_up: int = 0, given: tuple[SlotRange, ...] = (), region: str = "east", first: int = 0) -> Assignment:
    spec = AssignmentSpec(
        workload="api", workload_uid="u", generation=1, region=region, give_up=give_up, workload_generation=1,
        slots=(SlotRange(first=first, last=first + slots - 1),) if slots else (),
    )  # fmt: skip
    status = AssignmentStatus(observed_generation=1, given_up=given)
    return Assignment(Metadata(name=f"api.{region}", namespace="risk", generation=1), spec, status)


def found(*steps: Assignment, replicas: int = 4, copy: bool = False) -> list[str]:
    """What is said of these, one after the other, in the plane that has the workload or in one that has copies."""
    objects: dict[str, dict[tuple[str, str], Any]] = {"workloads": {}, "schedulingrequests": {}, "bindings": {}}
    if not copy:
        objects["workloads"][KEY] = Workload(Metadata(name="api", namespace="risk"), WorkloadSpec(replicas=replicas))
    said: list[str] = []
    checker = MovingChecker(objects, lambda invariant, detail: said.append(f"{invariant}: {detail}"))
    there: dict[str, Assignment] = {}
    for step in steps:
        checker.assignment(there.get(step.spec.region), step)
        there[step.spec.region] = step
    return said


LAST = (SlotRange(first=3, last=3),)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((order(4), order(4, 1), order(4, 1, LAST), order(3)), ""),
        ((order(4), order(4, 1), order(3, 1)), "S1: risk/api: [3] was taken from east, which has not given it up"),
        ((order(4), order(3, 1)), "S1: risk/api: [3] was taken from east when it was asked to give some up"),
        ((order(4), order(0, 4)), "S1: risk/api: [0, 1, 2, 3] was taken from east when it was asked to give some up"),
        ((order(4), order(3)), ""),  # nobody was asked: another wish, or no right to be there any more
        ((order(4), order(4, 1), order(1, region="west", first=20_000)), "S1: risk/api has 4 slots, and 5 are given out"),
        ((order(4), order(4, 1), order(4, 1, LAST), order(1, region="west", first=20_000)), ""),
    ],
)
def test_nothing_is_taken_or_given_out_before_a_region_has_given_it_up(steps: tuple[Assignment, ...], said: str) -> None:
    assert found(*steps) == ([said] if said else [])


def test_a_copy_may_skip_a_version() -> None:
    assert found(order(4), order(3, 1), copy=True) == []
