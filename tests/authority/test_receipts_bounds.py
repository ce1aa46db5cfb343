"""Receipts where bounds meet: a batch that is taken back, more refusals than are kept, keys that a start has loaded."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority import receipts as receipting
from fairlead.authority.receipts import KEY_RETENTION_MS, WINDOW_MAX
from fairlead.model.commands import Command, Delete, IdempotencyKey, SessionId
from fairlead.store.contract import BATCH_BYTES_MAX
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import OPERATOR, FakeClock, no, ok, running_plane
from tests.authority.test_receipts import put_tenant, tenant


@pytest.mark.parametrize("identity", [SessionId("c", 1), IdempotencyKey("k")])
async def test_a_refusal_that_was_answered_holds_also_after_a_later_batch_is_taken_back(
    identity: SessionId | IdempotencyKey,
) -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        no(await plane.send(OPERATOR, Delete("Tenant", "", "a"), identity), "NotFound")
        faults.always["commit"] = DISK_FULL
        no(await plane.send(OPERATOR, tenant("b"), SessionId("c", 2)), "StoreUnavailable")
        del faults.always["commit"]
        ok(await plane.send(OPERATOR, tenant("a")))
        no(await plane.send(OPERATOR, Delete("Tenant", "", "a"), identity), "NotFound")
        assert plane.authority.view().get("tenants", "", "a") is not None


async def test_a_refusal_that_rested_on_what_was_taken_back_is_forgotten() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        ok(await plane.send(OPERATOR, tenant("a")))
        faults.once("commit", DISK_FULL)
        going = plane.send(OPERATOR, Delete("Tenant", "", "a"))
        again = plane.send(OPERATOR, Delete("Tenant", "", "a"), SessionId("c", 1))
        outcomes = await asyncio.gather(going, again)
        no(outcomes[0], "StoreUnavailable")
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "a"), SessionId("c", 1)))


async def test_a_refusal_that_a_session_has_no_room_for_is_too_old_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipting, "WINDOW_MAX", 3)
    async with running_plane() as plane:
        for number in range(5):
            no(await plane.send(OPERATOR, Delete("Tenant", "", f"t{number}"), SessionId("c", number)), "NotFound")
        for number in range(5):
            ok(await plane.send(OPERATOR, tenant(f"t{number}")))
        for number in range(5):
            reason = "NotFound" if number >= 2 else "ReceiptExpired"
            no(await plane.send(OPERATOR, Delete("Tenant", "", f"t{number}"), SessionId("c", number)), reason)


async def test_old_keys_are_forgotten_also_where_a_start_has_loaded_younger_ones_before_them() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    half_s = KEY_RETENTION_MS / 2000 + 60.0
    async with running_plane(MemoryStore(disk), clock) as plane:
        for number in range(10):
            ok(await put_tenant(plane, f"old{number}", f"old{number}"))
        clock.offset += half_s
        for number in range(10):
            ok(await put_tenant(plane, f"new{number}", f"new{number}"))
    async with running_plane(MemoryStore(disk), clock) as plane:
        clock.offset += half_s
        async with asyncio.timeout(60):
            while plane.authority._state.count("receipts") > 10:
                await asyncio.sleep(0.01)
        for number in range(10):
            assert ok(await put_tenant(plane, f"new{number}", f"new{number}")).replayed


async def test_sessions_with_long_names_in_their_windows_do_not_make_a_batch_longer_than_a_store_takes() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        clients = [f"c{number}" for number in range(12)]
        for client in clients:
            made = [Command(OPERATOR, tenant(f"{client}-{n}-{'x' * 50}"), SessionId(client, n)) for n in range(WINDOW_MAX)]
            for outcome in await plane.authority.submit(made):
                ok(outcome)
        together = [Command(OPERATOR, tenant(f"{client}-last"), SessionId(client, WINDOW_MAX)) for client in clients]
        for outcome in await plane.authority.submit(together):
            ok(outcome)
    assert max(len(entry.batch.blob) for entry in disk.journal) <= BATCH_BYTES_MAX
