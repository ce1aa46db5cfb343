"""What the PostgreSQL engine says, and what is true afterwards, when the network or the server fails in the middle."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import asyncpg
import pytest

from fairlead.store.contract import (
    AlreadyThere,
    Batch,
    CommitResult,
    Committed,
    Fence,
    Fenced,
    OutcomeUnknown,
    StoreUnreachable,
    Unavailable,
)
from fairlead.store.postgres import PostgresStore
from fairlead.store.postgres_link import Limits
from tests.servers.postgres import PostgresServer
from tests.store.batches import batch_after, chain, collect, lead, whole_tail
from tests.store.postgres_plane import (
    PATIENT,
    QUICK,
    Plane,
    held_back,
    new_plane,
    warm,
)


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with new_plane() as made:
        yield made


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """For tests that kill it."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


async def test_a_lost_reply_leaves_the_outcome_unknown_and_the_resubmission_finds_the_batch(plane: Plane) -> None:
    store, witness = await plane.proxied(), await plane.direct()
    fence = await lead(store)
    first, second, third = chain(3)
    await warm(store, fence, [first])

    plane.proxy.drop_replies()
    assert isinstance(await store.commit(fence, second), OutcomeUnknown)
    assert plane.proxy.counts.dropped_reply_bytes > 0
    assert (await witness.head()).position == second.last

    assert await store.commit(fence, second) == AlreadyThere()
    assert await store.commit(fence, third) == Committed()
    assert await whole_tail(witness) == [first, second, third]


async def test_a_request_lost_on_its_way_is_unknown_too_and_the_resubmission_commits(plane: Plane) -> None:
    store = await plane.proxied()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])

    plane.proxy.drop_everything()
    assert isinstance(await store.commit(fence, second), OutcomeUnknown)
    assert plane.proxy.counts.dropped_request_bytes > 0
    assert await store.commit(fence, second) == Committed()


async def test_a_commit_that_lands_after_its_resubmission_does_not_apply_twice(plane: Plane) -> None:
    store, witness = await plane.proxied(PATIENT), await plane.direct()
    fence = await lead(store)
    first, second, third = chain(3)
    await warm(store, fence, [first])

    assert isinstance(await held_back(plane, store.commit(fence, second)), OutcomeUnknown)
    assert (await witness.head()).position == first.last

    assert await store.commit(fence, second) == Committed()
    assert await store.commit(fence, third) == Committed()
    assert await plane.proxy.release() == 1
    assert plane.proxy.counts.released_bytes > 0
    assert await whole_tail(witness) == [first, second, third]
    assert (await witness.head()).hash == third.hash


async def test_a_commit_that_lands_before_its_resubmission_is_already_there(plane: Plane) -> None:
    store, witness = await plane.proxied(PATIENT), await plane.direct()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])

    assert isinstance(await held_back(plane, store.commit(fence, second)), OutcomeUnknown)
    assert (await witness.head()).position == first.last, "a reader saw nothing"
    assert await plane.proxy.release() == 1

    assert (await witness.head()).position == second.last, "and yet it landed"
    assert await store.commit(fence, second) == AlreadyThere()


async def test_a_commit_held_across_a_takeover_never_lands(plane: Plane) -> None:
    old, new = await plane.proxied(PATIENT), await plane.direct()
    fence = await lead(old, "old")
    first, second = chain(2)
    await warm(old, fence, [first])

    assert isinstance(await held_back(plane, old.commit(fence, second)), OutcomeUnknown)
    taken = await lead(new, "new")
    assert await plane.proxy.release() == 1

    assert await whole_tail(new) == [first]
    assert isinstance(await old.commit(fence, second), Fenced)
    assert await new.commit(taken, batch_after(first, b"by the new leader")) == Committed()


async def test_every_ambiguous_commit_of_a_stormy_hour_is_resolved_rightly(plane: Plane) -> None:
    chance = random.Random(20)
    store, witness = await plane.proxied(Limits(connect_s=2.0, write_s=0.15, read_s=2.0)), await plane.direct()
    fence = await lead(store)
    proxy = plane.proxy
    storms: list[Callable[[], object]] = [
        proxy.pass_through,
        lambda: proxy.delay_replies(0.3),
        proxy.drop_replies,
        proxy.drop_everything,
        proxy.hold_requests,
        proxy.reset_connections,
    ]
    outcomes: Counter[str] = Counter()
    last: Batch | None = None
    committed: list[Batch] = []
    for number in range(50):
        batch = batch_after(last, b"storm %d" % number, effects=chance.randint(1, 3))
        chance.choice(storms)()
        first_answer = await store.commit(fence, batch)
        outcomes[type(first_answer).__name__] += 1
        if proxy.counts.held_bytes and chance.random() < 0.5:
            await proxy.release()
            outcomes["released before the resubmission"] += 1
        answer = await resolve(store, fence, batch, first_answer)
        outcomes[f"then {type(answer).__name__}"] += first_answer != answer
        await proxy.release()
        proxy.pass_through()
        last = batch
        committed.append(batch)
    assert await whole_tail(witness) == committed
    for expected in ("Committed", "OutcomeUnknown", "then Committed", "then AlreadyThere"):
        assert outcomes[expected] > 0, outcomes
    assert proxy.counts.resets > 0
    assert proxy.counts.delayed_replies > 0
    assert proxy.counts.released_bytes > 0


async def resolve(store: PostgresStore, fence: Fence, batch: Batch, answer: CommitResult) -> CommitResult:
    """What the authority does: the same bytes at the same place until it is settled."""
    async with asyncio.timeout(60.0):
        while not isinstance(answer, Committed | AlreadyThere):
            assert isinstance(answer, OutcomeUnknown | Unavailable), answer
            answer = await store.commit(fence, batch)
    return answer


async def test_acknowledged_batches_survive_sigkill_of_the_server(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.dsn(), "plane", QUICK)
    await store.open()
    fence = await lead(store)
    acknowledged: list[Batch] = []
    enough = asyncio.Event()

    async def stream() -> Batch:
        """Commits until the server is gone; returns the batch whose outcome the kill left open."""
        for batch in chain(100_000):
            answer = await store.commit(fence, batch)
            if not isinstance(answer, Committed):
                return batch
            await store.materialise(fence, batch.last, [(f"key-{batch.last % 7}", batch.last, batch.blob)], [])
            acknowledged.append(batch)
            if len(acknowledged) == 200:
                enough.set()
        raise AssertionError("the server was never killed")

    async with asyncio.TaskGroup() as tasks:
        streaming = tasks.create_task(stream())
        await enough.wait()
        await asyncio.to_thread(own_server.kill)
    open_batch = streaming.result()
    down = await store.commit(fence, open_batch)
    assert isinstance(down, Unavailable)
    assert down.reason == "Unreachable"
    with pytest.raises(StoreUnreachable):
        await store.head()

    await asyncio.to_thread(own_server.start)
    found = await whole_tail(store)
    assert found[: len(acknowledged)] == acknowledged
    head = await store.head()
    assert head.materialised <= head.position
    rows = await collect(await store.load())
    assert all(position <= head.materialised for position, _ in rows.values()), "objects ran ahead of `materialised`"
    assert isinstance(await store.commit(fence, open_batch), Committed | AlreadyThere)
    await store.close()


async def test_a_lost_reply_to_acquire_is_resolved_by_asking_again(plane: Plane) -> None:
    store, witness = await plane.proxied(), await plane.direct()
    await lead(store, "warm")
    observed = await witness.head()

    plane.proxy.drop_replies()
    assert isinstance(await store.acquire("holder-2", observed), OutcomeUnknown)
    assert await store.acquire("holder-2", observed) == Fence(observed.incarnation, observed.epoch + 1, "holder-2")


async def test_a_refused_connection_is_certainly_not_a_commit(plane: Plane) -> None:
    store = await plane.proxied()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])

    plane.proxy.refuse_connections()
    plane.proxy.reset_connections()
    await plane.proxy.wait_until(lambda counts: counts.resets > 0)
    answers = [await store.commit(fence, second) for _ in range(2)]
    assert isinstance(answers[1], Unavailable)
    assert answers[1].reason == "Unreachable"
    plane.proxy.pass_through()
    assert await store.commit(fence, second) == Committed()


async def test_a_cancelled_commit_leaves_the_store_usable(plane: Plane) -> None:
    store = await plane.proxied(PATIENT)
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])

    plane.proxy.hold_requests()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.commit(fence, second)
    assert await store.commit(fence, second) == Committed()


async def test_a_stream_of_objects_cut_in_the_middle_is_an_error_never_a_short_list(plane: Plane) -> None:
    store = await plane.proxied(Limits(read_s=5.0, write_s=10.0))
    fence = await lead(store)
    await warm(store, fence, chain(1))
    rows = [(f"key-{number:05}", 1, b"v" * 500) for number in range(6000)]
    assert await store.materialise(fence, 1, rows, []) == Committed()
    checkpoint = await store.load()
    await anext(checkpoint.chunks)

    plane.proxy.reset_connections()
    with pytest.raises(StoreUnreachable):
        await collect(checkpoint)
    assert len(await collect(await store.load())) == 6000


async def test_a_batch_that_a_synchronous_standby_must_have_is_not_durable_because_it_can_be_seen(
    own_server: PostgresServer,
) -> None:
    store = PostgresStore(own_server.dsn(), "kept", Limits(write_s=0.5))
    await store.open()
    fence = await lead(store)
    batches = iter(chain(500))
    assert await store.commit(fence, next(batches)) == Committed()
    admin = await asyncpg.connect(own_server.dsn())
    try:
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
        await admin.execute("SELECT pg_reload_conf()")
        second = next(batches)
        while isinstance(await store.commit(fence, second), Committed):  # until its session has heard of it
            second = next(batches)
            await asyncio.sleep(0.01)
        # The session that waits for the standby ends: from now on everybody sees the row.
        waiting = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        while not await admin.fetchval(waiting):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert isinstance(await store.commit(fence, second), OutcomeUnknown), "no standby has it"
        await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await admin.execute("SELECT pg_reload_conf()")
        while not isinstance(answer := await store.commit(fence, second), AlreadyThere):
            assert isinstance(answer, OutcomeUnknown)
            await asyncio.sleep(0.05)
    finally:
        await admin.close()
        await store.close()
