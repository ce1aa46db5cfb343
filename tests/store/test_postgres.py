"""What is PostgreSQL's own about the engine: locks, stopped leaders, guards, planes that share a database."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine

import asyncpg
import pytest

from fairlead.store.contract import (
    Committed,
    Contended,
    Fence,
    Fenced,
    OutcomeUnknown,
    Superseded,
    Unavailable,
)
from fairlead.store.postgres import PostgresStore
from fairlead.store.postgres_link import Limits, Link
from tests.store.batches import batch_after, chain, collect, lead, whole_tail
from tests.store.postgres_engine import next_plane
from tests.store.postgres_plane import (
    PATIENT,
    SYNC_BYTES,
    Plane,
    held_back,
    major_version,
    new_plane,
    sessions_in_transaction,
    sessions_waiting,
    set_for_new_sessions,
    until,
    warm,
)


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with new_plane() as made:
        yield made


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


async def test_a_leader_process_under_sigstop_is_taken_over_at_once_and_fenced_when_it_wakes(plane: Plane) -> None:
    standby = await plane.direct()
    for number in range(3):
        command = ["-m", "tests.store.postgres_leader", plane.server.dsn(), plane.name, f"child-{number}"]
        child = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        assert child.stdout is not None
        try:
            assert await child.stdout.readline() == b"leading\n"
            child.send_signal(signal.SIGSTOP)
            # What the child had sent may land before the takeover, also between the standby's look and its grasp: one more
            # look then, and the child has nothing left to send. Nothing lands after the takeover.
            taken = await standby.acquire(f"standby-{number}", await standby.head())
            if isinstance(taken, Contended):
                taken = await lead(standby, f"standby-{number}")
            assert isinstance(taken, Fence)
            batch = batch_after(await standby.head(), b"by the standby")
            assert await standby.commit(taken, batch) == Committed()
            child.send_signal(signal.SIGCONT)
            assert await child.stdout.readline() == b"fenced\n"
            assert (await standby.head()).hash == batch.hash
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


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
    store, witness = await plane.proxied(PATIENT), await plane.direct()
    fence = await lead(store)
    await warm(store, fence, chain(3))
    assert await store.materialise(fence, 1, [("a", 1, b"one")], []) == Committed()

    late = store.materialise(fence, 2, [("a", 2, b"two"), ("b", 2, b"two")], [])
    assert isinstance(await held_back(plane, late), OutcomeUnknown)
    assert await store.materialise(fence, 2, [("a", 2, b"two"), ("b", 2, b"two")], []) == Committed()
    assert await store.materialise(fence, 3, [("a", 3, b"three")], ["b"]) == Committed()
    assert await plane.proxy.release() == 1

    assert (await witness.head()).materialised == 3
    assert await collect(await witness.load()) == {"a": (3, b"three")}


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


async def test_a_materialisation_under_way_hinders_no_commit_but_makes_a_takeover_wait(plane: Plane) -> None:
    store, standby = await plane.proxied(), await plane.proxied()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        async with connection.transaction():
            arguments: tuple[object, ...] = (*fence_columns(fence), 1, ["key"], [1], [b"value"], [], 1)
            assert await connection.fetch(plane.sql.materialise, *arguments)
            assert await store.commit(fence, second) == Committed()
            assert await store.renew(fence) == Committed()
            observed = await standby.head()
            blocked = await standby.acquire("standby", observed)
            assert isinstance(blocked, Unavailable)
            assert blocked.reason == "Locked"
    finally:
        await connection.close()
    assert isinstance(await standby.acquire("standby", observed), Fence)


@pytest.mark.parametrize("write", ["commit", "materialise", "renew", "truncate", "set_incarnation"])
async def test_a_write_that_waited_for_a_takeover_to_finish_is_fenced(plane: Plane, write: str) -> None:
    """It began before the takeover was committed, so its snapshot still shows the old fence; its guard must not."""
    store = await plane.direct()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])
    assert await store.materialise(fence, 1, [("key", 1, b"before")], []) == Committed()
    calls: dict[str, Callable[[], Coroutine[None, None, object]]] = {
        "commit": lambda: store.commit(fence, second),
        "materialise": lambda: store.materialise(fence, 1, [("new", 1, b"after")], ["key"]),
        "renew": lambda: store.renew(fence),
        "truncate": lambda: store.truncate(fence, 1, b"anchor"),
        "set_incarnation": lambda: store.set_incarnation(fence, 9),
    }
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        async with asyncio.TaskGroup() as tasks, connection.transaction():
            arguments = (*fence_columns(fence), "new leader", 0, 1)
            assert await connection.fetch(plane.sql.acquire, *arguments)
            waiting = tasks.create_task(calls[write]())
            await until(lambda: sessions_waiting(plane))
    finally:
        await connection.close()
    assert isinstance(waiting.result(), Fenced)
    head = await store.head()
    assert (head.position, head.materialised, head.renewals, head.truncated) == (1, 1, 0, 0)
    assert (head.epoch, head.holder, head.incarnation) == (fence.epoch + 1, "new leader", fence.incarnation)
    assert await collect(await store.load()) == {"key": (1, b"before")}


def fence_columns(fence: Fence) -> tuple[int, int, str]:
    return fence.incarnation, fence.epoch, fence.holder


async def test_a_stranger_with_another_incarnation_writes_nothing(plane: Plane) -> None:
    store = await plane.direct()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])
    assert await store.materialise(fence, 1, [("key", 1, b"value")], []) == Committed()
    before = await store.head()
    stranger = Fence(fence.incarnation + 1, fence.epoch, fence.holder)

    assert isinstance(await store.commit(stranger, second), Fenced)
    assert isinstance(await store.renew(stranger), Fenced)
    assert isinstance(await store.materialise(stranger, 2, [], ["key"]), Fenced)
    assert await store.head() == before
    assert await collect(await store.load()) == {"key": (1, b"value")}


async def test_a_session_ended_by_the_server_leaves_the_outcome_unknown(plane: Plane) -> None:
    """FATAL proves nothing: a backend may report it after its transaction was committed."""
    store = await plane.direct()
    fence = await lead(store)
    first, second = chain(2)
    await warm(store, fence, [first])
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        async with asyncio.TaskGroup() as tasks, connection.transaction():
            await connection.execute(f'SELECT FROM "fairlead_{plane.name}".head FOR UPDATE')
            commit = tasks.create_task(store.commit(fence, second))
            await until(lambda: sessions_waiting(plane))
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
                f"commit fairlead_{plane.name}",
            )
    finally:
        await connection.close()
    assert isinstance(commit.result(), OutcomeUnknown)
    assert await store.commit(fence, second) == Committed()


async def test_a_statement_is_parsed_once_and_not_with_every_execution(plane: Plane) -> None:
    """A third of a lone commit's time on a local server went into parsing the same statement again."""
    link = Link(plane.server.dsn(), "reader", PATIENT, 5.0)
    try:
        for _ in range(3):
            assert not isinstance(await link.run("SELECT 41 + $1::integer", 1), Unavailable | OutcomeUnknown)
        kept = await link.run("SELECT statement, generic_plans + custom_plans AS runs FROM pg_prepared_statements")
    finally:
        await link.close()
    assert not isinstance(kept, Unavailable | OutcomeUnknown)
    assert {row["statement"]: row["runs"] for row in kept}["SELECT 41 + $1::integer"] == 3
