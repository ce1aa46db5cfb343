"""The handlers under the real decision point: tokens, roles, rows, callers, and objects that say too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.watching import AWAY_S
from fairlead.model.commands import Delete
from fairlead.model.kinds.access import AccessRole, AccessRoleSpec, AccessRule, Subject
from fairlead.model.kinds.intent import Config
from fairlead.model.meta import Metadata
from fairlead.ports import Tasks
from tests.api.doors import GROUP, Door, call, node, watching, workload
from tests.api.guarded import Guarded, guarded
from tests.authority.planes import OPERATOR, REGION, FakeClock, ok
from tests.security.rules import bound

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"


@asynccontextmanager
async def ruled(folder: Path, given: FakeClock | None = None) -> AsyncIterator[tuple[Door, Guarded]]:
    async with guarded(folder, given) as world:
        clock = world.plane.clock
        app = make_app(FrontDoor({REGION: world.local}, clock), world.authenticator, world.access, clock=clock)
        yield Door({REGION: world.plane}, {}, app), world


async def test_a_tenants_admin_writes_there_and_sees_nothing_elsewhere(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("admin", "*", Subject(name="root"))
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        root, _ = await world.token(Subject(name="root"))
        ada, _ = await world.token(Subject(name="ada"))
        assert (await call(door, "POST", WORKLOADS, workload("api"), token=ada)).status == 201
        other = f"{GROUP}/namespaces/search/workloads"
        assert (await call(door, "POST", other, workload("web"), token=root)).status == 201
        for method, path in (
            ("GET", other),
            ("GET", f"{other}/web"),
            ("POST", other),
            ("DELETE", f"{other}/web"),
            ("DELETE", other),
        ):
            assert (await call(door, method, path, workload("x"), token=ada)).status == 403, (method, path)
        everywhere = await call(door, "GET", f"{GROUP}/workloads", token=ada)
        assert [item["metadata"]["name"] for item in everywhere.json["items"]] == ["api"], "of all tenants, her rows only"
        assert len((await call(door, "GET", f"{GROUP}/workloads", token=root)).json["items"]) == 2
        assert (await call(door, "POST", f"{GROUP}/nodes", node(f"{REGION}-n1", REGION), token=ada)).status == 403
        assert (await call(door, "POST", f"{GROUP}/nodes", node(f"{REGION}-n1", REGION), token=root)).status == 201


async def test_a_watch_of_everything_shows_the_rows_one_may_see(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("admin", "*", Subject(name="root"))
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        root, _ = await world.token(Subject(name="root"))
        ada, _ = await world.token(Subject(name="ada"))
        async with watching(door, f"{GROUP}/workloads", token=ada) as stream:
            await call(door, "POST", f"{GROUP}/namespaces/search/workloads", workload("web"), token=root)
            await call(door, "POST", WORKLOADS, workload("api"), token=root)
            assert (await stream.next())["object"]["metadata"]["name"] == "api"


async def test_a_revoked_token_ends_its_watches(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        ada, stored = await world.token(Subject(name="ada"))
        async with watching(door, WORKLOADS, token=ada) as stream:
            assert (await call(door, "POST", WORKLOADS, workload("api"), token=ada)).status == 201
            assert (await stream.next())["type"] == "ADDED"
            await world.revoke(stored)
            await world.directory.load()
            await world.bind_role("admin", "*", Subject(name="root"))
            root, _ = await world.token(Subject(name="root"))
            await call(door, "POST", WORKLOADS, workload("web"), token=root)
            event = await stream.next()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 401)
        assert (await call(door, "GET", WORKLOADS, token=ada)).status == 401


async def test_a_watch_ends_with_the_right_to_it(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("admin", "*", Subject(name="root"))
        root, _ = await world.token(Subject(name="root"))
        ada, _ = await world.token(Subject(name="ada"))
        await world.put("AccessBinding", bound("tenant-admin", "risk", Subject(name="ada"), name="hers"))
        async with watching(door, WORKLOADS, token=ada) as stream:
            await call(door, "POST", WORKLOADS, workload("api"), token=root)
            assert (await stream.next())["object"]["metadata"]["name"] == "api"
            await world.bind_role("auditor", "*", Subject(name="eve"))  # a rule that says nothing of her
            await call(door, "POST", WORKLOADS, workload("web"), token=root)
            assert (await stream.next())["object"]["metadata"]["name"] == "web"
            ok(await world.plane.send(OPERATOR, Delete("AccessBinding", "", "hers")))
            await call(door, "POST", WORKLOADS, workload("later"), token=root)
            event = await stream.next()
            assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 403, "Forbidden")
            assert event["object"]["message"] == (await call(door, "GET", f"{WORKLOADS}?watch=1", token=ada)).json["message"]


async def test_a_watch_of_everything_ends_when_one_may_see_a_part_and_a_new_one_shows_that(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("admin", "*", Subject(name="root"))
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        root, _ = await world.token(Subject(name="root"))
        ada, _ = await world.token(Subject(name="ada"))
        await world.put("AccessBinding", bound("auditor", "*", Subject(name="ada"), name="wide"))
        everything = f"{GROUP}/workloads"
        async with watching(door, everything, token=ada) as stream:
            ok(await world.plane.send(OPERATOR, Delete("AccessBinding", "", "wide")))
            await call(door, "POST", f"{GROUP}/namespaces/search/workloads", workload("web"), token=root)
            event = await stream.next()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 403)
        async with watching(door, everything, token=ada) as stream:
            await call(door, "POST", f"{GROUP}/namespaces/search/workloads", workload("web-2"), token=root)
            await call(door, "POST", WORKLOADS, workload("api"), token=root)
            assert (await stream.next())["object"]["metadata"]["name"] == "api"
            bindings = (await call(door, "GET", f"{GROUP}/accessbindings", token=root)).json["items"]
            (own,) = [each["metadata"]["name"] for each in bindings if each["spec"]["role"] == "tenant-admin"]
            ok(await world.plane.send(OPERATOR, Delete("AccessBinding", "", own)))
            await call(door, "POST", WORKLOADS, workload("later"), token=root)
            event = await stream.next()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 403), "nor of rows, when there are none any more"


async def test_a_watch_tells_nothing_while_the_rules_are_not_known_and_everything_after(tmp_path: Path) -> None:
    clock = FakeClock()
    async with ruled(tmp_path, clock) as (door, world):
        await world.bind_role("admin", "*", Subject(name="root"))
        root, _ = await world.token(Subject(name="root"))
        async with watching(door, f"{GROUP}/namespaces/risk/configs", token=root) as stream, Tasks() as tasks:
            await world.put("Config", Config(metadata=Metadata(name="before", namespace="risk")))
            await stream.next()
            feed, world.directory._feed = world.directory._feed, None
            await world.put("Config", Config(metadata=Metadata(name="after", namespace="risk")))
            following = tasks.start(stream.next(), "next")
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert not following.done()
            world.directory._feed = feed
            clock.offset += AWAY_S
            assert (await following)["object"]["metadata"]["name"] == "after"


async def test_a_role_one_does_not_have_cannot_be_handed_on_by_any_verb(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        ada, _ = await world.token(Subject(name="ada"))
        body = {"metadata": {"name": "mine"}, "spec": {"role": "admin", "tenants": ["*"], "subjects": [{"name": "ada"}]}}
        bindings = f"{GROUP}/accessbindings"
        assert (await call(door, "POST", bindings, body, token=ada)).status == 403
        apply = "application/apply-patch+yaml"
        assert (await call(door, "PATCH", f"{bindings}/mine?fieldManager=x", body, token=ada, media=apply)).status == 403


async def test_a_receipt_is_found_by_whoever_sent_the_key(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"), Subject(name="eve"))
        ada, _ = await world.token(Subject(name="ada"))
        eve, _ = await world.token(Subject(name="eve"))
        key = {"idempotency-key": "k"}
        assert (await call(door, "POST", WORKLOADS, workload("api"), token=ada, headers=key)).status == 201
        assert (await call(door, "GET", "/receipts/k", token=ada)).status == 200
        assert (await call(door, "GET", "/receipts/k", token=eve)).status == 404


async def test_what_is_denied_by_name_is_denied_by_every_verb_that_makes_it(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (door, world):
        rule = AccessRule(effect="Deny", verbs=("create", "patch"), kinds=("workloads",), names=("prod",))
        spec = AccessRoleSpec(scope="Tenant", rules=(rule,))
        await world.put("AccessRole", AccessRole(metadata=Metadata(name="not-prod"), spec=spec))
        await world.bind_role("tenant-admin", "risk", Subject(name="ada"))
        await world.bind_role("not-prod", "risk", Subject(name="ada"))
        ada, _ = await world.token(Subject(name="ada"))
        got = await call(door, "POST", WORKLOADS, workload("prod"), token=ada)
        assert (got.status, got.json["reason"]) == (403, "Forbidden")
        assert 'workloads.fairlead.dev "prod" is forbidden' in got.json["message"]
        apply = "application/apply-patch+yaml"
        path = f"{WORKLOADS}/prod?fieldManager=x"
        assert (await call(door, "PATCH", path, workload("prod"), token=ada, media=apply)).status == 403
        assert (await call(door, "POST", WORKLOADS, workload("test"), token=ada)).status == 201
