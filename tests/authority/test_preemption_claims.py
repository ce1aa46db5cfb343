"""Claims in flight at the authority (S19): what is freed is counted once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairlead.authority.judge import victims
from fairlead.model.commands import BindGang
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.resources import DeviceAsk, DeviceHold, Resources
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import agent_of, gpu, move_of, no, ok, report_of, running_plane
from tests.authority.preemption_stage import HIGH, LOW, TOP, Stage, violations


async def test_several_claims_stand_on_one_node_and_none_of_them_sells_what_another_frees() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=3000)
        for n in range(3):
            await stage.place(f"low-{n}", LOW)
            await stage.wait(f"high-{n}", HIGH)
        await stage.wait("other-0", LOW, cpu=1)
        for n in range(3):
            ok(await stage.claim(f"high-{n}", f"low-{n}"))
            no(await stage.claim("other-0"), "NoFit")
        await stage.wait("more-0", TOP)
        no(await stage.claim("more-0", "low-0"), "VictimNotAllowed")
        for n in range(3):
            await stage.gone(f"low-{n}")
            no(await stage.claim("other-0"), "NoFit")
        assert stage.free() == (0, 0)
    assert violations(disk) == []


async def test_what_a_large_victim_leaves_over_is_not_sold_before_it_is_gone() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=3000)
        await stage.place("large-0", LOW, cpu=2000)
        await stage.place("low-0", LOW)
        await stage.wait("high-0", HIGH)
        await stage.wait("high-1", HIGH, cpu=2000)
        await stage.wait("other-0", LOW)
        ok(await stage.claim("high-0", "large-0"))
        no(await stage.claim("other-0"), "NoFit")
        no(await stage.claim("high-1", "low-0"), "NoFit")
        await stage.gone("large-0")
        ok(await stage.claim("other-0"))


async def test_a_claim_in_flight_is_over_when_its_victim_is_gone_or_its_claimer_has_started() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=2000)
        for node, names in {"n1": ("a-0", "a-1"), "n2": ("b-0", "b-1")}.items():
            for name in names:
                await stage.place(name, LOW, node)
        for n in range(3):
            await stage.wait(f"high-{n}", HIGH)
        await stage.wait("large-0", HIGH, cpu=2000)
        ok(await stage.claim("high-0", "a-0"))
        await stage.gone("a-0")
        no(await stage.claim("large-0", "a-1"), "NoFit")
        ok(await stage.claim("high-1", "b-0", node="n2"))
        ok(await plane.send(agent_of("n2"), report_of("batch", "high-1", SlotState.STARTING)))
        no(await stage.claim("high-2", "b-1", node="n2"), "NoFit")


async def test_shares_of_one_device_are_claimed_one_after_the_other() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=9000, devices=(gpu("g0"),))
        for n, share in enumerate((600, 400)):
            await stage.place(f"low-{n}", LOW, devices=(DeviceAsk(share_thousandths=share),))
            await stage.wait(f"high-{n}", HIGH, devices=(DeviceAsk(share_thousandths=share),))
        ok(await stage.claim("high-0", "low-0"))
        ok(await stage.claim("high-1", "low-1"))
    assert violations(disk) == []


async def test_a_victim_that_is_bound_again_counts_in_full_even_while_its_claimer_still_waits() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("low-0", LOW)
        await stage.place("fill-0", LOW)
        await stage.wait("high-0", HIGH)
        ok(await stage.claim("high-0", "low-0"))
        await stage.gone("low-0")
        ok(await plane.send(stage.callers[Role.DISRUPTION], move_of("batch", "fill-0", SlotState.DRAINING)))
        await stage.gone("fill-0")
        ok(await plane.request("batch", "low", 0, stage.callers[Role.REPAIR], epoch=2, priority=LOW))
        ok(await stage.send(stage.bind("low-0", epoch=2)))
        await stage.wait("late-0", HIGH, cpu=1)
        life = stage.binding("low-0").spec.token
        ok(await plane.send(stage.callers[Role.DISRUPTION], move_of("batch", "low-0", SlotState.DRAINING, token=life)))
        account = plane.authority._ctx.ledger.node("n1")
        assert victims._in_flight(plane.authority._ctx, account) == []


async def test_an_exclusive_device_changes_hands_through_start_after() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=9000, devices=(gpu("g0"), gpu("g1")))
        await stage.place("low-0", LOW, devices=(DeviceAsk(count=2),))
        await stage.wait("high-0", HIGH, devices=(DeviceAsk(count=1),))
        await stage.wait("high-1", HIGH, devices=(DeviceAsk(count=1),))
        no(await stage.claim("high-0"), "NoFit")
        ok(await stage.claim("high-0", "low-0"))
        assert stage.binding("high-0").spec.devices == (DeviceHold(id="g0"),)
        no(await stage.claim("high-1"), "NoFit")
        await stage.gone("low-0")
        ok(await stage.claim("high-1"))
        assert stage.binding("high-1").spec.devices == (DeviceHold(id="g1"),)
    assert violations(disk) == []


async def test_a_gang_may_claim_and_is_refused_whole_when_one_claim_is() -> None:
    async with running_plane() as plane:
        stage = Stage(plane)
        await stage.furnish("n1", cpu=2000)
        await stage.place("low-0", LOW)
        await stage.place("low-1", LOW)
        for n in range(2):
            await stage.wait(f"g-{n}", HIGH, gang="g", gang_size=2)
        same = (stage.bind("g-0", "n1", "low-0"), stage.bind("g-1", "n1", "low-0"))
        no(await stage.send(BindGang(same)), "GangRefused")
        assert stage.binding("low-0").status.state is SlotState.BOUND
        ok(await stage.send(BindGang((stage.bind("g-0", "n1", "low-0"), stage.bind("g-1", "n1", "low-1")))))


def test_a_victim_that_leaves_another_node_frees_nothing_on_the_one_where_it_was_claimed() -> None:
    """It was bound anew there, and its claimer has been written since: the age of both says nothing any more."""
    leaving = SimpleNamespace(node="n2", state=SlotState.DRAINING, requests=Resources(cpu=1000), devices=(), borrowed=False)
    claimer = SimpleNamespace(node="n1", start_after=("t/low-0",), requests=Resources(cpu=1000), devices=(), borrowed=False)
    account: Any = SimpleNamespace(claims=[SimpleNamespace(hot=claimer, position=9)])
    ctx: Any = SimpleNamespace(state=SimpleNamespace(get=lambda *_: SimpleNamespace(hot=leaving, position=8)))
    assert victims._in_flight(ctx, account) == []
    leaving.node = "n1"
    assert [credit.cpu_free for credit in victims._in_flight(ctx, account)] == [1000]
