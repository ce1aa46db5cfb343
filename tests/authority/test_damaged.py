"""A server does not start on a damaged store: it ends with an error that says where the damage is and offers a restore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority import follower
from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.follower import Behind, Follower, Forked, check_history, following
from fairlead.authority.hot import hot_of
from fairlead.authority.judge import Settings
from fairlead.authority.state import State
from fairlead.model.journal import chain_hash
from fairlead.ports import Clock, SystemClock, SystemIds
from fairlead.store.contract import FORMAT, Corrupt, FormatTooNew, Store, StoreError
from tests.authority.planes import REGION
from tests.store.conftest import Engine, MemoryEngine
from tests.store.filled import drop_row, execute, fill, flip_byte, journal_firsts, place, second_engine


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is missing at the end is taken for a stale read for a while; tests need not wait for that."""
    monkeypatch.setattr(follower, "TAIL_LAG_S", (0.0, 0.0))


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    made = await second_engine(request.param, tmp_path / "plane")
    await fill(made)
    yield made
    await made.close()


async def start(engine: Engine) -> None:
    """As a server starts. It must end by itself, and with an error."""
    await run_on(await engine.open_store())


async def run_on(store: Store) -> None:
    timing = Timing(lease_ttl_s=2.0, renew_s=0.5, poll_s=0.02)
    async with asyncio.timeout(60):  # One that starts all the same would lead for ever.
        await Authority(store, SystemClock(), SystemIds(), Settings(region=REGION), timing=timing).run()


async def forget_materialised(engine: Engine, upto: int) -> None:
    """As after a crash: the objects are behind, so the rows after them are what a start loads."""
    table = "head" if "Sqlite" in type(engine).__name__ else "progress"
    await execute(engine, f"UPDATE {{s}}.{table} SET materialised = {upto}")
    await execute(engine, f"DELETE FROM {{s}}.objects WHERE position > {upto}")


@pytest.mark.parametrize("behind", [False, True], ids=["materialised", "in the tail"])
@pytest.mark.parametrize("row", [0, 3, -1])
async def test_a_flipped_byte_in_a_journal_row_stops_the_start(engine: Engine, row: int, behind: bool) -> None:
    firsts = await journal_firsts(engine)
    if behind:
        await forget_materialised(engine, firsts[row] - 1)
    await flip_byte(engine, firsts[row])
    with pytest.raises(Corrupt, match=rf"journal row {firsts[row]}: .*fairlead store restore"):
        await start(engine)


@pytest.mark.parametrize("behind", [False, True], ids=["materialised", "in the tail"])
@pytest.mark.parametrize("row", [0, 3, -1])
async def test_a_missing_journal_row_stops_the_start(engine: Engine, row: int, behind: bool) -> None:
    firsts = await journal_firsts(engine)
    if behind:
        await forget_materialised(engine, firsts[row] - 1)
    await drop_row(engine, firsts[row])
    with pytest.raises(Corrupt, match=rf"journal (row {firsts[row + 1]}|after {firsts[row] - 1}): .*fairlead store restore"):
        await start(engine)


@pytest.mark.parametrize("harm", [flip_byte, drop_row], ids=["flipped", "missing"])
@pytest.mark.parametrize("row", [0, 3, 4, -1])
async def test_loading_finds_what_is_wrong_with_the_tail_by_itself(
    engine: Engine, row: int, harm: Callable[[Engine, int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at the start is skipped while the store is out of reach. Damage is no fork, and begins no new incarnation."""

    async def skipped(store: Store, clock: Clock) -> None:
        pass

    monkeypatch.setattr("fairlead.authority.candidate.check_history", skipped)
    firsts = await journal_firsts(engine)
    await forget_materialised(engine, firsts[3] - 1 if row == 4 else firsts[row] - 1)
    await harm(engine, firsts[row])
    with pytest.raises(Corrupt, match=r"journal (row|after) \d+: .*fairlead store restore"):
        await start(engine)
    assert (await (await engine.open_store()).head()).incarnation == 1


async def test_a_head_that_names_another_batch_stops_the_start(engine: Engine) -> None:
    await execute(engine, f"UPDATE {{s}}.head SET hash = {place(engine, 1)}", b"\7" * 32)
    with pytest.raises(Corrupt, match=r"head: .*fairlead store restore"):
        await start(engine)


async def test_a_row_of_another_history_stops_the_start() -> None:
    """Sound in itself, already materialised, and not what the row before it led to. Only the chain tells."""
    memory = MemoryEngine()
    await fill(memory)
    entry = memory.disk.journal[2]
    forged = replace(entry.batch, previous=b"\5" * 32, hash=chain_hash(b"\5" * 32, entry.batch.blob))
    memory.disk.journal[2] = replace(entry, batch=forged)
    with pytest.raises(Corrupt, match=rf"journal row {forged.first}: it continues another history.*fairlead store restore"):
        await start(memory)


@pytest.mark.parametrize("taken_over", [False, True], ids=["the same leads", "another leads since"])
@pytest.mark.parametrize("what", ["check", "load"])
async def test_what_does_not_fit_together_is_no_damage_where_another_leads_since_it_was_read(taken_over: bool, what: str) -> None:
    """Simulator, seed 40005 of `tails`: between two reads the store lost its tail, and whoever led next wrote another one."""
    memory = MemoryEngine()
    await fill(memory)
    disk = memory.disk
    store: Any = await memory.open_store()
    disk.head = replace(disk.head, materialised=0)
    disk.objects.clear()
    sound, read, forged_once = list(disk.journal), store.tail, False

    async def tail(after: int) -> Any:
        """One row at a time; after the first, what follows is another history."""
        nonlocal forged_once
        found = (await read(after))[:1]
        if not forged_once:
            forged_once = True
            entry = disk.journal[1]
            forged = replace(entry.batch, previous=b"\5" * 32, hash=chain_hash(b"\5" * 32, entry.batch.blob))
            disk.journal[1] = replace(entry, batch=forged)
            if taken_over:
                disk.head = replace(disk.head, epoch=disk.head.epoch + 1, holder="another")
        elif taken_over and after:
            disk.journal[:] = sound  # it is whole by the next look
        return found

    store.tail = tail
    if what == "check":
        if taken_over:
            await check_history(store, SystemClock())
        else:
            with pytest.raises(Corrupt, match="continues another history"):
                await check_history(store, SystemClock())
        return
    reading = Follower(store, SystemClock(), State(hot_of, 100), lambda recs: None)
    head = await reading.load()
    with pytest.raises(Forked if taken_over else Corrupt, match="continues another history"):
        await reading.catch_up(head)


@pytest.mark.parametrize("led", ["by the same", "by another since", "by another when it was loaded"])
async def test_a_head_that_memory_does_not_lead_to_is_no_damage_where_another_leads_since(led: str) -> None:
    """Simulator, seed 1200461 of `tails`: the head was read, then the store lost its tail and grew to the same position again,
    and only then the journal was read."""
    memory = MemoryEngine()
    await fill(memory)
    disk = memory.disk
    store: Any = await memory.open_store()
    disk.head = replace(disk.head, materialised=0)
    disk.objects.clear()
    reading = Follower(store, SystemClock(), State(hot_of, 100), lambda recs: None)
    lost = replace(await store.head(), hash=b"\5" * 32)
    if led == "by another when it was loaded":
        disk.head = replace(disk.head, epoch=disk.head.epoch + 1, holder="another")
    await reading.load()
    if led == "by another since":
        disk.head = replace(disk.head, epoch=disk.head.epoch + 1, holder="another")
    with pytest.raises(Corrupt if led == "by the same" else Forked, match="another history"):
        await reading.catch_up(lost)


@pytest.mark.parametrize("taken_over", [False, True])
async def test_objects_that_were_loaded_before_another_led_are_not_continued(taken_over: bool) -> None:
    """The store lost its tail after its objects were read, and has grown again: a batch of the new history begins right after the
    last position of the old one, and nothing in memory says which history that was."""
    memory = MemoryEngine()
    await fill(memory)
    disk = memory.disk
    store: Any = await memory.open_store()
    last = disk.journal.pop()
    disk.head = replace(disk.head, position=last.batch.first - 1, materialised=last.batch.first - 1, hash=last.batch.previous)
    disk.objects = {key: row for key, row in disk.objects.items() if row[0] < last.batch.first}
    reading = Follower(store, SystemClock(), State(hot_of, 100), lambda recs: None)
    await reading.load()
    other = replace(last.batch, previous=b"\5" * 32, hash=chain_hash(b"\5" * 32, last.batch.blob))
    disk.journal.append(replace(last, batch=other))
    disk.head = replace(disk.head, position=other.last, hash=other.hash)
    if taken_over:
        disk.head = replace(disk.head, epoch=disk.head.epoch + 1, holder="another")
        with pytest.raises(Behind, match="may be of another history"):
            await reading.catch_up(disk.head)
    else:
        await reading.catch_up(disk.head)  # the same leads: what follows is what it wrote


@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_journal_that_ends_before_its_head_is_no_damage_where_another_leads_since(taken_over: bool) -> None:
    """Simulator, seed 7003 of `tails`: the store lost its tail, and had grown beyond that place again at the next look."""
    memory = MemoryEngine()
    await fill(memory)
    disk = memory.disk
    store: Any = await memory.open_store()
    head = await store.head()
    last = disk.journal.pop()
    if taken_over:
        disk.head = replace(disk.head, epoch=disk.head.epoch + 1, holder="another")
    with pytest.raises(Forked if taken_over else Corrupt):
        await following(store, SystemClock(), last.batch.first - 1, head)


async def test_a_place_within_a_batch_is_another_history_and_no_damage() -> None:
    """Simulator, seed 1000790 of `tails`: memory ended where a lost batch had ended, and the one that took its place goes
    on beyond it, so that no row begins after it."""
    memory = MemoryEngine()
    await fill(memory)
    disk = memory.disk
    store: Any = await memory.open_store()
    disk.journal[:] = disk.journal[:-1]
    before = disk.journal[-1].batch
    wide = replace(before, last=before.last + 3)
    disk.journal[-1] = replace(disk.journal[-1], batch=wide)
    disk.head = head = replace(disk.head, position=wide.last)
    for after in range(wide.first, wide.last):
        with pytest.raises(Forked, match=rf"lies within the batch that begins at {wide.first}:"):
            await following(store, SystemClock(), after, head)
    disk.head = head = replace(head, position=wide.last + 1)
    with pytest.raises(Corrupt, match=rf"journal after {wide.last}: "):
        await following(store, SystemClock(), wide.last, head)


async def test_an_object_that_cannot_be_read_stops_the_start(engine: Engine) -> None:
    await execute(engine, f"UPDATE {{s}}.objects SET value = {place(engine, 1)} WHERE key = 'nodes//n0'", b"\xc1")
    with pytest.raises(Corrupt, match=r"object nodes//n0: .*fairlead store restore"):
        await start(engine)


async def test_an_anchor_that_cannot_be_read_stops_the_start(engine: Engine) -> None:
    firsts = await journal_firsts(engine)
    await drop_row(engine, firsts[0])
    await execute(engine, f"UPDATE {{s}}.head SET truncated = {firsts[1] - 1}, anchor = {place(engine, 1)}", b"\xc1")
    with pytest.raises(Corrupt, match=r"anchor: .*fairlead store restore"):
        await start(engine)


async def test_a_newer_format_is_refused_with_what_to_do(engine: Engine) -> None:
    store = await engine.open_store()
    await engine.write_format(FORMAT + 1)
    with pytest.raises(FormatTooNew, match=rf"format {FORMAT + 1}.*(upgrade Fairlead|newer version)"):
        await run_on(store)
    assert issubclass(FormatTooNew, StoreError)
