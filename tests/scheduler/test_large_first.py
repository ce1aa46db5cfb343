"""New work of one round goes the large first; whoever is owed something keeps the turn the queue gave."""

from __future__ import annotations

from typing import Any

from fairlead.scheduler.cycle import Run
from fairlead.scheduler.large_first import large_first, size_of
from fairlead.scheduler.units import NO_DEADLINE, Item
from tests.scheduler.fleets import GI, node, request, snapshot_of
from tests.scheduler.test_cycle import Table

CAPACITY = {"cpu": 10_000, "memory": 10 * GI}


def run(name: str, cpu: int, memory: int = GI, **fields: Any) -> Run:
    of_item = {"priority": 0, "deadline_ms": NO_DEADLINE, **fields}
    gang = of_item.pop("gang", False)
    amounts = (("cpu", cpu), ("memory", memory))
    item = Item("risk", name, name, name, created_ms=0, amounts=amounts, least=amounts, since_ms=0, next_attempt_ms=0,
                request=None, **of_item)  # type: ignore[arg-type]  # fmt: skip
    return Run(None, [item], [], [], gang=gang)  # type: ignore[arg-type]


def order(*runs: Run) -> list[str]:
    return [one.items[0].name for one in large_first(list(runs), CAPACITY)]


def test_the_large_go_first_and_equals_keep_their_turn() -> None:
    assert order(run("small", 100), run("one", 500), run("large", 900), run("two", 500)) == ["large", "one", "two", "small"]


def test_size_is_what_is_taken_of_each_dimension_together() -> None:
    assert order(run("cpu", 1000, GI), run("memory", 500, 4 * GI)) == ["memory", "cpu"]
    assert size_of((("cpu", 1000), ("gpu", 5)), CAPACITY) == 0.1


def test_nothing_passes_a_higher_priority() -> None:
    assert order(run("urgent", 100, priority=2), run("large", 900, priority=1)) == ["urgent", "large"]


def test_nothing_passes_what_was_tried_before_has_a_deadline_or_is_a_gang() -> None:
    for owed in (run("owed", 100, attempts=1), run("owed", 100, deadline_ms=5), run("owed", 100, gang=True)):
        assert order(owed, run("large", 900)) == ["owed", "large"]
        assert order(run("small", 50), owed, run("large", 900)) == ["small", "owed", "large"]


def test_a_run_with_one_slot_that_was_tried_before_keeps_its_turn() -> None:
    both = run("new", 100)
    both.items += run("tried", 100, attempts=3).items
    assert order(both, run("large", 900)) == ["new", "large"]


def test_a_round_places_its_new_work_the_large_first() -> None:
    table = Table(snapshot_of(node("n0", cpu=1000)))
    runs = table.decide(request("a-0", cpu=300), request("b-0", cpu=900))
    assert [one.items[0].name for one in runs] == ["b-0", "a-0"]
    assert [placement.name for one in runs for placement in one.placements] == ["b-0"]
