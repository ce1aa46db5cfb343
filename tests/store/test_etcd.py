"""What only the etcd engine promises: TLS, P8's limits, guards against its own late requests, reads at one revision, warnings."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.store.contract import (
    AlreadyThere,
    Batch,
    Committed,
    Contended,
    Corrupt,
    Fence,
    Fenced,
    ObjectRow,
    OutcomeUnknown,
    StoreError,
    StoreUnreachable,
    Unavailable,
)
from fairlead.store.etcd import EtcdStore
from fairlead.store.etcd_client import Compare, EtcdClient, Get, Operation, Tls, TxnResult
from fairlead.store.etcd_faults import DISK_FULL, UNKNOWN, EtcdFault
from fairlead.store.etcd_keys import Keys
from fairlead.store.etcd_objects import TXN_OPERATIONS_MAX
from fairlead.store.rules import EMPTY
from tests.servers.etcd import Authority, EtcdCluster, binary, shared_cluster, version_of
from tests.store.batches import batch_after, chain, collect, in_chunks, lead, whole_tail


class ScriptedClient(EtcdClient):
    """A real client whose next write (that `picks` accepts) meets a fault: it is kept back, or done and its answer replaced."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        super().__init__(endpoints)
        self.fault: EtcdFault | None = None
        self.does_it_first = False
        self.picks: Callable[[Sequence[Operation]], bool] = lambda success: True
        self.kept: list[tuple[Sequence[Compare], Sequence[Operation], Sequence[Operation]]] = []

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Operation], failure: Sequence[Operation] = ()
    ) -> TxnResult:
        is_write = any(not isinstance(operation, Get) for operation in success)
        if self.fault is None or not is_write or not self.picks(success):
            return await super().txn(compares, success, failure)
        fault, self.fault = self.fault, None
        if self.does_it_first:
            await super().txn(compares, success, failure)
        else:
            self.kept.append((compares, success, failure))
        raise fault

    async def land(self) -> bool:
        """The request that was kept back arrives now; says whether its guards held."""
        return (await super().txn(*self.kept.pop())).succeeded


@asynccontextmanager
async def opened(
    prefix: Path, objects_max: int = 200_000, object_bytes_max: int = 512 * 1024 * 1024
) -> AsyncIterator[tuple[EtcdStore, ScriptedClient]]:
    client = ScriptedClient(shared_cluster().endpoints)
    store = EtcdStore([], str(prefix), client=client, objects_max=objects_max, object_bytes_max=object_bytes_max)
    try:
        await store.open()
        yield store, client
    finally:
        await store.close()


def rows(count: int, position: int = 1, size: int = 8) -> list[ObjectRow]:
    return [(f"node/{index:05}", position, b"x" * size) for index in range(count)]


async def commit_all(store: EtcdStore, fence: Fence, batches: Sequence[Batch]) -> None:
    for batch in batches:
        assert await store.commit(fence, batch) == Committed()


# TLS


async def test_tls_lets_in_who_shows_a_certificate_of_the_authority_and_nobody_else(tmp_path: Path) -> None:
    cluster = EtcdCluster(tls=True).start()
    try:
        assert cluster.authority is not None
        assert cluster.tls is not None
        store = EtcdStore(cluster.endpoints, "/plane", tls=cluster.tls)
        await store.open()
        fence = await lead(store)
        assert await store.commit(fence, batch_after(None)) == Committed()
        await store.close()
        stranger = Authority(tmp_path / "other", "other CA").issue("client")
        for wrong in (None, Tls(cluster.tls.ca), Tls(cluster.tls.ca, stranger.cert, stranger.key), stranger):
            refused = EtcdStore(cluster.endpoints, "/plane", tls=wrong)
            with pytest.raises(StoreUnreachable):
                await refused.open()
            await refused.close()
    finally:
        cluster.stop()


# Limits


async def test_objects_beyond_the_limit_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with opened(tmp_path, objects_max=10) as (store, _):
        fence = await lead(store)
        await commit_all(store, fence, chain(5))
        assert await store.materialise(fence, 1, rows(10), []) == Committed()
        refused = await store.materialise(fence, 2, [*rows(10, 2), ("node/more", 2, b"")], [])
        assert isinstance(refused, Unavailable)
        assert refused.reason == "StoreLimit"
        assert "11 objects" in refused.detail
        assert (await store.head()).materialised == 1
        # At the limit, what does not grow goes on: replacing, exchanging, deleting.
        assert await store.materialise(fence, 2, rows(10, 2), []) == Committed()
        assert await store.materialise(fence, 3, [("node/more", 3, b"")], ["node/00000"]) == Committed()
        assert await store.materialise(fence, 4, [], [key for key, _, _ in rows(10)]) == Committed()
        assert await store.materialise(fence, 5, rows(9, 5), []) == Committed()
        assert (await store.stats()).objects == 10


async def test_bytes_beyond_the_limit_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with opened(tmp_path, object_bytes_max=20_000) as (store, _):
        fence = await lead(store)
        await commit_all(store, fence, chain(3))
        assert await store.materialise(fence, 1, rows(10, 1, 1000), []) == Committed()
        refused = await store.materialise(fence, 2, rows(10, 2, 2000), [])
        assert isinstance(refused, Unavailable)
        assert refused.reason == "StoreLimit"
        assert await store.materialise(fence, 2, rows(10, 2, 1000), []) == Committed()


async def test_a_seed_beyond_the_limit_is_refused_and_leaves_the_store_empty(tmp_path: Path) -> None:
    async with opened(tmp_path, objects_max=10) as (store, _):
        with pytest.raises(StoreError, match="limited to 10 objects"):
            await store.seed(EMPTY, in_chunks(rows(8), [("node/a", 1, b""), ("node/b", 1, b""), ("node/c", 1, b"")]))
        assert await collect(await store.load()) == {}


async def test_a_materialisation_of_many_pieces_is_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        fence = await lead(store)
        await commit_all(store, fence, chain(2))
        assert await store.materialise(fence, 1, rows(700, 1, 4000), []) == Committed()
        gone = [key for key, _, _ in rows(500)]
        assert await store.materialise(fence, 2, [("node/z", 2, b"z" * 900_000)], gone) == Committed()
        found = await collect(await store.load())
        assert len(found) == 201
        assert found["node/z"] == (2, b"z" * 900_000)


# Late and lost requests that the network tests cannot aim precisely enough


async def test_a_piece_of_an_old_leaders_materialisation_does_not_land_after_a_takeover(tmp_path: Path) -> None:
    async with opened(tmp_path) as (old, client), opened(tmp_path) as (new, _):
        fence = await lead(old, "old")
        await commit_all(old, fence, chain(1))
        client.fault, client.picks = EtcdFault(UNKNOWN, "lost"), lambda success: len(success) == TXN_OPERATIONS_MAX
        assert isinstance(await old.materialise(fence, 1, rows(300, 1), []), OutcomeUnknown)
        await lead(new, "new")
        assert not await client.land()
        assert "node/00000" not in await collect(await new.load())
        assert isinstance(await old.materialise(fence, 1, rows(300, 1), []), Fenced)


async def test_a_piece_given_up_does_not_land_once_the_next_materialisation_began(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, client):
        fence = await lead(store)
        await commit_all(store, fence, chain(3))
        assert await store.materialise(fence, 1, rows(300, 1), []) == Committed()
        client.fault, client.picks = EtcdFault(UNKNOWN, "lost"), lambda success: len(success) == TXN_OPERATIONS_MAX
        assert isinstance(await store.materialise(fence, 2, rows(300, 2), []), OutcomeUnknown)
        # The next one is interrupted too, after its first pieces and before `materialised` moves.
        client.fault, client.picks = EtcdFault(UNKNOWN, "lost"), lambda success: len(success) == 61
        assert isinstance(await store.materialise(fence, 3, rows(300, 3), []), OutcomeUnknown)
        client.kept.pop()
        assert not await client.land()
        found = await collect(await store.load())
        assert {found[key][0] for key, _, _ in rows(240)} == {3}


async def test_two_store_objects_under_one_fence_do_not_get_stuck(tmp_path: Path) -> None:
    async with opened(tmp_path) as (one, _), opened(tmp_path) as (two, _):
        fence = await lead(one)
        await commit_all(one, fence, chain(3))
        assert await one.materialise(fence, 1, rows(1, 1), []) == Committed()
        assert await two.materialise(fence, 2, rows(1, 2), []) == Committed()
        assert await one.materialise(fence, 3, rows(1, 3), []) == Committed()
        assert await collect(await two.load()) == {"node/00000": (3, b"x" * 8)}


async def test_a_truncation_that_lands_late_does_not_go_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, client):
        fence = await lead(store)
        await commit_all(store, fence, chain(4))
        assert await store.materialise(fence, 4, [], []) == Committed()
        client.fault = EtcdFault(UNKNOWN, "lost")
        assert isinstance(await store.truncate(fence, 2, b"two"), OutcomeUnknown)
        assert await store.truncate(fence, 3, b"three") == Committed()
        assert not await client.land()
        head = await store.head()
        assert (head.truncated, head.anchor) == (3, b"three")


async def test_a_truncation_that_lands_after_a_takeover_forgets_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (old, client), opened(tmp_path) as (new, _):
        fence, batches = await lead(old, "old"), chain(3)
        await commit_all(old, fence, batches)
        assert await old.materialise(fence, 3, [], []) == Committed()
        client.fault = EtcdFault(UNKNOWN, "lost")
        assert isinstance(await old.truncate(fence, 2, b"two"), OutcomeUnknown)
        await lead(new, "new")
        assert not await client.land()
        assert await whole_tail(new) == batches


async def test_an_old_leader_does_not_get_as_far_as_the_guard_of_the_new_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as (old, client), opened(tmp_path) as (new, _):
        fence = await lead(old, "old")
        await commit_all(old, fence, chain(2))
        successor = await lead(new, "new")
        assert await new.materialise(successor, 2, rows(1, 2), []) == Committed()
        guard = (await client.range(Get(Keys(str(tmp_path)).materialised))).kvs
        assert isinstance(await old.materialise(fence, 1, rows(1, 1), []), Fenced)
        assert (await client.range(Get(Keys(str(tmp_path)).materialised))).kvs == guard


async def test_a_commit_that_a_full_disk_took_all_the_same_is_already_there(tmp_path: Path) -> None:
    """etcd applies the transaction that crosses its quota and answers with an error."""
    async with opened(tmp_path) as (store, client):
        client.fault, client.does_it_first = EtcdFault(DISK_FULL, "full"), True
        fence = await store.acquire("leader", EMPTY)
        assert isinstance(fence, Fence)
        client.fault = EtcdFault(DISK_FULL, "full")
        assert await store.commit(fence, batch_after(None)) == AlreadyThere()


async def test_a_commit_that_a_full_disk_refused_is_absent(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, client):
        fence = await lead(store)
        client.fault = EtcdFault(DISK_FULL, "full")
        refused = await store.commit(fence, batch_after(None))
        assert isinstance(refused, Unavailable)
        assert refused.reason == "DiskFull"
        assert await whole_tail(store) == []


async def test_a_full_cluster_refuses_writes_until_there_is_space_again(tmp_path: Path) -> None:
    cluster = EtcdCluster(size=1, quota_bytes=16 * 1024 * 1024).start()
    store = EtcdStore(cluster.endpoints, "/plane")
    try:
        await store.open()
        fence = await lead(store)
        acknowledged: list[Batch] = []
        batch = batch_after(None, b"x" * 1_000_000)
        while (result := await store.commit(fence, batch)) in (Committed(), AlreadyThere()):
            acknowledged.append(batch)
            batch = batch_after(batch, b"x" * 1_000_000)
        assert isinstance(result, Unavailable)
        assert result.reason == "DiskFull"
        assert "etcdctl alarm disarm" in result.detail
        assert await whole_tail(store) == acknowledged
        assert "NOSPACE" in (await store.stats()).detail["alarms"]
        make_space(cluster, (await store.head()).position)
        assert await store.commit(fence, batch) == Committed()
    finally:
        await store.close()
        cluster.stop()


def make_space(cluster: EtcdCluster, position: int) -> None:
    """What an operator does, with the oldest batches as the ones that can go."""
    ctl = [str(binary().with_name("etcdctl")), f"--endpoints={cluster.endpoints[0]}"]
    keys = Keys("/plane")
    steps = [["del", keys.row(0).decode(), keys.row(position - 2).decode()], ["get", "-w", "fields", "x"]]
    outputs = [subprocess.run([*ctl, *step], check=True, capture_output=True, text=True).stdout for step in steps]
    revision = next(line.split()[-1] for line in outputs[1].splitlines() if "Revision" in line)
    for step in (["compact", revision, "--physical"], ["defrag"], ["alarm", "disarm"]):
        subprocess.run([*ctl, *step], check=True, capture_output=True)


# Reads


async def test_a_load_survives_one_truncation_and_fails_cleanly_when_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.etcd.REVISIONS_KEPT_S", 0.0)
    async with opened(tmp_path) as (store, _):
        fence = await lead(store)
        await commit_all(store, fence, chain(6))
        assert await store.materialise(fence, 2, rows(100, 1), []) == Committed()
        checkpoint = await store.load()
        assert await store.materialise(fence, 6, rows(100, 6), []) == Committed()
        assert await store.truncate(fence, 2, b"a") == Committed()
        assert {position for position, _ in (await collect(checkpoint)).values()} == {1}
        overtaken = await store.load()
        assert await store.materialise(fence, 6, rows(100, 6), []) == Committed()
        assert await store.truncate(fence, 4, b"b") == Committed()
        assert await store.truncate(fence, 6, b"c") == Committed()
        with pytest.raises(StoreUnreachable, match="compacted"):
            await collect(overtaken)


async def breaks_off() -> AsyncIterator[list[ObjectRow]]:
    yield rows(3)
    raise asyncio.CancelledError


async def test_an_interrupted_seed_is_invisible_and_can_be_seeded_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        with pytest.raises(asyncio.CancelledError):
            await store.seed(EMPTY, breaks_off())
        assert await collect(await store.load()) == {}
        await store.seed(EMPTY, in_chunks([("node/a", 1, b"a")]))
        assert await collect(await store.load()) == {"node/a": (1, b"a")}


async def test_the_end_of_a_seed_does_not_land_once_another_seed_began(tmp_path: Path) -> None:
    """Its rows are deleted by then, so its head would speak of objects that are not there."""
    async with opened(tmp_path) as (store, client):
        names_a_head = Keys(str(tmp_path)).head
        client.picks = lambda success: any(operation.key == names_a_head for operation in success)
        client.fault = EtcdFault(UNKNOWN, "lost")
        with pytest.raises(StoreUnreachable):
            await store.seed(replace(EMPTY, position=7, materialised=7), in_chunks(rows(2)))
        with pytest.raises(asyncio.CancelledError):
            await store.seed(EMPTY, breaks_off())
        assert not await client.land()
        assert await store.head() == EMPTY


async def test_a_damaged_journal_row_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, client):
        fence = await lead(store)
        await commit_all(store, fence, chain(2))
        row = Keys(str(tmp_path)).row(2)
        value = (await client.range(Get(row))).kvs[0].value
        await client.put(row, value[:-1] + b"?")
        with pytest.raises(Corrupt, match="00002"):
            await store.tail(0)
        await client.delete_range(Keys(str(tmp_path)).leader)
        with pytest.raises(Corrupt, match="leader"):
            await store.head()


async def test_an_acquisition_repeated_after_its_answer_was_lost_names_its_own_holder(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, client):
        client.fault, client.does_it_first = EtcdFault(UNKNOWN, "lost"), True
        assert isinstance(await store.acquire("me", EMPTY), OutcomeUnknown)
        again = await store.acquire("me", EMPTY)
        assert isinstance(again, Contended)
        assert again.head.fence() == Fence(EMPTY.incarnation, 1, "me")


# Warnings


async def test_a_version_that_forks_data_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if not (3, 5, 0) <= version_of(binary()) <= (3, 5, 2):
        pytest.skip(f"the etcd here is {version_of(binary())}, which has no such fault")
    with caplog.at_level(logging.WARNING, logger="fairlead.store.etcd_client"):
        async with opened(tmp_path) as (store, _):
            stats = await store.stats()
            await store.stats()
    assert "upgrade to 3.5.3" in stats.detail["version_warning"]
    assert len([record for record in caplog.records if "3.5.0 to 3.5.2" in record.getMessage()]) == 1


async def test_etcds_own_history_is_kept_for_a_while_so_that_a_reader_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (store, client):
        compacted: list[int] = []

        async def compact(revision: int) -> None:
            compacted.append(revision)

        monkeypatch.setattr(client, "compact", compact)
        fence = await lead(store)
        await commit_all(store, fence, chain(5))
        assert await store.materialise(fence, 5, rows(1), []) == Committed()
        for through in (1, 2):
            assert await store.truncate(fence, through, b"anchor") == Committed()
        assert compacted == [], "whoever reads at an older revision goes on"
        await store._forget_revisions(7, at_once=True)
        assert compacted == [7]
