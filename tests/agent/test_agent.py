"""An agent and its region: registration, handshake, starts and stops in order, reports, fencing. Nothing really runs here."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from fairlead.agent.drivers.contract import Exit, InstanceId, Launch
from fairlead.agent.drivers.simulated import World
from fairlead.agent.region import Ack
from fairlead.model.commands import Put, PutStatus, Refused
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.kinds.intent import (
    Config,
    ConfigSpec,
    EnvVar,
    Exec,
    FileMount,
    Port,
    Probe,
    Probes,
    Secret,
    SecretSpec,
    Template,
)
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.agent.processes import until
from tests.agent.regions import LocalRegion, Rig, rig, simulated
from tests.authority.planes import OPERATOR, FakeClock, ok

SIMULATED = Template(driver="simulated")


def world() -> World:
    return World(running={}, starts={})


def id_of(name: str, epoch: int = 1, attempt: int = 1) -> InstanceId:
    return InstanceId("risk", name, Token(1, epoch, attempt))


async def test_a_node_registers_tells_its_inventory_and_only_then_takes_work() -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        writes = [command.body for command in made.region.submitted]
        assert [type(body).__name__ for body in writes] == ["Put", "PutStatus", "PutStatus"]
        statuses = [body.status for body in writes if isinstance(body, PutStatus)]
        assert [(status.session, status.schedulable) for status in statuses] == [(1, False), (1, True)]
        node = made.node()
        assert node is not None
        assert (node.spec.zone, node.spec.allocatable.cpu) == ("a", 16_000)
        assert {condition.type for condition in node.status.conditions} == {"InventoryConfirmed", "Sandbox"}


async def test_a_bound_slot_is_started_and_reported_in_legal_steps() -> None:
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        template = msgspec.structs.replace(
            SIMULATED, ports=(Port(name="http-main"), Port(name="admin")), env=(EnvVar(name="A", value="b"),)
        )
        name = await made.place("api", template)
        await made.reaches(name, "Ready")
        assert made.steps(name) == ["Starting", "Ready"]
        launch = driver.world.running[id_of(name)]
        ports = launch.ports
        assert len(set(ports.values())) == 2
        assert launch.env["PORT"] == launch.env["PORT_HTTP_MAIN"] == str(ports["http-main"])
        assert launch.env["PORT_ADMIN"] == str(ports["admin"])
        assert (launch.env["A"], launch.env["FAIRLEAD_NODE"], launch.env["FAIRLEAD_SLOT"]) == ("b", "n1", "0")
        await until(lambda: made.instance(name) is not None)
        instance = made.instance(name)
        assert instance is not None
        assert (instance.status.ready, instance.status.ports) == (True, ports)


async def test_configs_and_secrets_are_given_as_files_and_waited_for() -> None:
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        files = (FileMount(path="etc", config="app"), FileMount(path="keys", secret="app"))
        name = await made.place("api", msgspec.structs.replace(SIMULATED, files=files))
        await until(lambda: (found := made.instance(name)) is not None and "configs/app" in found.status.message)
        metadata = Metadata(name="app", namespace="risk")
        ok(await made.plane.send(OPERATOR, Put("Config", Config(metadata=metadata, spec=ConfigSpec(data={"colour": "blue"})))))
        ok(await made.plane.send(OPERATOR, Put("Secret", Secret(metadata=metadata, spec=SecretSpec(data={"key": "hush"})))))
        await made.reaches(name, "Ready")
        launch = driver.world.running[id_of(name)]
        assert [(file.path, file.data, file.secret) for file in launch.files] == [
            ("etc/colour", b"blue", False),
            ("keys/key", b"hush", True),
        ]
        assert "hush" not in repr(launch)


async def test_a_drained_slot_is_stopped_and_released() -> None:
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        name = await made.place("api", SIMULATED)
        await made.reaches(name, "Ready")
        await made.move(name, SlotState.DRAINING, Role.DISRUPTION, deadline_s=5.0)
        await made.reaches(name, "Released")
        assert driver.world.running == {}
        assert made.instance(name) is None


async def test_a_job_succeeds_with_its_exit_code_and_a_crash_loop_fails() -> None:
    codes = {"good-0": 0, "bad-0": 3}

    def run(launch: Launch) -> Exit:
        return Exit(codes[launch.id.name], "exited")

    clock = FakeClock()
    async with rig(clock) as made:
        driver = simulated(run=run)
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        job = msgspec.structs.replace(SIMULATED, restart_policy="OnFailure", max_restarts=3)
        await made.place("good", job)
        await made.reaches("good-0", "Succeeded")
        good = made.instance("good-0")
        assert good is not None
        assert good.status.exit_code == 0
        await made.place("bad", job)
        await until(lambda: driver.world.starts.get(id_of("bad-0")) == 1)
        for starts in (2, 3, 4):  # it waits a while before each; here time is moved
            assert driver.world.starts[id_of("bad-0")] == starts - 1
            clock.offset += 10.0
            await until(partial(lambda wanted: driver.world.starts.get(id_of("bad-0")) == wanted, starts))
        await made.reaches("bad-0", "Failed")
        bad = made.instance("bad-0")
        assert bad is not None
        assert (bad.status.exit_code, bad.status.restarts) == (3, 3)
        assert "code 3" in bad.status.message


async def test_a_claimer_starts_only_when_its_victims_are_gone() -> None:
    class Deaf(type(simulated())):  # type: ignore[misc]
        async def stop(self, id: InstanceId, grace_s: float) -> None:
            asked.append((id.name, grace_s))

    asked: list[tuple[str, float]] = []
    async with rig() as made:
        driver = Deaf()
        made.start(made.agent({"simulated": driver}))
        await made.schedulable()
        victim = await made.place("low", SIMULATED, cpu=16_000, priority=0)
        await made.reaches(victim, "Ready")
        claimer = await made.place("high", SIMULATED, cpu=16_000, priority=1000, victims=("risk/low-0",))
        await until(lambda: asked)
        assert asked[0][0] == "low-0"
        assert asked[0][1] <= 5.0  # the claim's grace, not the template's ten
        await until(lambda: (found := made.instance(claimer)) is not None and "risk/low-0" in found.status.message)
        assert made.state(claimer) == "Bound"
        assert id_of("high-0") not in driver.world.running
        driver.end(id_of("low-0"), Exit(0, "stopped"))
        await made.reaches(claimer, "Ready")
        await made.reaches(victim, "Released")


async def test_a_token_lower_than_one_seen_is_refused() -> None:
    async with rig() as made:
        driver = simulated()
        host = made.agent({"simulated": driver})
        host.nodes["n1"].remembered.see("risk", "api-0", Token(1, 5, 1))
        made.start(host)
        await made.schedulable()
        await made.place("api", SIMULATED)
        other = await made.place("other", SIMULATED)
        await made.reaches(other, "Ready")
        assert host.nodes["n1"].refused_tokens >= 1
        assert made.state("api-0") == "Bound"
        assert list(driver.world.running) == [id_of("other-0")]


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
        await until(lambda: made.node_status().session == 2 and made.node_status().schedulable)
        await until(lambda: any(type(command.body).__name__ == "Report" for command in made.region.submitted))
        assert made.state(name) == "Serving"
        assert made.steps(name) == []
        assert shared.starts[id_of(name)] == 1


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
        assert made.node_status().session == 1, "it is the same agent as before"


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
        await until(lambda: made.node_status().session == 2)
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
            made.region.mutate_ack = lambda ack: Ack(ack.incarnation, ack.epoch)
        else:
            monkeypatch.setattr(older.nodes["n1"], "saw_object", lambda change: None)
        made.start(made.agent({"simulated": newer_driver}, LocalRegion(made.plane)))
        await until(lambda: made.node_status().session == 2 and made.node_status().schedulable)
        await until(lambda: older.nodes["n1"].superseded and older_driver.world.running == {})
        second = await made.place("late", SIMULATED)
        await until(lambda: id_of(second) in newer_driver.world.running)
        assert older_driver.world.running == {}
        assert made.node_status().session == 2


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
        assert made.node_status().session == 2
        running.cancel()
        await until(running.done)
        gone_at = clock.monotonic()
        while made.node_status().session == 2:
            clock.offset += 0.5
            await clock.sleep(0.02)
        assert clock.monotonic() - gone_at > 10.0, "not before the newer one has certainly stopped what it ran"
        await until(lambda: id_of(name) in older_driver.world.running)
        assert made.node_status().session == 3


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


async def test_an_agent_whose_disk_is_full_lives_on_says_so_and_recovers() -> None:
    class Full:
        """fairlead.ports.Kept on a disk that takes nothing for a while."""

        def __init__(self) -> None:
            self.full = False
            self.data: bytes | None = None

        def read(self) -> bytes | None:
            return self.data

        def write(self, data: bytes, *, durable: bool) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            self.data = data

    def said(made: Rig) -> list[str]:
        return [condition.status for condition in made.node_status().conditions if condition.type == "DiskFull"]

    state, fence = Full(), Full()
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}, state_file=state, fence_file=fence))
        await made.schedulable()
        before = await made.place("before", SIMULATED)
        await made.reaches(before, "Ready")
        state.full = fence.full = True
        late = await made.place("late", SIMULATED)
        await until(lambda: said(made) == ["True"] and not made.node_status().schedulable)
        assert id_of(late) not in driver.world.running, "its token is not on disk: it must not run under it"
        assert id_of(before) in driver.world.running
        state.full = fence.full = False
        await made.reaches(late, "Ready")
        await until(lambda: said(made) == ["False"] and made.node_status().schedulable)
        assert made.node_status().session == 1, "it was never started anew"


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
        await until(lambda: made.node_status().session == 2 and made.node_status().schedulable)
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
        assert (made.node_status().session, made.node_status().health) == (1, "Lost")  # health is the node controller's


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
        await until(lambda: made.node_status().session == 2 and made.node_status().schedulable)
        after = made.node()
        assert after is not None
        assert (after.metadata.labels, after.spec.unschedulable) == ({"disk": "ssd"}, True)


async def test_a_driver_that_is_not_allowed_here_fails_the_slot() -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        name = await made.place("api", Template(driver="process", command=("/bin/true",)))
        await made.reaches(name, "Failed")
        found = made.instance(name)
        assert found is not None
        assert "not allowed" in found.status.message


@pytest.mark.parametrize("state", [NodeStatus()])
async def test_an_agent_writes_no_other_nodes_status(state: NodeStatus) -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        assert {command.caller.node for command in made.region.submitted} == {"n1"}
