"""The contract suite, seeding and stats: what contract.py promises, held against every engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from fairlead.store.contract import (
    FORMAT,
    Committed,
    Compacted,
    Fence,
    FormatTooNew,
    Head,
    ObjectRow,
    StoreError,
)
from fairlead.store.rules import EMPTY
from tests.store.batches import (
    ODD_KEYS,
    batch_after,
    chain,
    collect,
    committed,
    in_chunks,
    lead,
)
from tests.store.conftest import Engine

# --- seeding

SEEDED = Head(
    format=FORMAT, incarnation=3, epoch=9, holder="of old", renewals=4, position=70, hash=b"h" * 32,
    materialised=70, truncated=70, anchor=b"anchor",
)  # fmt: skip


async def test_an_empty_store_takes_a_seed_and_goes_on_from_it(engine: Engine) -> None:
    store, other = await engine.open_store(), await engine.open_store()
    rows = [(f"{n:05}", n % 70, b"%d" % n) for n in range(5000)] + [(key, 7, b"odd") for key in ODD_KEYS]
    await store.seed(SEEDED, in_chunks(rows[:2000], [], rows[2000:]))
    assert await other.head() == SEEDED
    checkpoint = await other.load()
    assert (checkpoint.head, checkpoint.position) == (SEEDED, 70)
    assert await collect(checkpoint) == {key: (position, value) for key, position, value in rows}
    assert await other.tail(70) == []
    assert await other.tail(69) == Compacted(70)
    fence = await lead(other, "restored")
    assert fence == Fence(3, 10, "restored")
    assert await other.commit(fence, batch_after(SEEDED)) == Committed()
    assert await other.materialise(fence, 71, [("00000", 71, b"changed")], ["00001"]) == Committed()
    assert len(await collect(await other.load())) == len(rows) - 1


async def test_a_store_that_was_led_or_written_is_not_seeded(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    for _ in range(2):
        before = await store.head()
        with pytest.raises(StoreError, match="empty"):
            await store.seed(SEEDED, in_chunks([("a", 1, b"a")]))
        assert await store.head() == before
        assert await collect(await store.load()) == {}
        await committed(store, fence, 1)


async def test_a_store_never_gets_both_a_leader_and_a_seed(engine: Engine) -> None:
    """Either the engine keeps leaders out while it is seeded, or the seed gives way to the leader."""
    store, other = await engine.open_store(), await engine.open_store()
    acquired: list[object] = []

    async def overtaken() -> AsyncIterator[list[ObjectRow]]:
        yield [("a", 1, b"a")]
        acquired.append(await other.acquire("overtaker", await other.head()))
        yield [("b", 1, b"b")]

    with contextlib.suppress(StoreError):
        await store.seed(SEEDED, overtaken())
    head = await other.head()
    if isinstance(acquired[0], Fence):
        assert head.fence() == acquired[0]
        assert await collect(await other.load()) == {}
    else:
        assert head == SEEDED
        assert set(await collect(await other.load())) == {"a", "b"}


async def test_a_seeded_store_is_not_seeded_again(engine: Engine) -> None:
    store = await engine.open_store()
    await store.seed(SEEDED, in_chunks([("a", 1, b"a")]))
    with pytest.raises(StoreError, match="empty"):
        await store.seed(SEEDED, in_chunks([("b", 1, b"b")]))
    assert await collect(await store.load()) == {"a": (1, b"a")}


class Interrupted(Exception):
    pass


async def cut_short(rows: list[ObjectRow]) -> AsyncIterator[list[ObjectRow]]:
    yield rows
    raise Interrupted


async def test_an_interrupted_seed_leaves_an_empty_store_that_can_be_seeded(engine: Engine) -> None:
    store = await engine.open_store()
    with pytest.raises(Interrupted):
        await store.seed(SEEDED, cut_short([("left over", 1, b"x"), ("a", 1, b"wrong")]))
    await store.close()
    store = await engine.open_store()
    assert await store.head() == EMPTY
    assert await collect(await store.load()) == {}
    await store.seed(SEEDED, in_chunks([("a", 1, b"right")]))
    assert await collect(await store.load()) == {"a": (1, b"right")}
    assert await store.head() == SEEDED


async def test_a_store_whose_seed_was_interrupted_can_be_led_without_its_leftovers(engine: Engine) -> None:
    store = await engine.open_store()
    with pytest.raises(Interrupted):
        await store.seed(SEEDED, cut_short([("left over", 1, b"x")]))
    fence = await lead(store)
    await committed(store, fence, 1)
    await store.materialise(fence, 1, [("a", 1, b"a")], [])
    assert await collect(await store.load()) == {"a": (1, b"a")}


async def test_data_of_a_newer_format_is_refused_by_the_seed_or_by_the_next_open(engine: Engine) -> None:
    store = await engine.open_store()

    async def seed_and_open() -> None:
        await store.seed(replace(SEEDED, format=FORMAT + 1), in_chunks([("a", 1, b"a")]))
        await engine.open_store()

    with pytest.raises(FormatTooNew):
        await seed_and_open()


# --- stats


async def test_stats_count_objects_and_journal(engine: Engine) -> None:
    store = await engine.open_store()
    fence = await lead(store)
    for batch in chain(4):
        await store.commit(fence, batch)
    await store.materialise(fence, 4, [("a", 1, b"a"), ("b", 2, b"b")], [])
    stats = await store.stats()
    assert stats.engine
    assert (stats.objects, stats.journal_batches) == (2, 4)
    assert stats.journal_bytes >= sum(len(batch.blob) for batch in chain(4))
    assert stats.bytes_on_disk > 0
