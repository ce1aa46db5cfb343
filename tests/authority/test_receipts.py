"""Each command takes effect once: receipts of sessions and of people's keys, across restarts and restores."""

from __future__ import annotations

import asyncio

from fairlead.authority.judge import Settings
from fairlead.authority.receipts import KEY_RETENTION_MS, WINDOW_MAX
from fairlead.model.commands import Accepted, Caller, Command, Delete, IdempotencyKey, Move, Outcome, Put, PutStatus, SessionId
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import (
    OPERATOR,
    FakeClock,
    PlaneForTest,
    agent_of,
    bind_of,
    no,
    ok,
    report_of,
    running_plane,
    token,
)


def tenant(name: str, weight: int = 1) -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name), spec=TenantSpec(weight=weight)))


async def put_tenant(plane: PlaneForTest, name: str, key: str, weight: int = 1) -> Outcome:
    return await plane.send(OPERATOR, tenant(name, weight), IdempotencyKey(key))


async def test_the_same_key_gives_the_same_answer_and_changes_nothing() -> None:
    async with running_plane() as plane:
        first = ok(await put_tenant(plane, "risk", "k1"))
        before = plane.authority.view().revision
        again = ok(await put_tenant(plane, "risk", "k1"))
        assert (again.revision, again.uid, again.key) == (first.revision, first.uid, first.key)
        assert again.replayed
        assert plane.authority.view().revision == before


async def test_a_key_used_again_with_another_body_is_an_error_that_says_so() -> None:
    async with running_plane() as plane:
        ok(await put_tenant(plane, "risk", "k1"))
        refused = no(await put_tenant(plane, "risk", "k1", weight=5), "IdReused")
        assert "another body" in refused.detail


async def test_two_people_may_choose_the_same_key() -> None:
    async with running_plane() as plane:
        ok(await put_tenant(plane, "risk", "k1"))
        eve = Caller("eve", Role.OPERATOR)
        other = ok(await plane.send(eve, tenant("billing"), IdempotencyKey("k1")))
        assert not other.replayed


async def test_a_receipt_can_be_asked_for_and_survives_a_restart_and_a_new_leader() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        first = ok(await put_tenant(plane, "risk", "k1"))
        assert plane.authority.receipt("ada", "k2") is None
    async with running_plane(MemoryStore(disk)) as plane:
        receipt = plane.authority.receipt("ada", "k1")
        assert isinstance(receipt, Accepted)
        assert receipt.revision == first.revision
        assert ok(await put_tenant(plane, "risk", "k1")).replayed


async def test_keys_are_forgotten_after_a_day_and_are_new_ones_then() -> None:
    """Nothing tells a text that was used long ago from one that never was (ADR 0041)."""
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        ok(await put_tenant(plane, "risk", "k1"))
        clock.offset += KEY_RETENTION_MS / 1000 + 5
        while plane.authority.receipt("ada", "k1") is not None:
            await clock.sleep(0.05)
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "risk")))
        assert not ok(await put_tenant(plane, "risk", "k1")).replayed
        assert plane.authority.view().get("tenants", "", "risk") is not None


async def test_a_key_is_not_forgotten_by_a_start_whose_wall_clock_is_days_ahead() -> None:
    """Nobody has measured that a day has passed: sent again, the same write would be done twice (P7)."""

    class Wrong(FakeClock):
        days = 0

        def wall(self) -> float:
            return super().wall() + self.days * 86_400.0

    disk, clock = MemoryDisk(), Wrong()
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await put_tenant(plane, "risk", "k1"))
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "risk")))
    for clock.days in (2, 4):
        async with running_plane(MemoryStore(disk), clock) as plane:
            for _ in range(4):  # rounds of its chores
                clock.offset += 1.0
                await clock.sleep(0.02)
            assert ok(await put_tenant(plane, "risk", "k1")).replayed
            assert plane.authority.view().get("tenants", "", "risk") is None
            ok(await put_tenant(plane, "later", f"k{clock.days}"))
    async with running_plane(MemoryStore(disk), clock) as plane:
        clock.offset += KEY_RETENTION_MS / 1000 + 5
        async with asyncio.timeout(60):
            while plane.authority._state.count("receipts"):
                await clock.sleep(0.02)


async def test_a_session_answers_repetitions_and_refuses_what_lies_below_its_floor() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.add_node("n1")
        agent = agent_of("n1")
        status = PutStatus("Node", "", "n1", NodeStatus(schedulable=True, health="Ready", session=2))
        first = ok(await plane.send(agent, status, SessionId("agent-n1", 1)))
        other = PutStatus("Node", "", "n1", NodeStatus(schedulable=True, health="Ready", session=3))
        ok(await plane.send(agent, other, SessionId("agent-n1", 2)))
        again = ok(await plane.send(agent, status, SessionId("agent-n1", 1)))
        assert again.revision == first.revision, "a late copy must not bring the old status back"
        no(await plane.send(agent, other, SessionId("agent-n1", 1)), "IdReused")
    async with running_plane(MemoryStore(disk)) as plane:
        again = ok(await plane.send(agent, status, SessionId("agent-n1", 1)))
        assert again.revision == first.revision
        ok(await plane.send(agent, status, SessionId("agent-n1", 3, floor=3)))
        no(await plane.send(agent, other, SessionId("agent-n1", 2)), "ReceiptExpired")


async def test_a_late_copy_of_a_refused_command_does_not_take_effect_after_all() -> None:
    async with running_plane() as plane:
        await plane.grant("risk")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler, disruption = await plane.as_role(Role.SCHEDULER), await plane.as_role(Role.DISRUPTION)
        drain = Move("risk", "api-0", token(), SlotState.DRAINING)
        no(await plane.send(disruption, drain, SessionId("d", 1)), "NotFound")
        await plane.add_node("n1")
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        no(await plane.send(disruption, drain, SessionId("d", 1)), "NotFound")


async def test_an_answer_that_was_taken_back_is_not_given_again() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        ok(await plane.send(OPERATOR, tenant("a"), SessionId("c", 1)))
        faults.always["commit"] = DISK_FULL
        no(await plane.send(OPERATOR, tenant("b"), SessionId("c", 2)), "StoreUnavailable")
        del faults.always["commit"]
        assert not ok(await plane.send(OPERATOR, tenant("b"), SessionId("c", 2))).replayed
        assert plane.authority.view().get("tenants", "", "b") is not None
        assert ok(await plane.send(OPERATOR, tenant("a"), SessionId("c", 1))).replayed


async def test_a_session_keeps_a_bounded_window() -> None:
    async with running_plane() as plane:
        commands = [Command(OPERATOR, tenant(f"t{n}"), SessionId("bulk", n)) for n in range(WINDOW_MAX + 10)]
        for outcome in await plane.authority.submit(commands):
            ok(outcome)
        no(await plane.send(OPERATOR, tenant("t0"), SessionId("bulk", 0)), "ReceiptExpired")
        assert ok(await plane.send(OPERATOR, tenant("t20"), SessionId("bulk", 20))).replayed


async def test_a_late_copy_of_an_agents_report_does_not_take_the_slot_back() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        agent = agent_of("n1")
        starting = report_of("risk", "api-0", SlotState.STARTING)
        ok(await plane.send(agent, starting, SessionId("a", 1)))
        ok(await plane.send(agent, report_of("risk", "api-0", SlotState.READY), SessionId("a", 2)))
        assert ok(await plane.send(agent, starting, SessionId("a", 1))).replayed
        rec = plane.authority.view().get("bindings", "risk", "api-0")
        assert rec is not None
        assert rec.hot.state is SlotState.READY


async def test_after_a_restore_old_receipts_and_leases_are_refused() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await put_tenant(plane, "risk", "k1"))
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(OPERATOR, tenant("a"), SessionId("c", 7)))
    store = MemoryStore(disk)
    await store.open()
    fence = await store.acquire("restore", await store.head())
    assert not hasattr(fence, "head"), fence
    await store.set_incarnation(fence, 2)  # type: ignore[arg-type]
    await store.resign(type(fence)(2, fence.epoch, "restore"))  # type: ignore[union-attr,call-arg,arg-type]
    async with running_plane(MemoryStore(disk), settings=Settings(region="local")) as plane:
        no(await put_tenant(plane, "risk", "k1"), "ReceiptExpired")
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "FencedOut")
        no(await plane.send(OPERATOR, tenant("a"), SessionId("c", 7)), "ReceiptExpired")
        assert not ok(await plane.send(OPERATOR, tenant("b"), SessionId("c", 8))).replayed
