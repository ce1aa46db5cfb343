"""Spread that is kept after a failure, as the whole region does it: scheduler, disruption, rollout and agents together."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.controllers.disruption import DisruptionController
from fairlead.decide.disruption import is_open
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.kinds.work import Ask
from fairlead.model.resources import Resources
from fairlead.scheduler import levelling
from tests.authority.planes import GI
from tests.controllers.running import RegionRig, all_controllers, region

SLOTS = 6
KEEP = Placement(spread=(SpreadRule(topology_key="zone", max_skew=1, after_failure="Repair"),))
ASK = Ask(requests=Resources(1000, GI), placement=KEEP)


def lie(r: RegionRig) -> dict[str, int]:
    """How many of them serve on each node, of which there is one in each zone."""
    nodes = [hot.node for index, hot in r.slots().items() if index in r.serving()]
    return {f"n{number}": nodes.count(f"n{number}") for number in range(3)}


async def without_zone(r: RegionRig) -> None:
    """They lie evenly; then a zone goes, and the others have them all."""
    r.schedule()
    await r.order("api", SLOTS, ask=ASK)
    await r.until(lambda: set(lie(r).values()) == {2})
    r.agent.dead.add("n2")
    await r.until(lambda: lie(r) == {"n0": 3, "n1": 3, "n2": 0})
    await r.until(lambda: r.get("nodes", "n2", "").status.health == "Lost")


async def back_again(r: RegionRig) -> None:
    r.agent.dead.clear()
    await r.set_status("n2", schedulable=True)  # it has listed what it runs
    await r.until(lambda: r.get("nodes", "n2", "").status.health == "Ready")


async def test_what_a_zone_lost_goes_back_when_it_is_there_again_and_then_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levelling, "AGAIN_MS", 100)
    async with region() as r:
        r.control_all()
        await without_zone(r)
        await back_again(r)
        await r.until(lambda: set(lie(r).values()) == {2})
        await r.quiet()
        epochs = r.epochs()
        await asyncio.sleep(0.3)
        assert (r.epochs(), set(lie(r).values())) == (epochs, {2})
        assert r.serving() == list(range(SLOTS))


async def test_a_move_that_was_proposed_for_an_earlier_life_ends_nobody() -> None:
    """It is ruled on only when the slot has gone elsewhere by itself."""
    async with region() as r:
        for each in all_controllers():
            if each.name != "disruption":
                r.control(each)
        await without_zone(r)
        await back_again(r)
        await r.until(lambda: any(r.get("evictionrequests", f"api-{index}") for index in range(SLOTS)))
        (moved,) = (index for index in range(SLOTS) if r.get("evictionrequests", f"api-{index}") is not None)
        before = r.epochs()[moved]
        r.agent.dead.add(r.slots()[moved].node)
        await r.until(lambda: r.epochs().get(moved, 0) > before and r.serving() == list(range(SLOTS)))
        epochs = r.epochs()
        r.control(DisruptionController())

        def is_ruled_on() -> bool:
            found = r.get("evictionrequests", f"api-{moved}")
            return found is None or not is_open(found)

        await r.until(is_ruled_on)
        await r.quiet()
        assert r.epochs() == epochs
