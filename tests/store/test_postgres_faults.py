"""What the PostgreSQL engine says, and what is true afterwards, when the network or the server fails in the middle."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

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
    Superseded,
    Unavailable,
)
from fairlead.store.postgres import PostgresStore
from fairlead.store.postgres_link import Limits
from tests.servers.postgres import NoPostgres, PostgresServer
from tests.servers.proxy import Proxy
from tests.store.batches import batch_after, chain, collect, lead, whole_tail
from tests.store.postgres_engine import next_plane, server_or_skip

QUICK = Limits(connect_s=2.0, write_s=0.4, read_s=2.0)  # Long for a healthy server, short for a test that waits it out.
PATIENT = Limits(connect_s=5.0, write_s=10.0, read_s=10.0)
SYNC_BYTES = 5  # The protocol's Sync message, which ends the implicit transaction of a statement.


class Plane:
    """One plane, seen directly and through the proxy."""

    def __init__(self, server: PostgresServer, proxy: Proxy) -> None:
        self.name = next_plane()
        self.server = server
        self.proxy = proxy
        self.stores: list[PostgresStore] = []

    async def direct(self) -> PostgresStore:
        return await self._open(PostgresStore(self.server.dsn(), self.name, PATIENT))

    async def proxied(self, limits: Limits = QUICK) -> PostgresStore:
        return await self._open(PostgresStore(self.server.dsn(port=self.proxy.port), self.name, limits))

    async def close(self) -> None:
        for store in self.stores:
            await store.close()

    async def _open(self, store: PostgresStore) -> PostgresStore:
        self.stores.append(store)
        await store.open()
        return store


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    server = server_or_skip()
    async with Proxy(server.port) as proxy:
        made = Plane(server, proxy)
        yield made
        await made.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """For tests that kill it."""
    try:
        server = PostgresServer()
    except NoPostgres as error:
        pytest.skip(str(error))
    server.start()
    yield server
    server.close()


async def warm(store: PostgresStore, fence: Fence, batches: list[Batch]) -> None:
    """Commits through, so that the commit connection exists and its statement is prepared before the fault starts."""
    for batch in batches:
        assert await store.commit(fence, batch) == Committed()


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
    store, witness = await plane.proxied(), await plane.direct()
    fence = await lead(store)
    first, second, third = chain(3)
    await warm(store, fence, [first])

    plane.proxy.hold_requests()
    assert isinstance(await store.commit(fence, second), OutcomeUnknown)
    assert plane.proxy.counts.held_bytes > 0
    assert (await witness.head()).position == first.last

    assert await store.commit(fence, second) == Committed()
    assert await store.commit(fence, third) == Committed()
    assert await plane.proxy.release() >= 1
    assert plane.proxy.counts.released_bytes > 0
    assert await whole_tail(witness) == [first, second, third]
    assert (await witness.head()).hash == third.hash


async def test_a_commit_that_lands_before_its_resubmission_is_already_there(plane: Plane) -> None:
    store, witness = await plane.proxied(), await plane.direct()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])

    plane.proxy.hold_requests()
    assert isinstance(await store.commit(fence, second), OutcomeUnknown)
    assert (await witness.head()).position == first.last, "a reader saw nothing"
    await plane.proxy.release()

    assert (await witness.head()).position == second.last, "and yet it landed"
    assert await store.commit(fence, second) == AlreadyThere()


async def test_a_commit_held_across_a_takeover_never_lands(plane: Plane) -> None:
    old, new = await plane.proxied(), await plane.direct()
    fence = await lead(old, "old")
    first, second = chain(2)
    await warm(old, fence, [first])

    plane.proxy.hold_requests()
    assert isinstance(await old.commit(fence, second), OutcomeUnknown)
    taken = await lead(new, "new")
    assert await plane.proxy.release() >= 1

    assert await whole_tail(new) == [first]
    assert isinstance(await old.commit(fence, second), Fenced)
    assert await new.commit(taken, batch_after(first, b"by the new leader")) == Committed()


async def test_a_held_commit_does_not_land_when_only_the_holder_differs(plane: Plane) -> None:
    """The same epoch twice: two leaders that a restored or failed-over server gave the same number."""
    store, witness = await plane.proxied(), await plane.direct()
    fence = await lead(store, "one")
    first, second = chain(2)
    await warm(store, fence, [first])
    twin = Fence(fence.incarnation, fence.epoch, "other")

    assert isinstance(await store.commit(twin, second), Fenced)
    assert isinstance(await store.renew(twin), Fenced)
    assert isinstance(await store.materialise(twin, 1, [("key", 1, b"value")], []), Fenced)
    assert isinstance(await store.truncate(twin, 1, b"anchor"), Fenced)
    assert await whole_tail(witness) == [first]
    assert await collect(await witness.load()) == {}


async def test_another_history_at_the_same_position_is_superseded(plane: Plane) -> None:
    store = await plane.direct()
    fence = await lead(store)
    first = batch_after(None, b"what happened")
    await warm(store, fence, [first])
    other = batch_after(None, b"what did not")
    follows_other = batch_after(other, b"next")

    assert isinstance(await store.commit(fence, other), Superseded)
    assert isinstance(await store.commit(fence, follows_other), Superseded), "position fits, history does not"
    assert isinstance(await store.commit(fence, chain(4, first)[3]), Superseded), "history is missing in between"
    assert await whole_tail(store) == [first]


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
    for _ in range(10):
        if isinstance(answer, Committed | AlreadyThere):
            return answer
        assert isinstance(answer, OutcomeUnknown | Unavailable), answer
        answer = await store.commit(fence, batch)
    raise AssertionError(f"not settled after 10 attempts: {answer}")


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


async def test_a_leader_stopped_between_statements_blocks_nobody(plane: Plane) -> None:
    """Its connections stay open and idle, as those of a process under SIGSTOP do."""
    stopped, standby = await plane.proxied(), await plane.direct()
    fence = await lead(stopped, "stopped")
    first, second = chain(2)
    await warm(stopped, fence, [first])
    assert await stopped.renew(fence) == Committed()
    assert await stopped.materialise(fence, 1, [("key", 1, b"value")], []) == Committed()

    assert await sessions_in_transaction(plane) == 0
    taken = await lead(standby, "standby")
    assert await standby.commit(taken, second) == Committed()
    assert isinstance(await stopped.renew(fence), Fenced)


async def test_a_leader_stopped_inside_a_statement_blocks_takeover_only_for_its_time_limit(plane: Plane) -> None:
    """Its commit arrives without the Sync that ends it, so the server has the row lock and waits for the client."""
    if await major_version(plane) < 17:
        pytest.skip("transaction_timeout came with PostgreSQL 17")
    stopped, standby = await plane.proxied(Limits(write_s=1.5)), await plane.direct()
    fence = await lead(stopped, "stopped")
    first, second = chain(2)
    await warm(stopped, fence, [first])
    observed = await standby.head()

    plane.proxy.hold_request_ends(SYNC_BYTES)
    async with asyncio.TaskGroup() as tasks:
        halted = tasks.create_task(stopped.commit(fence, second))
        await until(lambda: sessions_in_transaction(plane))
        taken = await standby.acquire("standby", observed)  # PATIENT: waits for the lock, no retry needed.
    assert isinstance(taken, Fence)
    assert isinstance(halted.result(), OutcomeUnknown)
    await plane.proxy.release()
    assert await whole_tail(standby) == [first]


async def test_a_renewal_does_not_wait_behind_a_commit_that_hangs(plane: Plane) -> None:
    store = await plane.proxied(Limits(write_s=30.0))
    fence = await lead(await plane.direct())
    first, second = chain(2)
    await warm(store, fence, [first])

    plane.proxy.hold_requests()  # Holds the commits' connection; the renewals' is not open yet.
    async with asyncio.TaskGroup() as tasks:
        commit = tasks.create_task(store.commit(fence, second))
        await plane.proxy.wait_until(lambda counts: counts.held_bytes > 0)
        assert await store.renew(fence) == Committed()
        assert not commit.done()
        await plane.proxy.release()
    assert commit.result() == Committed()


async def test_a_late_materialisation_does_not_take_newer_rows_back(plane: Plane) -> None:
    store, witness = await plane.proxied(), await plane.direct()
    fence = await lead(store)
    await warm(store, fence, chain(3))
    assert await store.materialise(fence, 1, [("a", 1, b"one")], []) == Committed()

    plane.proxy.hold_requests()
    assert isinstance(await store.materialise(fence, 2, [("a", 2, b"two"), ("b", 2, b"two")], []), OutcomeUnknown)
    assert await store.materialise(fence, 2, [("a", 2, b"two"), ("b", 2, b"two")], []) == Committed()
    assert await store.materialise(fence, 3, [("a", 3, b"three")], ["b"]) == Committed()
    await plane.proxy.release()

    assert (await witness.head()).materialised == 3
    assert await collect(await witness.load()) == {"a": (3, b"three")}


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


async def test_a_read_only_server_says_so_and_what_to_do(plane: Plane) -> None:
    store = await plane.direct()
    fence = await lead(store)
    await set_for_new_sessions(plane, "default_transaction_read_only = on")
    try:
        fresh = await plane.direct()
        answer = await fresh.commit(fence, chain(1)[0])
    finally:
        await set_for_new_sessions(plane, "default_transaction_read_only = off")
    assert isinstance(answer, Unavailable)
    assert answer.reason == "ReadOnly"
    assert "primary" in answer.detail


async def test_a_held_head_row_is_reported_as_locked_not_as_unknown(plane: Plane) -> None:
    store = await plane.proxied()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        async with connection.transaction():
            await connection.execute(f'SELECT FROM "fairlead_{plane.name}".head FOR UPDATE')
            answer = await store.commit(fence, second)
    finally:
        await connection.close()
    assert isinstance(answer, Unavailable)
    assert answer.reason == "Locked"
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


async def test_planes_in_one_database_do_not_see_each_other(plane: Plane) -> None:
    one = await plane.direct()
    fence = await lead(one)
    await warm(one, fence, chain(2))
    other = PostgresStore(plane.server.dsn(), next_plane())
    plane.stores.append(other)
    assert (await other.open()).position == 0
    assert isinstance(await other.commit(fence, chain(1)[0]), Fenced)


async def test_many_processes_may_create_the_same_plane_at_once(plane: Plane) -> None:
    stores = [PostgresStore(plane.server.dsn(), plane.name) for _ in range(6)]
    plane.stores.extend(stores)
    heads = await asyncio.gather(*(store.open() for store in stores))
    assert len({head.hash for head in heads}) == 1


async def sessions_in_transaction(plane: Plane) -> int:
    """Sessions of this plane that hold a lock on its head."""
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        found: int = await connection.fetchval(
            "SELECT count(DISTINCT pid) FROM pg_locks WHERE granted AND mode = 'RowExclusiveLock' AND relation = $1::text::regclass",
            f'"fairlead_{plane.name}".head',
        )
        return found
    finally:
        await connection.close()


async def until(reached: Callable[[], Awaitable[int]]) -> None:
    """Asks again until the answer is not zero; each question is a round trip, so this needs no sleeping."""
    async with asyncio.timeout(10.0):
        while not await reached():
            pass


async def major_version(plane: Plane) -> int:
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        return connection.get_server_version().major
    finally:
        await connection.close()


async def set_for_new_sessions(plane: Plane, setting: str) -> None:
    connection = await asyncpg.connect(plane.server.dsn(), server_settings={"default_transaction_read_only": "off"})
    try:
        await connection.execute(f"ALTER ROLE fairlead IN DATABASE postgres SET {setting}")
    finally:
        await connection.close()
