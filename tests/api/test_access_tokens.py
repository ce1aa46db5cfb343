"""Access by token: who is asking, what bindings let them do and see, and that what is taken away is gone at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.requests import Request

from fairlead.api.access import Identity as Shown
from fairlead.api.authz import Access
from fairlead.api.identity import Authenticator, Proven, Unauthenticated
from fairlead.decide.access import Question
from fairlead.model.commands import Accepted, Caller, Command, Delete, Refused
from fairlead.model.kinds.access import SYSTEM_TENANT, ServiceAccount, Subject
from fairlead.model.kinds.intent import Config
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.security.directory import AccessDirectory, NotReady
from tests.api.guarded import CI, guarded
from tests.authority.planes import OPERATOR, FakeClock, ok
from tests.security.rules import bound

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
