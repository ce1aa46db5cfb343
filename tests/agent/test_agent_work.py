"""What an agent does with what is bound to its node: starts and stops in order, reports, refusals. Nothing really runs here."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from fairlead.agent.drivers.contract import Exit, InstanceId, Launch
from fairlead.authority.judge import placing
from fairlead.decide.lasting import Granted
from fairlead.model.commands import Delete, Put, PutStatus
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.kinds.intent import Config, ConfigSpec, EnvVar, FileMount, Port, Secret, SecretSpec, Template
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.agent.processes import until
from tests.agent.regions import Rig, rig, simulated
from tests.agent.simulated import SIMULATED, id_of
from tests.authority.planes import OPERATOR, FakeClock, ok


async def test_a_node_registers_tells_its_inventory_and_only_then_takes_work() -> None:
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}))
        await made.schedulable()
        writes = [command.body for command in made.region.submitted]
        assert [type(body).__name__ for body in writes] == ["Put", "PutStatus", "PutStatus"]
        statuses = [body.status for body in writes if isinstance(body, PutStatus)]
        session = made.node_status().session
        assert [(status.session, status.schedulable) for status in statuses] == [(session, False), (session, True)]
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


def said_full(made: Rig) -> list[str]:
    return [condition.status for condition in made.node_status().conditions if condition.type == "DiskFull"]


async def test_an_agent_whose_disk_is_full_lives_on_says_so_and_recovers() -> None:
    state, fence = Full(), Full()
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}, state_file=state, fence_file=fence))
        await made.schedulable()
        before = await made.place("before", SIMULATED)
        await made.reaches(before, "Ready")
        state.full = fence.full = True
        late = await made.place("late", SIMULATED)
        await until(lambda: said_full(made) == ["True"] and not made.node_status().schedulable)
        assert id_of(late) not in driver.world.running, "its token is not on disk: it must not run under it"
        assert id_of(before) in driver.world.running
        state.full = fence.full = False
        await made.reaches(late, "Ready")
        await until(lambda: said_full(made) == ["False"] and made.node_status().schedulable)
        assert made.sessions() == 1, "it was never started anew"


async def test_an_agent_whose_disk_is_full_when_another_begins_to_lead_says_so() -> None:
    """Nothing is to be started, and yet its lease is not renewed: what runs once ends there, and comes to no such node."""
    state = Full()
    async with rig() as made:
        made.start(made.agent({"simulated": simulated()}, state_file=state))
        await made.schedulable()
        state.full = True
        made.region.mutate_ack = lambda ack: msgspec.structs.replace(ack, epoch=ack.epoch + 1)
        await until(lambda: said_full(made) == ["True"] and not made.node_status().schedulable)
        state.full = False
        await until(lambda: said_full(made) == ["False"] and made.node_status().schedulable)


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


async def test_a_port_that_another_instance_of_the_node_has_is_waited_for_and_the_instance_says_so() -> None:
    async with rig() as made:
        driver = simulated()
        host = made.agent({"simulated": driver})
        made.start(host)
        await made.schedulable()
        named = msgspec.structs.replace(SIMULATED, ports=(Port(name="http", port=8080),), stop_grace_seconds=0.0)
        first = await made.place("api", named)
        await made.reaches(first, "Ready")
        second = await made.place("web", named)
        told = "port 8080 is taken by risk/api-0"
        await until(lambda: (found := made.instance(second)) is not None and found.status.message == told)
        assert id_of(second) not in driver.world.starts
        await made.move(first, SlotState.DRAINING, Role.DISRUPTION)
        await made.reaches(first, "Released")
        await made.reaches(second, "Ready")
        assert made.instance(second).status.ports == {"http": 8080}  # type: ignore[union-attr]


async def test_a_slot_that_is_withdrawn_while_it_is_prepared_keeps_no_port() -> None:
    async with rig() as made:
        driver = simulated()
        host = made.agent({"simulated": driver})
        prepared, go, prepare = asyncio.Event(), asyncio.Event(), host._launcher.prepare

        async def slow(*args: Any) -> Launch:
            launch = await prepare(*args)
            prepared.set()
            await go.wait()
            return launch

        host._launcher.prepare = slow  # type: ignore[method-assign, assignment]
        made.start(host)
        await made.schedulable()
        name = await made.place("api", msgspec.structs.replace(SIMULATED, ports=(Port(name="http"), Port(name="own", port=80))))
        await prepared.wait()
        assert len(host._launcher._ports._taken) == 2
        await made.move(name, SlotState.DRAINING, Role.DISRUPTION, deadline_s=0.1)
        await until(lambda: host.nodes["n1"].slots[id_of(name)].binding.status.drain_deadline_time is not None)  # type: ignore[union-attr]
        go.set()
        await made.reaches(name, "Released")
        node = host.nodes["n1"]
        await host.works._forget(node, node.slots[id_of(name)], 0.0)
        assert driver.world.starts == {}
        assert not host._launcher._ports._taken


async def test_a_slot_that_ends_and_goes_before_it_starts_again_keeps_no_port() -> None:
    async with rig() as made:
        driver = simulated()
        made.start(made.agent({"simulated": driver}, keep_ended_s=600.0))
        await made.schedulable()
        named = msgspec.structs.replace(SIMULATED, ports=(Port(name="http", port=8080),))
        first = await made.place("api", named)
        await made.reaches(first, "Ready")
        driver.end(id_of(first), Exit(1, "exited"))
        await made.move(first, SlotState.DRAINING, Role.DISRUPTION)
        await made.reaches(first, "Released")
        ok(await made.plane.send(made.roles[Role.ASSIGNMENT], Delete("Binding", "risk", first)))
        second = await made.place("web", named)
        await made.reaches(second, "Ready")


async def test_what_is_confirmed_while_it_is_started_does_not_end_at_the_time_it_was_started_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its shim was given an end, and would keep to it whatever its agent knows."""
    # As if it were above what stays of a grant, which is confirmed a moment later.
    monkeypatch.setattr(placing, "provisional_until", lambda ctx, *_: ctx.now + timedelta(hours=1))
    async with rig() as made:
        driver = simulated()
        said: list[float] = []

        async def prolong(id: InstanceId, lasts: float) -> None:
            if id in driver.world.running:  # nobody reads it before
                said.append(lasts)

        driver.prolong = prolong  # type: ignore[method-assign]
        host = made.agent({"simulated": driver})
        prepared, go, prepare = asyncio.Event(), asyncio.Event(), host._launcher.prepare

        async def slow(*args: Any) -> Launch:
            launch = await prepare(*args)
            prepared.set()
            await go.wait()
            return launch

        host._launcher.prepare = slow  # type: ignore[method-assign, assignment]
        made.start(host)
        await made.schedulable()
        node = host.nodes["n1"]
        node.settle = lambda ack, sent: []  # type: ignore[method-assign]  # by its binding, not by a heartbeat's answer
        node.grants = Granted(default=made.plane.clock.monotonic() + 3600.0)
        name = await made.place("api", SIMULATED)
        await prepared.wait()
        slot = node.slots[id_of(name)]
        await until(lambda: not slot.provisional)
        go.set()
        await made.reaches(name, "Ready")
        assert driver.world.running[id_of(name)].lasts < math.inf
        await until(lambda: said == [math.inf])

        assert not host._launcher._holders
