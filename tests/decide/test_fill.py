"""Expected fill: the arithmetic against a slow twin, and what it prefers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from fairlead.decide.need import DeviceNeed, Need
from fairlead.decide.scores import fill
from fairlead.decide.scores.fill import FillScore
from fairlead.decide.scores.fill import score as score_module
from fairlead.decide.scores.fill.kernel import RANKS_MAX, STEPS, States, compile_tables, fills, plain_fills
from fairlead.decide.scores.fill.lists import LENGTH, LISTS, PATTERNS_MAX, Mix, Pattern, pattern_of, pattern_of_use
from fairlead.decide.scores.fill.nodes import Nodes
from fairlead.decide.scores.fill.scarce import MICRO, Wide, rarity
from fairlead.decide.scores.fill.score import NEVER, ExpectedFill
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import SHARE_WHOLE, Device, DeviceHold, Resources
from fairlead.scheduler.snapshot import FIRM, Snapshot, Use

GI = 1 << 30


def need(cpu: int = 1000, gib: int = 1, *, gpus: int = 0, share: int = 0, models: tuple[str, ...] = ()) -> Need:
    devices = (DeviceNeed("gpu", models, whole=gpus, share=share),) if gpus or share else ()
    classes: Any = None
    return Need(cpu, gib * GI, 1, cpu, gib * GI, (), devices, 30_000, classes)


def picture(*nodes: tuple[int, int, int, str]) -> Snapshot:
    """Nodes of (cores, GiB, GPUs, model)."""
    snapshot = Snapshot()
    for number, (cores, gib, gpus, model) in enumerate(nodes):
        devices = tuple(Device(id=f"gpu-{n}", model=model) for n in range(gpus))
        spec = NodeSpec(allocatable=Resources(cores * 1000, gib * GI), devices=devices)
        status = NodeStatus(schedulable=True, health="Ready")
        snapshot.set_node(f"n{number}", Node(metadata=Metadata(name=f"n{number}"), spec=spec, status=status))
    return snapshot


def use(snapshot: Snapshot, name: str, row: int, wanted: Need, *gpus: int) -> None:
    share = wanted.devices[0].share or SHARE_WHOLE if wanted.devices else 0
    holds = tuple(DeviceHold(id=f"gpu-{n}", thousandths=share) for n in gpus)
    snapshot.set_use(("t", name), Use(row, FIRM, Resources(wanted.cpu, wanted.memory), holds))


def best(score: FillScore, snapshot: Snapshot, wanted: Need) -> int:
    return int(np.argmax(score.rate(wanted, snapshot.fleet.all(), snapshot)))


def learnt(snapshot: Snapshot, *mix: tuple[Need, int]) -> FillScore:
    score = FillScore()
    for wanted, count in mix:
        score.observe(wanted, snapshot, count)
    return score


# --- the arithmetic --------------------------------------------------------------------------------------------------------


def slow_fill(patterns: list[Pattern], sample: Any, kinds: Any, cpu: int, memory: int, kind: int, rooms: list[int]) -> int:
    total = 0
    for row in sample.tolist():
        free_cpu, free_memory, free = cpu, memory, list(rooms)
        for number in row:
            p = patterns[number]
            if p.cpu > free_cpu or p.memory > free_memory or not kinds[number][kind]:
                continue
            enough = sorted((room, at) for at, room in enumerate(free) if room >= p.share)
            if len(enough) < p.devices:
                continue
            for _, at in enough[: p.devices]:
                free[at] -= p.share
                total += p.share
            free_cpu, free_memory = free_cpu - p.cpu, free_memory - p.memory
    return total


def slow_plain_left(patterns: list[Pattern], sample: Any, cpu: int, memory: int) -> int:
    total = 0
    for row in sample.tolist():
        free_cpu, free_memory, more = cpu, memory, True
        while more:
            more = False
            for number in row:
                p = patterns[number]
                if not p.devices and p.cpu <= free_cpu and p.memory <= free_memory:
                    free_cpu, free_memory, more = free_cpu - p.cpu, free_memory - p.memory, True
        total += free_cpu + free_memory
    return total


def random_mix(chance: random.Random, devices: bool) -> Mix:
    mix = Mix()
    for _ in range(chance.randrange(1, 25)):
        cpu, memory = chance.randrange(1, 40), chance.randrange(1, 60)
        kind = chance.randrange(4) if devices else 0
        if kind == 0:
            mix.observe(Pattern(cpu, memory), chance.randrange(1, 30))
        elif kind == 1:
            mix.observe(Pattern(cpu, memory, chance.choice((1, 2, 4)), SHARE_WHOLE, "gpu"), chance.randrange(1, 9))
        else:
            share = chance.choice((110, 230, 470, 810, SHARE_WHOLE))
            models = chance.choice(((), ("a",), ("a", "b")))
            mix.observe(Pattern(cpu, memory, 1, share, "gpu", models), chance.randrange(1, 30))
    return mix


@pytest.mark.parametrize("seed", range(12))
def test_the_fill_of_a_state_is_what_placing_one_by_one_gives(seed: int) -> None:
    chance = random.Random(seed)
    patterns, sample = random_mix(chance, devices=True).draw()
    kinds = [[not p.devices, not p.devices or "b" in (p.models or "b"), True] for p in patterns]
    tables = compile_tables(patterns, sample, np.array(kinds, np.bool_), (500, 500))
    rows = []
    for _ in range(40):
        rooms = sorted(chance.choice((0, 90, 300, 640, 1000, 1000)) for _ in range(4))
        rows.append((chance.randrange(400), chance.randrange(500), chance.randrange(1, 3), rooms))
    cpu, memory, kind = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    got = fills(tables, States(cpu, memory, kind, np.array([row[3] for row in rows], np.int16)))
    assert got.tolist() == [slow_fill(patterns, sample, kinds, *row) for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_the_fill_of_a_node_without_devices_goes_on_until_nothing_fits(seed: int) -> None:
    chance = random.Random(seed)
    patterns, sample = random_mix(chance, devices=seed % 2 == 1).draw()
    kinds = np.array([[not p.devices, True] for p in patterns], np.bool_)
    tables = compile_tables(patterns, sample, kinds, (32_767, 32_767))
    cpu, memory = (np.array([chance.randrange(600) for _ in range(20)], np.int64) for _ in range(2))
    got = plain_fills(tables, States(cpu, memory, cpu * 0, np.zeros((20, 1), np.int16)))
    for at, taken in enumerate(got.tolist()):
        left = slow_plain_left(patterns, sample, int(cpu[at]), int(memory[at]))
        all_of_it = (int(cpu[at]) + int(memory[at])) * 1000 // 65_536 * LISTS
        assert taken == all_of_it - left * 1000 // 65_536


def test_coarse_steps_never_make_a_request_smaller() -> None:
    patterns, sample = [Pattern(9, 1, 1, 1000, "gpu")], np.zeros((LISTS, LENGTH), np.int64)
    tables = compile_tables(patterns, sample, np.ones((1, 1), np.bool_), (1 << 17, 1 << 17))
    assert tables.cpu_unit == 5
    rooms = np.full((2, 1), 1000, np.int16)
    got = fills(tables, States(np.array([9, 10]), np.array([50, 50]), np.zeros(2, np.int64), rooms))
    assert got.tolist() == [0, LISTS * 1000], "9 asks for two steps of 5"


def test_lists_are_drawn_in_proportion_and_always_alike() -> None:
    mix = Mix()
    mix.observe(Pattern(1, 1, 1, 500, "gpu"), 60)
    mix.observe(Pattern(2, 2), 40)
    patterns, sample = mix.draw()
    plain = patterns.index(Pattern(2, 2))
    assert abs(int((sample == plain).sum()) - LISTS * LENGTH * 20 // 80) <= 1, "without devices they weigh one half"
    assert (mix.draw()[1] == sample).all()
    assert (sample == plain).sum(axis=1).max() < LENGTH, "in disorder"


def test_lists_are_drawn_again_at_one_at_twenty_and_when_the_count_grew_by_a_fifth() -> None:
    mix, plain = Mix(), Mix()
    assert [n for n in range(1, 50) if mix.observe(Pattern(1, 1, 1, 500))] == [1, 20, 24, 28, 33, 39, 46]
    assert [n for n in range(1, 70) if plain.observe(Pattern(1, 1))] == [1, 20, 30, 45, 67], "without devices by a half"


def test_memory_is_rounded_against_the_request() -> None:
    assert pattern_of(Need(1, (5 << 20) + 1, 1, 1, 0, (), (), 0, None)).memory == 6  # type: ignore[arg-type]


# --- nodes -----------------------------------------------------------------------------------------------------------------


def test_the_key_after_a_placement_is_the_key_of_the_state_it_leaves() -> None:
    snapshot = picture((32, 64, 4, "a"), (32, 64, 4, "a"), (16, 64, 2, "b"))
    shared, two, plain = need(share=470), need(4000, 8, gpus=2), need(2000, 3)
    known = ExpectedFill()
    for wanted in (shared, two, plain):
        known.observe(wanted)
    for number, wanted in enumerate((shared, two, plain, shared)):
        known.follow(snapshot)
        open_ = np.array(known.nodes.open_to(pattern_of(wanted)), np.bool_)
        choices = known._choices(pattern_of(wanted), open_, np.array([0], np.int64))
        used = snapshot.fleet.device_used[0]
        room = int(choices.room[0]) if wanted is shared else SHARE_WHOLE
        free = [n for n in range(4) if SHARE_WHOLE - used.get(f"gpu-{n}", 0) == room]
        gpus = free[:1] if wanted is shared else free[:2] if wanted is two else []
        use(snapshot, f"s{number}", 0, wanted, *gpus)
        known.follow(snapshot)
        assert int(choices.key[0]) == int(known.nodes.key[0])


def test_nodes_in_the_same_state_have_one_key_and_a_departure_brings_it_back() -> None:
    snapshot, nodes = picture((32, 64, 2, "a"), (32, 64, 2, "a"), (32, 64, 2, "b")), Nodes()
    nodes.follow(snapshot)
    fresh = int(nodes.key[0])
    assert fresh == int(nodes.key[1]) != int(nodes.key[2])
    use(snapshot, "s", 0, need(share=300), 1)
    assert nodes.follow(snapshot) == 1
    assert (int(nodes.idle[0]), nodes.states.rooms[0].tolist()) == (1700, [700, 1000])
    assert sum(nodes.idle_of_kind) == 5700
    snapshot.set_use(("t", "s"), None)
    nodes.follow(snapshot)
    assert int(nodes.key[0]) == fresh


# --- what it prefers -------------------------------------------------------------------------------------------------------


def test_a_share_goes_beside_another_share_and_leaves_a_whole_device() -> None:
    snapshot = picture((64, 64, 2, "a"), (64, 64, 2, "a"))
    half, whole = need(share=500), need(gpus=1)
    score = learnt(snapshot, (half, 1), (whole, 200))
    use(snapshot, "s", 1, half, 1)
    assert best(score, snapshot, half) == 1
    row: Any = snapshot.row(1)
    assert score.pick_devices(half, row, snapshot) == (DeviceHold(id="gpu-1", thousandths=500),)
    assert score.pick_devices(whole, row, snapshot) is None


def test_one_device_is_taken_where_many_at_once_are_no_longer_possible() -> None:
    snapshot = picture((96, 96, 8, "a"), (96, 96, 8, "a"))
    one, eight = need(gpus=1), need(8000, 8, gpus=8)
    score = learnt(snapshot, (one, 50), (eight, 5))
    use(snapshot, "s", 1, one, 0)
    assert best(score, snapshot, one) == 1


def test_a_rare_model_is_left_to_those_who_must_have_it() -> None:
    snapshot = picture((32, 64, 2, "rare"), *(((32, 64, 2, "common"),) * 5))
    anything, choosy = need(gpus=1), need(gpus=1, models=("rare",))
    score = learnt(snapshot, (anything, 30), (choosy, 30))
    assert best(score, snapshot, anything) != 0
    assert best(score, snapshot, choosy) == 0
    assert score.rate(choosy, snapshot.row(1), snapshot) == -NEVER, "it does not fit there"


def test_a_slot_without_devices_goes_to_a_node_without_while_there_is_one() -> None:
    snapshot = picture((32, 64, 2, "a"), (32, 64, 0, ""))
    score = learnt(snapshot, (need(), 10), (need(gpus=1), 10))
    assert best(score, snapshot, need()) == 1


def test_without_devices_a_node_in_use_is_filled_before_an_empty_one_is_opened() -> None:
    snapshot = picture((16, 64, 0, ""), (16, 64, 0, ""), (16, 64, 0, ""))
    score = learnt(snapshot, (need(4000, 16), 10))
    use(snapshot, "s", 2, need(4000, 16))
    assert best(score, snapshot, need(4000, 16)) == 2


def test_without_devices_what_is_left_must_be_of_use_to_the_mix() -> None:
    """Best fit would take the first node, which has less left, and spoil a place for one of the usual slots."""
    snapshot = picture((16, 64, 0, ""), (16, 64, 0, ""))
    use(snapshot, "a", 0, need(8000, 32))
    use(snapshot, "b", 1, need(10_000, 16))
    score = learnt(snapshot, (need(4000, 16), 50))
    assert best(score, snapshot, need(2000, 16)) == 1, "6 cores and 48 GiB hold one usual slot, before and after"


def test_one_row_is_rated_as_all_rows_are() -> None:
    snapshot = picture((32, 64, 4, "a"), (32, 64, 4, "b"), (64, 32, 0, ""), (8, 8, 1, "a"))
    wanted = (need(share=470), need(gpus=1, models=("a",)), need(9000, 9), need(4000, 4, gpus=2))
    score = learnt(snapshot, *((one, 5 + at) for at, one in enumerate(wanted)))
    for at, one in enumerate((wanted[0], wanted[3], wanted[2])):
        use(snapshot, f"s{at}", at, one, *range(one.devices[0].whole or 1 if one.devices else 0))
        for asked in wanted:
            rates = score.rate(asked, snapshot.fleet.all(), snapshot).tolist()
            assert rates == [score.rate(asked, snapshot.row(row), snapshot) for row in range(4)]


def test_rates_are_asked_for_again_when_lists_or_prices_changed_and_not_otherwise() -> None:
    snapshot = picture(*(((96, 96, 8, "a"),) * 4))
    score = learnt(snapshot, (need(gpus=1), 40), (need(8000, 8, gpus=8), 4))
    before = score.epoch(snapshot)
    use(snapshot, "s", 0, need(gpus=1), 0)
    assert score.epoch(snapshot) == before
    for number in range(20):
        use(snapshot, f"x{number}", 1 + number % 3, need(gpus=1), number // 3)
    assert score.epoch(snapshot) == before + 1, "the places for eight are gone"
    score.observe(need(gpus=1), snapshot, 400)
    assert score.epoch(snapshot) == before + 2


def test_each_picture_has_its_own_knowledge() -> None:
    score, first, second = FillScore(), picture((8, 8, 0, "")), picture((8, 8, 0, ""))
    score.observe(need(), first)
    assert (score.knowledge(first).mix.present, score.knowledge(second).mix.present) == (1, 0)


def test_what_has_ended_leaves_the_mix() -> None:
    mix = Mix()
    picky, plain = pattern_of(need(gpus=1, models=("a",))), pattern_of(need())
    mix.observe(pattern_of(need(gpus=1)), 2)
    mix.observe(picky, 3)
    mix.observe(plain, 1)
    for wanted in (need(gpus=1), need()):
        holds = tuple(DeviceHold(id=f"g{n}", thousandths=SHARE_WHOLE) for n in range(len(wanted.devices)))
        mix.ended(pattern_of_use(Resources(wanted.cpu, wanted.memory), holds))
    assert mix.counts == {pattern_of(need(gpus=1)): 2, picky: 2}, "of those alike the commonest, and what is none is not kept"
    assert (mix.present, mix.thousandths) == (4, 4 * SHARE_WHOLE)
    mix.ended(plain)
    assert mix.present == 4, "what nobody counted cannot be taken away"


def test_what_lives_long_weighs_more_than_what_comes_often() -> None:
    mix, long, short = Mix(), Pattern(8000, 56 << 10), Pattern(1000, 1792)
    for number in range(400):
        mix.observe(short)
        if number >= 10:
            mix.ended(short)
        if number % 40 == 0:
            mix.observe(long)
    patterns, sample = mix.draw()
    assert (sample == patterns.index(long)).mean() == pytest.approx(0.5, abs=0.01), "ten of each are there"


def test_patterns_beyond_number_are_rounded_and_still_end() -> None:
    mix = Mix()
    asked = [Pattern(1000 + number, 3 * number + 1) for number in range(PATTERNS_MAX + 500)]
    for pattern in asked:
        mix.observe(pattern)
    assert len(mix.counts) < PATTERNS_MAX + 250
    for pattern in asked:
        mix.ended(pattern)
    assert (mix.counts, mix.present) == ({}, 0)


def test_tables_stay_small_and_never_promise_more_room_than_there_is() -> None:
    patterns = [Pattern(cpu, 5000 - cpu) for cpu in range(1, 4000)]
    sample = np.arange(LISTS * LENGTH).reshape(LISTS, LENGTH)
    allowed = np.ones((len(patterns), 1), np.bool_)
    tables = compile_tables(patterns, sample, allowed, (STEPS - 1, STEPS - 1))
    assert len(tables.fit_words) < 400_000, "three megabytes, whatever is asked for"
    exact = np.array([p.cpu for p in patterns])[sample].T.ravel()
    assert (tables.cpu[1:] >= exact).all()
    assert (tables.cpu[1:] - exact).max() <= 2 * LISTS * LENGTH // RANKS_MAX


def test_rates_prepared_in_parts_are_those_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_module, "STATES_AT_ONCE", 2)
    snapshot = picture((32, 64, 4, "a"), (32, 64, 4, "b"), (64, 32, 0, ""), (8, 8, 1, "a"), (8, 8, 1, "a"), (16, 8, 1, "a"))
    wanted = need(share=470)
    parts, whole = learnt(snapshot, (wanted, 5)), learnt(snapshot, (wanted, 5))
    # Drawn, made into tables, priced; then states two by two.
    assert [parts.prepare(wanted, snapshot) for _ in range(6)] == [False, False, False, False, True, True]
    monkeypatch.setattr(ExpectedFill, "_compute", None)  # nothing is left to compute
    rates = parts.rate(wanted, snapshot.fleet.all(), snapshot).tolist()
    monkeypatch.undo()
    assert rates == whole.rate(wanted, snapshot.fleet.all(), snapshot).tolist()


def test_a_score_that_comes_later_begins_with_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = picture((32, 64, 4, "a"), (64, 32, 0, ""))
    use(snapshot, "s0", 0, need(gpus=2), 0, 1)
    use(snapshot, "s1", 0, need(share=470), 2)
    for number in range(6):
        use(snapshot, f"p{number}", 1, need(), *())
    found = FillScore().knowledge(snapshot).mix
    assert found.counts == {pattern_of(need(gpus=2)): 1, pattern_of(need(share=470)): 1, pattern_of(need()): 6}
    monkeypatch.setattr(score_module, "_BEGIN_WITH", 4)
    assert FillScore().knowledge(snapshot).mix.present == 8, "a sample stands for all"


def test_a_fleet_that_grows_is_read_where_it_grew_and_rated_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ((32, 64, 2, "a"), (64, 32, 0, ""), (32, 64, 2, "b"))
    more = (*small, (96, 96, 8, "a"), (8, 8, 0, ""), (16, 16, 1, "c"))
    snapshot, whole = picture(*small), picture(*more)
    wanted = (need(share=470), need(4000, 4, gpus=2), need(2000, 2))
    score = learnt(snapshot, *((one, 5) for one in wanted))
    score.rate(wanted[0], snapshot.fleet.all(), snapshot)
    read: list[int] = []
    as_ever = Nodes._read_row

    def read_row(nodes: Nodes, fleet: Any, row: int) -> None:
        read.append(row)
        as_ever(nodes, fleet, row)

    monkeypatch.setattr(Nodes, "_read_row", read_row)
    for number in range(len(small), len(more)):
        name = f"n{number}"
        snapshot.set_node(name, whole._nodes[name])
    score.epoch(snapshot)
    assert sorted(read) == [3, 4, 5]
    fresh = learnt(whole, *((one, 5) for one in wanted))
    for one in wanted:
        assert score.rate(one, snapshot.fleet.all(), snapshot).tolist() == fresh.rate(one, whole.fleet.all(), whole).tolist()


def test_a_large_fleet_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "ROWS_AT_ONCE", 2)
    snapshot = picture(*(((32, 64, 4, "a"),) * 5))
    score = learnt(snapshot, (need(gpus=1), 5))
    assert [score.prepare(need(gpus=1), snapshot) for _ in range(5)] == [False, False, False, False, True]


def test_a_draw_that_was_begun_is_finished_by_whoever_asks_next() -> None:
    snapshot = picture(*(((32, 64, 4, "a"),) * 3))
    wanted = need(gpus=1)
    begun, whole = learnt(snapshot, (wanted, 5)), learnt(snapshot, (wanted, 5))
    assert not begun.prepare(wanted, snapshot)
    begun.observe(need(gpus=2), snapshot, 100)  # what comes meanwhile is drawn the next time
    rates = begun.rate(wanted, snapshot.fleet.all(), snapshot).tolist()
    whole.observe(need(gpus=2), snapshot, 100)
    assert rates == whole.rate(wanted, snapshot.fleet.all(), snapshot).tolist()


# --- prices ----------------------------------------------------------------------------------------------------------------


def test_the_price_of_wide_places_grows_as_they_become_few() -> None:
    snapshot = picture(*(((96, 96, 8, "a"),) * 10))
    mix, nodes = Mix(), Nodes()
    mix.observe(pattern_of(need(gpus=1)), 90)
    mix.observe(pattern_of(need(8000, 8, gpus=8)), 1)
    nodes.follow(snapshot)
    plenty = Wide(mix, nodes)
    for row in range(9):
        use(snapshot, f"s{row}", row, need(gpus=1), 0)
    nodes.follow(snapshot)
    few = Wide(mix, nodes)
    assert int(plenty._prices[0]) < int(few._prices[0]) <= MICRO
    assert few.differs(plenty)
    assert not few.differs(few)


def test_a_kind_is_dear_by_how_much_of_the_demand_only_it_can_serve() -> None:
    snapshot = picture((32, 64, 1, "rare"), (32, 64, 3, "common"))
    mix, nodes = Mix(), Nodes()
    nodes.follow(snapshot)
    mix.observe(pattern_of(need(gpus=1)), 50)
    mix.observe(pattern_of(need(gpus=1, models=("rare",))), 50)
    rare, common = nodes.kinds["gpu", ("rare",)], nodes.kinds["gpu", ("common",)]
    prices = rarity(mix, nodes)
    assert (prices[rare], prices[common]) == (2 * MICRO, 0), "half of the demand, a quarter of what is free"
