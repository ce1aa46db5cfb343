"""Room made for a large slot: defragmenter, disruption, repair and scheduler together, to the end of the move."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.controllers import defragmenter
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


async def in_pieces(r: RegionRig, packing: Any) -> None:
    """Two nodes of four cores with three slots of one core each: one core is free on either."""
    policy = SchedulerPolicySpec(revision=1, defragmentation=Defragmentation(), packing=packing)
    ok(await r.plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(Metadata(name="r1"), policy))))
    ok(await r.plane.send(OPERATOR, Put("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1)))))
    for name in "ab":
        await r.plane.add_node(name, cpu=4000, zone="z", address=f"10.0.0.{ord(name)}")
    r.schedule()
    for controller in (AssignmentController(REGION), RolloutController(), RepairController(REGION), DisruptionController()):
        r.control(controller)
    await r.order("api", 8)
    await r.until(lambda: len(r.serving()) == 8)
    last = {hot.node: index for index, hot in r.slots().items()}
    kept = tuple(SlotRange(first=index, last=index) for index in range(8) if index not in last.values())
    await r.order("api", slots=kept)
    await r.until(lambda: len(r.slots()) == 6)


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


async def test_where_the_moved_one_comes_back_first_another_is_moved_and_none_twice() -> None:
    """Somebody holds the large slot back and closes the other node, just when a slot has been asked to leave."""
    async with region(nodes=0) as r:
        await in_pieces(r, "Pack")
        before = {index: hot.node for index, hot in r.slots().items()}
        await r.order("big", 1, ask=Ask(requests=Resources(2000, GI)))
        await r.until(lambda: waits(r) == "WaitingForCapacity")
        r.agent.holds_stops = True
        r.control(DefragmenterController(REGION))
        await r.until(lambda: SlotState.DRAINING in r.states().values())
        (moved,) = [index for index, state in r.states().items() if state is SlotState.DRAINING]
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


def waits(r: RegionRig) -> str:
    found = r.get("schedulingrequests", "big-0")
    return found.status.reason if found is not None else ""
