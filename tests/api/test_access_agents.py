"""Access of agents: how a machine joins, and that an agent sees and touches what is its own node's and nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.service import PlaneService
from fairlead.client.channel import REFUSAL, decode, encode
from fairlead.decide.access import Identity
from fairlead.model.commands import Caller, Command, Delete, Put, PutStatus, Refused
from fairlead.model.kinds.access import SYSTEM_TENANT, Subject
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import MIRRORED_UID, Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks
from fairlead.security import certificates
from fairlead.security.certificates import Named, new_request
from fairlead.security.joining import Joined
from tests.api.guarded import Guarded, guarded, placed
from tests.authority.planes import GI, REGION, ok, report_of
from tests.client.queues import Exchange
from tests.security.rules import component

# --- agents --------------------------------------------------------------------------------------------------------------------


def agent(node: str = "n1") -> Identity:
    return Identity(name=node, kind="agent", roles=("agent",), node=node, region=REGION)


async def test_an_agent_sees_its_own_bindings_their_revisions_and_their_secrets(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await placed(world)
        gate = world.access.gate(agent())
        seen = {
            (plural, row.tenant, row.name)
            for plural in (
                "nodes",
                "bindings",
                "instances",
                "revisions",
                "secrets",
                "configs",
                "tenants",
                "grants",
                "leases",
                "tokens",
            )
            for row in await world.local.list(plural)
            if gate.sees(row)
        }
        risk = {(plural, "risk", name) for plural, name in (("bindings", "api-0"), ("revisions", "api.g1"), ("secrets", "db"))}
        assert seen - {("instances", "risk", "api-0")} == risk | {("nodes", "", "n1")}
        assert [gate.lists(plural) for plural in ("bindings", "secrets", "tenants", "tokens")] == [True, True, False, False]
        other = world.access.gate(agent("n2"))
        theirs = [row.name for plural in ("revisions", "secrets") for row in await world.local.list(plural) if other.sees(row)]
        assert theirs == ["api.g2", "other"]


async def test_the_steps_of_a_workload_are_for_components_that_see_the_whole_plane(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world, Tasks() as tasks:
        exchange = Exchange(tasks)
        exchange.services["a"] = PlaneService(world.plane.authority, world.plane.clock)

        async def answer_to(who: Identity) -> Any:
            exchange.gate = world.access.gate(who)
            channel = await exchange.dial("a")
            await channel.send(encode([1, "steps", "risk", "api", 0]))
            answer = decode(await channel.receive())
            await channel.close()
            return answer[1:3]

        assert await answer_to(agent()) == [REFUSAL, "Invalid"]
        assert await answer_to(component("endpoint-reader")) == [REFUSAL, "Invalid"]
        assert await answer_to(component("front-door")) == [REFUSAL, "Expired"], "this plane keeps no history, and says so"
        tasks.cancel()


async def test_an_agent_touches_no_other_node_by_any_command_or_heartbeat(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await placed(world)
        gate = world.access.gate(agent())
        own, other = Caller("n1", Role.AGENT, node="n1"), Caller("n1", Role.AGENT, node="n2")
        assert gate.may(Command(own, report_of("risk", "api-0", None))) is None
        assert gate.may(Command(own, PutStatus("Node", "", "n1", NodeStatus(session=2)))) is None
        assert gate.speaks(["n1"]) is None
        tried = [
            Command(own, report_of("risk", "api-1", None)),
            Command(other, report_of("risk", "api-1", None)),
            Command(own, PutStatus("Node", "", "n2", NodeStatus(session=2))),
            Command(other, PutStatus("Node", "", "n2", NodeStatus(session=2))),
            Command(own, Put("Node", Node(metadata=Metadata(name="n2"), spec=NodeSpec(region=REGION)))),
            Command(own, Delete("Secret", "risk", "db")),
        ]
        assert all(gate.may(command) is not None for command in tried)
        refused = gate.speaks(["n1", "n2"])
        assert refused is not None
        assert refused.reason == "WrongNode"
        stored = world.get("nodes", "", "n1").hot
        for spec in ({"allocatable": Resources(99_000, 64 * GI)}, {"zone": "b"}, {"region": "mars"}):
            lifted = replace(stored, spec=replace(stored.spec, **spec))
            assert gate.may(Command(own, Put("Node", lifted))) is not None
        relabelled = replace(stored, metadata=replace(stored.metadata, labels={"tier": "trusted"}))
        assert gate.may(Command(own, Put("Node", relabelled))) is not None
        assert world.access.refuse_object(agent(), relabelled, stored) is not None
        assert gate.may(Command(own, Put("Node", stored))) is None


async def test_the_authority_itself_lets_no_agent_put_back_what_an_operator_has_just_changed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await world.plane.add_node("n1", labels={"tier": "trusted"})
        read = world.get("nodes", "", "n1").hot
        changed = replace(read, metadata=replace(read.metadata, labels={}))
        await world.put("Node", changed)
        by = Caller("n1", Role.AGENT, node="n1")
        for late in (
            read,
            replace(changed, spec=replace(read.spec, zone="b")),
            replace(changed, spec=replace(read.spec, pool="p")),
        ):
            refused = await world.plane.send(by, Put("Node", late))
            assert isinstance(refused, Refused)
            assert refused.reason == "NotOwner"
        ok(await world.plane.send(by, Put("Node", replace(changed, spec=replace(read.spec, address="10.0.0.7")))))


async def test_an_agent_learns_that_its_binding_is_gone_and_no_other_agent_does(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        before = SimpleNamespace(hot=SimpleNamespace(node="n1"))
        gone: Any = SimpleNamespace(plural="bindings", tenant="risk", name="api-0", raw=None, hot=None, previous=before)
        assert world.access.gate(agent("n1")).sees(gone)
        assert not world.access.gate(agent("n2")).sees(gone)
        gone.previous = None
        assert not world.access.gate(agent("n1")).sees(gone), "nobody can tell whose it was"


async def test_who_may_ask_for_heartbeats_and_receipts(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        node, scheduler = world.access.gate(agent()), world.access.gate(component("scheduler", "s-0"))
        standby = world.access.gate(component("plane-server", "eu-0", region=REGION))
        assert [gate.hears() for gate in (node, scheduler, standby)] == [False, True, True]
        assert [gate.asks("n1") for gate in (node, scheduler, standby)] == [True, False, True]
        assert [gate.asks("n1/report") for gate in (node, scheduler)] == [True, False]
        assert [gate.asks("n10") for gate in (node, scheduler)] == [False, False]
        assert [gate.speaks(["n1", "n2"]) is None for gate in (node, scheduler, standby)] == [False, False, True]


# --- joining -------------------------------------------------------------------------------------------------------------------


async def joined(world: Guarded, text: str, request: bytes | None = None) -> Joined | Refused:
    return await world.joining.join(text, request or new_request()[0], "10.0.0.9")


async def test_a_join_token_gives_one_machine_a_certificate_and_a_node_as_approved(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, stored = await world.join_token(f"{REGION}-node-7")
        got = await joined(world, text)
        assert isinstance(got, Joined)
        named = certificates.read(certificates.load(got.certificate)).named
        assert named == Named("agent", f"{REGION}-node-7", ("agent",), REGION, stored.metadata.name)
        node = world.get("nodes", "", f"{REGION}-node-7").hot
        assert (node.metadata.labels, node.spec.zone, node.spec.allocatable) == ({"disk": "ssd"}, "a", Resources(8000, 16 * GI))
        again = await joined(world, text)
        assert isinstance(again, Refused)
        assert "used before" in again.detail


async def test_a_join_token_of_before_names_began_with_their_region_lets_nobody_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, _ = await world.join_token("node-7", annotations={MIRRORED_UID: "u-1"})
        got = await joined(world, text)
        assert isinstance(got, Refused)
        assert f"node-7 does not begin with {REGION}-, the name of its region" in got.detail
        assert world.get("nodes", "", "node-7") is None


async def test_of_many_that_come_at_once_with_one_join_token_one_is_let_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, _ = await world.join_token(f"{REGION}-node-7")
        got = await asyncio.gather(*(joined(world, text) for _ in range(8)))
        assert sum(isinstance(one, Joined) for one in got) == 1
        assert all("used before" in one.detail for one in got if isinstance(one, Refused))


async def test_whoever_lost_the_answer_may_ask_again_with_the_same_key(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, _ = await world.join_token(f"{REGION}-node-7")
        request = new_request()[0]
        for _ in range(3):
            assert isinstance(await joined(world, text, request), Joined)
        assert isinstance(await joined(world, text), Refused)


@pytest.mark.parametrize("spoil", ["secret", "access", "region", "expired", "revoked", "request", "nonsense"])
async def test_a_join_that_is_not_right_gives_nothing_and_spends_nothing(tmp_path: Path, spoil: str) -> None:
    async with guarded(tmp_path) as world:
        region = "us-east" if spoil == "region" else REGION
        text, stored = await world.join_token(f"{region}-node-7", region, timedelta(seconds=-1 if spoil == "expired" else 3600))
        request = b"no request" if spoil == "request" else None
        if spoil == "access":
            await world.bind_role("admin", "*", Subject(name="ada"))
            text = (await world.token(Subject(name="ada")))[0]
        elif spoil == "revoked":
            await world.revoke(stored)
        text = {"secret": text[:-64] + "0" * 64, "nonsense": "x"}.get(spoil, text)
        assert isinstance(await joined(world, text, request), Refused)
        left = world.directory.token(SYSTEM_TENANT, stored.metadata.name)
        assert left is not None
        assert left.status.spent_key == ""
        assert world.get("nodes", "", f"{region}-node-7") is None


async def test_the_join_is_in_the_audit_record_with_its_token_and_where_it_came_from(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        heard: list[Any] = []
        submit = world.local.submit

        async def listening(commands: list[Any]) -> Any:
            heard.extend(commands)
            return await submit(commands)

        world.local.submit = listening  # type: ignore[method-assign]
        text, stored = await world.join_token(f"{REGION}-node-7")
        await joined(world, text)
        assert {(c.caller.actor, c.correlation) for c in heard} == {(f"join:{stored.metadata.name}", "join from 10.0.0.9")}
