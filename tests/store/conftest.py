"""The engines under test. To add one: write an Engine for it and put its factory into ENGINES; every suite then runs
over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import apsw
import pytest
from msgspec.structs import replace

from fairlead.store.contract import Batch, CommitResult, Fence, Store
from fairlead.store.memory import MemoryDisk, MemoryStore
from fairlead.store.sqlite import SqliteStore
from tests.store.etcd_engine import make_etcd
from tests.store.postgres_engine import make_postgres


class Engine(Protocol):
    """One durable store and as many Store objects over it as a test opens, each like a process of its own."""

    async def open_store(self) -> Store:
        """A fresh Store over the same durable data, already opened."""

    async def write_format(self, format: int) -> None:
        """Plays another version of Fairlead: rewrites the format the durable data claims to have."""

    async def close(self) -> None:
        """Closes every store it opened and removes the durable data."""


class MemoryEngine:
    def __init__(self) -> None:
        self.disk = MemoryDisk()

    async def open_store(self) -> Store:
        store = MemoryStore(self.disk)
        await store.open()
        return store

    async def write_format(self, format: int) -> None:
        self.disk.head = replace(self.disk.head, format=format)

    async def close(self) -> None:
        pass


class SqliteEngine:
    kind = SqliteStore

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stores: list[SqliteStore] = []

    async def open_store(self) -> Store:
        store = self.kind(self.path)
        await store.open()
        self.stores.append(store)
        return store

    async def write_format(self, format: int) -> None:
        with apsw.Connection(str(self.path)) as connection:
            connection.execute("UPDATE head SET format = ?", (format,))
        connection.close()

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


class OnTheSpot(SqliteStore):
    """Commits on the caller's thread whenever the engine lets it."""

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        return self.commit_on_the_spot(fence, batch) or await super().commit(fence, batch)


class OnTheSpotEngine(SqliteEngine):
    kind = OnTheSpot


async def _memory(directory: Path) -> Engine:
    return MemoryEngine()


async def _sqlite(directory: Path) -> Engine:
    return SqliteEngine(directory / "plane.db")


async def _sqlite_on_the_spot(directory: Path) -> Engine:
    return OnTheSpotEngine(directory / "plane.db")


# Each factory gets an empty directory of its own.
ENGINES: dict[str, Callable[[Path], Awaitable[Engine]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "sqlite-on-the-spot": _sqlite_on_the_spot,
    "etcd": make_etcd,
    "postgres": make_postgres,
}


@pytest.fixture(params=list(ENGINES))
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    made = await ENGINES[request.param](tmp_path)
    yield made
    await made.close()
