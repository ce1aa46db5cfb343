"""Slots that stand in for a lost region's look for room in what their budget holds: which room, whom it costs, and how often one
is looked at."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from fairlead.model.kinds.intent import Placement as Rules
from fairlead.model.kinds.intent import SpreadRule
from fairlead.model.resources import Resources
from fairlead.scheduler.cycle import Cycle, Placement, Run
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.snapshot import FIRM, HELD, LENT, Snapshot, Use
from tests.scheduler.fleets import GI, NOW_MS, node, request, snapshot_of

BUDGET = "eu"


def hold(snapshot: Snapshot, row: int, number: int, cpu: int) -> str:
    name = f"standing.{BUDGET}-{number}"
    snapshot.rooms.note(("risk", name), BUDGET)
    snapshot.set_use(("risk", name), Use(row, HELD, Resources(cpu, GI), uid="u-standing"))
    return name


def fill(snapshot: Snapshot, row: int, name: str, cpu: int, how: int = FIRM) -> None:
    use = Use(row, how, Resources(cpu, GI), priority=1000, uid=f"u-{name}", evictable=True)
    snapshot.set_use(("search", name), use)


def decide(snapshot: Snapshot, cpus: Iterable[int], placement: Rules | None = None) -> list[Run]:
    policies, queue = Policies(), Queue(random.Random(1))
    cycle = Cycle(snapshot, ShapeBook(snapshot, policies), policies, Preempting(snapshot), random.Random(1))
    first = request("api-0", priority=500, budget_name=BUDGET, placement=placement)
    asks: dict[int, object] = {}
    for number, cpu in enumerate(cpus):
        made = request(f"api-{number}", cpu=cpu, priority=500, budget_name=BUDGET, placement=placement)
        ask = asks.setdefault(cpu, made.spec.ask)  # equal slots share one, as the plane hands them out
        queue.upsert(replace(made, spec=replace(made.spec, ask=ask, slot=replace(first.spec.slot, index=number))), NOW_MS)
    return cycle.decide(queue.take(10_000, NOW_MS))


def placed(runs: list[Run]) -> list[Placement]:
    return sorted((each for run in runs for each in run.placements), key=lambda each: each.item.request.spec.slot.index)


def claims(runs: list[Run]) -> list[str]:
    return [each.claims for each in placed(runs)]


def test_a_slot_takes_the_smallest_room_that_holds_it_and_leaves_the_others_to_others() -> None:
    snapshot = snapshot_of(node("n0", cpu=16_000))
    small, large, right = (hold(snapshot, 0, number, cpu) for number, cpu in enumerate((1000, 4000, 2000)))
    assert claims(decide(snapshot, [2000, 1000, 4000])) == [right, small, large]


def test_of_rooms_that_are_all_too_small_the_largest_is_made_up_from_the_rest_of_its_node() -> None:
    snapshot = snapshot_of(node("n0", cpu=16_000))
    _, larger = hold(snapshot, 0, 0, 500), hold(snapshot, 0, 1, 1500)
    assert claims(decide(snapshot, [2000])) == [larger]


def test_what_a_claim_leaves_of_its_room_stays_held_and_is_no_room_for_the_next_one() -> None:
    snapshot = snapshot_of(node("n0", cpu=4000))
    large, _ = hold(snapshot, 0, 0, 3000), hold(snapshot, 0, 1, 1000)
    assert claims(decide(snapshot, [2000, 2000, 1000])) == [large, "standing.eu-1"]
    rest = snapshot.uses["risk", large]
    assert (rest.how, rest.requests) == (HELD, Resources(1000))
    assert snapshot.rooms.free("risk", BUDGET, snapshot.uses) == []


def test_what_a_claim_leaves_of_its_room_is_no_place_for_equal_slots_of_the_same_run() -> None:
    snapshot = snapshot_of(node("n0", cpu=4000))
    large = hold(snapshot, 0, 0, 4000)
    assert claims(decide(snapshot, [2000] * 40)) == [large]


def test_a_refused_claim_leaves_all_of_its_room_held() -> None:
    snapshot = snapshot_of(node("n0", cpu=4000))
    name = hold(snapshot, 0, 0, 3000)
    room = snapshot.uses["risk", name]
    policies = Policies()
    cycle = Cycle(snapshot, ShapeBook(snapshot, policies), policies, Preempting(snapshot), random.Random(1))
    queue = Queue(random.Random(1))
    queue.upsert(request("api-0", cpu=2000, priority=500, budget_name=BUDGET), NOW_MS)
    (claim,) = placed(cycle.decide(queue.take(1, NOW_MS)))
    assert snapshot.uses["risk", name] != room
    cycle.take_back(claim)
    assert snapshot.uses == {("risk", name): room}
    assert snapshot.rooms.free("risk", BUDGET, snapshot.uses) == [(("risk", name), room)]


def test_room_that_nobody_borrowed_goes_first_and_then_borrowers_do() -> None:
    snapshot = snapshot_of(node("n0", cpu=2000), node("n1", cpu=2000))
    lent, free = hold(snapshot, 0, 0, 2000), hold(snapshot, 1, 1, 2000)
    fill(snapshot, 0, "guest-0", 2000, LENT)
    one, other = placed(decide(snapshot, [2000, 2000]))
    assert (one.claims, one.victims, one.room) == (free, (), Use(1, HELD, Resources(2000, GI), uid="u-standing"))
    assert (other.claims, other.victims) == (lent, ("search/guest-0",))


def test_a_rule_about_neighbours_may_open_a_room_that_it_had_shut() -> None:
    snapshot = snapshot_of(node("n0", cpu=2000, zone="a"), node("n1", cpu=2000, zone="a"), node("n2", cpu=2000, zone="b"))
    rooms = [hold(snapshot, row, row, 2000) for row in range(3)]
    even = Rules(spread=(SpreadRule(topology_key="zone", max_skew=1),))
    assert claims(decide(snapshot, [2000] * 3, even)) == [rooms[0], rooms[2], rooms[1]]


@pytest.mark.parametrize("shut", ["too small", "cordoned", "of firm work"])
def test_rooms_that_are_none_cost_the_run_one_look_each_and_not_one_for_every_slot(shut: str) -> None:
    rows = 20
    snapshot = snapshot_of(*(node(f"n{row}", cpu=2000, cordoned=shut == "cordoned") for row in range(rows)))
    held = {hold(snapshot, row, row, 1000 if shut == "too small" else 2000) for row in range(rows)}
    for row in range(rows):
        fill(snapshot, row, f"full-{row}", 1000 if shut == "too small" else 2000, FIRM if shut != "cordoned" else LENT)
    looks = 0

    def told(key: tuple[str, str], use: Use, sign: int) -> None:
        nonlocal looks
        looks += key[1] in held and sign < 0

    snapshot.listeners.append(told)
    before = dict(snapshot.uses)
    assert placed(decide(snapshot, [2000] * 30)) == []
    assert looks <= 2 * rows, "once as it is, and once to see whether others could leave"
    assert snapshot.uses == before


def test_rooms_that_sums_rule_out_are_not_touched_on_the_way_to_one_that_will_do() -> None:
    snapshot = snapshot_of(*(node(f"n{row}", cpu=2000) for row in range(40)))
    for row in range(39):
        hold(snapshot, row, row, 2000)
        fill(snapshot, row, f"guest-{row}", 2000, LENT)
    right = hold(snapshot, 39, 39, 2000)
    began = snapshot.changes
    assert claims(decide(snapshot, [2000])) == [right]
    assert snapshot.changes - began == 2, "the room went, the slot came"


def test_the_loop_may_be_given_back_between_parts_of_a_large_loss() -> None:
    snapshot = snapshot_of(*(node(f"n{row}", cpu=32_000, memory=64 * GI) for row in range(20)))
    for number in range(200):
        hold(snapshot, number // 10, number, 1000)
    runs = decide(snapshot, [1000] * 200)
    assert len(set(claims(runs))) == 200
    assert max(len(run.items) for run in runs) <= 64
