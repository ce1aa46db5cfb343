"""Strays: nothing of theirs arrives once everything is healed, and each proposal they spoil can be left out by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.model.commands import Accepted, Bind, Caller, Command, LeaseRenew, Outcome
from fairlead.model.lifecycle import Role
from fairlead.sim import loop as sim
from fairlead.sim.chaos import Chaos
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.platform import Plane, Platform
from fairlead.sim.scenario import Faults, Scenario
from fairlead.sim.strays import Strays
from fairlead.sim.walls import unheard

SCHEDULER = Caller("scheduler-0", Role.SCHEDULER, lease="scheduler-0", fencing_epoch=3)
PROPOSAL = Command(SCHEDULER, Bind("risk", "api-0", 1, 2, "n0", 3, 4))


class Asked:
    """A plane's authority that accepts whatever arrives, and keeps it."""

    def __init__(self) -> None:
        self.config, self.authority = SimpleNamespace(name="s"), self
        self.heard: list[Command] = []

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        self.heard += commands
        return [Accepted(1) for _ in commands]


def astray(story: Callable[[Chaos, Plane, Asked], Awaitable[None]], *skips: str) -> tuple[list[Command], list[str]]:
    """What the authority heard, and what was struck, in a platform where every proposal is spoilt."""
    asked, strikes = Asked(), list[str]()

    async def main(loop: SimLoop) -> None:
        platform = Platform(loop, Scenario(seed=1, regions=1, servers=1, nodes=1, faults=Faults(spoil=1.0), skips=skips))
        chaos = Chaos(platform, Strays(platform, lambda plane: {"nodes": {("", "n1"): object()}}))
        platform.start()
        plane = next(plane for name, plane in platform.planes.items() if name != "global")
        server: Any = asked
        chaos.strays.spoil(plane, server)
        await story(chaos, plane, asked)
        strikes.extend(chaos.strikes)

    with unheard():
        sim.run(main, 1)
    return asked.heard, strikes


async def proposes_twice(chaos: Chaos, plane: Plane, asked: Asked) -> None:
    await asked.submit([PROPOSAL])
    await asked.submit([PROPOSAL])


def test_each_proposal_that_is_spoilt_is_a_strike_of_its_own_which_shrinking_can_leave_out() -> None:
    heard, strikes = astray(proposes_twice)
    assert strikes == ["spoil:s:1", "spoil:s:2"]
    first, *others = heard
    assert PROPOSAL not in (first, *others)

    heard, strikes = astray(proposes_twice, "spoil:s:1")
    assert strikes == ["spoil:s:2"]
    assert heard[0] == PROPOSAL, "the first arrives as it was sent"
    assert heard[1:] == others, "what is left out moves no draw"


def test_what_is_no_placement_is_neither_spoilt_nor_a_strike() -> None:
    renewal = Command(SCHEDULER, LeaseRenew("scheduler-0", 3))

    async def renews(chaos: Chaos, plane: Plane, asked: Asked) -> None:
        await asked.submit([renewal])

    assert astray(renews) == ([renewal], [])


def test_proposals_arrive_as_they_were_sent_when_everything_is_healed() -> None:
    async def heals_first(chaos: Chaos, plane: Plane, asked: Asked) -> None:
        chaos.heal()
        await asked.submit([PROPOSAL])

    assert astray(heals_first) == ([PROPOSAL], [])


@pytest.mark.parametrize("heals", [False, True])
def test_whoever_was_to_bind_late_does_not_when_everything_is_healed(heals: bool) -> None:
    async def reserved(chaos: Chaos, plane: Plane, asked: Asked) -> None:
        leads: Any = SimpleNamespace(
            name=plane.name, leaders=lambda: [asked], servers=[SimpleNamespace(name="s", running=plane.servers[0].running)]
        )
        bind = PROPOSAL.body
        assert isinstance(bind, Bind)
        chaos.strays._send(leads, PROPOSAL, late_s=1.0)
        chaos._loop.spawn(None, chaos.strays._bind_too_late(leads, SCHEDULER, bind), "stray that reserved")
        if heals:
            chaos.heal()
        await sleep(20.0)

    heard, _ = astray(reserved)
    assert bool(heard) is not heals
