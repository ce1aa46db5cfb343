"""The contract suite, leadership and commits: what contract.py promises, held against every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
from msgspec.structs import replace

from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    FORMAT,
    AlreadyThere,
    Committed,
    Contended,
    Fence,
    Fenced,
    FormatTooNew,
    Superseded,
)
from fairlead.store.rules import EMPTY
from tests.store.batches import (
    ODD_VALUES,
    batch_after,
    chain,
    collect,
    committed,
    lead,
    whole_tail,
)
from tests.store.conftest import Engine

# --- opening


async def test_a_new_store_is_empty(engine: Engine) -> None:
    store = await engine.open_store()
    assert await store.head() == EMPTY
    assert await store.tail(0) == []
    checkpoint = await store.load()
    assert checkpoint.position == 0
    assert await collect(checkpoint) == {}


async def test_opening_says_where_the_store_stands(engine: Engine) -> None:
    store = await engine.open_store()
    await committed(store, await lead(store), 3)
    again = await engine.open_store()
    assert await again.open() == await store.head()


async def test_what_was_written_is_there_after_every_store_was_closed(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batches = await committed(store, fence, 5)
    await store.materialise(fence, 2, [("a", 1, b"1"), ("b", 2, b"2")], [])
    before = await store.head()
    await store.close()
    again = await engine.open_store()
    assert await again.head() == before
    assert await whole_tail(again) == batches
    assert await collect(await again.load()) == {"a": (1, b"1"), "b": (2, b"2")}
    assert await again.commit(fence, batch_after(before)) == Committed()


async def test_closing_twice_is_closing_once(engine: Engine) -> None:
    store = await engine.open_store()
    await store.close()
    await store.close()


async def test_closing_one_store_leaves_the_others_open(engine: Engine) -> None:
    store, other = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    await other.close()
    await committed(store, fence, 2)


async def test_a_newer_format_is_refused_with_both_numbers(engine: Engine) -> None:
    store = await engine.open_store()
    await store.close()
    await engine.write_format(FORMAT + 1)
    with pytest.raises(FormatTooNew, match=rf"{FORMAT + 1}.*{FORMAT}"):
        await engine.open_store()
    await engine.write_format(FORMAT)
    await engine.open_store()


# --- leadership


async def test_acquiring_raises_the_epoch_by_one_and_names_the_holder(engine: Engine) -> None:
    store = await engine.open_store()
    assert await store.acquire("first", await store.head()) == Fence(EMPTY.incarnation, 1, "first")
    head = await store.head()
    assert (head.epoch, head.holder, head.position) == (1, "first", 0)
    assert await store.acquire("second", head) == Fence(EMPTY.incarnation, 2, "second")


async def test_acquiring_from_an_outdated_head_is_contended_and_changes_nothing(engine: Engine) -> None:
    store = await engine.open_store()
    observed = await store.head()
    await lead(store, "first")
    now = await store.head()
    assert await store.acquire("second", observed) == Contended(now)
    assert await store.head() == now


@pytest.mark.parametrize("change", [{"incarnation": 7}, {"epoch": 7}, {"epoch": 0}, {"holder": "other"}])
async def test_acquiring_compares_all_three_fields_of_the_observed_fence(engine: Engine, change: dict[str, object]) -> None:
    store = await engine.open_store()
    await lead(store, "first")
    head = await store.head()
    assert await store.acquire("second", replace(head, **change)) == Contended(head)


async def test_a_leader_that_showed_a_sign_of_life_since_it_was_observed_is_not_replaced(engine: Engine) -> None:
    store, other = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    observed = await other.head()
    assert isinstance(await store.renew(fence), Committed)
    assert isinstance(await other.acquire("b", observed), Contended)
    observed = await other.head()
    await committed(store, fence, 1)
    assert isinstance(await other.acquire("b", observed), Contended)
    assert (await store.head()).fence() == fence
    assert isinstance(await other.acquire("b", await other.head()), Fence)


async def test_of_many_that_acquire_at_once_exactly_one_leads(engine: Engine) -> None:
    stores = [await engine.open_store() for _ in range(3)]
    observed = await stores[0].head()
    results = await asyncio.gather(*(store.acquire(f"racer {i}", observed) for i, store in enumerate(stores)))
    won = [result for result in results if isinstance(result, Fence)]
    assert len(won) == 1
    head = await stores[0].head()
    assert head.fence() == won[0]
    assert [result for result in results if not isinstance(result, Fence)] == [Contended(head)] * 2


async def test_the_losers_imagined_fence_is_fenced_though_its_epoch_is_right(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store, "winner")
    imagined = Fence(fence.incarnation, fence.epoch, "loser")
    head = await store.head()
    assert await store.commit(imagined, batch_after(head)) == Fenced(head)


async def test_acquiring_again_with_the_same_name_makes_a_new_fence(engine: Engine) -> None:
    store = await engine.open_store()
    old = await lead(store, "same")
    new = await lead(store, "same")
    assert new != old
    assert await store.renew(old) == Fenced(await store.head())


async def test_a_renewal_raises_the_counter_by_one_and_nothing_else(engine: Engine) -> None:
    store, observer = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    before = await observer.head()
    for step in range(1, 4):
        assert await store.renew(fence) == Committed()
        assert await observer.head() == replace(before, renewals=before.renewals + step)


async def test_a_renewal_and_a_commit_side_by_side_both_take_effect(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    before = await store.head()
    for step in range(1, 6):
        batch = batch_after(await store.head())
        commit, renewal = await asyncio.gather(store.commit(fence, batch), store.renew(fence))
        assert (commit, renewal) == (Committed(), Committed())
        head = await store.head()
        assert (head.position, head.renewals) == (step, before.renewals + step)


async def test_a_leader_that_resigns_leaves_an_empty_place_and_its_fence_is_void(engine: Engine) -> None:
    store, standby = await engine.open_store(), await engine.open_store()
    fence = await lead(store, "first")
    await committed(store, fence, 1)
    before = await store.head()
    assert await store.resign(replace(fence, holder="stranger")) == Fenced(before)
    assert await store.resign(fence) == Committed()
    assert await standby.head() == replace(before, holder="")
    assert await store.renew(fence) == Fenced(await standby.head())
    assert await store.resign(fence) == Fenced(await standby.head())
    assert await lead(standby, "second") == Fence(fence.incarnation, fence.epoch + 1, "second")


async def test_nobody_is_called_dead_without_proof(engine: Engine) -> None:
    store, standby = await engine.open_store(), await engine.open_store()
    await lead(store)
    assert not await standby.leader_gone()


# --- fencing, every write and every field


@pytest.mark.parametrize("field", ["incarnation", "epoch", "holder"])
@pytest.mark.parametrize("write", ["commit", "renew", "materialise", "truncate", "set_incarnation"])
async def test_a_write_whose_fence_differs_in_one_field_is_fenced_and_changes_nothing(
    engine: Engine, write: str, field: str
) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await committed(store, fence, 3)
    await store.materialise(fence, 2, [("a", 1, b"old")], [])
    head = await store.head()
    wrong = replace(fence, **{field: "stranger" if field == "holder" else getattr(fence, field) + 1})
    writes: dict[str, Coroutine[None, None, object]] = {
        "commit": store.commit(wrong, batch_after(head)),
        "renew": store.renew(wrong),
        "materialise": store.materialise(wrong, 3, [("a", 3, b"new"), ("b", 3, b"new")], []),
        "truncate": store.truncate(wrong, 2, b"anchor"),
        "set_incarnation": store.set_incarnation(wrong, head.incarnation + 5),
    }
    result = await writes.pop(write)
    for unused in writes.values():
        unused.close()
    assert result == Fenced(head)
    assert await store.head() == head
    assert await collect(await store.load()) == {"a": (1, b"old")}
    assert len(await whole_tail(store)) == 3


async def test_the_old_leader_is_fenced_from_the_moment_of_takeover(engine: Engine) -> None:
    old, new = await engine.open_store(), await engine.open_store()
    old_fence = await lead(old, "old")
    await committed(old, old_fence, 2)
    new_fence = await lead(new, "new")
    head = await new.head()
    assert await old.commit(old_fence, batch_after(head)) == Fenced(head)
    assert await old.renew(old_fence) == Fenced(head)
    assert await new.commit(new_fence, batch_after(head)) == Committed()


async def test_a_batch_resubmitted_after_takeover_is_fenced_even_if_it_is_there(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store, "old")
    batch = batch_after(None)
    await store.commit(fence, batch)
    await lead(store, "new")
    assert await store.commit(fence, batch) == Fenced(await store.head())


# --- commit


async def test_a_commit_moves_the_head_to_the_end_of_its_batch(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    before = await store.head()
    batch = batch_after(before, b"many effects", effects=7)
    assert await store.commit(fence, batch) == Committed()
    assert await store.head() == replace(before, position=7, hash=batch.hash)
    follower = batch_after(batch)
    assert await store.commit(fence, follower) == Committed()
    assert await store.tail(0) == [batch, follower]


async def test_a_batch_committed_again_is_already_there_and_there_once(engine: Engine) -> None:
    store, other = await engine.open_store(), await engine.open_store()
    fence = await lead(store)
    first, second = chain(2)
    await store.commit(fence, first)
    assert await store.commit(fence, first) == AlreadyThere()
    await store.commit(fence, second)
    assert await other.commit(fence, first) == AlreadyThere()
    assert await other.commit(fence, second) == AlreadyThere()
    assert await whole_tail(store) == [first, second]


async def test_a_batch_committed_again_after_its_row_was_truncated_is_already_there(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    batch = batch_after(None, effects=3)
    await store.commit(fence, batch)
    await store.materialise(fence, 3, [], [])
    await store.truncate(fence, 3, b"anchor")
    assert await store.commit(fence, batch) == AlreadyThere()


async def test_another_batch_at_a_taken_position_is_superseded(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    first, second = chain(2)
    await store.commit(fence, first)
    await store.commit(fence, second)
    head = await store.head()
    assert await store.commit(fence, batch_after(first, b"a different second")) == Superseded(head)
    assert await store.commit(fence, batch_after(None, b"a different first")) == Superseded(head)
    assert await whole_tail(store) == [first, second]


async def test_a_batch_ahead_of_the_head_is_superseded(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    first, second = chain(2)
    head = await store.head()
    assert await store.commit(fence, second) == Superseded(head)
    assert await store.tail(0) == []
    assert await store.commit(fence, first) == Committed()


async def test_a_batch_that_follows_another_history_is_superseded(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    await store.commit(fence, batch_after(None, b"what happened"))
    elsewhere = batch_after(batch_after(None, b"what did not"))
    head = await store.head()
    assert await store.commit(fence, elsewhere) == Superseded(head)
    assert await store.head() == head
    assert len(await whole_tail(store)) == 1


async def test_a_batch_that_begins_inside_another_is_superseded(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    wide = batch_after(None, b"wide", effects=5)
    await store.commit(fence, wide)
    inside = replace(batch_after(wide), first=3, last=3)
    assert await store.commit(fence, inside) == Superseded(await store.head())


async def test_a_batch_may_hold_a_million_bytes(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    big = batch_after(None, bytes(range(256)) * (BATCH_BYTES_MAX // 256))
    assert len(big.blob) == BATCH_BYTES_MAX
    assert await store.commit(fence, big) == Committed()
    assert await store.tail(0) == [big]
    assert await store.commit(fence, big) == AlreadyThere()


@pytest.mark.parametrize("blob", ODD_VALUES)
async def test_a_blob_comes_back_byte_for_byte(engine: Engine, blob: bytes) -> None:
    store = await engine.open_store()
    batch = batch_after(None, blob)
    assert await store.commit(await lead(store), batch) == Committed()
    assert await store.tail(0) == [batch]


async def test_the_head_never_lags_behind_what_another_store_was_told(engine: Engine) -> None:
    writer, reader = await engine.open_store(), await engine.open_store()
    fence = await lead(writer)
    assert (await reader.head()).fence() == fence
    for batch in chain(20):
        assert await writer.commit(fence, batch) == Committed()
        head = await reader.head()
        assert (head.position, head.hash) == (batch.last, batch.hash)


async def test_two_that_commit_under_one_fence_at_once_get_one_place(engine: Engine) -> None:
    one, other = await engine.open_store(), await engine.open_store()
    fence = await lead(one)
    for step in range(5):
        head = await one.head()
        batches = [batch_after(head, b"one %d" % step), batch_after(head, b"other %d" % step)]
        results = await asyncio.gather(one.commit(fence, batches[0]), other.commit(fence, batches[1]))
        winner = results.index(Committed())
        assert results[1 - winner] == Superseded(await one.head())
        assert (await whole_tail(one))[-1] == batches[winner]
