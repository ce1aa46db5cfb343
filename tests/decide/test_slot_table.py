"""A table that was told of changes one by one says the same as one made afresh, and as the plain words of what it counts."""

from __future__ import annotations

import random

import pytest

from fairlead.decide.rollout import leaving, progress, serving_steps, traffic, wanted
from fairlead.decide.slots import RUNNING, Slot, Table, counts
from fairlead.model.kinds.intent import RolloutRule
from fairlead.model.kinds.work import AssignmentSpec, SlotRange
from fairlead.model.lifecycle import ON_NODE, SlotState

_S = SlotState


def any_slot(chance: random.Random, index: int) -> Slot:
    leaving = chance.random() < 0.2
    return Slot(
        index, chance.choice(list(_S)), chance.randrange(1, 4), 1, ready=chance.random() < 0.8, in_traffic=chance.random() < 0.5,
        leaving=leaving, approved=leaving and chance.random() < 0.5, ours=leaving and chance.random() < 0.5,
        lost=chance.random() < 0.1,
    )  # fmt: skip


def any_order(chance: random.Random) -> AssignmentSpec:
    surge = chance.randrange(0, 4)
    rule = RolloutRule(max_surge=surge, max_unavailable=chance.randrange(0, 4), paused=chance.random() < 0.2)
    last = chance.randrange(0, 12)
    return AssignmentSpec(
        workload="api", workload_uid="u", generation=chance.randrange(1, 4), region="r", rollout=rule,
        slots=(SlotRange(first=0, last=last),), spare=SlotRange(first=20, last=20 + max(surge, 1) - 1),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_a_table_told_of_changes_decides_as_one_made_afresh(seed: int) -> None:
    chance = random.Random(seed)
    table, plain = Table(), dict[int, Slot]()
    for _ in range(40):
        index = chance.choice([*range(14), *range(20, 24)])
        if chance.random() < 0.2:
            table.remove(index)
            plain.pop(index, None)
        else:
            plain[index] = any_slot(chance, index)
            table.put(plain[index])
    order = any_order(chance)
    want = wanted(order, table)
    assert dict(table.items()) == plain
    assert wanted(order, plain) == want
    assert leaving(order, table, want) == leaving(order, plain, want)
    assert serving_steps(table) == serving_steps(plain)
    assert progress(order, table, None, 0, 0) == progress(order, plain, None, 0, 0)
    assert table.serving() == sum(slot.serves for slot in plain.values())
    assert counts(0, 2, table) == counts(0, 2, plain)
    assert counts(0, 2, table).bound == sum(slot.state in ON_NODE for slot in plain.values())


@pytest.mark.parametrize("seed", range(60))
def test_what_leaves_and_what_gets_traffic_is_what_their_words_say(seed: int) -> None:
    chance = random.Random(1000 + seed)
    plain = {index: any_slot(chance, index) for index in [*range(14), *range(20, 24)] if chance.random() < 0.8}
    order = any_order(chance)
    want = wanted(order, plain)
    wrong = {
        slot.index
        for slot in plain.values()
        if slot.state in RUNNING
        and (slot.index not in want or (slot.generation != order.generation and not order.rollout.paused))
    }
    going = {index for index, _ in leaving(order, plain, want).evict}
    assert going <= wrong - {slot.index for slot in plain.values() if slot.leaving}
    assert {i for i in wrong if not plain[i].leaving and plain[i].state is not _S.SERVING} <= going  # these cost nothing
    assert set(leaving(order, plain, want).cancel) == {
        s.index for s in plain.values() if s.ours and s.leaving and not s.approved and s.index not in wrong
    }
    ready = {s.index for s in plain.values() if s.state in (_S.READY, _S.SERVING) and s.ready and not s.approved}
    alone = not any(plain[index].state is _S.SERVING for index in ready)
    kept = {s.index for s in plain.values() if s.state is _S.UNKNOWN and s.in_traffic and not s.lost}
    assert traffic(plain) == (ready | kept if alone else ready)
    own = set(range(order.slots[0].first, order.slots[0].last + 1))
    found = progress(order, plain, None, 0, 0)
    assert found.updated == sum(
        s.state is _S.SERVING and s.generation == order.generation and s.index in own for s in plain.values()
    )
