"""Scores about what a placement leaves over and what it costs; and what holds for every score that keeps no state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.fit import Need
from fairlead.decide.plugins import BUILT_INS
from fairlead.decide.scores import (
    SCORE_MAX,
    DomainScore,
    PlainScore,
    Score,
    balance,
    cost,
    fragmentation,
    image,
    packing,
    stability,
)
from fairlead.decide.scores.wishes import ClassTable, Pulls, Wishes
from fairlead.model.quantity import AMOUNT_MAX
from tests.decide.score_rows import NOW, columns, need_of, node, rates

GI = 1 << 30
CLASSES = 4

# --- every score -----------------------------------------------------------------------------------------------------------

_amount = st.one_of(st.integers(0, 10), st.integers(0, 100_000), st.sampled_from([AMOUNT_MAX, AMOUNT_MAX - 1]))


_of_node = st.fixed_dictionaries(
    {
        "node_class": st.integers(0, CLASSES - 1),
        "number": st.integers(0, 7),
        "image": st.integers(0, 1),
        "hourly_cost_millis": _amount,
        "recent_failures": st.integers(-1, 10_000),
        "cpu_total": _amount,
        "memory_total": _amount,
        "used": st.tuples(*[_amount] * 4),
    }
)


def _with_free(values: dict[str, Any]) -> dict[str, int]:
    """A node that shrank under what it runs has less than nothing free."""
    fields = ("cpu_free", "cpu_unlent", "memory_free", "memory_unlent")
    free = {name: values[f"{name.split('_')[0]}_total"] - used for name, used in zip(fields, values["used"], strict=True)}
    return {name: value for name, value in values.items() if name != "used"} | free


_nodes = _of_node.map(_with_free)


class Neighbours:
    """Counters by node and by node class, as a TopologyNeed has them."""

    def __init__(self, by_node: list[int], by_class: list[int], pulls: dict[bool, Pulls]) -> None:
        self._counts = {True: by_node, False: by_class}
        self._pulls = pulls

    def crowding(self, row: Any, *, own: bool) -> Any:
        return self._of(row, own)

    def attraction(self, row: Any, *, own: bool) -> Any:
        low, high = -self._pulls[own].down, self._pulls[own].up
        return self._of(row, own) % (high - low + 1) + low

    def _of(self, row: Any, own: bool) -> Any:
        where, counts = row.number if own else row.node_class, self._counts[own]
        return counts[where] if isinstance(where, int) else np.array(counts)[where]


_pulls = st.builds(Pulls, st.integers(0, 100), st.integers(0, 100))


@st.composite
def _needs(draw: st.DrawFn) -> Need:
    pulls = {True: draw(_pulls), False: draw(_pulls)}
    wishes = Wishes(
        image=draw(st.sampled_from(["", "web:1"])),
        classes=ClassTable(draw(st.lists(st.integers(0, SCORE_MAX), min_size=CLASSES, max_size=CLASSES))),
        spread_own=draw(st.integers(0, 1)),
        spread_coarse=draw(st.integers(0, 2)),
        pulls_own=pulls[True],
        pulls_coarse=pulls[False],
    )
    counts = st.lists(st.integers(-3, 10_000), min_size=8, max_size=8)
    topology = draw(st.none() | st.builds(Neighbours, counts, counts, st.just(pulls)))
    return need_of(draw(_amount), draw(_amount), borrows=draw(st.booleans()), wishes=wishes, topology=topology)


STATELESS = [score for score in BUILT_INS.scores.values() if isinstance(score, PlainScore | DomainScore)]


@settings(deadline=None, max_examples=150)
@given(_needs(), st.lists(_nodes, min_size=1, max_size=6))
def test_every_score_says_of_a_column_what_it_says_of_each_row_and_keeps_its_bounds(
    need: Need, nodes: list[dict[str, int]]
) -> None:
    assert len(STATELESS) == 9
    for score in STATELESS:
        got = rates(score, need, *nodes)
        assert all(0 <= rate <= SCORE_MAX for rate in got), (score.name, got)


@settings(deadline=None, max_examples=60)
@given(_needs(), st.lists(_nodes, min_size=2, max_size=6))
def test_a_score_that_says_it_does_not_apply_rates_all_nodes_alike(need: Need, nodes: list[dict[str, int]]) -> None:
    for score in STATELESS:
        if not score.applies(need):
            assert len(set(rates(score, need, *nodes))) == 1, score.name


@settings(deadline=None, max_examples=60)
@given(_needs(), _nodes)
def test_the_parts_of_a_score_about_domains_add_up_and_the_coarse_one_reads_the_node_class_alone(
    need: Need, values: dict[str, int]
) -> None:
    row: Any = node(**values)
    bare: Any = SimpleNamespace(node_class=values["node_class"])
    for score in STATELESS:
        if isinstance(score, DomainScore):
            assert score.scope == "domain"
            assert score.own(need, row, NOW) + score.coarse(need, bare, NOW) == score.rate(need, row, NOW)
        else:
            assert score.scope == "node"


# --- one by one ------------------------------------------------------------------------------------------------------------


def _room(cpu: int, memory_gi: int) -> dict[str, int]:
    """A node of 8 cores and 8 Gi with this much free."""
    return {"cpu_free": cpu, "cpu_unlent": cpu, "memory_free": memory_gi * GI, "memory_unlent": memory_gi * GI}


@pytest.mark.parametrize(
    ("free", "packs", "balances", "wastes_little"),
    [
        ((8000, 8), 125, 875, 1000),  # empty: seven of eight left of both, and seven more fit
        ((1000, 1), 1000, 0, 1000),  # filled exactly
        ((8000, 1), 563, 0, 563),  # all memory gone: seven cores that nobody of this shape can use
        ((1000, 8), 563, 0, 563),
        ((4000, 8), 375, 375, 750),  # three more fit and leave four of memory
        ((1500, 1), 969, 0, 969),  # half a core left over
        ((0, 0), 1000, 0, 1000),  # it does not fit; nobody asks, and nothing breaks
        ((-500, -1), 1000, 0, 1000),
    ],
)
def test_a_node_of_eight_and_eight_for_a_slot_of_one_and_one(
    free: tuple[int, int], packs: int, balances: int, wastes_little: int
) -> None:
    found = [rates(score, need_of(), _room(*free))[0] for score in (packing.SCORE, balance.SCORE, fragmentation.SCORE)]
    assert found == [packs, balances, wastes_little]


def test_a_node_that_has_none_of_a_resource_divides_nothing_by_zero() -> None:
    nothing = dict.fromkeys(("cpu_free", "cpu_unlent", "cpu_total", "memory_free", "memory_unlent", "memory_total"), 0)
    wishes = Wishes(classes=ClassTable([1000]))
    for score in STATELESS:
        assert 0 <= rates(score, need_of(0, 0, wishes=wishes), nothing)[0] <= SCORE_MAX
        assert 0 <= rates(score, need_of(wishes=wishes), nothing)[0] <= SCORE_MAX


def test_packing_prefers_the_small_node_for_a_slot_that_fills_it() -> None:
    small = {"cpu_total": 1000, "memory_total": GI, **_room(1000, 1)}
    assert rates(packing.SCORE, need_of(), small, _room(8000, 8), _room(4000, 4)) == [1000, 125, 625]


def test_borrowers_are_rated_by_what_is_not_lent_others_by_what_is_not_promised() -> None:
    held = {"cpu_free": 1000, "cpu_unlent": 8000, "memory_free": GI, "memory_unlent": 8 * GI}
    assert rates(packing.SCORE, need_of(), held) == [1000]
    assert rates(packing.SCORE, need_of(borrows=True), held) == [125]


def test_a_resource_that_is_not_asked_for_is_no_waste() -> None:
    assert rates(fragmentation.SCORE, need_of(memory=0), _room(3000, 8), _room(1500, 8)) == [1000, 969]
    assert rates(fragmentation.SCORE, need_of(cpu=0), _room(8000, 3)) == [1000]
    assert not fragmentation.SCORE.applies(need_of(0, 0))


def test_cost_is_half_at_the_usual_price_and_falls_as_the_part_of_the_node_gets_dearer() -> None:
    """One core and one Gi usually cost 45 thousandths an hour; the larger part of the node is what is paid."""
    assert rates(cost.SCORE, need_of(), {"hourly_cost_millis": 0}, {"hourly_cost_millis": 360}, {"hourly_cost_millis": 720}) == [
        1000, 500, 333,
    ]  # fmt: skip
    wide = {"hourly_cost_millis": 360, "memory_total": 64 * GI}
    assert rates(cost.SCORE, need_of(), wide) == [500], "an eighth of its cpu is paid, though it takes little of its memory"


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 20), st.integers(1, 1 << 50))
def test_a_dearer_node_of_the_same_size_never_rates_higher(one: int, other: int, cpu: int, memory: int) -> None:
    size = {"cpu_total": 1 << 21, "memory_total": 1 << 51}
    cheap, dear = (
        rates(cost.SCORE, need_of(cpu, memory), {**size, "hourly_cost_millis": millis})[0] for millis in sorted((one, other))
    )
    assert dear <= cheap


def test_a_node_with_the_image_is_preferred_where_an_image_is_named() -> None:
    named = need_of(wishes=Wishes(image="web:1"))
    assert rates(image.SCORE, named, {"image": 1}, {"image": 0}) == [1000, 0]
    assert image.SCORE.applies(named)
    assert not image.SCORE.applies(need_of())


def test_each_recent_failure_makes_a_node_less_welcome() -> None:
    nodes = [{"recent_failures": n} for n in (0, 1, 2, 9, 10, 64, 5000, -1)]
    assert rates(stability.SCORE, need_of(), *nodes) == [1000, 500, 250, 1, 0, 0, 0, 1000]


@settings(max_examples=40)
@given(st.lists(_nodes, min_size=1, max_size=5), st.sampled_from(STATELESS))
def test_rates_of_columns_are_whole_numbers_of_64_bits(nodes: list[dict[str, int]], score: Score) -> None:
    found = score.rate(need_of(wishes=Wishes(classes=ClassTable([5] * CLASSES))), columns(nodes), NOW)
    assert np.asarray(found).dtype == np.int64
