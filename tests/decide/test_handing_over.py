"""When slots that run once are given to another region, as values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.assigning import BLOCK, Choice, own_slots, slots_in, spare_in
from fairlead.decide.handing_over import handed_over, leaving_of, lingering
from fairlead.decide.spans import indices, size
from fairlead.model.kinds.intent import JobRule, StageCounts
from fairlead.model.kinds.recovery import StandIn
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata

REGIONS = ("centre", "east", "west")


def order(region: str, count: int, leaving: int = 0, **fields: Any) -> AssignmentSpec:
    """With the lowest slots of its block, and so many above them leaving."""
    block = REGIONS.index(region)
    first = block * BLOCK + count
    gone = (SlotRange(first=first, last=first + leaving - 1),) if leaving else ()
    return AssignmentSpec(
        "api",
        "u",
        1,
        region,
        slots=slots_in(block, count),
        spare=spare_in(block, 0),
        leaving=gone,
        execution="Exclusive",
        **fields,
    )


def assignment(region: str, count: int, leaving: int = 0, *, told: bool = True, **status: Any) -> Assignment:
    said = AssignmentStatus(observed_generation=2 if told else 1, **status)
    return Assignment(Metadata(name=f"api.{region}", namespace="t", generation=2), order(region, count, leaving), said)


def handed(wished: dict[str, int], slots: int, *there: Assignment, able: tuple[str, ...] = REGIONS) -> dict[str, int]:
    return handed_over(Choice(wished), slots, able, there).counts


def test_another_region_gets_none_before_the_old_one_has_said_that_none_is_left() -> None:
    moved = {"west": 2}
    assert handed(moved, 2, assignment("east", 2), able=("west",)) == {"west": 0}
    assert handed(moved, 2, assignment("east", 0, 2, told=False), able=("west",)) == {"west": 0}
    assert handed(moved, 2, assignment("east", 0, 2, unwanted=2), able=("west",)) == {"west": 0}
    assert handed(moved, 2, assignment("east", 0, 2, unwanted=1), able=("west",)) == {"west": 1}
    assert handed(moved, 2, assignment("east", 0, 2), able=("west",)) == moved


def test_a_region_of_an_earlier_version_tells_by_its_counts_what_is_left() -> None:
    for stage in ("bound", "pending", "reserved"):
        left = assignment("east", 0, 2, replicas=StageCounts(**{stage: 1}))
        assert lingering(left) == 1, stage


def test_what_waits_for_a_region_says_for_which() -> None:
    got = handed_over(Choice({"west": 1}), 1, ("west",), [assignment("east", 0, 1, told=False)])
    assert (got.reason, got.detail) == (
        "WaitingForFence", "1 may run in east still, and no second one starts before that has ended"
    )  # fmt: skip
    assert not handed_over(Choice({"west": 1}), 1, ("west",), [assignment("east", 0, 1)]).reason


def test_what_a_region_may_run_still_and_may_have_again_goes_back_to_it() -> None:
    """One that is lost was given less when the service was made smaller; it is made larger again, and the lost one not heard."""
    east, west = assignment("east", 1, 1, told=False), assignment("west", 2)
    assert handed({"east": 1, "west": 3}, 4, east, west) == {"east": 2, "west": 2}
    assert handed({"east": 1, "west": 4}, 5, east, west) == {"east": 2, "west": 3}


def test_new_slots_wait_for_nobody() -> None:
    east, west = assignment("east", 1, told=False), assignment("west", 1, told=False)
    assert handed({"east": 2, "west": 2}, 4, east, west) == {"east": 2, "west": 2}
    assert handed({"east": 2, "west": 1}, 3) == {"east": 2, "west": 1}, "nor a first choice"


def test_a_stand_in_whose_home_is_gone_counts_until_it_is_gone() -> None:
    one = StandIn(home="east", slot=BLOCK, region="west", ordinal=0, supersedes=("east/api-20000@1",))
    east = assignment("east", 0)
    assert handed_over(Choice({"west": 1}), 1, ("west",), [east], [one]).counts == {"west": 0}
    home = replace(east, spec=replace(east.spec, superseded=(SlotRange(first=BLOCK, last=BLOCK),)))
    assert handed_over(Choice({"east": 1}), 1, ("east",), [home], [one]).counts == {"east": 1}


def test_an_order_remembers_what_it_takes_until_the_region_has_let_go_of_it() -> None:
    had = assignment("west", 3, told=False)
    assert list(indices(leaving_of(had, order("west", 1)))) == [2 * BLOCK + 1, 2 * BLOCK + 2]
    less = assignment("west", 1, 2, told=False)
    assert list(indices(leaving_of(less, order("west", 1)))) == [2 * BLOCK + 1, 2 * BLOCK + 2]
    assert leaving_of(less, order("west", 3)) == (), "they are wanted again"
    assert size(leaving_of(less, order("west", 0))) == 3
    assert leaving_of(assignment("west", 1, 2), order("west", 1)) == (), "it says that nothing is left"
    assert leaving_of(None, order("west", 1)) == ()


def test_what_another_stands_in_for_has_ended_by_its_lease() -> None:
    away = order("west", 0, superseded=slots_in(2, 1))
    assert leaving_of(assignment("west", 1), away) == ()


@pytest.mark.parametrize("fields", [{"execution": "Replicated"}, {"job": JobRule()}])
def test_of_replicas_and_jobs_nothing_is_remembered(fields: dict[str, Any]) -> None:
    assert leaving_of(assignment("west", 2), replace(order("west", 0), **fields)) == ()


class World:
    """Three regions that carry out what they hear, late, and a controller that changes its mind."""

    def __init__(self) -> None:
        self.orders: dict[str, Assignment] = {}
        self.heard: dict[str, AssignmentSpec] = {}  # what each region goes by
        self.runs: dict[str, set[int]] = {region: set() for region in REGIONS}

    def decide(self, wished: dict[str, int]) -> None:
        slots = sum(wished.values())
        counts = handed_over(Choice(wished), slots, [r for r in REGIONS if r in wished], self.orders.values()).counts
        for region in REGIONS:
            old = self.orders.get(region)
            new = order(region, counts.get(region, 0))
            new = replace(new, leaving=leaving_of(old, new))
            if old is None or old.spec != new:
                number = old.metadata.generation + 1 if old is not None else 1
                status = old.status if old is not None else AssignmentStatus()
                self.orders[region] = Assignment(Metadata(name=region, generation=number), new, status)

    def hears(self, region: str) -> None:
        self.heard[region] = self.orders[region].spec
        self.runs[region] |= set(indices(self.heard[region].slots))

    def ends_one(self, region: str) -> None:
        unwanted = self.runs[region] - set(indices(self.heard[region].slots))
        self.runs[region] -= set(sorted(unwanted)[:1])

    def tells(self, region: str) -> None:
        found = self.orders[region]
        if self.heard.get(region) == found.spec:
            left = len(self.runs[region] - set(indices(found.spec.slots)))
            said = AssignmentStatus(observed_generation=found.metadata.generation, unwanted=left)
            self.orders[region] = replace(found, status=said)


@settings(max_examples=300)
@given(st.data())
def test_no_more_run_than_were_wanted_whatever_is_heard_when(data: st.DataObject) -> None:
    world, most = World(), 4
    step = st.sampled_from(["decide", "hear", "end", "tell"])
    for _ in range(data.draw(st.integers(1, 30))):
        region, what = data.draw(st.sampled_from(REGIONS)), data.draw(step)
        if what == "decide" or not world.orders:
            able = data.draw(st.lists(st.sampled_from(REGIONS), min_size=1, unique=True))
            wished = dict.fromkeys(able, 0)
            for _ in range(most):  # always as many: what changes is where
                wished[data.draw(st.sampled_from(able))] += 1
            world.decide(wished)
        elif what == "hear":
            world.hears(region)
        elif what == "end" and region in world.heard:
            world.ends_one(region)
        elif what == "tell":
            world.tells(region)
        assert sum(len(runs) for runs in world.runs.values()) <= most
        assert sum(own_slots(one.spec) for one in world.orders.values()) <= most
