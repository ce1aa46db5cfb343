"""The etcd engine on a real cluster whose members are killed, stopped and cut off: what was acknowledged stays, what
was not is told apart by resubmitting, and what lands late changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

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
from fairlead.store.etcd import EtcdStore
from fairlead.store.etcd_client import EtcdClient
from tests.servers.etcd import EtcdCluster
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.store.batches import batch_after, chain, collect, lead, whole_tail

TIMEOUT_S = 0.7  # Of one request; longer than an election (0.5 s), short enough to wait for.
UNHURRIED_S = 20.0  # The same for tests that wait out no limit, on any machine.
PATIENCE_S = 40.0
BACK_OFF_S = 0.02
DATA, END_STREAM = 0, 1  # HTTP/2's type of a frame with a body, and its flag on a stream's last frame

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    cluster = EtcdCluster().start()
    yield cluster
    cluster.stop()


@asynccontextmanager
async def opened(endpoints: list[str], prefix: Path, timeout_s: float = TIMEOUT_S) -> AsyncIterator[EtcdStore]:
    client = EtcdClient(endpoints, timeout_s=timeout_s, connect_timeout_s=timeout_s * 0.7)
    store = EtcdStore(endpoints, str(prefix), client=client)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def until_settled(store: EtcdStore, fence: Fence, batch: Batch) -> CommitResult:
    """P1's only move: the same bytes at the same position, until the answer says something."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            result = await store.commit(fence, batch)
            if not isinstance(result, OutcomeUnknown | Unavailable):
                return result
            await asyncio.sleep(BACK_OFF_S)


async def head_position(store: EtcdStore) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return (await store.head()).position
            except StoreUnreachable:
                await asyncio.sleep(BACK_OFF_S)


async def test_commits_go_on_while_one_member_after_the_other_is_killed(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with opened(cluster.endpoints, tmp_path) as store:
        fence = await lead(store)
        batches = chain(90)
        waiting = iter(batches)
        results: list[CommitResult] = []

        async def commit_some(count: int) -> None:
            for _ in range(count):
                results.append(await until_settled(store, fence, next(waiting)))

        for index in range(cluster.size):
            async with asyncio.TaskGroup() as group:
                group.create_task(commit_some(15))
                group.create_task(asyncio.to_thread(cluster.kill_member, index))
            async with asyncio.TaskGroup() as group:
                group.create_task(commit_some(15))
                group.create_task(asyncio.to_thread(cluster.restart_member, index))
        assert set(map(type, results)) <= {Committed, AlreadyThere}
        assert await whole_tail(store) == batches


async def test_without_a_quorum_nothing_is_said_to_be_committed(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with opened(cluster.endpoints, tmp_path) as store:
        fence = await lead(store)
        first, second = chain(2)
        assert await store.commit(fence, first) == Committed()
        down = [(cluster.leader() + step) % 3 for step in (0, 1)]
        for index in down:
            await asyncio.to_thread(cluster.kill_member, index)
        try:
            results = [await store.commit(fence, second) for _ in range(4)]
            assert {type(result) for result in results} <= {OutcomeUnknown, Unavailable}
            assert isinstance(await store.renew(fence), OutcomeUnknown | Unavailable)
            with pytest.raises(StoreUnreachable):
                await store.head()
            with pytest.raises(StoreUnreachable):
                await store.tail(0)
        finally:
            for index in down:
                await asyncio.to_thread(cluster.restart_member, index, wait=False)
            await asyncio.to_thread(cluster.wait_healthy)
        assert isinstance(await until_settled(store, fence, second), Committed | AlreadyThere)
        assert await whole_tail(store) == [first, second]


async def test_a_member_that_says_nothing_is_left_for_another(cluster: EtcdCluster, tmp_path: Path) -> None:
    silent = (cluster.leader() + 1) % 3
    endpoints = cluster.endpoints[silent:] + cluster.endpoints[:silent]
    async with opened(endpoints, tmp_path) as store:
        fence = await lead(store)
        first, second = chain(2)
        cluster.pause_member(silent)
        try:
            assert isinstance(await store.commit(fence, first), OutcomeUnknown)
            assert isinstance(await store.commit(fence, first), Committed | AlreadyThere)
            assert await store.commit(fence, second) == Committed()
            assert (await store.head()).position == 2
        finally:
            cluster.resume_member(silent)


async def test_a_cluster_that_was_never_reached_has_certainly_not_committed(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with Proxy(cluster.client_ports[0]) as proxy, opened([f"127.0.0.1:{proxy.port}"], tmp_path) as store:
        fence = await lead(store)
        proxy.refuse_connections()
        proxy.reset_connections()
        result = await store.commit(fence, batch_after(None))
        while isinstance(result, OutcomeUnknown):  # The reset may not have reached gRPC before the request did.
            result = await store.commit(fence, batch_after(None))
        assert isinstance(result, Unavailable)
        assert result.reason == "Unreachable"
        proxy.pass_through()
        assert await until_settled(store, fence, batch_after(None)) == Committed()


async def test_a_member_that_accepts_connections_and_says_nothing_was_never_asked(cluster: EtcdCluster, tmp_path: Path) -> None:
    """The request waits for the connection, not on it: so what fails is the connection, and the outcome is certain."""
    async with Proxy(cluster.client_ports[0]) as proxy, opened([f"127.0.0.1:{proxy.port}"], tmp_path) as store:
        fence = await lead(store)
        proxy.reset_connections()
        proxy.drop_everything(future=True)
        results = [await store.commit(fence, batch_after(None)) for _ in range(3)]
        assert isinstance(results[-1], Unavailable), results
        assert results[-1].reason == "Unreachable"


async def test_opening_a_store_nobody_serves_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match="open"):
        async with opened([f"127.0.0.1:{port}" for port in free_ports(2)], tmp_path):
            pass


@asynccontextmanager
async def behind_proxy(
    cluster: EtcdCluster, prefix: Path, timeout_s: float = UNHURRIED_S
) -> AsyncIterator[tuple[EtcdStore, Proxy]]:
    """A store that prefers a member behind the proxy and falls back to another one directly."""
    async with (
        Proxy(cluster.client_ports[0]) as proxy,
        opened([f"127.0.0.1:{proxy.port}", cluster.endpoints[1]], prefix, timeout_s) as store,
    ):
        yield store, proxy


async def held_back(proxy: Proxy, write: Coroutine[None, None, Result]) -> Result:
    """What the writer is told when its request, whole, is held in the proxy and its connection is lost. The hang-up keeps
    gRPC from sending a cancellation after it, which would arrive together with the request and often stop it."""
    proxy.hold_requests()
    async with asyncio.TaskGroup() as group:
        told = group.create_task(write)
        await proxy.wait_until(lambda _: any(requests_in(held) for held in proxy.held()))
        proxy.hang_up_on_clients()
    return told.result()


def requests_in(held: bytes) -> int:
    """How many requests end in these HTTP/2 frames: one with only its headers is nothing that could land."""
    ended, at = 0, 0
    while at + 9 <= len(held):  # a frame: length (3 bytes), type, flags, stream (4 bytes), then as many bytes as the length says
        length, kind, flags = int.from_bytes(held[at : at + 3]), held[at + 3], held[at + 4]
        at += 9 + length
        ended += kind == DATA and bool(flags & END_STREAM) and at <= len(held)
    return ended


async def let_land(cluster: EtcdCluster, proxy: Proxy) -> None:
    """Releases what `held_back` holds, and returns when the member behind the proxy has done with it: applied or refused.
    The first bytes that come back need not be the answer, so the member's own count of finished transactions is asked."""
    before = await asyncio.to_thread(cluster.transactions_handled, 0)
    assert await proxy.release() == 1
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(cluster.transactions_handled, 0) == before:
            await asyncio.sleep(BACK_OFF_S)


@pytest.mark.parametrize("fault", ["dropped", "delayed"])
async def test_a_commit_whose_answer_is_lost_is_already_there(cluster: EtcdCluster, tmp_path: Path, fault: str) -> None:
    async with behind_proxy(cluster, tmp_path, TIMEOUT_S) as (store, proxy):
        fence = await lead(store)
        proxy.drop_replies() if fault == "dropped" else proxy.delay_replies(2 * TIMEOUT_S)
        batch = batch_after(None)
        assert isinstance(await store.commit(fence, batch), OutcomeUnknown)
        assert await store.commit(fence, batch) == AlreadyThere()
        assert await whole_tail(store) == [batch]


async def test_an_answer_that_is_only_slow_is_waited_for(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with behind_proxy(cluster, tmp_path, TIMEOUT_S) as (store, proxy):
        fence = await lead(store)
        proxy.delay_replies(TIMEOUT_S / 4)
        assert await store.commit(fence, batch_after(None)) == Committed()


async def test_a_commit_that_lands_late_is_there_when_nothing_came_between(cluster: EtcdCluster, tmp_path: Path) -> None:
    """Also the proof that `held_back` makes writes land, which the tests below rely on."""
    async with behind_proxy(cluster, tmp_path) as (store, proxy):
        fence = await lead(store)
        batch = batch_after(None)
        assert isinstance(await held_back(proxy, store.commit(fence, batch)), OutcomeUnknown)
        assert await head_position(store) == 0
        await let_land(cluster, proxy)
        assert await head_position(store) == 1
        assert await store.commit(fence, batch) == AlreadyThere()


async def test_a_commit_that_lands_after_its_resubmission_is_not_applied_twice(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with behind_proxy(cluster, tmp_path) as (store, proxy):
        fence = await lead(store)
        first, second = chain(2)
        assert isinstance(await held_back(proxy, store.commit(fence, first)), OutcomeUnknown)
        assert await store.commit(fence, first) == Committed()
        assert await store.commit(fence, second) == Committed()
        await let_land(cluster, proxy)
        assert await whole_tail(store) == [first, second]
        assert (await store.head()).hash == second.hash


async def test_a_commit_that_lands_after_another_took_its_position_is_not_applied(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with behind_proxy(cluster, tmp_path) as (store, proxy):
        fence = await lead(store)
        late, other = batch_after(None, b"late"), batch_after(None, b"other")
        assert isinstance(await held_back(proxy, store.commit(fence, late)), OutcomeUnknown)
        assert await store.commit(fence, other) == Committed()
        await let_land(cluster, proxy)
        assert await whole_tail(store) == [other]
        assert isinstance(await store.commit(fence, late), Superseded)


async def test_a_commit_that_lands_after_a_takeover_is_not_applied(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with behind_proxy(cluster, tmp_path) as (old, proxy), opened(cluster.endpoints, tmp_path, UNHURRIED_S) as new:
        fence = await lead(old, "old")
        batch = batch_after(None)
        assert isinstance(await held_back(proxy, old.commit(fence, batch)), OutcomeUnknown)
        await lead(new, "new")
        await let_land(cluster, proxy)
        assert await whole_tail(new) == []
        assert isinstance(await old.commit(fence, batch), Fenced)


async def test_an_acquisition_that_lands_after_another_does_not_take_over(cluster: EtcdCluster, tmp_path: Path) -> None:
    async with behind_proxy(cluster, tmp_path) as (old, proxy), opened(cluster.endpoints, tmp_path, UNHURRIED_S) as new:
        observed = await old.head()
        assert isinstance(await held_back(proxy, old.acquire("old", observed)), OutcomeUnknown)
        fence = await lead(new, "new")
        await let_land(cluster, proxy)
        assert (await new.head()).fence() == fence


async def test_objects_that_land_late_do_not_replace_newer_ones(cluster: EtcdCluster, tmp_path: Path) -> None:
    """Under the same leader: its key alone does not stop the piece that was given up."""
    async with behind_proxy(cluster, tmp_path) as (store, proxy):
        fence = await lead(store)
        for batch in chain(3):
            assert await store.commit(fence, batch) == Committed()
        assert await store.materialise(fence, 1, [("node/a", 1, b"one")], []) == Committed()
        assert isinstance(await held_back(proxy, store.materialise(fence, 2, [("node/a", 2, b"two")], [])), OutcomeUnknown)
        assert await store.materialise(fence, 3, [("node/a", 3, b"three")], []) == Committed()
        await let_land(cluster, proxy)
        checkpoint = await store.load()
        assert checkpoint.position == 3
        assert await collect(checkpoint) == {"node/a": (3, b"three")}
