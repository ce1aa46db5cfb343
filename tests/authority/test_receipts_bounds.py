"""Receipts where their bounds meet others': a batch that is taken back, more refusals than are kept."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority import receipts as receipting
from fairlead.model.commands import Delete, IdempotencyKey, SessionId
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import OPERATOR, no, ok, running_plane
from tests.authority.test_receipts import tenant


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
