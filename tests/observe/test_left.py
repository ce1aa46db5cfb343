"""What is asked of the regions that are left while one stays lost."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import Region, RegionStatus, Workload, WorkloadSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.meta import Metadata
from fairlead.observe.agreement import differences
from fairlead.observe.differing import Objects
from fairlead.observe.left import Left

KEY = ("risk", "api")


def given(region: str, first: int, count: int, recovery: int = 0) -> Assignment:
    slots = (SlotRange(first=first, last=first + count - 1),) if count else ()
    stands_in = SlotRange(first=15_000, last=15_000 + recovery - 1) if recovery else None
    if stands_in is not None:
        slots = (*slots, stands_in)
    spec = AssignmentSpec(workload="api", workload_uid="u-api", generation=1, region=region, slots=slots, recovery=stands_in)
    return Assignment(Metadata(name=f"api.{region}", namespace="risk"), spec)


def top(*orders: Assignment, health: Literal["", "Healthy", "Lost"] = "Lost", heard: bool = True, **fields: Any) -> Objects:
    workload = Workload(Metadata(name="api", namespace="risk", uid=Uid("u-api")), WorkloadSpec(replicas=4, **fields))
    return {
        "workloads": {KEY: workload},
        "assignments": {("risk", one.metadata.name): one for one in orders},
        "regions": {("", "east"): Region(Metadata(name="east"), status=RegionStatus(health=health))},
        "leases": {("", "mirror-up-east"): object()} if heard else {},
    }


def told(objects: Objects, serving: int) -> list[str]:
    return [one.detail for one in Left(objects, {}, "east").differences(Counter({"u-api": serving}))]


def test_the_others_serve_what_they_were_given_and_what_stands_in_beside_it() -> None:
    assert told(top(given("east", 0, 2), given("west", 2, 2)), 2) == []
    assert told(top(given("east", 0, 2), given("west", 2, 2, recovery=2)), 4) == []
    assert told(top(given("east", 0, 2), given("west", 2, 2, recovery=2)), 3) == [
        "risk/api: 3 of the 4 serve that regions other than east were given"
    ]


def test_a_slot_that_no_region_was_given_and_a_loss_that_nobody_tells_are_found() -> None:
    assert told(top(given("east", 0, 1), given("west", 2, 2)), 2) == ["risk/api: 3 of 4 slots are given to any region"]
    assert told(top(given("east", 0, 2), given("west", 2, 2), health="Healthy"), 2) == ["east is lost, and is not said to be"]
    assert told(top(given("east", 0, 2), given("west", 2, 2), health=""), 2) == ["east is lost, and is not said to be"]
    assert told(top(given("east", 0, 2), given("west", 2, 2), health="", heard=False), 2) == [], "it never spoke"


def test_what_runs_once_in_the_world_stands_in_instead_of_beside() -> None:
    assert told(top(given("west", 2, 2, recovery=2), exclusive="global"), 4) == []
    assert told(top(given("east", 0, 2), given("west", 2, 2, recovery=2), exclusive="global"), 4) == [
        "risk/api: 6 of 4 slots are given to any region"
    ]


def test_a_deletion_waits_for_the_lost_region_and_for_no_other() -> None:
    def going(*orders: Assignment) -> Objects:
        objects = top(*orders)
        was = objects["workloads"][KEY]
        gone = replace(was, metadata=replace(was.metadata, deletion_time=datetime(2026, 1, 1, tzinfo=UTC)))
        return {**objects, "workloads": {KEY: gone}}

    assert told(going(given("east", 0, 0)), 0) == []
    assert told(going(given("west", 0, 0)), 0) == ["risk/api is being deleted still"]


def test_what_the_lost_region_last_wrote_is_not_asked_for() -> None:
    objects = top(given("east", 0, 2), given("west", 2, 2))
    found = differences(objects, {"east": {"schedulingrequests": {KEY: None}}, "west": {}}, [], gone="east")
    assert [one.detail for one in found] == ["risk/api: 0 of the 2 serve that regions other than east were given"]
