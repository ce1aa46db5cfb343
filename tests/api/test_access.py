"""Access end to end: a real plane, real credentials over real sockets, and every way in that a caller has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.api.access import Identity as Shown
from fairlead.api.authz import Access
from fairlead.api.identity import Authenticator, Proven, Unauthenticated
from fairlead.api.identity_routes import JOIN_PATH, RENEW_PATH, joining_routes
from fairlead.api.socket import channel_route
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.authority.service import PlaneService
from fairlead.client.channel import Channel, Closed
from fairlead.client.dial import Dialer
from fairlead.client.remote import RemotePlane
from fairlead.decide.access import Identity, Question
from fairlead.model.commands import Accepted, Caller, Command, Delete, Put, PutStatus, Refused
from fairlead.model.kinds.access import SYSTEM_TENANT, NodeProfile, ServiceAccount, Subject, Token, TokenSpec
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Config, FileMount, Secret, SecretSpec, Template
from fairlead.model.kinds.work import Ask, Revision, RevisionSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemIds, Tasks
from fairlead.security import certificates, tokens
from fairlead.security.certificates import Named, Pair, new_request
from fairlead.security.directory import AccessDirectory, NotReady
from fairlead.security.holdings import PlaneHoldings
from fairlead.security.joining import Joined, Joining
from fairlead.security.tls import ServerTls
from tests.authority.planes import GI, OPERATOR, REGION, FakeClock, PlaneForTest, bind_of, ok, report_of, running_plane
from tests.security.places import Place, serving
from tests.security.rules import bound, component

CI = Subject(kind="ServiceAccount", name="ci", tenant="risk")


class Guarded:
    """A region's plane with everything that guards it."""

    def __init__(self, plane: PlaneForTest, place: Place) -> None:
        self.plane = plane
        self.place = place
        authority = plane.authority
        self.local = LocalPlane(authority, plane.clock)
        self.directory = AccessDirectory(self.local, plane.clock)
        self.authenticator = Authenticator(self.directory, region=REGION)
        holdings = PlaneHoldings(self.get, authority.bound_to)
        self.access = Access(self.directory, "region", self.get, holdings, REGION)
        self.joining = Joining(self.local, plane.clock, place.issuer, REGION)

    def get(self, plural: str, tenant: str, name: str) -> Any:
        return self.plane.authority.view().get(plural, tenant, name)

    def now(self) -> datetime:
        return self.directory.now()

    async def put(self, kind: str, value: Any) -> Accepted:
        return ok(await self.plane.send(OPERATOR, Put(kind, value)))

    async def bind_role(self, role: str, tenants: str, *subjects: Subject) -> None:
        name = f"{role}-{len(self.directory.bindings())}"
        await self.put("AccessBinding", bound(role, tenants, *subjects, name=name))

    async def token(self, subject: Subject, lifetime: timedelta = timedelta(hours=1), **spec: Any) -> tuple[str, Token]:
        """(what its owner has, what is stored)"""
        tenant = subject.tenant or SYSTEM_TENANT
        minted = tokens.mint(SystemIds(), tenant)
        stored = Token(
            metadata=Metadata(name=minted.name, namespace=tenant),
            spec=TokenSpec(hash=minted.hash, subject=subject, expiry_time=self.now() + lifetime, **spec),
        )
        await self.put("Token", stored)
        return minted.text.reveal(), stored

    async def join_token(self, node: str, region: str = REGION, lifetime: timedelta = timedelta(hours=1)) -> tuple[str, Token]:
        minted = tokens.mint(SystemIds(), SYSTEM_TENANT, join=True)
        profile = NodeProfile(node=node, region=region, zone="a", labels={"disk": "ssd"}, capacity=Resources(8000, 16 * GI))
        spec = TokenSpec(purpose="Join", hash=minted.hash, expiry_time=self.now() + lifetime, profile=profile)
        stored = Token(metadata=Metadata(name=minted.name, namespace=SYSTEM_TENANT), spec=spec)
        await self.put("Token", stored)
        return minted.text.reveal(), stored

    async def revoke(self, token: Token) -> None:
        await self.put("Token", replace(token, spec=replace(token.spec, revoked=True)))

    def asked(self, text: str | None = None, *, scheme: str = "https", host: str = "10.0.0.9", **more: str) -> HTTPConnection:
        headers = [(b"authorization", f"Bearer {text}".encode())] if text is not None else []
        headers += [(name.encode(), value.encode()) for name, value in more.items()]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers, "scheme": scheme}
        return HTTPConnection({**scope, "server": ("plane", 443), "client": (host, 5000), "state": {}})

    def identify(self, text: str, **more: str) -> Identity:
        return self.authenticator.identify(self.asked(text, **more))


@asynccontextmanager
async def guarded(tmp_path: Path, clock: FakeClock | None = None) -> AsyncIterator[Guarded]:
    async with running_plane(clock=clock, settings=Settings(region=REGION)) as plane:
        made = Guarded(plane, Place(tmp_path))
        await made.directory.load()
        yield made


# --- tokens --------------------------------------------------------------------------------------------------------------------


async def test_a_token_says_who_is_asking_and_bindings_what_they_may(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        text, _ = await world.token(Subject(name="ada"))
        ada = world.identify(text)
        assert (ada.kind, ada.name, ada.actor, ada.source) == ("user", "ada", "user:ada", "10.0.0.9:5000")
        assert world.access.authorise(ada, "create", "workloads", "risk", "api")
        assert not world.access.authorise(ada, "create", "workloads", "search", "api")
        caller = world.access.caller(ada, Question("create", "workloads", "risk", "api"))
        assert caller == Caller("user:ada", Role.USER, tenant="risk")
        assert isinstance(world.access.caller(ada, Question("create", "nodes", "", "n")), Refused)
        said = world.access.correlation(ada, "gen-7")
        assert said.startswith("gen-7 from 10.0.0.9:5000 by token fairlead-system/")
        assert text.rpartition(".")[2] not in said


@pytest.mark.parametrize("spoil", ["secret", "name", "tenant", "join", "short", "empty", "basic", "twice", "plain"])
async def test_a_wrong_credential_is_turned_away_without_a_hint(tmp_path: Path, spoil: str) -> None:
    async with guarded(tmp_path) as world:
        text, stored = await world.token(Subject(name="ada"))
        secret = text.rpartition(".")[2]
        wrong = {
            "secret": text[:-64] + "0" * 64,
            "name": f"flt_{SYSTEM_TENANT}.other.{secret}",
            "tenant": f"flt_risk.{stored.metadata.name}.{secret}",
            "join": "flj_" + text[4:],
            "short": text[:-1],
            "empty": "",
        }
        if spoil in wrong:
            with pytest.raises(Unauthenticated, match=r"^the token is not valid$"):
                world.identify(wrong[spoil])
            return
        asked = {
            "basic": world.asked(None, authorization="Basic " + text),
            "twice": world.asked(text, authorization="Bearer " + text),
            "plain": world.asked(text, scheme="http"),
        }[spoil]
        with pytest.raises(Unauthenticated):
            world.authenticator.identify(asked)
        assert world.authenticator(Request(asked.scope)) is None


async def test_a_token_is_taken_in_the_open_from_this_machine_only(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, _ = await world.token(Subject(name="ada"))
        assert world.identify(text, scheme="http", host="127.0.0.1").name == "ada"
        with pytest.raises(Unauthenticated, match="over TLS only"):
            world.identify(text, scheme="http", host="10.0.0.9")


async def test_nobody_without_a_credential_and_nobody_before_the_rules_are_known(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        with pytest.raises(Unauthenticated):
            world.authenticator.identify(world.asked())
        text, _ = await world.token(Subject(name="ada"))
        cold = AccessDirectory(world.local, world.plane.clock)
        with pytest.raises(NotReady):
            Authenticator(cold).identify(world.asked(text))
        ada = world.identify(text)
        await world.bind_role("admin", "*", Subject(name="ada"))
        assert world.access.authorise(ada, "get", "nodes", "", "n")
        assert not Access(cold, "region", world.get).authorise(ada, "get", "nodes", "", "n")
        refused = Access(cold, "region", world.get).refuse_command(ada, _command("user:ada"))
        assert refused is not None


def _command(actor: str) -> Any:
    return Command(Caller(actor, Role.OPERATOR), Delete("Node", "", "n"))


async def test_a_revocation_holds_from_the_next_question_on_everywhere(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await world.bind_role("admin", "*", Subject(name="ada"))
        text, stored = await world.token(Subject(name="ada"))
        ada = world.identify(text)
        rows = world.access.filter(ada, "watch", "nodes")
        assert rows is not None
        await world.plane.add_node("n1")
        node = world.get("nodes", "", "n1")
        gate = world.access.gate(ada)
        assert world.access.authorise(ada, "get", "nodes", "", "n1")
        assert rows(node)
        assert gate.may(_command("user:ada")) is None
        await world.revoke(stored)
        with pytest.raises(Unauthenticated, match="revoked"):
            world.identify(text)
        assert not world.access.authorise(ada, "get", "nodes", "", "n1")
        assert not rows(node), "a watch that stands shows nothing more"
        assert gate.may(_command("user:ada")) is not None
        assert "revoked" in world.access.why_not_valid(ada)


async def test_a_deleted_token_and_a_disabled_account_are_refused_at_once(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        account = ServiceAccount(metadata=Metadata(name="ci", namespace="risk"))
        text, stored = await world.token(CI)
        with pytest.raises(Unauthenticated, match="service account"):
            world.identify(text)
        await world.put("ServiceAccount", account)
        who = world.identify(text)
        assert (who.kind, who.name) == ("service", "risk/ci")
        await world.put("ServiceAccount", replace(account, spec=replace(account.spec, disabled=True)))
        with pytest.raises(Unauthenticated, match="disabled"):
            world.identify(text)
        await world.put("ServiceAccount", account)
        assert world.identify(text) == who
        ok(await world.plane.send(OPERATOR, Delete("Token", "risk", stored.metadata.name)))
        with pytest.raises(Unauthenticated):
            world.identify(text)
        assert not world.access.authorise(who, "get", "workloads", "risk", "api")


async def test_a_token_ends_with_plane_time(tmp_path: Path) -> None:
    clock = FakeClock()
    async with guarded(tmp_path, clock) as world:
        await world.bind_role("admin", "*", Subject(name="ada"))
        text, _ = await world.token(Subject(name="ada"), timedelta(seconds=60))
        ada = world.identify(text)
        clock.offset += 1.5
        assert world.access.authorise(ada, "get", "nodes", "", "n")
        for _ in range(60):  # in steps a leader survives
            clock.offset += 1.0
            await world.put("AccessBinding", bound("admin", "*", Subject(name=f"x{clock.offset:.0f}"), name="tick"))
            await clock.sleep(0)
        with pytest.raises(Unauthenticated, match="expired"):
            world.identify(text)
        assert not world.access.authorise(ada, "get", "nodes", "", "n")


async def test_a_binding_taken_away_takes_the_right_with_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await world.bind_role("admin", "*", Subject(name="ada"))
        ada = world.identify((await world.token(Subject(name="ada")))[0])
        assert world.access.authorise(ada, "get", "nodes", "", "n")
        ok(await world.plane.send(OPERATOR, Delete("AccessBinding", "", "admin-0")))
        assert not world.access.authorise(ada, "get", "nodes", "", "n")


async def test_when_a_token_was_used_is_kept_to_the_hour(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, stored = await world.token(Subject(name="ada"))
        world.identify(text)
        commands = world.directory.last_uses()
        assert [type(outcome) for outcome in await world.local.submit(commands)] == [Accepted]
        used = world.directory.token(SYSTEM_TENANT, stored.metadata.name)
        assert used is not None
        assert used.status.last_used_time is not None
        assert (used.status.last_used_time.minute, used.status.last_used_time.second) == (0, 0)
        world.identify(text)
        assert world.directory.last_uses() == [], "once an hour is enough"


async def test_no_secret_of_a_token_is_in_the_store(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, stored = await world.token(Subject(name="ada"))
        world.identify(text)
        raw = world.get("tokens", SYSTEM_TENANT, stored.metadata.name).raw
        assert text.rpartition(".")[2].encode() not in raw
        assert stored.spec.hash.encode() in raw


# --- rows ----------------------------------------------------------------------------------------------------------------------


async def test_no_verb_shows_a_tenant_what_is_another_s(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await world.bind_role("tenant-viewer", "risk", Subject(name="ada"))
        ada = world.identify((await world.token(Subject(name="ada")))[0])
        for tenant in ("risk", "risk-eu", "search"):
            await world.put("Config", Config(metadata=Metadata(name="c", namespace=tenant)))
        for verb in ("list", "watch"):
            assert not world.access.authorise(ada, verb, "configs"), "not all of it"
            accepts = world.access.filter(ada, verb, "configs")
            assert accepts is not None
            assert [row.tenant for row in await world.local.list("configs") if accepts(row)] == ["risk"]
            assert world.access.filter(ada, verb, "secrets") is None
            assert world.access.filter(ada, verb, "nodes") is None
        proven = Proven("user:ada", who=ada)
        assert world.access(proven, "list", "configs", "risk", "", "")
        assert not world.access(proven, "list", "configs", "", "", "")
        assert not world.access(Shown("user:ada", Role.OPERATOR), "list", "configs", "risk", "", ""), "not proven by us"


async def test_the_short_form_of_a_caller_stands_no_higher_than_its_rights(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        for name, role, tenants in (("root", "admin", "*"), ("aud", "auditor", "*"), ("ada", "tenant-admin", "risk")):
            await world.bind_role(role, tenants, Subject(name=name))
        await world.bind_role("break-glass", "*", Subject(name="gus"))
        expected = {
            "root": (Role.OPERATOR, ""),
            "aud": (Role.USER, ""),
            "ada": (Role.USER, "risk"),
            "gus": (Role.BREAK_GLASS, ""),
        }
        for name, standing in expected.items():
            shown = world.authenticator(Request(world.asked((await world.token(Subject(name=name)))[0]).scope))
            assert shown is not None
            assert (shown.name, (shown.role, shown.tenant)) == (f"user:{name}", standing)
        narrow = (await world.token(Subject(name="root"), tenants=("risk",)))[0]
        shown = world.authenticator(Request(world.asked(narrow).scope))
        assert shown is not None
        assert (shown.role, shown.tenant) == (Role.USER, "risk")


# --- agents --------------------------------------------------------------------------------------------------------------------


async def _placed(world: Guarded) -> None:
    """api-0 of risk on n1 with secret db and config c; api-1 on n2 with secret other."""
    await world.plane.add_node("n1")
    await world.plane.add_node("n2")
    await world.plane.grant("risk")
    for tenant, name in (("risk", "db"), ("risk", "other"), ("search", "db")):
        await world.put("Secret", Secret(metadata=Metadata(name=name, namespace=tenant), spec=SecretSpec(data={"k": name})))
    workload = await world.plane.as_role(Role.WORKLOAD)
    for generation, secret in ((1, "db"), (2, "other")):
        template = Template(command=("/bin/api",), files=(FileMount(path="s", secret=secret), FileMount(path="c", config="c")))
        ask = Ask(requests=Resources(1000, GI))
        spec = RevisionSpec(workload="api", workload_uid="u-risk-api", generation=generation, template=template, ask=ask)
        revision = Revision(metadata=Metadata(name=f"api.g{generation}", namespace="risk"), spec=spec)
        ok(await world.plane.send(workload, Put("Revision", revision)))
        twin = replace(revision, metadata=replace(revision.metadata, namespace="search"), spec=replace(spec, workload_uid="u-2"))
        ok(await world.plane.send(workload, Put("Revision", twin)))  # another tenant's workload of the same name, elsewhere
    assigner, scheduler = await world.plane.as_role(Role.ASSIGNMENT), await world.plane.as_role(Role.SCHEDULER)
    for index, node in ((0, "n1"), (1, "n2")):
        ok(await world.plane.request("risk", "api", index, assigner, generation=index + 1))
        ok(await world.plane.send(scheduler, bind_of("risk", f"api-{index}", node, generation=index + 1)))


def agent(node: str = "n1") -> Identity:
    return Identity(name=node, kind="agent", roles=("agent",), node=node, region=REGION)


async def test_an_agent_sees_its_own_bindings_their_revisions_and_their_secrets(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await _placed(world)
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


async def test_an_agent_touches_no_other_node_by_any_command_or_heartbeat(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        await _placed(world)
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
        text, stored = await world.join_token("node-7")
        got = await joined(world, text)
        assert isinstance(got, Joined)
        named = certificates.read(certificates.load(got.certificate)).named
        assert named == Named("agent", "node-7", ("agent",), REGION, stored.metadata.name)
        node = world.get("nodes", "", "node-7").hot
        assert (node.metadata.labels, node.spec.zone, node.spec.allocatable) == ({"disk": "ssd"}, "a", Resources(8000, 16 * GI))
        again = await joined(world, text)
        assert isinstance(again, Refused)
        assert "used before" in again.detail


async def test_of_many_that_come_at_once_with_one_join_token_one_is_let_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, _ = await world.join_token("node-7")
        got = await asyncio.gather(*(joined(world, text) for _ in range(8)))
        assert sum(isinstance(one, Joined) for one in got) == 1
        assert all("used before" in one.detail for one in got if isinstance(one, Refused))


async def test_whoever_lost_the_answer_may_ask_again_with_the_same_key(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        text, _ = await world.join_token("node-7")
        request = new_request()[0]
        for _ in range(3):
            assert isinstance(await joined(world, text, request), Joined)
        assert isinstance(await joined(world, text), Refused)


@pytest.mark.parametrize("spoil", ["secret", "access", "region", "expired", "revoked", "request", "nonsense"])
async def test_a_join_that_is_not_right_gives_nothing_and_spends_nothing(tmp_path: Path, spoil: str) -> None:
    async with guarded(tmp_path) as world:
        region = "us-east" if spoil == "region" else REGION
        text, stored = await world.join_token("node-7", region, timedelta(seconds=-1 if spoil == "expired" else 3600))
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
        assert world.get("nodes", "", "node-7") is None


async def test_the_join_is_in_the_audit_record_with_its_token_and_where_it_came_from(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world:
        heard: list[Any] = []
        submit = world.local.submit

        async def listening(commands: list[Any]) -> Any:
            heard.extend(commands)
            return await submit(commands)

        world.local.submit = listening  # type: ignore[method-assign]
        text, stored = await world.join_token("node-7")
        await joined(world, text)
        assert {(c.caller.actor, c.correlation) for c in heard} == {(f"join:{stored.metadata.name}", "join from 10.0.0.9")}


# --- over real sockets ---------------------------------------------------------------------------------------------------------


def app_of(world: Guarded) -> Starlette:
    async def whoami(request: Request) -> Response:
        shown = world.authenticator(request)
        return Response(shown.name if shown else "", 200 if shown else 401)

    service = PlaneService(world.plane.authority, world.plane.clock)

    async def serve(channel: Channel, socket: Any) -> None:
        await service.serve(channel, world.access.gate(socket.state.identity))

    routes = [Route("/whoami", whoami), channel_route(serve, world.authenticator.admit)]
    return Starlette(routes=[*routes, *joining_routes(world.joining, world.authenticator.identify)])


async def test_an_agent_joins_over_tls_connects_with_its_certificate_renews_it_and_is_cut_off_when_it_is_revoked(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        text, stored = await world.join_token("node-7")
        request, key = new_request()
        async with aiohttp.ClientSession() as session:
            body = {"token": text, "request": request.decode()}
            async with session.post(address + JOIN_PATH, json=body, ssl=world.place.client()) as answer:
                assert answer.status == 200, await answer.text()
                got = await answer.json()
            async with session.post(
                address + JOIN_PATH, json=body | {"request": new_request()[0].decode()}, ssl=world.place.client()
            ) as answer:
                assert (answer.status, (await answer.json())["reason"]) == (403, "Forbidden")
        assert got["authorities"].encode() == world.place.pair.certificate
        mine = world.place.client_with(Pair(got["certificate"].encode(), key), "node-7")
        dialer = Dialer(mine)
        channel = await dialer.dial(address)
        await channel.close()
        again, new_key = new_request()
        async with aiohttp.ClientSession() as session:
            async with session.get(address + "/whoami", ssl=mine) as answer:
                assert await answer.text() == "node-7"
            async with session.post(address + RENEW_PATH, json={"request": again.decode()}, ssl=mine) as answer:
                assert answer.status == 200
                renewed = await answer.json()
            async with session.post(address + RENEW_PATH, json={"request": again.decode()}, ssl=world.place.client()) as answer:
                assert answer.status == 401
            async with session.post(address + JOIN_PATH, data=b"x" * 20_000, ssl=mine) as answer:
                assert answer.status == 413
            async with session.post(address + JOIN_PATH, data=b"{", ssl=mine) as answer:
                assert answer.status == 400
        fresh = Dialer(world.place.client_with(Pair(renewed["certificate"].encode(), new_key), "node-7b"))
        await (await fresh.dial(address)).close()
        await world.revoke(stored)
        for one in (dialer, fresh):
            with pytest.raises(Closed, match="403"):
                await one.dial(address)
            await one.close()


@pytest.mark.parametrize(
    ("named", "welcome"),
    [
        (Named("component", "server-1", ("scheduler",), REGION), True),
        (Named("agent", "n1", ("agent",), REGION), True),
        (Named("agent", "n1", ("agent",), "us-east"), False),
        (Named("user", "ada"), False),
        (None, False),
    ],
)
async def test_the_channel_is_for_components_and_this_region_s_agents(tmp_path: Path, named: Named | None, welcome: bool) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        await world.bind_role("admin", "*", Subject(name="ada"))
        dialer = Dialer(world.place.client(named))
        if welcome:
            await (await dialer.dial(address)).close()
        else:
            with pytest.raises(Closed, match="403"):
                await dialer.dial(address)
        await dialer.close()


async def test_a_wrong_token_is_not_made_good_by_the_certificate_beside_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        await world.bind_role("admin", "*", Subject(name="ada"))
        tls = world.place.client(Named("user", "ada"))
        text, stored = await world.token(Subject(name="eve"))
        async with aiohttp.ClientSession() as session:
            for headers, wanted in (({}, (200, "user:ada")), ({"Authorization": f"Bearer {text}"}, (200, "user:eve"))):
                async with session.get(address + "/whoami", ssl=tls, headers=headers) as answer:
                    assert (answer.status, await answer.text()) == wanted
            await world.revoke(stored)
            async with session.get(address + "/whoami", ssl=tls, headers={"Authorization": f"Bearer {text}"}) as answer:
                assert answer.status == 401


async def test_a_revoked_certificate_and_one_that_ended_meanwhile_are_refused_on_a_connection_that_stands(tmp_path: Path) -> None:
    clock = FakeClock()
    async with guarded(tmp_path, clock) as world, serving(app_of(world), ServerTls(world.place.files)) as address:
        pair = world.place.authority.issue(
            Named("user", "ada"), certificates.instant(world.plane.clock.wall()), lifetime=timedelta(minutes=5)
        )
        tls = world.place.client_with(pair, "ada")

        async def status(session: aiohttp.ClientSession) -> int:
            async with session.get(address + "/whoami", ssl=tls) as answer:
                return answer.status

        async with aiohttp.ClientSession() as session:
            assert await status(session) == 200
            print_of = certificates.read(certificates.load(pair.certificate)).fingerprint
            spec = TokenSpec(purpose="Certificate", hash=print_of, revoked=True, reason="lost")
            token = Token(metadata=Metadata(name="lost", namespace=SYSTEM_TENANT), spec=spec)
            await world.put("Token", token)
            assert await status(session) == 401
            ok(await world.plane.send(OPERATOR, Delete("Token", SYSTEM_TENANT, "lost")))
            assert await status(session) == 200
        who = world.authenticator._by_certificate(certificates.load(pair.certificate).public_bytes(Encoding.DER), "here")
        assert world.directory.why_not_valid(who) == ""
        ends = who.expiry_ms / 1000 + certificates.SKEW.total_seconds()
        wall = clock.wall
        clock.wall = lambda: ends - 1  # type: ignore[method-assign]
        assert world.directory.why_not_valid(who) == ""
        clock.wall = lambda: ends + 1  # type: ignore[method-assign]
        assert "expired" in world.directory.why_not_valid(who)
        clock.wall = wall  # type: ignore[method-assign]


async def test_over_a_real_channel_an_agent_sees_and_says_what_is_its_own_node_s(tmp_path: Path) -> None:
    async with guarded(tmp_path) as world, serving(app_of(world), ServerTls(world.place.files)) as address, Tasks() as tasks:
        await _placed(world)
        dialer = Dialer(world.place.client(Named("agent", "n1", ("agent",), REGION)))
        remote = RemotePlane([address], dialer.dial, world.plane.clock, random.Random(1))
        tasks.start(remote.run(), "remote")
        async with asyncio.timeout(10):
            await remote.wait_connected()
        shown = {
            plural: [row.name for row in await remote.list(plural)] for plural in ("nodes", "bindings", "secrets", "revisions")
        }
        assert shown == {"nodes": ["n1"], "bindings": ["api-0"], "secrets": ["db"], "revisions": ["api.g1"]}
        assert await remote.get("secrets", "risk", "other") is None
        with pytest.raises(Exception, match="tokens"):
            await remote.list("tokens")
        own, other = Caller("n1", Role.AGENT, node="n1"), Caller("n2", Role.AGENT, node="n2")
        outcomes = await remote.submit([Command(own, report_of("risk", "api-0", SlotState.STARTING))])
        assert isinstance(outcomes[0], Accepted)
        for caller, body in ((own, report_of("risk", "api-1", SlotState.STARTING)), (other, report_of("risk", "api-1", None))):
            outcomes = await remote.submit([Command(caller, body)])
            assert isinstance(outcomes[0], Refused), outcomes
        assert world.get("bindings", "risk", "api-1").hot.state is SlotState.BOUND
        tasks.cancel()
        await dialer.close()
