"""An agent cut off from its region and back: fencing, the handshake, and what is said again. Nothing really runs here."""

from __future__ import annotations

from functools import partial

import msgspec

from fairlead.agent.drivers.contract import Exit, InstanceId, Launch
from fairlead.agent.region import Ack
from fairlead.model.commands import PutStatus
from fairlead.model.lifecycle import Role
from tests.agent.processes import until
from tests.agent.regions import rig, simulated
from tests.agent.simulated import SIMULATED, id_of, world
from tests.authority.planes import FakeClock, ok


async def test_a_returning_node_stops_what_was_superseded_before_it_takes_work() -> None:
    asked: list[str] = []

    class Slow(type(simulated())):  # type: ignore[misc]
        async def stop(self, id: InstanceId, grace_s: float) -> None:
            asked.append(id.name)

    async with rig() as made:
        shared = world()
        shared.running[id_of("old-0")] = Launch(id_of("old-0"), (), {})
        driver = Slow(world=shared)
        made.start(made.agent({"simulated": driver}))
        await until(lambda: asked == ["old-0"])
        await until(lambda: made.region.heartbeats > 3)
        assert not made.node_status().schedulable
        driver.end(id_of("old-0"), Exit(0, "stopped"))
        await made.schedulable()


async def test_a_node_that_was_declared_lost_while_it_was_cut_off_takes_work_again() -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        made.region.cut()
        lost = msgspec.structs.replace(made.node_status(), health="Lost", schedulable=False)
        ok(await made.plane.send(made.roles[Role.NODE], PutStatus("Node", "", "n1", lost)))
        made.region.heal()
        await made.schedulable()
        assert made.sessions() == 1, "it is the same agent as before"


async def test_cut_off_exclusive_work_stops_before_its_fence_time_and_replicated_work_goes_on() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        killed_at: list[float] = []

        class Timed(type(simulated())):  # type: ignore[misc]
            async def kill(self, id: InstanceId, cause: str) -> None:
                killed_at.append(clock.monotonic())
                await super().kill(id, cause)

        driver = Timed()
        host = made.agent({"simulated": driver})
        made.start(host)
        await made.schedulable()
        alone = await made.place("alone", SIMULATED, execution="Exclusive")
        many = await made.place("many", SIMULATED)
        await made.reaches(alone, "Ready")
        await made.reaches(many, "Ready")
        made.region.cut()
        last_heard = host.nodes["n1"].heard_at
        clock.offset += 13.0
        assert id_of("alone-0") in driver.world.running  # 15 s less one per cent less the time to kill are not over yet
        clock.offset += 2.0
        await until(lambda: id_of("alone-0") not in driver.world.running)
        fence_s = 15.0 * 1.01 + 2.0
        assert killed_at[0] < last_heard + fence_s
        assert id_of("many-0") in driver.world.running
        driver.end(id_of("many-0"), Exit(1, "exited"))
        clock.offset += 2.0
        await until(lambda: id_of("many-0") in driver.world.running)  # still restarted, by itself
        made.region.heal()
        await until(lambda: id_of("alone-0") in driver.world.running)  # still bound here: it comes back
        assert driver.world.starts[id_of("alone-0")] == 2


async def test_a_machine_that_slept_over_its_lease_tells_its_inventory_and_starts_exclusive_work_anew() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        driver = simulated()
        host = made.agent({"simulated": driver})
        made.start(host)
        await made.schedulable()
        name = await made.place("alone", SIMULATED, execution="Exclusive")
        await made.reaches(name, "Ready")
        for sleeps in (2, 3, 4):
            told = host.handshakes_total
            clock.offset += 20.0
            await until(partial(lambda before: host.handshakes_total > before, told))
            await until(partial(lambda wanted: driver.world.starts[id_of(name)] == wanted, sleeps))
            await made.reaches(name, "Ready")
            await until(lambda: id_of(name) in driver.world.running)


async def test_left_alone_for_too_long_an_agent_stops_everything() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}, autonomy_s=100.0))
        await made.schedulable()
        await made.reaches(await made.place("many", SIMULATED), "Ready")
        made.region.cut()
        clock.offset += 90.0
        await clock.sleep(0.2)
        assert driver.world.running
        clock.offset += 20.0
        await until(lambda: not driver.world.running)


async def test_an_acknowledgement_of_a_deposed_leader_counts_for_nothing() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        driver = simulated()
        host = made.agent({"simulated": driver})
        made.start(host)
        await made.schedulable()
        await made.reaches(await made.place("alone", SIMULATED, execution="Exclusive"), "Ready")
        node = host.nodes["n1"]
        node.remembered.hear(1, 50)
        made.region.mutate_ack = lambda ack: Ack(ack.incarnation, 49)
        heard_at, beats = node.heard_at, made.region.heartbeats
        clock.offset += 15.0
        await until(lambda: made.region.heartbeats > beats + 2)
        assert node.heard_at == heard_at
        assert node.refused_leaders >= 2
        await until(lambda: not driver.world.running)


async def test_reports_lost_on_the_way_are_said_again_after_contact() -> None:
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        name = await made.place("job", msgspec.structs.replace(SIMULATED, restart_policy="Never"))
        await made.reaches(name, "Ready")
        made.region.cut()
        driver.end(id_of(name), Exit(0, "exited"))
        made.region.heal()
        await made.reaches(name, "Succeeded")


async def test_after_contact_everything_is_said_again() -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        name = await made.place("api", SIMULATED)
        await made.reaches(name, "Ready")
        await until(lambda: made.instance(name) is not None)
        made.region.cut()
        made.region.submitted.clear()
        made.region.heal()
        await until(lambda: [type(command.body).__name__ for command in made.region.submitted] == ["Report"])
        assert made.steps(name) == []


async def test_a_node_that_was_declared_lost_goes_through_the_handshake_again() -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        caller = made.roles[Role.NODE]
        status = msgspec.structs.replace(made.node_status(), schedulable=False, health="Lost")
        ok(await made.plane.send(caller, PutStatus("Node", "", "n1", status)))
        await made.schedulable()
        assert (made.sessions(), made.node_status().health) == (1, "Lost")  # health is the node controller's
