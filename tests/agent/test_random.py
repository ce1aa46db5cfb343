"""Random lives of an agent: cuts, restarts, crashes, drains. Whatever happened, afterwards what runs is what is bound."""

from __future__ import annotations

import asyncio
import random

import pytest

from fairlead.agent.drivers.contract import Exit, InstanceId
from fairlead.agent.drivers.simulated import World
from fairlead.authority.term import HeartbeatAck
from fairlead.model.commands import Move
from fairlead.model.kinds.intent import Template
from fairlead.model.lifecycle import Role, SlotState
from tests.agent.processes import until
from tests.agent.regions import Rig, rig, simulated
from tests.authority.planes import FakeClock

SIMULATED = Template(driver="simulated", max_restarts=1000)
STEPS = 40


class Story:
    def __init__(self, made: Rig, clock: FakeClock, draw: random.Random) -> None:
        self.made, self.clock, self.draw = made, clock, draw
        self.world = World(running={}, starts={})
        self.names: list[str] = []
        self.agent: asyncio.Task[None] | None = None
        self.driver = simulated(world=self.world)

    async def restart(self) -> None:
        if self.agent is not None:
            self.agent.cancel()
            await until(self.agent.done)
        self.driver = simulated(world=self.world)
        self.agent = self.made.start(self.made.agent({"simulated": self.driver}, keep_ended_s=0.0))

    async def place(self) -> None:
        execution = self.draw.choice(["Replicated", "Exclusive"])
        status = self.made.node_status()
        heard = self.made.plane.authority.heartbeat([("n1", status.session)])
        if status.schedulable and isinstance(heard, HeartbeatAck) and not heard.superseded_nodes:
            self.names.append(await self.made.place(f"w{len(self.names)}", SIMULATED, execution=execution))

    async def crash(self) -> None:
        if self.world.running:
            id = self.draw.choice(sorted(self.world.running))
            self.driver.end(id, Exit(self.draw.randrange(2), "exited"))

    async def drain(self) -> None:
        live = [name for name in self.names if self.made.state(name) in ("Bound", "Starting", "Ready", "Serving")]
        if live:
            await self.made.move(self.draw.choice(live), SlotState.DRAINING, Role.DISRUPTION, deadline_s=5.0)

    async def serve(self) -> None:
        ready = [name for name in self.names if self.made.state(name) == "Ready"]
        if ready:
            name = self.draw.choice(ready)
            token = self.made.token(name)
            await self.made.plane.send(self.made.roles[Role.ROLLOUT], Move("risk", name, token, SlotState.SERVING))

    async def cut(self) -> None:
        self.made.region.cut()

    async def heal(self) -> None:
        self.made.region.heal()

    async def later(self) -> None:
        self.clock.offset += self.draw.choice([0.1, 1.0, 6.0, 20.0])

    def settled(self) -> bool:
        """Serving slots whose process ended wait for the rollout controller, which is not here: they count as settled."""
        wanted: set[InstanceId] = set()
        for name in self.names:
            state = self.made.state(name)
            if state in ("Bound", "Starting", "Draining"):
                return False
            if state in ("Ready", "Serving"):
                wanted.add(InstanceId("risk", name, self.made.token(name)))
        return set(self.world.running) == wanted


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_what_runs_in_the_end_is_what_is_bound(seed: int) -> None:
    draw = random.Random(seed)
    clock = FakeClock()
    async with rig(clock) as made:
        story = Story(made, clock, draw)
        await story.restart()
        await made.schedulable()
        moves = [story.place] * 4 + [story.crash] * 3 + [story.drain, story.serve, story.serve, story.cut, story.heal, story.heal]
        moves += [story.later] * 3 + [story.restart]
        for _ in range(STEPS):
            await draw.choice(moves)()
            await clock.sleep(draw.choice([0.0, 0.005, 0.03]))
        made.region.heal()
        for _ in range(200):
            if story.settled():
                break
            clock.offset += 1.0  # pauses before restarts, and the fence of an earlier session
            await clock.sleep(0.02)
        assert story.settled(), {name: made.state(name) for name in story.names}
        assert len(story.names) >= 3
