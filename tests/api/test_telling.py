"""A workload's timeline and a plane's whole history through the API: a global plane here, a region behind a real channel."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.access import Identity
from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority import telling
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.authority.replay import Replay
from fairlead.authority.service import PlaneService
from fairlead.client.remote import RemotePlane
from fairlead.model.commands import Enqueue
from fairlead.model.lifecycle import Role
from fairlead.ports import SystemClock, Tasks
from fairlead.store.export import read_export
from tests.api.doors import GROUP, Door, authenticate, call, workload
from tests.authority.planes import REGION, bind_of, ok, request_of, running_plane
from tests.client.queues import Exchange

API = f"{GROUP}/namespaces/risk/workloads/api"
WAIT_S = 60.0  # for the archive, which is fed twice a second


def eve_sees_her_tenant(identity: Identity, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
    return identity.name == "ada" or (tenant == "risk" and plural != "audit")


@contextlib.asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Door]:
    """A workload, and a slot of it that was queued and bound in the region; another tenant's slot beside it."""
    clock = SystemClock()
    home_settings = Settings(plane="global", region="global")
    async with (
        running_plane(settings=home_settings, archive=folder / "global") as home,
        running_plane(archive=folder / "region" / "history") as region,
        Tasks() as tasks,
    ):
        exchange = Exchange(tasks)
        exchange.services[REGION] = PlaneService(region.authority, clock)
        remote = RemotePlane([REGION], exchange.dial, clock, random.Random(1), "door")
        tasks.start(remote.run(), "remote")
        await remote.wait_connected()
        front = FrontDoor({"global": LocalPlane(home.authority, clock), REGION: remote}, clock)
        door = Door({"global": home, REGION: region}, {}, make_app(front, authenticate, eve_sees_her_tenant, clock=clock))
        assert (await call(door, "POST", f"{GROUP}/namespaces/risk/workloads", workload("api"))).status == 201
        assigner, scheduler = await region.as_role(Role.ASSIGNMENT), await region.as_role(Role.SCHEDULER)
        await region.add_node("n0")
        for tenant in ("risk", "billing"):
            await region.grant(tenant)
            ok(await region.send(assigner, Enqueue(request_of(tenant, "api", 0), 1)))
            ok(await region.send(scheduler, bind_of(tenant, "api-0", "n0")))
        yield door
        tasks.cancel()


async def told_until(door: Door, path: str, count: int) -> list[Any]:
    async with asyncio.timeout(WAIT_S):
        while True:
            got = await call(door, "GET", path)
            assert got.status == 200, got.body
            if len(got.json["items"]) >= count:
                items: list[Any] = got.json["items"]
                return items
            await asyncio.sleep(0.05)


async def test_a_timeline_has_the_steps_of_every_plane_and_of_nobody_else(tmp_path: Path) -> None:
    async with stage(tmp_path) as door:
        steps = await told_until(door, f"{API}/timeline", 3)
        assert [(one["plane"], one["object"], one["what"].partition(",")[0]) for one in steps] == [
            ("global", "workload/api", "created: 1 replicas of class standard"),
            (REGION, "schedulingrequest/api-0", "queued"),
            (REGION, "binding/api-0", "Bound to n0"),
        ]
        assert steps[2]["by"].startswith("scheduler ")
        none = await call(door, "GET", f"{API}/timeline?since=2100-01-01T00:00:00Z")
        assert none.json["items"] == []
        for query in ("since=yesterday", "since=2026-01-31T12:00:00"):
            assert (await call(door, "GET", f"{API}/timeline?{query}")).status == 400
        assert (await call(door, "POST", f"{API}/timeline", {})).status == 405


async def test_a_tenant_asks_for_its_own_timeline_and_for_no_history(tmp_path: Path) -> None:
    async with stage(tmp_path) as door:
        assert (await call(door, "GET", f"{API}/timeline", token="eve-token")).status == 200
        other = API.replace("/risk/", "/billing/")
        assert (await call(door, "GET", f"{other}/timeline", token="eve-token")).status == 403
        assert (await call(door, "GET", f"/history?region={REGION}", token="eve-token")).status == 403
        assert (await call(door, "GET", "/history?region=mars")).status == 400
        assert (await call(door, "POST", "/history", {})).status == 405


async def test_a_history_comes_in_pieces_and_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "PIECE_BYTES", 500)
    async with stage(tmp_path) as door:
        await told_until(door, f"{API}/timeline", 3)
        whole, token, size = b"", "", 1
        while len(whole) < size:
            got = await call(door, "GET", f"/history?region={REGION}&token={token}&offset={len(whole)}")
            assert got.status == 200, got.body
            token, size = got.json["token"], got.json["size"]
            whole += base64.b64decode(got.json["data"])
        assert size > 1_000, "several pieces"
        assert list((tmp_path / "region").glob("export-*")) == [], "what was read to its end is gone"
        again = await call(door, "GET", f"/history?region={REGION}&token={token}&offset=0")
        assert again.status == 410
    file = tmp_path / "all.history"
    file.write_bytes(whole)
    exported = read_export(file)
    replay = Replay(Settings(region=REGION))
    replay.begin(exported.rows, exported.about.position, exported.about.epoch, exported.about.leader_since_ms)
    replay.feed(exported.batches)
    assert replay.judged > 5
    assert replay.differences == []
