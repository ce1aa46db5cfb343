"""Which rooms a recovery budget should have in a region, which are given up, and what the region says of them."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from fairlead.decide.standing import BLOCK, ENQUEUE_MAX, ZONES_MAX, Here, bodies, lent_of, request_for, shapes_of, wanted
from fairlead.model.commands import Body, Delete, Enqueue, ReleaseReservation
from fairlead.model.kinds.capacity import BudgetShape, HeldShape, Holding, HoldingSpec, Reservation, ReservationSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

SMALL, LARGE = Resources(1000, 1 << 30), Resources(4000, 4 << 30)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH_MS = int(EPOCH.timestamp() * 1000)


def holding(*shapes: tuple[Resources, int], expires: datetime | None = None, leaves: datetime | None = None) -> Holding:
    spec = HoldingSpec(
        budget="eu",
        budget_uid="u-eu",
        region="west",
        shapes=tuple(BudgetShape(requests=asked, count=count) for asked, count in shapes),
        expiry_time=expires,
    )
    return Holding(metadata=Metadata(name="eu.west", namespace="risk", deletion_time=leaves), spec=spec)


def room(index: int, requests: Resources = SMALL, node: str = "n1") -> Reservation:
    spec = ReservationSpec(node=node, requests=requests, token=Token(1, 1, 1), budget="eu", index=index)
    return Reservation(metadata=Metadata(name=f"standing.eu-{index}", namespace="risk"), spec=spec)


def waits(of: Holding, index: int, requests: Resources = SMALL) -> SchedulingRequest:
    return request_for(of, index, requests)


def here(
    rooms: tuple[Reservation, ...] = (),
    waiting: tuple[SchedulingRequest, ...] = (),
    claimed: tuple[int, ...] = (),
    gone: tuple[str, ...] = (),
    silent: tuple[str, ...] = (),
) -> Here:
    return Here(rooms, waiting, frozenset(claimed), frozenset(gone), frozenset(silent))


def told(of: Holding | None, what: Here, now_ms: int = EPOCH_MS) -> list[tuple[str, int, int]]:
    """Each order as (what, index, how many)."""
    return [_told(body) for body in bodies(of, wanted(of, now_ms), what)]


def _told(body: Body) -> tuple[str, int, int]:
    match body:
        case ReleaseReservation(name=name):
            return ("give up", int(name.rpartition("-")[2]), 1)
        case Delete(kind="SchedulingRequest", name=name):
            return ("withdraw", int(name.rpartition("-")[2]), 1)
        case Enqueue(request, count):
            return ("ask", request.spec.slot.index, count)
    raise AssertionError(body)


def test_each_shape_numbers_its_rooms_in_a_block_of_its_own() -> None:
    want = wanted(holding((SMALL, 2), (LARGE, 1)), EPOCH_MS)
    assert want == {0: SMALL, 1: SMALL, BLOCK: LARGE}


def test_a_budget_that_is_deleted_or_unknown_wants_nothing() -> None:
    assert wanted(None, EPOCH_MS) == {}
    assert wanted(holding((SMALL, 2), leaves=EPOCH), EPOCH_MS) == {}


def test_a_budget_ends_at_its_expiry_and_not_a_millisecond_before() -> None:
    ends = holding((SMALL, 1), expires=EPOCH)
    assert wanted(ends, EPOCH_MS - 1) == {0: SMALL}
    assert wanted(ends, EPOCH_MS) == {}


def test_what_is_missing_is_asked_for_once_and_in_spans() -> None:
    of = holding((SMALL, 6))
    assert told(of, here()) == [("ask", 0, 6)]
    assert told(of, here(rooms=(room(2),), waiting=(waits(of, 4),), claimed=(0,))) == [
        ("ask", 1, 1),
        ("ask", 3, 1),
        ("ask", 5, 1),
    ]


def test_a_claimed_room_is_there() -> None:
    assert told(holding((SMALL, 2)), here(claimed=(0, 1))) == []


def test_two_shapes_are_asked_for_apart_and_many_rooms_in_several_orders() -> None:
    assert told(holding((SMALL, 1), (LARGE, 1)), here()) == [("ask", 0, 1), ("ask", BLOCK, 1)]
    asked = told(holding((SMALL, ENQUEUE_MAX + 3)), here())
    assert asked == [("ask", 0, ENQUEUE_MAX), ("ask", ENQUEUE_MAX, 3)]


def test_a_full_block_does_not_run_into_the_next() -> None:
    of = holding((SMALL, BLOCK), (LARGE, 1))
    orders = [body for body in bodies(of, wanted(of, EPOCH_MS), here()) if isinstance(body, Enqueue)]
    assert sum(order.count for order in orders) == BLOCK + 1
    assert {order.request.spec.ask.requests for order in orders if order.request.spec.slot.index < BLOCK} == {SMALL}
    assert orders[-1].request.spec.ask.requests == LARGE


def test_room_on_a_node_that_is_gone_is_given_up_and_asked_for_only_once_it_is() -> None:
    of = holding((SMALL, 1))
    assert told(of, here(rooms=(room(0, node="lost"),), gone=("lost",))) == [("give up", 0, 1)]
    assert told(of, here()) == [("ask", 0, 1)]


def test_room_on_a_silent_node_is_kept() -> None:
    assert told(holding((SMALL, 1)), here(rooms=(room(0, node="mute"),), silent=("mute",))) == []


def test_room_of_another_size_or_beyond_the_count_is_given_up() -> None:
    assert told(holding((LARGE, 1)), here(rooms=(room(0, SMALL),))) == [("give up", 0, 1)]
    assert told(holding((SMALL, 1)), here(rooms=(room(0), room(1)))) == [("give up", 1, 1)]


def test_room_that_was_found_again_while_its_claimer_runs_is_given_up() -> None:
    assert told(holding((SMALL, 1)), here(rooms=(room(0),), claimed=(0,))) == [("give up", 0, 1)]


def test_what_a_claimer_leaves_of_its_room_is_kept_as_long_as_it_is_there() -> None:
    of, rest = holding((LARGE, 1)), _rest(0)
    assert told(of, here((rest,), claimed=(0,))) == []
    assert told(of, here((rest,))) == [("give up", 0, 1)], "its claimer is gone, and held nothing again"
    assert told(of, here((rest,), claimed=(0,), gone=("n1",))) == [("give up", 0, 1)]
    assert told(holding((LARGE, 0)), here((rest,), claimed=(0,))) == [("give up", 0, 1)]


def test_what_a_claimer_leaves_of_its_room_is_no_room() -> None:
    of = holding((SMALL, 1))
    (shape,) = shapes_of(of, wanted(of, EPOCH_MS), here((_rest(0),), claimed=(0,)))
    assert (shape.held, shape.claimed, shape.waiting) == (0, 1, 0)


def _rest(index: int) -> Reservation:
    made = room(index)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, claimer="api-0"))


def test_a_request_is_withdrawn_where_room_is_there_or_another_size_is_wanted() -> None:
    of = holding((SMALL, 1))
    assert told(of, here(rooms=(room(0),), waiting=(waits(of, 0),))) == [("withdraw", 0, 1)]
    assert told(of, here(waiting=(waits(of, 0),), claimed=(0,))) == [("withdraw", 0, 1)]
    assert told(of, here(waiting=(waits(of, 0, LARGE),))) == [("withdraw", 0, 1)]
    assert told(of, here(waiting=(waits(of, 7),))) == [("withdraw", 7, 1), ("ask", 0, 1)]


def test_a_budget_that_is_over_gives_everything_up() -> None:
    of = holding((SMALL, 2), expires=EPOCH)
    assert told(of, here(rooms=(room(0),), waiting=(waits(of, 1),))) == [("give up", 0, 1), ("withdraw", 1, 1)]
    assert told(None, here(rooms=(room(0),))) == [("give up", 0, 1)]


def test_the_region_says_what_is_held_claimed_silent_and_still_to_be_found() -> None:
    of = holding((SMALL, 5), (LARGE, 2))
    there = here(
        rooms=(room(0), room(1, node="mute"), room(2, node="lost"), room(3, LARGE), room(BLOCK, LARGE)),
        claimed=(4,),
        gone=("lost",),
        silent=("mute",),
    )
    assert shapes_of(of, wanted(of, EPOCH_MS), there) == (
        HeldShape(requests=SMALL, held=1, claimed=1, silent=1, waiting=2, nodes=(1,)),
        HeldShape(requests=LARGE, held=1, waiting=1, nodes=(1,)),
    )


def test_a_node_that_is_gone_counts_as_gone_though_it_is_silent_too() -> None:
    of = holding((SMALL, 1))
    there = here(rooms=(room(0, node="lost"),), gone=("lost",), silent=("lost",))
    assert shapes_of(of, wanted(of, EPOCH_MS), there) == (HeldShape(requests=SMALL, waiting=1),)


def test_more_claimed_than_wanted_waits_for_nothing() -> None:
    of = holding((SMALL, 1))
    assert shapes_of(of, wanted(of, EPOCH_MS), here(claimed=(0, 1))) == (HeldShape(requests=SMALL, claimed=2),)


def test_a_request_says_its_budget_its_class_and_that_it_stands() -> None:
    of = holding((SMALL, 1))
    spec = waits(msgspec.structs.replace(of, spec=msgspec.structs.replace(of.spec, workload_class="steady")), 0).spec
    assert (spec.standing, spec.budget_name, spec.ask.workload_class, spec.slot.uid) == (True, "eu", "steady", "u-eu")


def test_rooms_are_lent_as_far_as_borrowers_reach_and_silent_ones_are_not() -> None:
    of = holding((SMALL, 3))
    rooms = (room(0), room(1), room(2, node="mute"))
    assert lent_of(rooms[:2], ()) == []
    assert lent_of(rooms[:2], (Resources(500, 1),)) == [rooms[0]], "a part of one is one that must be cleared"
    assert lent_of(rooms[:2], (Resources(500, 1), Resources(600, 1))) == list(rooms[:2])
    assert lent_of(rooms[:1], (Resources(9000, 1),)) == [rooms[0]], "they may borrow beside the rooms too"
    there = here(rooms=rooms, silent=("mute",))._replace(lent=frozenset({0, 2}))
    assert shapes_of(of, wanted(of, EPOCH_MS), there) == (HeldShape(requests=SMALL, held=2, silent=1, lent=1, nodes=(1, 1)),)


def test_the_region_says_on_how_many_nodes_rooms_are() -> None:
    of = holding((SMALL, 6), (LARGE, 1))
    nodes = ("n1", "n1", "n1", "n2", "n2", "n3")
    rooms = tuple(room(index, node=node) for index, node in enumerate(nodes))
    small, large = shapes_of(of, wanted(of, EPOCH_MS), here(rooms, silent=("n3",)))
    assert (small.held, small.nodes) == (5, (2, 2, 1)), "two nodes hold one, two hold two, one holds three"
    assert large.nodes == ()


def test_the_region_says_how_many_rooms_each_zone_has_that_takes_work() -> None:
    of = holding((SMALL, 6), (LARGE, 1))
    rooms = tuple(room(index, node=node) for index, node in enumerate(("n1", "n2", "n2", "n3", "n4", "n5")))
    zones = {"n1": "a", "n2": "b", "n3": "b", "n4": "c", "n5": ""}
    there = here(rooms, silent=("n4",))._replace(zones=zones, open_zones=frozenset("abcd"))
    small, large = shapes_of(of, wanted(of, EPOCH_MS), there)
    assert (small.held, small.zones) == (5, (3, 1, 0, 0)), "c has a node that takes work, and a room on one that does not"
    assert large.zones == (), "there is none"
    many = there._replace(open_zones=frozenset(map(str, range(ZONES_MAX + 1))))
    assert shapes_of(of, wanted(of, EPOCH_MS), many)[0].zones == ()
