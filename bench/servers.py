"""Real PostgreSQL and a real three-member etcd for the benches, started and stopped here, and what they do without us."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from bench.planes import LONE_BLOB_BYTES, Engine, percentile
from fairlead.ports import Tasks
from fairlead.store.contract import Store
from fairlead.store.etcd import EtcdStore
from fairlead.store.etcd_client import EtcdClient, Put
from fairlead.store.postgres import PostgresStore
from tests.servers.etcd import EtcdCluster
from tests.servers.postgres import PostgresServer

_VALUE_BYTES = 360  # as large as a binding
_ROWS = 1000


class PostgresEngine(Engine):
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._count = 0

    async def fresh(self, objects: int = 0) -> Store:
        self._count += 1
        return PostgresStore(self._server.dsn(), plane=f"bench{self._count}")

    async def raw_rows_per_s(self) -> float:
        connection = await asyncpg.connect(self._server.dsn())
        await connection.execute("create table raw(key text primary key, position bigint, value bytea)")
        upsert = """insert into raw select * from unnest($1::text[], $2::bigint[], $3::bytea[])
                    on conflict (key) do update set position = excluded.position, value = excluded.value"""
        value = os.urandom(_VALUE_BYTES)
        started, turns = time.perf_counter(), 40
        for turn in range(turns):
            keys = [f"bindings/t{n % 50}/w{n % 64}-{turn * _ROWS + n}" for n in range(_ROWS)]
            await connection.execute(upsert, keys, [turn] * _ROWS, [value] * _ROWS)
        rate = turns * _ROWS / (time.perf_counter() - started)
        await connection.close()
        return round(rate, 1)

    async def raw_commit_ms(self) -> float:
        connection = await asyncpg.connect(self._server.dsn())
        await connection.execute("drop table if exists head, journal")
        await connection.execute("create table head(position bigint); create table journal(first bigint primary key, blob bytea)")
        await connection.execute("insert into head values(0)")
        one = """with g as (update head set position = $1::bigint + 1 where position = $1::bigint returning 1)
                 insert into journal select $1::bigint, $2::bytea from g"""
        blob = os.urandom(LONE_BLOB_BYTES)
        single = []
        for n in range(300):
            started = time.perf_counter()
            await connection.execute(one, n, blob)
            single.append(time.perf_counter() - started)
        await connection.close()
        return percentile(single, 0.5) * 1e3


class EtcdEngine(Engine):
    def __init__(self, cluster: EtcdCluster) -> None:
        self._cluster = cluster
        self._count = 0

    async def fresh(self, objects: int = 0) -> Store:
        self._count += 1
        return EtcdStore(self._cluster.endpoints, f"bench{self._count}")

    async def raw_rows_per_s(self) -> float:
        """1,000 rows are nine transactions here: etcd allows 128 operations in one."""
        client = EtcdClient(self._cluster.endpoints)
        await client.open()
        value = os.urandom(_VALUE_BYTES)

        async def put(turn: int, first: int) -> None:
            last = min(first + 120, _ROWS)
            await client.txn([], [Put(f"raw/{turn}/{n}".encode(), value) for n in range(first, last)], [])

        started, turns = time.perf_counter(), 20
        for turn in range(turns):
            async with Tasks() as tasks:
                for first in range(0, _ROWS, 120):
                    tasks.start(put(turn, first), "put")
        rate = turns * _ROWS / (time.perf_counter() - started)
        await client.close()
        return round(rate, 1)

    async def raw_commit_ms(self) -> float:
        client = EtcdClient(self._cluster.endpoints)
        await client.open()
        blob = os.urandom(LONE_BLOB_BYTES)
        single = []
        for n in range(200):
            started = time.perf_counter()
            await client.txn([], [Put(b"one/head", b"%d" % n), Put(b"one/%d" % n, blob)], [])
            single.append(time.perf_counter() - started)
        await client.close()
        return percentile(single, 0.5) * 1e3


@asynccontextmanager
async def postgres_engine() -> AsyncIterator[Engine]:
    server = PostgresServer()
    await asyncio.to_thread(server.start)
    try:
        yield PostgresEngine(server)
    finally:
        await asyncio.to_thread(server.close)


@asynccontextmanager
async def etcd_engine() -> AsyncIterator[Engine]:
    cluster = EtcdCluster()
    await asyncio.to_thread(cluster.start)
    try:
        yield EtcdEngine(cluster)
    finally:
        await asyncio.to_thread(cluster.stop)
