"""The contract suite, journal and objects: what contract.py promises, held against every engine."""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace

from fairlead.store.contract import (
    Batch,
    Committed,
    Compacted,
    Fenced,
    Superseded,
)
from tests.store.batches import (
    ODD_KEYS,
    ODD_VALUES,
    batch_after,
    collect,
    committed,
    lead,
    whole_tail,
)
from tests.store.conftest import Engine

# --- tail


async def test_the_tail_gives_the_batches_that_begin_after_a_position_in_order(engine: Engine) -> None:
    store, follower = await engine.open_store(), await engine.open_store()
    batches = await committed(store, await lead(store), 12, effects=3)
    for index in range(13):
        assert await follower.tail(index * 3) == batches[index:]
    assert await follower.tail(4) == batches[2:], "a batch that began before is not repeated"
    assert await follower.tail(99) == []


async def test_the_tail_stops_at_its_limit_but_gives_at_least_one(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches: list[Batch] = []
    for index in range(6):
        batches.append(batch_after(batches[-1] if batches else None, b"%d" % index * 1000))
        await store.commit(fence, batches[-1])
    assert await store.tail(0, limit_bytes=1) == batches[:1]
    assert await store.tail(2, limit_bytes=999) == batches[2:3]
    # An engine may count a few dozen bytes of its own with each batch.
    assert await store.tail(0, limit_bytes=3500) == batches[:3]
    assert await store.tail(0) == batches


# --- objects


async def test_objects_and_the_tail_after_them_give_the_state(engine: Engine) -> None:
    store, standby = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 6)
    await store.materialise(fence, 4, [(f"key {n}", n, b"%d" % n) for n in range(1, 5)], [])
    checkpoint = await standby.load()
    assert checkpoint.head == await store.head()
    assert checkpoint.position == 4
    assert await collect(checkpoint) == {f"key {n}": (n, b"%d" % n) for n in range(1, 5)}
    assert await standby.tail(checkpoint.position) == batches[4:]


async def test_materialising_writes_replaces_and_deletes(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 6)
    assert await store.materialise(fence, 3, [("a", 1, b"a"), ("b", 2, b"b"), ("c", 3, b"c")], []) == Committed()
    assert await store.materialise(fence, 6, [("b", 5, b"B"), ("d", 6, b"d")], ["a", "never there"]) == Committed()
    assert (await store.head()).materialised == 6
    assert await collect(await store.load()) == {"b": (5, b"B"), "c": (3, b"c"), "d": (6, b"d")}


async def test_materialising_again_changes_nothing(engine: Engine) -> None:
    store, other = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 3)
    await store.materialise(fence, 1, [("gone", 1, b"g")], [])
    for who in (store, store, other):
        assert await who.materialise(fence, 3, [("a", 3, b"a")], ["gone"]) == Committed()
        assert (await store.head()).materialised == 3
        assert await collect(await store.load()) == {"a": (3, b"a")}


async def test_a_materialisation_that_lands_late_takes_nothing_back(engine: Engine) -> None:
    store, slow = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 4)
    await store.materialise(fence, 2, [("a", 2, b"old")], [])
    await store.materialise(fence, 4, [("a", 4, b"new")], [])
    await store.truncate(fence, 4, b"anchor")
    await slow.materialise(fence, 2, [("a", 2, b"old")], [])
    assert (await store.head()).materialised == 4
    assert await collect(await store.load()) == {"a": (4, b"new")}


@pytest.mark.parametrize(("upto", "as_of"), [(3, 0), (1, 3), (2, 3), (3, 3)])
async def test_objects_of_a_state_the_head_has_not_reached_are_refused(engine: Engine, upto: int, as_of: int) -> None:
    """As after a failover that lost the tail they were taken from, under the same fence (simulator, seed 127)."""
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 2)
    assert await store.materialise(fence, 1, [("kept", 1, b"1"), ("a", 1, b"1")], []) == Committed()
    before = await store.head()
    assert await store.materialise(fence, upto, [("a", 3, b"3")], ["kept"], as_of) == Superseded(before)
    assert await store.head() == before
    assert await collect(await store.load()) == {"kept": (1, b"1"), "a": (1, b"1")}
    assert await store.materialise(fence, 1, [("a", 2, b"2")], [], 2) == Committed(), "a piece of the state at the head"
    assert (await store.head()).materialised == 1


async def test_materialising_nothing_still_moves_the_mark(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 2)
    assert await store.materialise(fence, 2, [], []) == Committed()
    assert (await store.head()).materialised == 2


async def test_keys_and_values_come_back_as_they_were_given(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 1)
    rows = [(key, 1, ODD_VALUES[index % len(ODD_VALUES)]) for index, key in enumerate(ODD_KEYS)]
    rows.append(("a megabyte", 1, bytes(range(256)) * 4096))
    rows.append(("a large position", 2**60, b"x"))
    assert await store.materialise(fence, 1, rows, []) == Committed()
    assert await collect(await store.load()) == {key: (position, value) for key, position, value in rows}
    assert await store.materialise(fence, 1, [], ODD_KEYS) == Committed()
    assert set(await collect(await store.load())) == {"a megabyte", "a large position"}


async def test_values_that_are_all_empty_come_back_empty(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 1)
    await store.materialise(fence, 1, [("a", 1, b""), ("b", 1, b"")], [])
    assert await collect(await store.load()) == {"a": (1, b""), "b": (1, b"")}


async def test_thousands_of_objects_load_in_chunks(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 1)
    rows = [(f"/bindings/{n:05}", 1, b"%d" % n) for n in range(4500)]
    for start in range(0, len(rows), 1000):
        assert await store.materialise(fence, 1, rows[start : start + 1000], []) == Committed()
    sizes = [len(chunk) async for chunk in (await store.load()).chunks]
    assert len(sizes) > 1
    assert sum(sizes) == 4500
    assert await collect(await store.load()) == {key: (position, value) for key, position, value in rows}


async def test_what_is_loaded_never_lags_behind_what_another_store_was_told(engine: Engine) -> None:
    writer, reader = await engine.open_store(), await engine.open_store()
    fence = await lead(writer)
    for step in range(1, 11):
        (batch,) = await committed(writer, fence, 1)
        row = ("nodes//a", batch.last, b"%d" % step)
        assert await writer.materialise(fence, batch.last, [row], []) == Committed()
        checkpoint = await reader.load()
        assert (checkpoint.head.position, checkpoint.position) == (batch.last, batch.last)
        assert await collect(checkpoint) == {row[0]: row[1:]}


async def test_a_load_that_is_overtaken_still_leads_to_the_state_at_the_head(engine: Engine) -> None:
    """Rows may be newer than the position, never older than it, and never in part of a batch's deletions only."""
    store, standby = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 10)
    await store.materialise(fence, 5, [(f"{n:05}", 5, b"old") for n in range(5000)], [])
    checkpoint = await standby.load()
    chunks = checkpoint.chunks
    seen = {key: position for key, position, _ in await anext(chunks)}
    await store.materialise(fence, 10, [(f"{n:05}", 10, b"new") for n in range(5000)], [])
    async for chunk in chunks:
        seen |= {key: position for key, position, _ in chunk}
    assert checkpoint.position == 5
    assert len(seen) == 5000
    assert set(seen.values()) <= {5, 10}
    assert await standby.tail(checkpoint.position) == (await whole_tail(store))[5:]


async def test_a_load_left_in_the_middle_hinders_nobody(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 1)
    for start in range(0, 3000, 1000):
        await store.materialise(fence, 1, [(f"{n}", 1, b"v") for n in range(start, start + 1000)], [])
    checkpoint = await store.load()
    await anext(checkpoint.chunks)
    await committed(store, fence, 3)
    await store.close()


# --- truncation


async def test_truncating_forgets_whole_batches_and_keeps_the_anchor(engine: Engine) -> None:
    store, follower = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 6, effects=2)
    await store.materialise(fence, 8, [], [])
    assert await store.truncate(fence, 4, b"signed\0\xff") == Committed()
    head = await follower.head()
    assert (head.truncated, head.anchor, head.position) == (4, b"signed\0\xff", 12)
    assert await follower.tail(3) == Compacted(4)
    assert await follower.tail(0) == Compacted(4)
    assert await follower.tail(4) == batches[2:]
    assert (await store.stats()).journal_batches == 4


async def test_truncating_inside_a_batch_keeps_that_batch_readable(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 3, effects=4)
    await store.materialise(fence, 12, [], [])
    assert await store.truncate(fence, 6, b"anchor") == Committed()
    assert (await store.head()).truncated == 4
    assert await store.tail(4) == batches[1:]


async def test_truncating_never_goes_beyond_what_is_materialised(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 6)
    await store.materialise(fence, 3, [], [])
    assert await store.truncate(fence, 5, b"anchor") == Committed()
    head = await store.head()
    assert (head.truncated, head.anchor) == (0, b""), "the anchor speaks of 5: beside a cut at 3 it would be a lie"
    assert await store.tail(0) == batches


async def test_truncating_before_anything_is_materialised_forgets_nothing(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 3)
    assert await store.truncate(fence, 3, b"anchor") == Committed()
    assert await store.tail(0) == batches


async def test_truncating_nothing_under_a_void_fence_is_still_fenced(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store, "old")
    await lead(store, "new")
    assert await store.truncate(fence, 0, b"anchor") == Fenced(await store.head())


async def test_truncating_again_or_less_changes_nothing(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 6)
    await store.materialise(fence, 6, [], [])
    await store.truncate(fence, 4, b"anchor")
    before = await store.head()
    assert await store.truncate(fence, 4, b"anchor") == Committed()
    assert await store.truncate(fence, 2, b"anchor") == Committed()
    assert await store.head() == before
    assert await store.tail(4) == batches[4:]


async def test_the_whole_journal_can_be_truncated_and_goes_on_after_it(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 3)
    await store.materialise(fence, 3, [("a", 3, b"a")], [])
    await store.truncate(fence, 3, b"anchor")
    assert await store.tail(3) == []
    follower = batch_after(await store.head())
    assert follower.previous == batches[-1].hash
    assert await store.commit(fence, follower) == Committed()
    assert await store.tail(3) == [follower]


async def test_hundreds_of_batches_can_be_truncated_at_once(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 300)
    await store.materialise(fence, 300, [], [])
    assert await store.truncate(fence, 290, b"anchor") == Committed()
    assert await store.tail(290) == batches[290:]
    assert (await store.stats()).journal_batches == 10


# --- incarnation


async def test_a_raised_incarnation_fences_the_old_one_and_nothing_else_changes(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 2)
    before = await store.head()
    assert await store.set_incarnation(fence, fence.incarnation + 4) == Committed()
    head = await store.head()
    assert head == replace(before, incarnation=before.incarnation + 4)
    assert await store.renew(fence) == Fenced(head)
    assert await store.commit(head.fence(), batch_after(head)) == Committed()


async def test_an_incarnation_is_never_lowered(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await store.set_incarnation(fence, 5)
    head = await store.head()
    with contextlib.suppress(AssertionError):  # a caller's bug, however the engine says so
        await store.set_incarnation(head.fence(), 4)
    assert await store.head() == head
