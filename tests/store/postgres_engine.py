"""PostgreSQL for the shared suites: every test gets a plane (a schema) of its own on one server. Called by conftest."""

from __future__ import annotations

import itertools
from pathlib import Path

import asyncpg

from fairlead.store.contract import Store
from fairlead.store.postgres import PostgresStore
from tests.servers.postgres import shared_server

_numbers = itertools.count(1)


def next_plane() -> str:
    return f"test-{next(_numbers)}"


class PostgresEngine:
    def __init__(self, dsn: str, plane: str) -> None:
        self.dsn = dsn
        self.plane = plane
        self.stores: list[PostgresStore] = []

    async def open_store(self) -> Store:
        store = PostgresStore(self.dsn, self.plane)
        self.stores.append(store)
        await store.open()
        return store

    async def write_format(self, format: int) -> None:
        await self._execute(f'UPDATE "fairlead_{self.plane}".head SET format = {format}')

    async def close(self) -> None:
        for store in self.stores:
            await store.close()
        await self._execute(f'DROP SCHEMA IF EXISTS "fairlead_{self.plane}" CASCADE')

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


async def make_postgres(directory: Path) -> PostgresEngine:
    return PostgresEngine(shared_server().dsn(), next_plane())
