"""A gate that comes with an installed package, the one docs/scheduling.md shows: a real server loads it; scheduler and authority
both go by it. A server that has it not, or a broken one, refuses what names it and serves everything else."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.commands import Body, Caller, Command, Outcome, Put, PutStatus, Refused
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.work import Ask, Assignment, AssignmentSpec, Revision, RevisionSpec, SlotRange
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import GI, OPERATOR, REGION, agent_of, bind_of
from tests.platform.fleets import GROUP, WAIT_S, Fleet, Pki, call
from tests.platform.packages import GATE, MODULE, PACKAGE, install
from tests.platform.test_repairs import Door, door_of, grant

ADMIN = """\
apiVersion: fairlead.dev/v1alpha1
kind: AccessBinding
metadata: {name: admin}
spec: {role: admin, subjects: [{name: admin}], tenants: ["*"]}
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory that the server imports from."""
    return tmp_path / "packages"


@pytest.fixture
def region(tmp_path: Path, packages: Path) -> Iterator[Fleet]:
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH", ""))))
    made = Fleet(
        tmp_path / "here", Pki(tmp_path / "pki"), f"sqlite:{tmp_path}/here.db", region=REGION, names="a",
        environment={"PYTHONPATH": path}, nodeLeaseS=600.0,
    )  # fmt: skip
    (tmp_path / "here" / "seed" / "access.yaml").write_text(ADMIN)
    try:
        yield made
    finally:
        made.end()


def policy(revision: int, *gates: str) -> Put:
    spec = SchedulerPolicySpec(revision=revision, gates=gates)
    return Put("SchedulerPolicy", SchedulerPolicy(Metadata(name=f"r{revision}"), spec))


def channel(revision: int) -> Put:
    return Put("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=revision)))


async def tried(door: Door, caller: Caller, body: Body) -> Outcome:
    (outcome,) = await door.plane.submit([Command(caller, body)])
    return outcome


async def add_node(door: Door, name: str, memory: int) -> None:
    spec = NodeSpec(region=REGION, zone="a", allocatable=Resources(16_000, memory))
    up = NodeStatus(schedulable=True, health="Ready", session=1)
    await door.send((OPERATOR, Put("Node", Node(Metadata(name=name), spec))), (agent_of(name), PutStatus("Node", "", name, up)))


async def order(door: Door, memory: int) -> Caller:
    """A slot of a workload that the global plane, if there were one, would have assigned; and a scheduler of the test's own."""
    scheduler, mirror = [await door.as_role(role) for role in (Role.SCHEDULER, Role.MIRROR)]
    asked = RevisionSpec(workload="api", workload_uid="u-api", generation=1, ask=Ask(requests=Resources(1000, memory)))
    spec = AssignmentSpec(
        workload="api", workload_uid="u-api", generation=1, region=REGION, priority=500, slots=(SlotRange(first=0, last=0),)
    )
    meta = Metadata(name=f"api.{REGION}", namespace="risk", finalizers=("fairlead.dev/region-released",))
    await door.send(
        (mirror, Put("Revision", Revision(Metadata(name="api.g1", namespace="risk"), asked))),
        (mirror, Put("Assignment", Assignment(meta, spec))),
    )
    return scheduler


async def until(door: Door, nodes: tuple[str, ...], plural: str, holds: Callable[[Any], bool]) -> Any:
    """The one object of that kind, once this holds for it; meanwhile the nodes are heard."""
    deadline = time.monotonic() + WAIT_S
    while not (found := await door.all(plural)) or not holds(found[0]):
        assert time.monotonic() < deadline, (found, door.said())
        await door.plane.heartbeat([(name, 1) for name in nodes])
        await asyncio.sleep(0.05)
    (one,) = found
    return one


def plan() -> dict[str, Any]:
    spec = {"revision": 3, "gates": [GATE]}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "SchedulerPolicy", "metadata": {"name": "r3"}, "spec": spec}
    return {"spec": {"changes": [{"apply": body}]}}


async def said_of_a_plan(region: Fleet) -> tuple[int, str]:
    async with region.pki.session() as session:
        answer = await call(session, "POST", f"{region.addresses['a']}{GROUP}/plans", plan())
        return answer.status, str(answer.body)


async def ready(region: Fleet) -> str:
    async with region.pki.session() as session:
        return await region.readiness(session, "a")


async def test_a_gate_of_an_installed_package_rules_in_the_scheduler_and_in_the_authority(region: Fleet, packages: Path) -> None:
    install(packages)
    async with door_of(region) as door:
        assert f"\n[+]plug-ins {GATE}\n" in await ready(region)
        assert f"policies may name {GATE}, of {PACKAGE}" in region.servers["a"].log.read_text()
        await door.send((OPERATOR, grant(1)), (OPERATOR, policy(1, GATE)), (OPERATOR, channel(1)))
        await add_node(door, "small", 8 * GI)
        scheduler = await order(door, 6 * GI)
        # The scheduler has asked it: 6 of 8 Gi would fit otherwise.
        waits = await until(door, ("small",), "schedulingrequests", lambda found: GATE in found.status.detail)
        refused = await tried(door, scheduler, bind_of("risk", "api-0", "small", policy_revision=1, epoch=waits.spec.epoch))
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.facts["reasons"]) == ("NoFit", {GATE: "2048 Mi of memory would stay free, not 4096"})

        await add_node(door, "large", 16 * GI)
        placed = await until(door, ("small", "large"), "bindings", bool)
        assert placed.node == "large"
        assert (await said_of_a_plan(region))[0] == 200


@pytest.mark.parametrize("how", ["is gone", "is broken"])
async def test_a_server_without_it_refuses_what_names_it_and_serves_on(region: Fleet, packages: Path, how: str) -> None:
    install(packages)
    async with door_of(region) as door:
        await door.send((OPERATOR, grant(1)), (OPERATOR, policy(1, GATE)), (OPERATOR, channel(1)))
        await add_node(door, "large", 64 * GI)
    region.servers["a"].terminate()
    await region.servers["a"].wait_ended()
    region.servers["a"].log.unlink()
    if how == "is gone":
        shutil.rmtree(packages)
    else:
        (packages / f"{MODULE}.py").write_text("import a_module_that_nobody_has\n")

    async with door_of(region) as door:
        refused = await tried(door, OPERATOR, policy(2, GATE))
        assert isinstance(refused, Refused)
        assert (refused.reason, f"'{GATE}' is not loaded here" in refused.detail) == ("PluginMissing", True)
        status, words = await said_of_a_plan(region)
        assert (status, "PluginMissing" in words) == (422, True), words

        # r1 is still in force: nothing is placed as if its gate were not there.
        scheduler = await order(door, GI)
        waits = await until(door, ("large",), "schedulingrequests", bool)
        bound = await tried(door, scheduler, bind_of("risk", "api-0", "large", policy_revision=1, epoch=waits.spec.epoch))
        assert isinstance(bound, Refused)
        assert bound.reason == "PluginMissing"
        await door.send((OPERATOR, policy(2)), (OPERATOR, channel(2)))  # what an operator does about it
        await until(door, ("large",), "bindings", bool)

    log, said = region.servers["a"].log.read_text(), await ready(region)
    assert said.endswith("\nready\n")
    if how == "is gone":
        assert "\n[+]plug-ins none are installed\n" in said
        assert "left out" not in log
    else:
        assert f"\n[-]plug-ins left out: {GATE}; why is in this server's log\n" in said
        (line,) = [line for line in log.splitlines() if "left out" in line]
        for words in (
            GATE,
            f"{MODULE}:MEMORY_RESERVE of {PACKAGE}",
            "a_module_that_nobody_has",
            "repair or uninstall",
        ):
            assert words in line
    assert "Traceback" not in log
