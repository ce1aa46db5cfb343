"""An instance that ends before its start has returned, or does not begin at all: its end is not lost."""

from __future__ import annotations

from fairlead.agent.drivers.contract import Exit, Launch, Started
from fairlead.agent.drivers.simulated import SimulatedDriver
from fairlead.model.kinds.intent import Template
from tests.agent.processes import until
from tests.agent.regions import rig
from tests.authority.planes import FakeClock


class Hasty(SimulatedDriver):
    """Its first run is over before anybody is told that it began."""

    async def start(self, launch: Launch) -> Started | Exit:
        got = await super().start(launch)
        if launch.run == 1:
            self.end(launch.id, Exit(1, "exited"))
        return got


async def test_a_run_that_ends_while_it_is_being_started_is_started_again() -> None:
    """Found by `fairlead sim run`: the slot was believed to run for ever."""
    async with rig() as made:
        driver = Hasty()
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        name = await made.place("api", Template(driver="simulated"))
        await until(lambda: [launch.run for launch in driver.world.running.values()] == [2])
        await made.reaches(name, "Ready")


class Late(SimulatedDriver):
    """What it is told to start comes after the time it had."""

    starts = 0

    async def start(self, launch: Launch) -> Started | Exit:
        self.starts += 1
        return Exit(137, "fenced")


async def test_what_is_started_too_late_is_tried_once_a_second() -> None:
    clock, driver = FakeClock(), Late()
    async with rig(clock) as made:
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        began = clock.monotonic()
        name = await made.place("alone", Template(driver="simulated"), execution="Exclusive")
        while driver.starts < 4:
            clock.offset += 0.05
            await clock.sleep(0.005)
        assert clock.monotonic() - began >= 3.0
        assert made.state(name) in ("Bound", "Starting"), "it has not failed"
