"""The stores a rig can run on, and how each is killed from below. Owns the servers it starts; never looks into them.

A sqlite file has no process of its own: killing our server is all there is. Called by the rigs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

from tests.servers.etcd import EtcdCluster
from tests.servers.postgres import PostgresServer


class RigStore:
    """`kill` kills the store's own process and starts it again; `settle` waits until all of it serves."""

    def __init__(self, address: str) -> None:
        self.address = address

    def kill(self, rng: random.Random) -> None:
        raise NotImplementedError("this store has no process of its own")

    def settle(self) -> None:
        pass


class PostgresRigStore(RigStore):
    def __init__(self, server: PostgresServer) -> None:
        super().__init__(asyncio.run(server.create_database("rig")))
        self._server = server

    def kill(self, rng: random.Random) -> None:
        self._server.kill()
        self._server.start()


class EtcdRigStore(RigStore):
    """One member at a time: the last one killed is back before the next goes."""

    def __init__(self, cluster: EtcdCluster) -> None:
        super().__init__(f"etcd://{','.join(cluster.endpoints)}/rig")
        self._cluster = cluster
        self._down: int | None = None

    def kill(self, rng: random.Random) -> None:
        self.settle()
        self._down = rng.randrange(self._cluster.size)
        self._cluster.kill_member(self._down)

    def settle(self) -> None:
        if self._down is not None:
            self._cluster.restart_member(self._down)
            self._down = None
        self._cluster.wait_healthy()


@contextlib.contextmanager
def rig_store(engine: str, folder: Path) -> Iterator[RigStore]:
    """A store of its own, to be killed."""
    if engine == "sqlite":
        yield RigStore(f"sqlite:{folder / 'plane.db'}")
    elif engine == "postgres":
        server = PostgresServer()
        server.start()
        try:
            yield PostgresRigStore(server)
        finally:
            server.close()
    else:
        cluster = EtcdCluster().start()
        try:
            yield EtcdRigStore(cluster)
        finally:
            cluster.stop()
