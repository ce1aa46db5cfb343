"""A store with a plane's real history in it, and ways to damage one. Called by the tests of backup, verify, compact and start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import asyncpg

from fairlead.model.commands import Caller, IdempotencyKey, Put, SessionId
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.store.contract import Store
from fairlead.store.snapshot import take_snapshot
from tests.authority.planes import OPERATOR, PlaneForTest, bind_of, ok, running_plane
from tests.store.conftest import ENGINES, Engine, SqliteEngine
from tests.store.postgres_engine import PostgresEngine

KEY = IdempotencyKey("a-users-key")
SESSION = SessionId("assignment-0", 1, 0)


def tenant(name: str) -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name), spec=TenantSpec()))


async def add_history(plane: PlaneForTest) -> None:
    """Nodes, a grant, slots that are bound, a receipt under a key and one in a session."""
    for number in range(3):
        await plane.add_node(f"n{number}")
    await plane.grant("risk")
    assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
    for number in range(6):
        ok(await plane.request("risk", "api", number, assigner))
        if number < 4:
            ok(await plane.send(scheduler, bind_of("risk", f"api-{number}", f"n{number % 3}")))
    ok(await plane.send(OPERATOR, tenant("risk"), KEY))
    ok(await plane.send(Caller("ada", Role.OPERATOR), tenant("lab"), SESSION))


@asynccontextmanager
async def filled_plane(engine: Engine) -> AsyncIterator[PlaneForTest]:
    async with running_plane(await engine.open_store()) as plane:
        await add_history(plane)
        yield plane


async def fill(engine: Engine) -> None:
    async with filled_plane(engine):
        pass


async def second_engine(name: str, directory: Path) -> Engine:
    directory.mkdir()
    return await ENGINES[name](directory)


async def rows_of(store: Store) -> dict[str, tuple[int, bytes]]:
    snapshot = await take_snapshot(store)
    return {key: (position, bytes(raw)) async for rows in snapshot.chunks() for key, position, raw in rows}


async def execute(engine: Engine, sql: str, *values: object) -> list[tuple[object, ...]]:
    """One statement on the engine's own tables: `{s}` stands for the schema where there is one."""
    if isinstance(engine, SqliteEngine):
        connection = apsw.Connection(str(engine.path))
        try:
            return list(connection.execute(sql.replace("{s}.", ""), values))
        finally:
            connection.close()
    assert isinstance(engine, PostgresEngine)
    session = await asyncpg.connect(engine.dsn)
    try:
        return [tuple(row) for row in await session.fetch(sql.replace("{s}", f'"fairlead_{engine.plane}"'), *values)]
    finally:
        await session.close()


def place(engine: Engine, number: int) -> str:
    return f"?{number}" if isinstance(engine, SqliteEngine) else f"${number}"


async def journal_firsts(engine: Engine) -> list[int]:
    return [int(str(row[0])) for row in await execute(engine, "SELECT first FROM {s}.journal ORDER BY first")]


async def flip_byte(engine: Engine, first: int) -> None:
    """One bit in the middle of a journal row's blob."""
    ((blob,),) = await execute(engine, f"SELECT blob FROM {{s}}.journal WHERE first = {first}")
    assert isinstance(blob, bytes)
    middle = len(blob) // 2
    flipped = blob[:middle] + bytes([blob[middle] ^ 1]) + blob[middle + 1 :]
    await execute(engine, f"UPDATE {{s}}.journal SET blob = {place(engine, 1)} WHERE first = {first}", flipped)


async def drop_row(engine: Engine, first: int) -> None:
    await execute(engine, f"DELETE FROM {{s}}.journal WHERE first = {first}")
