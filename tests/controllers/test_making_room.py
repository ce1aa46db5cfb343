"""Room made for a large slot: defragmenter, disruption, repair and scheduler together, to the end of the move."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.controllers import defragmenter, repair
from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.defragmenter import DefragmenterController
from fairlead.controllers.disruption import DisruptionController
from fairlead.controllers.repair import RepairController
from fairlead.controllers.rollout import RolloutController
from fairlead.model.commands import Delete, Put
from fairlead.model.kinds.policy import (
    Defragmentation,
    Override,
    OverrideScope,
    OverrideSpec,
    PolicyChannel,
    PolicyChannelSpec,
    SchedulerPolicy,
    SchedulerPolicySpec,
)
from fairlead.model.kinds.work import Ask, SlotRange
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import GI, OPERATOR, REGION, ok
from tests.controllers.running import RegionRig, region


async def in_pieces(r: RegionRig, packing: Any, nodes: str = "ab") -> None:
    """Nodes of four cores with three slots of one core each: one core is free on each."""
    policy = SchedulerPolicySpec(revision=1, defragmentation=Defragmentation(), packing=packing)
    ok(await r.plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(Metadata(name="r1"), policy))))
    ok(await r.plane.send(OPERATOR, Put("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1)))))
    for name in nodes:
        await r.plane.add_node(name, cpu=4000, zone="z", address=f"10.0.0.{ord(name)}")
    r.schedule()
    for controller in (AssignmentController(REGION), RolloutController(), RepairController(REGION), DisruptionController()):
        r.control(controller)
    most = 4 * len(nodes)
    await r.order("api", most)
    await r.until(lambda: len(r.serving()) == most)
    last = {hot.node: index for index, hot in r.slots().items()}
    kept = tuple(SlotRange(first=index, last=index) for index in range(most) if index not in last.values())
    await r.order("api", slots=kept)
    await r.until(lambda: len(r.slots()) == 3 * len(nodes))


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks every fifty milliseconds, and at once."""
    monkeypatch.setattr(defragmenter, "LOOK_MS", 50)
    monkeypatch.setattr(defragmenter, "SETTLE_MS", 0)


@pytest.mark.parametrize("packing", ["Pack", "Balance"])
async def test_the_large_slot_gets_the_room_that_is_made_for_it_and_the_moved_one_the_other(packing: str) -> None:
    async with region(nodes=0) as r:
        await in_pieces(r, packing)
        before = {index: hot.node for index, hot in r.slots().items()}
        await r.order("big", 1, ask=Ask(requests=Resources(2000, GI)))
        await r.until(lambda: waits(r) == "WaitingForCapacity")
        r.control(DefragmenterController(REGION))
        await r.until(lambda: r.serving("big") == [0] and len(r.serving()) == 6, "room is made")
        await r.quiet()
        after = {index: hot.node for index, hot in r.slots().items()}
        (moved,) = [index for index in before if before[index] != after[index]]
        assert r.slots("big")[0].node == before[moved], "the room it left"
        assert r.epochs()[moved] == 2, "it moved once"
        asked = [item.hot for item in r.seen().all("evictionrequests") if item.hot.spec.requester == "defragmenter"]
        assert [(each.spec.slot.index, each.spec.policy_revision) for each in asked] == [(moved, 1)]


async def test_who_leaves_first_of_two_does_not_take_back_the_room_that_they_make_together() -> None:
    """When the first has gone, three cores are not free yet, and the node it left has more room than any other."""
    async with region(nodes=0) as r:
        await in_pieces(r, "Balance", "abc")
        before = {index: hot.node for index, hot in r.slots().items()}
        await r.order("big", 1, ask=Ask(requests=Resources(3000, GI)))
        await r.until(lambda: waits(r) == "WaitingForCapacity")
        r.agent.holds_stops = True
        r.control(DefragmenterController(REGION))
        await r.until(lambda: len(leaving(r)) == 2)
        first, last = moved = leaving(r)
        r.agent.slow, r.agent.holds_stops = {f"api-{last}"}, False
        await r.until(lambda: len(r.serving()) == 8, "the first has a place")
        assert r.slots()[first].node != before[first]
        assert waits(r) == "WaitingForCapacity"
        r.agent.slow = set()
        await r.until(lambda: r.serving("big") == [0] and len(r.serving()) == 9, "room is made")
        await r.quiet()
        assert [before[index] for index in moved] == [r.slots("big")[0].node] * 2, "the room they left"
        assert sum(r.epochs().values()) == 9 + 2, "each moved once, and nobody else"


async def test_where_the_moved_one_comes_back_first_another_is_moved_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the large slot back and closes the other node, just when a slot has been asked to leave. It keeps off the
    node it left for a moment, and then goes back: there is no other."""
    monkeypatch.setattr(repair, "LEFT_MS", 300)
    async with region(nodes=0) as r:
        await in_pieces(r, "Pack")
        before = {index: hot.node for index, hot in r.slots().items()}
        await r.order("big", 1, ask=Ask(requests=Resources(2000, GI)))
        await r.until(lambda: waits(r) == "WaitingForCapacity")
        r.agent.holds_stops = True
        r.control(DefragmenterController(REGION))
        await r.until(lambda: bool(leaving(r)))
        (moved,) = leaving(r)
        spec = OverrideSpec(kind="hold", reason="x", ttl_seconds=600, requester="a", scope=OverrideScope(workloads=("big",)))
        ok(await r.plane.send(OPERATOR, Put("Override", Override(Metadata(name=f"{REGION}-stop", namespace="risk"), spec))))
        await r.until(lambda: waits(r) == "OnHold")
        other = "b" if before[moved] == "a" else "a"
        await r.set_node(other, unschedulable=True)
        r.agent.holds_stops = False
        await r.until(lambda: len(r.serving()) == 6)
        assert (r.slots()[moved].node, r.epochs()[moved]) == (before[moved], 2), "in vain"
        await r.set_node(other, unschedulable=False)
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", f"{REGION}-stop")))
        await r.until(lambda: r.serving("big") == [0] and len(r.serving()) == 6, "room is made by another")
        await r.quiet()
        assert r.epochs()[moved] == 2
        assert sum(r.epochs().values()) == 6 + 2, "two moved, each once"


def leaving(r: RegionRig) -> list[int]:
    return sorted(index for index, state in r.states().items() if state is SlotState.DRAINING)


def waits(r: RegionRig) -> str:
    found = r.get("schedulingrequests", "big-0")
    return found.status.reason if found is not None else ""
