"""What the pipeline does when the store answers late, wrongly or not at all (P1, P3), and when somebody else takes over (P4)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority import follower
from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.hub import Expired
from fairlead.authority.judge import Settings
from fairlead.model.commands import (
    Accepted,
    Caller,
    Command,
    Delete,
    IdempotencyKey,
    Move,
    Outcome,
    Put,
    Refused,
    Report,
    Unknown,
)  # fmt: skip
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.ports import SystemIds, Tasks
from fairlead.store.contract import Fence
from fairlead.store.memory import Fault, MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, LAND_LATER, LOSE_ANSWER, HandFaults
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, bind_of, no, ok, running_plane


def tenant(name: str, weight: int = 1, mode: str = "upsert") -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name), spec=TenantSpec(weight=weight)), mode=mode)  # type: ignore[arg-type]


async def put(plane: PlaneForTest, name: str, **fields: object) -> Outcome:
    return await plane.send(OPERATOR, tenant(name, **fields), IdempotencyKey(name))  # type: ignore[arg-type]


async def test_a_lost_answer_is_resolved_by_sending_the_same_batch_again() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        faults.once("commit", LOSE_ANSWER)
        first = ok(await put(plane, "a"))
        assert plane.authority.meters.commit_unknown_total == 1
        assert ok(await put(plane, "a")).revision == first.revision


async def test_a_batch_that_lands_late_takes_effect_once_whichever_copy_wins() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        faults.once("commit", LAND_LATER, LAND_LATER)
        ok(await put(plane, "a"))
        position = plane.authority.view().revision
        for write in list(faults.held):
            write.land()
        ok(await put(plane, "b"))
        assert plane.authority.view().revision > position
        assert [r.name for r in (await plane.authority.view().page("tenants")).items] == ["a", "b"]


async def test_once_a_batch_is_in_doubt_not_even_a_refusal_settles_it() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        faults.once("commit", LAND_LATER, DISK_FULL, DISK_FULL)
        sending = asyncio.ensure_future(put(plane, "a"))
        while faults.calls.get("commit", 0) < 3:
            await asyncio.sleep(0)
        faults.held[0].land()
        ok(await sending)


async def test_a_full_disk_refuses_what_it_cannot_keep_says_so_and_recovers() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        ok(await put(plane, "a"))
        before = plane.authority.view().revision
        faults.always["commit"] = DISK_FULL
        refused = no(await put(plane, "b"), "StoreUnavailable")
        assert "DiskFull" in refused.detail
        assert plane.authority.view().get("tenants", "", "a") is not None, "reads go on"
        assert plane.authority.view().revision == before
        del faults.always["commit"]
        assert not ok(await put(plane, "b")).replayed


async def test_commands_judged_on_a_head_that_was_taken_back_are_judged_again() -> None:
    """While the first batch waits for the store, a second creates the same object and a third is refused because it exists:
    when the first turns out not to be written, the second must succeed and the third be judged on that."""
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        gate = faults.hold("commit")
        faults.once("commit", DISK_FULL)
        first = asyncio.ensure_future(put(plane, "a", mode="create"))
        await faults.wait_held("commit")
        second = asyncio.ensure_future(plane.send(OPERATOR, tenant("a", 2, "create"), IdempotencyKey("x")))
        third = asyncio.ensure_future(plane.send(OPERATOR, tenant("a", 3, "create"), IdempotencyKey("y")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not second.done(), "a refusal must not be answered before the head it rests on is durable"
        gate.set()
        no(await first, "StoreUnavailable")
        ok(await second)
        no(await third, "AlreadyExists")
        rec = plane.authority.view().get("tenants", "", "a")
        assert rec is not None
        assert rec.hot.spec.weight == 2
        assert plane.authority._ctx.taken_back == 1, "whoever looked at it before it was durable can tell"


async def test_a_repetition_is_not_answered_before_the_original_is_durable() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        gate = faults.hold("commit")
        original = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        copy = asyncio.ensure_future(put(plane, "a"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not copy.done()
        gate.set()
        assert ok(await copy).revision == ok(await original).revision


async def test_a_deposed_leader_answers_unknown_for_what_was_under_way_and_serves_nothing_more() -> None:
    disk, faults = MemoryDisk(), HandFaults()
    async with running_plane(MemoryStore(disk, faults)) as plane:
        gate = faults.hold("commit")
        under_way = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        queued = asyncio.ensure_future(put(plane, "b"))
        await asyncio.sleep(0.01)
        other = MemoryStore(disk)
        await other.open()
        assert isinstance(await other.acquire("usurper", await other.head()), Fence)
        gate.set()
        assert isinstance(await under_way, Unknown)
        no(await queued, "NotLeader")
        assert plane.authority.meters.deposed_total == 1
        assert isinstance(plane.authority.heartbeat([("n1", 1)]), Refused)
        plane.authority.stop()


async def test_a_refusal_is_answered_only_by_a_leader_whose_lease_still_runs() -> None:
    """The leader was paused beyond its lease; meanwhile another acquired. The refusal it would give is about the past."""
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock, timing=Timing(lease_ttl_s=2.0, renew_s=60.0, poll_s=0.02)) as plane:
        ok(await put(plane, "a"))
        clock.offset += 3.0
        other = MemoryStore(disk)
        await other.open()
        assert isinstance(await other.acquire("usurper", await other.head()), Fence)
        answer = await plane.send(OPERATOR, tenant("a", 1, "create"), IdempotencyKey("z"))
        assert not isinstance(answer, Accepted)
        assert isinstance(answer, Unknown) or answer.reason == "NotLeader", answer
        plane.authority.stop()
        clock.offset += 100.0


async def test_heartbeats_are_acknowledged_only_inside_the_leaders_validity() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock, timing=Timing(lease_ttl_s=2.0, renew_s=60.0, poll_s=0.02)) as plane:
        await plane.add_node("n1")
        assert not isinstance(plane.authority.heartbeat([("n1", 1)]), Refused)
        clock.offset += 2.1
        assert isinstance(plane.authority.heartbeat([("n1", 1)]), Refused)
        plane.authority.stop()
        clock.offset += 100.0


def server_of(disk: MemoryDisk, clock: FakeClock, name: str, faults: HandFaults | None = None) -> Authority:
    timing = Timing(lease_ttl_s=2.0, renew_s=0.3, poll_s=0.02)
    store = MemoryStore(disk, faults)
    return Authority(store, clock, SystemIds(), Settings(region="local"), name=name, timing=timing)


async def test_a_warm_standby_takes_over_after_the_lease_and_nothing_acknowledged_is_lost() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    faults = HandFaults()
    first, second = server_of(disk, clock, "one", faults), server_of(disk, clock, "two")
    async with Tasks() as tasks:
        tasks.start(first.run(), "first")
        await first.wait_leading()
        tasks.start(second.run(), "second")
        sent = Command(OPERATOR, tenant("a"), IdempotencyKey("a"))
        acknowledged = ok((await first.submit([sent]))[0])
        before_ms = first._ctx.plane_ms()
        for call in ("renew", "commit"):
            faults.hold(call)  # the old leader is stuck, and will wake up later
        async with asyncio.timeout(60):
            await second.wait_leading()
        assert second._ctx.plane_ms() >= before_ms, "plane time never goes back"
        assert ok((await second.submit([sent]))[0]).revision == acknowledged.revision
        late = asyncio.ensure_future(first.submit([Command(OPERATOR, tenant("b"), IdempotencyKey("b"))]))
        await faults.wait_held("commit")
        gates, faults.gates = faults.gates, {}
        for gate in gates.values():
            gate.set()
        assert isinstance((await late)[0], Unknown), "the old leader's write must not be acknowledged"
        assert second.view().get("tenants", "", "b") is None
        second.stop()
        first.stop()
    assert disk.head.epoch >= 2


async def test_a_store_that_lost_its_tail_starts_a_new_incarnation() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    first, second = server_of(disk, clock, "one"), server_of(disk, clock, "two")
    async with Tasks() as tasks:
        running = tasks.start(first.run(), "first")
        await first.wait_leading()
        standby = tasks.start(second.run(), "second")
        for name in ("a", "b", "c"):
            ok((await first.submit([Command(OPERATOR, tenant(name))]))[0])
        while second._state.position < first._state.position:
            await clock.sleep(0.01)
        disk.lose_tail(1)
        assert isinstance((await first.submit([Command(OPERATOR, tenant("d"))]))[0], Unknown)
        async with asyncio.timeout(60):
            while not (leader := next((a for a in (first, second) if a.leading), None)):
                await clock.sleep(0.01)
        assert disk.head.incarnation == 2
        assert leader.view().get("tenants", "", "b") is not None
        assert leader.view().get("tenants", "", "c") is None
        with pytest.raises(Expired):
            leader.view((1 << 44) + 1)
        first.stop()
        second.stop()
        await running
        await standby


async def test_a_leader_whose_store_lost_its_tail_leaves_no_objects_beyond_the_head() -> None:
    """Under the same fence, and with nothing to commit that would tell it (simulator, seed 127)."""
    disk, clock = MemoryDisk(), FakeClock()
    server = server_of(disk, clock, "one")
    async with Tasks() as tasks:
        running = tasks.start(server.run(), "server")
        await server.wait_leading()
        for name in ("a", "b", "c"):
            ok((await server.submit([Command(OPERATOR, tenant(name))]))[0])
        assert disk.head.materialised < disk.head.position, "the materialiser has not come by yet"
        assert disk.lose_tail(1) == 1
        async with asyncio.timeout(60):
            while disk.head.incarnation == 1:
                assert disk.head.materialised <= disk.head.position
                await clock.sleep(0.01)
            await server.wait_leading()
        assert server.view().get("tenants", "", "b") is not None
        assert server.view().get("tenants", "", "c") is None
        server.stop()
        await running
    assert "tenants//c" not in disk.objects


class GoesBack(HandFaults):
    """The store loses its last batch between a read of its head and the read of what leads there."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__()
        self._disk = disk
        self.armed = True

    async def before(self, call: str) -> Fault | None:
        if call == "tail" and self.armed:
            self.armed = False
            assert self._disk.lose_tail(1) == 1
        return await super().before(call)


async def test_a_store_that_goes_back_while_it_is_read_is_not_taken_for_a_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator, seed 1 of `tails`: the server ended, and said that a backup should be restored."""
    monkeypatch.setattr(follower, "TAIL_LAG_S", (0.0, 0.0))
    disk, clock = MemoryDisk(), FakeClock()
    async with running_plane(MemoryStore(disk), clock) as plane:
        for name in ("a", "b", "c"):
            ok(await put(plane, name))
    faults = GoesBack(disk)
    async with running_plane(MemoryStore(disk, faults), clock) as plane:
        assert not faults.armed
        assert plane.authority.view().get("tenants", "", "a") is not None


class StaleTail(HandFaults):
    """The first reads of the journal lack its newest batches."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self.reads = reads

    def batches_hidden(self) -> int:
        self.reads -= 1
        return 3 if self.reads >= 0 else 0


@pytest.mark.parametrize("warm", [False, True])
async def test_a_stale_read_of_the_journal_is_read_again_and_is_no_damage(warm: bool) -> None:
    disk, clock = MemoryDisk(), FakeClock()
    first, faults = server_of(disk, clock, "one"), StaleTail(0)
    second = server_of(disk, clock, "two", faults)
    async with Tasks() as tasks:
        running = tasks.start(first.run(), "first")
        await first.wait_leading()
        if warm:
            tasks.start(second.run(), "second")
            while not second.ready:
                await clock.sleep(0.01)
        for name in ("a", "b", "c"):
            ok((await first.submit([Command(OPERATOR, tenant(name))]))[0])
        faults.reads = 5
        running.cancel()
        if not warm:
            tasks.start(second.run(), "second")
        async with asyncio.timeout(60):
            await second.wait_leading()
        assert faults.reads < 0, "it met stale reads"
        assert [r.name for r in (await second.view().page("tenants")).items] == ["a", "b", "c"]
        assert disk.head.incarnation == 1, "nothing was lost"
        second.stop()


async def test_a_full_lane_answers_overloaded_at_once() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        gate = faults.hold("commit")
        calls = [
            asyncio.ensure_future(plane.authority.submit([Command(OPERATOR, tenant(f"t{n}-{m}")) for m in range(2000)]))
            for n in range(14)
        ]
        await asyncio.sleep(0.5)
        refused = [call for call in calls if call.done()]
        assert refused
        assert all(no(outcome, "Overloaded").retry_after_s > 0 for call in refused for outcome in call.result())
        gate.set()
        for call in calls:
            await call


async def test_what_leaves_a_node_in_a_batch_that_is_not_durable_is_still_listed_there() -> None:
    """An agent that is told otherwise forgets it; if the batch is lost, nobody can say any more that it left."""
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        drainer, agent = await plane.as_role(Role.DISRUPTION), Caller("n1", Role.AGENT, node="n1")
        ok(await plane.request("risk", "api", 0, assigner))
        token = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1"))).token
        assert token is not None
        ok(await plane.send(drainer, Move("risk", "api-0", token, SlotState.DRAINING)))
        ok(await plane.send(agent, Report("risk", "api-0", token, SlotState.RELEASED)))
        gate = faults.hold("commit")
        leaving = asyncio.ensure_future(plane.send(assigner, Delete("Binding", "risk", "api-0")))
        await faults.wait_held("commit")
        assert [rec.name for rec in plane.authority.bound_to("n1")] == ["api-0"]
        gate.set()
        ok(await leaving)
        assert plane.authority.bound_to("n1") == []


async def test_a_store_that_says_nothing_for_a_lease_is_said_to_be_silent_until_it_is_heard_again() -> None:
    faults, clock = HandFaults(), FakeClock()
    async with running_plane(MemoryStore(MemoryDisk(), faults), clock) as plane:
        assert plane.authority.store_silent_s is None
        gates = [faults.hold(call) for call in ("renew", "head", "commit")]
        await faults.wait_held("renew")
        clock.offset += 15.0
        assert plane.authority.store_silent_s is None, "not for a whole lease yet"
        clock.offset += 10.0
        silent_s = plane.authority.store_silent_s
        assert silent_s is not None
        assert silent_s > 20
        for gate in gates:
            gate.set()
        while plane.authority.store_silent_s is not None:
            await clock.sleep(0.01)
        await plane.authority.wait_leading()
        ok(await put(plane, "a"))
