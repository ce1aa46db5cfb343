"""What a power cut, a full disk and a failing disk may do to the SQLite store, on tests/rigs/power_loss.py.

`kill -9` cannot show a missing fsync; this rig can, and its negative control shows that it does.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.store.contract import (
    AlreadyThere,
    Batch,
    Committed,
    Fence,
    OutcomeUnknown,
    StoreError,
    Unavailable,
)
from fairlead.store.sqlite import SqliteStore
from tests.rigs.power_loss import FaultyDisk
from tests.store.batches import batch_after, collect, lead, whole_tail

CUTS = 100
CHECKPOINT_BYTES = 64 * 1024
BATCHES = 40
KEYS = 7

disk_names = (f"faulty-{number}" for number in itertools.count())


class Run(msgspec.Struct):
    """What the world was told before the lights went out."""

    fence: Fence | None = None
    sent: list[Batch] = []
    acknowledged: int = 0


def object_state(position: int) -> dict[str, tuple[int, bytes]]:
    """Effect p writes key p % KEYS; every tenth deletes key 0."""
    state: dict[str, tuple[int, bytes]] = {}
    for p in range(1, position + 1):
        state[f"key {p % KEYS}"] = (p, b"%d" % p * 50)
        if p % 10 == 0:
            state.pop("key 0", None)
    return state


async def work(store: SqliteStore, rng: random.Random) -> Run:
    """Commits, materialises and truncates until something is not acknowledged."""
    run = Run()
    try:
        await store.open()
        run.fence = await lead(store)
    except (StoreError, AssertionError):
        return run
    position = 0
    for number in range(BATCHES):
        batch = batch_after(run.sent[-1] if run.sent else None, rng.randbytes(rng.choice([10, 600, 5000, 20000])))
        run.sent.append(batch)
        if await store.commit(run.fence, batch) != Committed():
            return run
        run.acknowledged = number + 1
        if number % 3 == 2:
            upto = rng.randint(position, batch.last)
            before, after = object_state(position), object_state(upto)
            rows = [(key, *row) for key, row in after.items() if before.get(key) != row]
            if await store.materialise(run.fence, upto, rows, [k for k in before if k not in after]) != Committed():
                return run
            position = upto
        if number % 8 == 7 and await store.truncate(run.fence, position - 2, b"a%d" % position) != Committed():
            return run
    return run


async def lost_after_cut(directory: Path, seed: int, cut_at: int, *, sync: bool) -> int:
    """One run, one cut, one recovery: how many acknowledged batches are missing. Checks all the rest as it goes."""
    rng = random.Random(seed)
    live, after = directory / f"live-{seed}", directory / f"after-{seed}"
    live.mkdir()
    after.mkdir()
    disk = FaultyDisk(next(disk_names))
    disk.cut_at = cut_at
    stretched = (
        CHECKPOINT_BYTES * 9 // 8 if seed % 2 else 0
    )  # a log that begins long keeps what an earlier round wrote behind its end
    store = SqliteStore(
        live / "plane.db", vfs=disk.name, checkpoint_bytes=CHECKPOINT_BYTES, log_bytes=stretched,
        loses_acknowledged_data_on_power_cut=not sync,
    )  # fmt: skip
    run = await work(store, rng)
    disk.survivors(after, seed)
    disk.powered = False
    await store.close()
    disk.unregister()
    return await missing(after / "plane.db", run)


async def missing(path: Path, run: Run) -> int:
    store = SqliteStore(path)
    try:
        head = await store.open()
        assert head.position <= len(run.sent), "a batch nobody sent"
        assert head.truncated <= head.materialised <= head.position
        assert await whole_tail(store, head.truncated) == run.sent[head.truncated : head.position]
        assert await collect(await store.load()) == object_state(head.materialised)
        if run.fence is not None and head.position >= run.acknowledged:
            for batch in run.sent[head.position :]:  # at most the one whose outcome nobody knows
                assert await store.commit(run.fence, batch) == Committed()
            if run.sent:
                assert await store.commit(run.fence, run.sent[-1]) == AlreadyThere()
    finally:
        await store.close()
    return max(0, run.acknowledged - head.position)


async def operations_of_a_whole_run(directory: Path) -> int:
    disk = FaultyDisk(next(disk_names))
    store = SqliteStore(directory / "whole.db", vfs=disk.name, checkpoint_bytes=CHECKPOINT_BYTES)
    assert (await work(store, random.Random(0))).acknowledged == BATCHES
    operations = disk.operations
    await store.close()
    disk.unregister()
    return operations


async def test_no_power_cut_loses_an_acknowledged_batch(tmp_path: Path) -> None:
    total = await operations_of_a_whole_run(tmp_path)
    draw = random.Random(2026)
    for seed in range(CUTS):
        assert await lost_after_cut(tmp_path, seed, draw.randint(1, total), sync=True) == 0, f"seed {seed}"


async def test_the_same_cuts_do_lose_batches_when_nothing_is_synced(tmp_path: Path) -> None:
    """The negative control: without it a rig that never drops anything would pass as proof."""
    total = await operations_of_a_whole_run(tmp_path)
    draw = random.Random(2026)
    lost = damaged = 0
    for seed in range(20):
        try:
            lost += await lost_after_cut(tmp_path, seed, draw.randint(total // 3, total // 2), sync=False)
        except (StoreError, AssertionError):
            damaged += 1  # worse than lost: pages of the database and of the log no longer fit
    assert lost > 0, f"{damaged} of 20 were damaged, but none lost a batch"


@pytest.fixture
async def disk() -> AsyncIterator[FaultyDisk]:
    made = FaultyDisk(next(disk_names))
    yield made
    made.unregister()


async def test_a_full_disk_refuses_commits_and_serves_reads_until_there_is_space(disk: FaultyDisk, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "plane.db", vfs=disk.name)
    await store.open()
    fence = await lead(store)
    first = batch_after(None, b"x" * 5000)
    assert await store.commit(fence, first) == Committed()
    disk.full = True
    second = batch_after(first, b"y" * 5000)
    for _ in range(3):
        refused = await store.commit(fence, second)
        assert isinstance(refused, Unavailable)
        assert refused.reason == "DiskFull"
        assert "free space" in refused.detail
    assert isinstance(await store.renew(fence), Unavailable)
    assert isinstance(await store.materialise(fence, 1, [("a", 1, b"a")], []), Unavailable)
    assert (await store.head()).position == 1
    assert await whole_tail(store) == [first]
    assert await collect(await store.load()) == {}
    disk.full = False
    other = batch_after(first, b"another, since the second was certainly not written")
    assert await store.commit(fence, other) == Committed()
    assert await whole_tail(store) == [first, other]
    await store.close()


@pytest.mark.parametrize("failures", [1, 2, 5])
async def test_a_failed_fsync_leaves_the_outcome_unknown_until_the_batch_is_resubmitted(
    disk: FaultyDisk, tmp_path: Path, failures: int
) -> None:
    store = SqliteStore(tmp_path / "plane.db", vfs=disk.name)
    await store.open()
    fence = await lead(store)
    first = batch_after(None)
    await store.commit(fence, first)
    await store.materialise(fence, 1, [("a", 1, b"a")], [])
    disk.failing_syncs = failures
    second = batch_after(first)
    for _ in range(failures):
        assert isinstance(await store.commit(fence, second), OutcomeUnknown)
    assert await store.commit(fence, second) in (Committed(), AlreadyThere())
    assert await store.commit(fence, second) == AlreadyThere()
    assert await whole_tail(store) == [first, second]
    await store.close()


async def test_no_refusal_is_definite_while_an_unknown_outcome_lies_in_the_log(disk: FaultyDisk, tmp_path: Path) -> None:
    """The frames were written, only the sync failed: a crash now would bring the batch to life. So neither a full disk
    nor anything else may call it absent before something has overwritten it."""
    store = SqliteStore(tmp_path / "plane.db", vfs=disk.name)
    await store.open()
    fence = await lead(store)
    batch = batch_after(None)
    disk.failing_syncs = 1
    assert isinstance(await store.commit(fence, batch), OutcomeUnknown)
    disk.full = True
    assert isinstance(await store.commit(fence, batch), OutcomeUnknown)
    disk.full = False
    assert await store.commit(fence, batch) == Committed()
    disk.full = True
    assert isinstance(await store.commit(fence, batch_after(batch)), Unavailable)
    await store.close()


async def test_after_a_failed_fsync_nothing_is_acknowledged_before_the_log_was_copied(disk: FaultyDisk, tmp_path: Path) -> None:
    """A materialisation is not synced by itself. If the sync that would have covered it fails, the kernel may drop its
    pages and call the next sync a success; only a copy in the database makes what follows safe."""
    store = SqliteStore(tmp_path / "plane.db", vfs=disk.name)
    await store.open()
    fence = await lead(store)
    first = batch_after(None)
    await store.commit(fence, first)
    await store.materialise(fence, 1, [("a", 1, b"a lagging row")], [])
    disk.failing_syncs = 1
    second = batch_after(first)
    assert isinstance(await store.commit(fence, second), OutcomeUnknown)
    assert b"a lagging row" not in (tmp_path / "plane.db").read_bytes()
    assert await store.commit(fence, second) == Committed()
    assert b"a lagging row" in (tmp_path / "plane.db").read_bytes()
    await store.close()
