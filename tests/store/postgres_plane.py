"""One plane on the real server, seen directly and through the proxy. Called by the PostgreSQL tests beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TypeVar

import asyncpg

from fairlead.store.contract import (
    Batch,
    Committed,
    Fence,
)
from fairlead.store.postgres import PostgresStore
from fairlead.store.postgres_link import Limits
from fairlead.store.postgres_sql import schema_name, statements
from tests.servers.postgres import PostgresServer, shared_server
from tests.servers.proxy import Proxy
from tests.store.postgres_engine import next_plane

Result = TypeVar("Result")

QUICK = Limits(connect_s=20.0, write_s=2.0, read_s=20.0)  # Long for a healthy server, short for a test that waits it out.
PATIENT = Limits(connect_s=20.0, write_s=40.0, read_s=40.0)  # For tests that wait out none of them, on any machine.
SYNC_BYTES = 5  # The protocol's Sync message, which ends the implicit transaction of a statement.


class Plane:
    """One plane, seen directly and through the proxy."""

    def __init__(self, server: PostgresServer, proxy: Proxy) -> None:
        self.name = next_plane()
        self.sql = statements(schema_name(self.name))
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


async def warm(store: PostgresStore, fence: Fence, batches: list[Batch]) -> None:
    """Commits through, so that the commit connection exists and its statement is prepared before the fault starts."""
    for batch in batches:
        assert await store.commit(fence, batch) == Committed()


async def held_back(plane: Plane, write: Coroutine[None, None, Result]) -> Result:
    """What the writer is told when its request is held in the proxy and its connection is lost. The request arrives with
    `proxy.release()`, which returns when the server has answered it: it has landed by then, or never will. The store must
    be PATIENT, because the server's limit on the statement, which starts at its arrival, is a share of the client's."""
    plane.proxy.hold_requests()
    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(write)
        await plane.proxy.wait_until(lambda counts: counts.held_bytes > 0)
        plane.proxy.hang_up_on_clients()
    return told.result()


async def sessions_in_transaction(plane: Plane) -> int:
    """Sessions of this plane that hold a lock on its head."""
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        found: int = await connection.fetchval(
            "SELECT count(DISTINCT pid) FROM pg_locks "
            "WHERE granted AND mode = 'RowExclusiveLock' AND relation = $1::text::regclass",
            f'"fairlead_{plane.name}".head',
        )
        return found
    finally:
        await connection.close()


async def sessions_waiting(plane: Plane) -> int:
    """Sessions of this plane that wait for somebody else's lock."""
    connection = await asyncpg.connect(plane.server.dsn())
    try:
        found: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE '%' || $1",
            plane.name,
        )
        return found
    finally:
        await connection.close()


async def until(reached: Callable[[], Awaitable[int]]) -> None:
    """Asks again until the answer is not zero; each question is a round trip, so this needs no sleeping."""
    async with asyncio.timeout(60.0):
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


@contextlib.asynccontextmanager
async def new_plane() -> AsyncIterator[Plane]:
    server = shared_server()
    async with Proxy(server.port) as proxy:
        made = Plane(server, proxy)
        try:
            yield made
        finally:
            proxy.reset_connections()  # A silent connection would make its store wait for a goodbye.
            await made.close()
