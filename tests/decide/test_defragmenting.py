"""Plans of few moves, as values: what makes room, what it costs, and when nothing is worth it."""

from __future__ import annotations

from fairlead.decide.defragmenting import Movable, Plan, Room, plan
from fairlead.model.kinds.policy import Defragmentation
from fairlead.model.resources import Resources

RULES = Defragmentation(max_moves=2, per_hour=20, max_cost=8)


def slot(name: str, cpu: int = 1000, cost: int = 4) -> Movable:
    return Movable("risk", name, Resources(cpu, 0), cost)


def room(name: str, free: int, *slots: Movable, kind: str = "general", **fields: object) -> Room:
    return Room(name, kind, Resources(free, 0), 10, slots)._replace(**fields)  # type: ignore[arg-type]


def taken(name: str, free: int, **fields: object) -> Room:
    """By work that stays."""
    return room(name, free, fixed=1)._replace(**fields)  # type: ignore[arg-type]


def ask(cpu: int, *kinds: str) -> tuple[Resources, frozenset[str]]:
    return Resources(cpu, 0), frozenset(kinds or ("general",))


def made(*rooms: Room, asks: tuple[tuple[Resources, frozenset[str]], ...] = (ask(3000),), rules: Defragmentation = RULES,
         left: int = 20) -> Plan | None:  # fmt: skip
    return plan(rooms, asks, rules, left)


def moved(found: Plan | None) -> list[str]:
    return [] if found is None else [each.name for each in found.moves]


def test_a_slot_moves_where_what_waits_would_fit_then_and_no_more_than_needed() -> None:
    found = made(room("a", 2000, slot("x"), slot("y")), room("b", 1000, slot("z")))
    assert found is not None
    assert (found.node, found.cost, moved(found)) == ("a", 4, ["x"])


def test_nothing_moves_for_what_fits_already_or_would_never_fit() -> None:
    assert made(room("a", 3000, slot("x")), room("b", 1000, slot("z"))) is None
    assert made(room("a", 500, slot("x")), room("b", 1000, slot("z"))) is None


GI = 1 << 30
ROOMY = Defragmentation(max_moves=1, per_hour=20, max_cost=16)


def test_a_slot_that_frees_only_what_there_is_enough_of_stays() -> None:
    work = (Movable("risk", "cpu", Resources(4000, 0), 4), Movable("risk", "memory", Resources(100, 4 * GI), 4))
    short = Room("a", "general", Resources(8000, 0), 10, work)
    place = Room("b", "general", Resources(5000, 5 * GI), 10, fixed=1)
    asks = ((Resources(7000, 4 * GI), frozenset({"general"})),)
    assert moved(made(short, place, asks=asks, rules=ROOMY)) == ["memory"]


def test_a_slot_without_which_it_fits_as_well_stays_and_the_dearest_first() -> None:
    work = (slot("small", 1000, 1), slot("large", 3000, 2))
    assert moved(made(room("a", 500, *work), taken("b", 3000), asks=(ask(3500),), rules=ROOMY)) == ["large"]
    more = (slot("cheap", 1000, 1), slot("dear", 1000, 2), slot("large", 2000, 3))
    found = made(room("a", 0, *more), taken("b", 2000), taken("c", 1000), asks=(ask(2500),))
    assert moved(found) == ["cheap", "large"]


def test_where_a_node_has_no_slot_left_any_that_leaves_makes_one() -> None:
    full = room("a", 3000, slot("x", 0), slots_free=0)
    assert moved(made(full, taken("b", 500))) == ["x"]


def test_nothing_leaves_for_a_queue_and_two_do_not_share_one_place() -> None:
    assert made(room("a", 2000, slot("x")), taken("b", 999)) is None
    both = room("a", 1000, slot("x"), slot("y"))
    assert made(both, taken("b", 1999)) is None
    assert moved(made(both, taken("b", 1000), taken("c", 1000))) == ["x", "y"]
    assert made(both, taken("b", 2000, slots_free=1)) is None, "there is room for one slot"


def test_an_empty_node_is_not_filled_with_what_moves_and_other_kinds_of_nodes_are_no_place() -> None:
    assert made(room("a", 2000, slot("x")), room("b", 1500)) is None
    assert made(room("a", 2000, slot("x")), room("b", 1000, slot("z"), kind="gpu")) is None
    assert made(room("a", 2000, slot("x")), room("b", 1000, slot("z")), asks=(ask(3000, "gpu"),)) is None


def test_the_cheapest_plan_is_taken_and_a_dear_one_is_not_made() -> None:
    dear, cheap = room("a", 2000, slot("x", cost=8)), room("b", 2000, slot("y", cost=1))
    other = room("c", 1000, slot("z"))
    assert moved(made(dear, cheap, other)) == ["y"]
    assert moved(made(dear, other)) == ["x"]
    assert made(dear, other, rules=Defragmentation(max_cost=7)) is None


def test_no_more_moves_at_once_than_the_policy_and_the_hour_allow() -> None:
    rooms = (room("a", 1000, slot("x"), slot("y")), taken("b", 2000))
    assert moved(made(*rooms)) == ["x", "y"]
    assert made(*rooms, left=1) is None
    assert made(*rooms, rules=Defragmentation(max_moves=1)) is None


def test_the_largest_that_can_be_helped_comes_first() -> None:
    rooms = (room("a", 2000, slot("x"), slot("y")), room("b", 2000, slot("z", 500, 1)))
    assert moved(made(*rooms, asks=(ask(2500), ask(4000), ask(9000)))) == ["x", "y"]


def test_a_node_that_may_go_is_emptied_whole_or_not_at_all() -> None:
    spare = room("a", 3000, slot("x"), may_go=True)
    assert moved(made(spare, room("b", 1000, slot("z")), asks=())) == ["x"]
    assert made(spare._replace(fixed=1), room("b", 1000, slot("z")), asks=()) is None
    assert made(spare._replace(may_go=False), room("b", 1000, slot("z")), asks=()) is None
    assert made(room("a", 4000, may_go=True), room("b", 1000, slot("z")), asks=()) is None, "it is empty already"
