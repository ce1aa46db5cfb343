"""Nodes that a pool has ordered and that never register: they are given back, and neither the pool nor others wait for them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.client.providing import Providing
from fairlead.controllers.node_pool import CLOSED, Seen, scaled
from fairlead.decide.slots import instant
from fairlead.model.commands import Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Addition, NodePool, NodePoolSpec, NodePoolStatus
from fairlead.model.meta import Metadata
from tests.authority.planes import OPERATOR, REGION, FakeClock, PlaneForTest, agent_of, no, ok, running_plane
from tests.controllers.test_node_pool import SPEC, Pools, Simulated
from tests.controllers.test_node_pool_values import NOW, a_node, pool_after, requests_of

LATE_S = 181.0  # three times what a node takes by default, and a little


class Barren(Simulated):
    """A provider that lets nobody in, or whose machines are approved and never register."""

    def __init__(self, plane: PlaneForTest, *, approves: bool = False, but: tuple[str, ...] = ()) -> None:
        super().__init__(plane)
        self.approves, self.but = approves, but
        self.broken: set[str] = set()  # calls that fail

    async def running(self, pool: str) -> list[str]:
        if f"running {pool}" in self.broken:
            raise OSError(f"nobody knows what runs of {pool}")
        return [name for name in self.machines if name.startswith(f"{REGION}-{pool}-")]

    async def start(self, pool: NodePool, name: str) -> None:
        if pool.metadata.name in self.but:
            await super().start(pool, name)
            return
        if not self.approves:
            raise OSError(f"node {name} is not let in")
        self.machines.append(name)
        node = replace(a_node(name, ""), spec=replace(a_node(name).spec, region=REGION, pool=pool.metadata.name))
        ok(await self._plane.send(OPERATOR, Put("Node", node, mode="create")))

    async def stop(self, pool: str, name: str) -> None:
        if f"stop {name}" in self.broken:
            raise OSError(f"{name} does not stop")
        await super().stop(pool, name)


async def put(plane: PlaneForTest, name: str, spec: NodePoolSpec) -> None:
    ok(await plane.send(OPERATOR, Put("NodePool", NodePool(metadata=Metadata(name=name), spec=spec))))


async def barren(plane: PlaneForTest, clock: FakeClock, spec: NodePoolSpec, **provider: Any) -> Pools:
    await plane.grant("risk")
    await put(plane, "burst", spec)
    pools = Pools(plane, clock)
    pools.provider = Barren(plane, **provider)
    pools._providing = Providing(pools.local, clock, pools.provider)
    return pools


@pytest.mark.parametrize("approves", [False, True])
async def test_a_pool_whose_orders_never_registered_can_be_set_to_nothing_and_deleted(approves: bool) -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await barren(plane, clock, replace(SPEC, min_nodes=2), approves=approves)
        await pools.look()
        assert len(pools.ordered) == 2
        no(await plane.send(OPERATOR, Delete("NodePool", "", "burst")), "InUse")
        await put(plane, "burst", replace(SPEC, max_nodes=0))
        for _ in range(3):
            await pools.look()
        assert [*pools.ordered, *pools.provider.machines] == []
        ok(await plane.send(OPERATOR, Delete("NodePool", "", "burst")))


@pytest.mark.parametrize("approves", [False, True])
async def test_what_does_not_register_is_given_back_and_said_and_one_is_ordered_anew_after_a_while(approves: bool) -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await barren(plane, clock, SPEC, approves=approves)
        await pools.waiting(6, "WaitingForCapacity")
        await pools.look()
        first = pools.ordered
        assert len(first) == 2
        clock.offset += LATE_S - 2
        await pools.look()
        assert pools.ordered == first, "they may still come"
        clock.offset += 2
        for _ in range(3):
            await pools.look()
        assert list(pools.ordered) == []
        assert pools.found("nodes", first[0]) is None
        status = pools.found("nodepools", "burst").status
        (said,) = [each for each in status.conditions if each.type == "Arriving"]
        assert (said.status, said.reason, status.in_vain) == ("False", "NotComing", 1)
        assert "another is ordered 360 s after the last" in said.message
        clock.offset += LATE_S
        await pools.look()
        assert list(pools.ordered) == [f"{REGION}-burst-3"], "one, to find out whether it comes"


async def test_one_that_registers_late_while_it_is_given_back_may_stay() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await barren(plane, clock, SPEC, approves=True)
        await pools.waiting(1, "WaitingForCapacity")
        await pools.look()
        (name,) = pools.ordered
        clock.offset += LATE_S
        await pools.look()
        node = pools.found("nodes", name)
        assert CLOSED in node.metadata.annotations
        status = replace(node.status, session=1, health="Ready", schedulable=True)
        ok(await plane.send(agent_of(name), PutStatus("Node", "", name, status)))
        await pools.look()
        assert pools.ordered == (name,)
        assert not pools.found("nodes", name).spec.unschedulable
        (said,) = [each for each in pools.found("nodepools", "burst").status.conditions if each.type == "Arriving"]
        assert said.status == "True"


async def test_a_node_that_an_operator_deregisters_while_its_machine_runs_is_given_back_and_another_comes() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await barren(plane, clock, SPEC, but=("burst",))
        await pools.waiting(1, "WaitingForCapacity")
        await pools.look()
        (name,) = pools.ordered
        clock.offset += LATE_S
        await pools.look()
        ok(await plane.send(OPERATOR, Delete("Node", "", name)))
        await pools.look()
        await pools.look()
        assert pools.provider.stopped == [name], "its agent could not register again"
        assert pools.ordered == (f"{REGION}-burst-2",)


def test_where_there_may_be_fewer_those_that_never_came_go_and_nobody_at_work_is_drained() -> None:
    names = tuple(f"{REGION}-burst-{n}" for n in range(1, 7))
    added = (Addition(1, instant(NOW - 5_000)),)
    pool = NodePool(
        Metadata(name="burst"), replace(SPEC, max_nodes=3), NodePoolStatus(ordered=names, numbered=6, additions=added)
    )
    bodies = scaled(Seen([pool], [a_node(name) for name in names[:3]], [], dict.fromkeys(names[:3], 4), []), REGION, NOW)
    assert not [body for body in bodies if isinstance(body, Put)]
    assert pool_after(bodies).ordered == names[:3]


def test_what_waits_for_a_pool_whose_nodes_do_not_come_is_left_to_the_next() -> None:
    vain = NodePoolStatus(1, numbered=1, in_vain=1, last_up_time=instant(NOW - 200_000))
    pools = [NodePool(Metadata(name="burst"), SPEC, vain), NodePool(Metadata(name="spare"), SPEC)]
    said = scaled(Seen(pools, [], requests_of(2), {}, []), REGION, NOW)
    after = {body.name: body.status for body in said if isinstance(body, PutStatus) and isinstance(body.status, NodePoolStatus)}
    assert {name: len(status.ordered) for name, status in after.items()} == {"burst": 0, "spare": 2}


async def test_a_machine_or_pool_that_fails_keeps_no_other_from_its_turn_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await barren(plane, clock, replace(SPEC, min_nodes=2), but=("spare",))
        await put(plane, "spare", replace(SPEC, min_nodes=2))
        await put(plane, "ajar", replace(SPEC, min_nodes=1))
        assert isinstance(pools.provider, Barren)
        pools.provider.broken.add("running ajar")
        with caplog.at_level(logging.INFO, logger="fairlead.client.providing"):
            await pools.look()
            assert pools.provider.machines == [f"{REGION}-spare-1", f"{REGION}-spare-2"]
            await pools._providing.once()
            said = [record.getMessage() for record in caplog.records]
            assert sorted(said) == [
                "provider simulated: pool ajar failed: nobody knows what runs of ajar",
                *(
                    f"provider simulated: starting {REGION}-{n} failed: node {REGION}-{n} is not let in"
                    for n in ("burst-1", "burst-2")
                ),
            ]
            caplog.clear()
            pools.provider.broken.clear()
            pools.provider.but = ("ajar", "burst", "spare")
            await pools._providing.once()
            assert len([record for record in caplog.records if "works again" in record.getMessage()]) == 3
        pools.provider.machines += [f"{REGION}-spare-8", f"{REGION}-spare-9"]  # nobody ordered these
        pools.provider.broken.add(f"stop {REGION}-spare-8")
        await pools._providing.once()
        assert pools.provider.stopped == [f"{REGION}-spare-9"]
