"""The etcd engine as the shared suites see it: a prefix for each test on one cluster for the session. Called by
conftest."""

from __future__ import annotations

from pathlib import Path

from fairlead.store.contract import Store
from fairlead.store.etcd import EtcdStore
from fairlead.store.etcd_client import EtcdClient
from fairlead.store.etcd_keys import Keys, end_of
from tests.servers.etcd import shared_cluster


class EtcdEngine:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.endpoints = shared_cluster().endpoints
        self.stores: list[EtcdStore] = []

    async def open_store(self) -> Store:
        store = EtcdStore(self.endpoints, self.prefix)
        self.stores.append(store)
        await store.open()
        return store

    async def write_format(self, format: int) -> None:
        client = EtcdClient(self.endpoints)
        await client.open()
        await client.put(Keys(self.prefix).format, b"%d" % format)
        await client.close()

    async def close(self) -> None:
        for store in self.stores:
            await store.close()
        client = EtcdClient(self.endpoints)
        await client.open()
        await client.delete_range(Keys(self.prefix).prefix, end_of(Keys(self.prefix).prefix))
        await client.close()


async def make_etcd(directory: Path) -> EtcdEngine:
    return EtcdEngine(str(directory))
