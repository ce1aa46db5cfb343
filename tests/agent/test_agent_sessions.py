"""An agent that comes again: what it adopts, starts anew or keeps, and which of two sessions wins. Nothing really runs here."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from fairlead.agent.drivers.contract import Exit, InstanceId
from fairlead.agent.region import Ack
from fairlead.model.commands import Command, Delete, Outcome, Put, Refused, Report, Unknown
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.intent import Exec, Probe, Probes
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.agent.processes import until
from tests.agent.regions import LocalRegion, rig, simulated
from tests.agent.simulated import SIMULATED, id_of, world
from tests.authority.planes import OPERATOR, FakeClock, no, ok


async def test_a_restarted_agent_adopts_what_runs_and_reports_nothing_twice() -> None:
    async with rig() as made:
        shared = world()
        first = made.start(made.agent({"simulated": simulated(world=shared)}))
        await made.schedulable()
        name = await made.place("api", SIMULATED)
        await made.reaches(name, "Ready")
        await made.move(name, SlotState.SERVING, Role.ROLLOUT)
        first.cancel()
        await until(first.done)
        made.region.submitted.clear()
        made.start(made.agent({"simulated": simulated(world=shared)}))
        await until(lambda: made.sessions() == 2 and made.node_status().schedulable)
        await until(lambda: any(type(command.body).__name__ == "Report" for command in made.region.submitted))
        assert made.state(name) == "Serving"
        assert made.steps(name) == []
        assert shared.starts[id_of(name)] == 1


async def test_what_the_machine_lost_is_started_again_in_place() -> None:
    async with rig() as made:
        first = made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        name = await made.place("api", SIMULATED)
        await made.reaches(name, "Ready")
        first.cancel()
        await until(first.done)
        rebooted = simulated()
        made.start(made.agent({"simulated": rebooted}))
        await until(lambda: id_of(name) in rebooted.world.running)
        await until(lambda: made.sessions() == 2)
        assert made.state(name) == "Ready"


@pytest.mark.parametrize("learns_by", ["acknowledgement", "feed"])
async def test_of_two_agents_with_one_name_the_newer_session_wins(learns_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as made:
        older_driver, newer_driver = simulated(), simulated()
        older = made.agent({"simulated": older_driver})
        made.start(older)
        await made.schedulable()
        first = await made.place("api", SIMULATED)
        await made.reaches(first, "Ready")
        if learns_by == "feed":
            knows = older.nodes["n1"]  # from then on it is told the truth, or it would take the newer one for gone
            made.region.mutate_ack = lambda ack: ack if knows.superseded else Ack(ack.incarnation, ack.epoch)
        else:
            monkeypatch.setattr(older.nodes["n1"], "saw_object", lambda change: None)
        made.start(made.agent({"simulated": newer_driver}, LocalRegion(made.plane)))
        await until(lambda: made.sessions() == 2 and made.node_status().schedulable)
        await until(lambda: older.nodes["n1"].superseded and older_driver.world.running == {})
        second = await made.place("late", SIMULATED)
        await until(lambda: id_of(second) in newer_driver.world.running)
        assert older_driver.world.running == {}
        assert made.sessions() == 2


async def test_a_superseded_agent_comes_back_under_a_new_session_when_the_newer_one_is_gone() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        older_driver, newer_driver = simulated(), simulated()
        older, newer = made.agent({"simulated": older_driver}), made.agent({"simulated": newer_driver}, LocalRegion(made.plane))
        made.start(older)
        await made.schedulable()
        name = await made.place("api", SIMULATED)
        await made.reaches(name, "Ready")
        running = made.start(newer)
        await until(lambda: older.nodes["n1"].superseded and older_driver.world.running == {})
        for _ in range(12):  # half a minute, in which both are heard
            clock.offset += 2.5
            heard = [older.acks_total, newer.acks_total]
            await until(partial(lambda heard: older.acks_total > heard[0] and newer.acks_total > heard[1], heard))
        assert older.nodes["n1"].superseded, "while the newer one lives it keeps quiet"
        assert made.sessions() == 2
        running.cancel()
        await until(running.done)
        gone_at = clock.monotonic()
        while made.sessions() == 2:
            clock.offset += 0.5
            await clock.sleep(0.02)
        assert clock.monotonic() - gone_at > 10.0, "not before the newer one has certainly stopped what it ran"
        await until(lambda: id_of(name) in older_driver.world.running)
        assert made.sessions() == 3


async def test_a_session_that_an_earlier_leader_registered_is_not_forgotten_by_the_next() -> None:
    """Else the older agent's lease would be renewed under the next leader while the newer agent starts what is Exclusive."""
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        account = made.plane.authority._ctx.ledger.nodes["n1"]
        account.observed_session = 0  # as a leader that has just taken over, and has heard nobody
        heard = made.plane.authority.heartbeat([("n1", 0)])
        assert not isinstance(heard, Refused)
        assert heard.superseded_nodes == ("n1",)


async def test_an_adopted_instance_stays_ready_until_a_probe_says_otherwise() -> None:
    class Silent(type(simulated())):  # type: ignore[misc]
        async def execute(self, id: InstanceId, argv: tuple[str, ...], timeout_s: float) -> Exit:
            asked.append(id.name)
            await asyncio.Event().wait()
            raise AssertionError

    asked: list[str] = []
    readiness = Probe(exec=Exec(command=("x",)), period_seconds=0.1, timeout_seconds=60.0)
    async with rig() as made:
        shared = world()
        first = made.start(made.agent({"simulated": simulated(world=shared)}))
        await made.schedulable()
        name = await made.place("api", msgspec.structs.replace(SIMULATED, probes=Probes(readiness=readiness)))
        await made.reaches(name, "Ready")
        first.cancel()
        await until(first.done)
        made.region.submitted.clear()
        made.start(made.agent({"simulated": Silent(world=shared)}))
        await until(lambda: asked)
        await until(lambda: any(type(command.body).__name__ == "Report" for command in made.region.submitted))
        assert made.steps(name) == []
        assert made.state(name) == "Ready"


async def test_exclusive_work_of_an_earlier_session_is_not_started_while_that_agent_may_still_run_it() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        older_driver, newer_driver = simulated(), simulated()
        older_region = LocalRegion(made.plane)
        older = made.start(made.agent({"simulated": older_driver}, older_region))
        await made.schedulable()
        alone = await made.place("alone", SIMULATED, execution="Exclusive")
        await made.reaches(alone, "Ready")
        older_region.cut()  # it hears nothing of its successor
        newer = made.agent({"simulated": newer_driver})
        made.start(newer)
        await until(lambda: made.sessions() == 2 and made.node_status().schedulable)
        await until(lambda: newer.nodes["n1"].leased)
        while not newer_driver.world.running:
            assert clock.monotonic() < newer.nodes["n1"].sole_at + 10
            clock.offset += 0.5
            await clock.sleep(0.02)
            assert not (older_driver.world.running and newer_driver.world.running), "two at once"
        assert clock.monotonic() >= newer.nodes["n1"].sole_at
        late = await made.place("late", SIMULATED, execution="Exclusive")  # bound in this session: nobody else can have it
        await until(lambda: id_of(late) in newer_driver.world.running)
        older.cancel()


async def test_exclusive_work_of_an_earlier_session_that_drains_is_said_to_be_gone_when_that_agent_must_have_stopped_it() -> None:
    clock = FakeClock()
    async with rig(clock) as made:
        older_driver, older_region = simulated(), LocalRegion(made.plane)
        older = made.start(made.agent({"simulated": older_driver}, older_region))
        await made.schedulable()
        alone = await made.place("alone", SIMULATED, execution="Exclusive")
        await made.reaches(alone, "Ready")
        older_region.cut()
        await made.move(alone, SlotState.DRAINING, Role.DISRUPTION)
        newer = made.agent({"simulated": simulated()})
        made.start(newer)
        await until(lambda: newer.nodes["n1"].leased)
        while made.state(alone) == "Draining":
            assert clock.monotonic() < newer.nodes["n1"].sole_at + 10
            clock.offset += 0.5
            await clock.sleep(0.02)
        assert made.state(alone) == "Released"
        assert clock.monotonic() >= newer.nodes["n1"].sole_at
        older.cancel()


async def test_what_an_agent_said_before_its_session_was_over_ends_nothing_that_the_newer_one_runs() -> None:
    """Its word was long under way. A slot that failed is placed again at once, for nobody runs it any more (S12)."""

    class Slow(LocalRegion):
        failed: Command | None = None

        async def submit(self, commands: list[Command]) -> list[Outcome]:
            found = [command for command in commands if isinstance(command.body, Report) and command.body.to is SlotState.FAILED]
            if not found:
                return await super().submit(commands)
            self.failed = found[0]
            self.cut()
            return [Unknown("no answer") for _ in commands]

    clock = FakeClock()
    async with rig(clock) as made:
        older_driver, newer_driver, slow = simulated(), simulated(), Slow(made.plane)
        made.start(made.agent({"simulated": older_driver}, slow))
        await made.schedulable()
        alone = await made.place("alone", msgspec.structs.replace(SIMULATED, restart_policy="Never"), execution="Exclusive")
        await made.reaches(alone, "Ready")
        older_driver.end(id_of(alone), Exit(1, "exited"))
        await until(lambda: slow.failed is not None)
        made.start(made.agent({"simulated": newer_driver}))
        while not newer_driver.world.running:
            clock.offset += 0.5
            await clock.sleep(0.02)
        assert slow.failed is not None
        no((await made.plane.authority.submit([slow.failed]))[0], "FencedOut")
        assert made.state(alone) == "Ready"
        assert id_of(alone) in newer_driver.world.running


async def test_an_operators_cordon_and_labels_survive_the_agents_restart() -> None:
    async with rig() as made:
        first = made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        node = made.node()
        assert node is not None
        metadata = msgspec.structs.replace(node.metadata, labels={"disk": "ssd"})
        spec = msgspec.structs.replace(node.spec, unschedulable=True)
        ok(await made.plane.send(OPERATOR, Put("Node", msgspec.structs.replace(node, metadata=metadata, spec=spec))))
        first.cancel()
        await until(first.done)
        made.start(made.agent({"simulated": simulated()}))
        await until(lambda: made.sessions() == 2 and made.node_status().schedulable)
        after = made.node()
        assert after is not None
        assert (after.metadata.labels, after.spec.unschedulable) == ({"disk": "ssd"}, True)


async def test_a_node_that_nobody_approved_asks_at_the_pace_of_heartbeats_until_somebody_has() -> None:
    class Unapproved(LocalRegion):
        approved = False
        asked = 0

        async def submit(self, commands: list[Command]) -> list[Outcome]:
            if self.approved:
                return await super().submit(commands)
            self.asked += 1
            return [Refused("Forbidden", "nobody has approved this node") for _ in commands]

    async with rig() as made:
        region = Unapproved(made.plane)
        host = made.agent({"simulated": simulated()}, region, heartbeat_s=60.0, retry_s=0.001)
        made.start(host)
        await until(lambda: region.asked > 0)
        for _ in range(100):
            await made.plane.clock.sleep(0.001)
        assert region.asked == 1
        region.approved = True
        host._shake_signal.set()  # as news of the node would
        await made.schedulable()


async def test_a_machine_that_replaces_another_under_its_name_has_a_session_that_the_other_never_had() -> None:
    """The node was deleted in between, and with it the number of the last session. The other machine was only cut off (S12)."""
    async with rig() as made:
        older_driver, newer_driver, older_region = simulated(), simulated(), LocalRegion(made.plane)
        older = made.agent({"simulated": older_driver}, older_region)
        made.start(older)
        await made.schedulable()
        older_region.cut()
        ok(await made.plane.send(OPERATOR, Delete("Node", "", "n1")))
        newer = made.agent({"simulated": newer_driver})
        made.start(newer)
        await made.schedulable()
        alone = await made.place("alone", SIMULATED, execution="Exclusive")
        await until(lambda: id_of(alone) in newer_driver.world.running)
        beats = older_region.heartbeats
        older_region.heal()
        while not older.nodes["n1"].superseded or older_region.heartbeats < beats + 3:
            await made.plane.clock.sleep(0.005)
            assert older_driver.world.starts == {}, "it runs on the other one"
        assert not newer.nodes["n1"].superseded


async def test_a_node_that_was_deleted_and_applied_again_while_its_agent_was_cut_off_takes_work_again() -> None:
    """No heartbeat is answered with the news: under the new object nobody has a later session."""
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        applied = made.node()
        assert applied is not None
        made.region.cut()
        ok(await made.plane.send(OPERATOR, Delete("Node", "", "n1")))
        again = Node(metadata=Metadata(name="n1"), spec=applied.spec)
        ok(await made.plane.send(OPERATOR, Put("Node", again, mode="create")))
        made.region.heal()
        await made.schedulable()
        await made.reaches(await made.place("api", SIMULATED), "Ready")
