"""`why` of an earlier moment, of an earlier generation, and of one slot: a global plane and a region with archives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from fairlead.client.resources import Unreachable
from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.work import SchedulingRequestStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.api.doors import GROUP, Answer, Door, call, open_door, workload
from tests.authority.planes import GI, OPERATOR, bind_of, ok, request_of

API = f"{GROUP}/namespaces/risk/workloads/api"
MERGE = "application/merge-patch+json"
WAIT_S = 60.0  # for the archive, which is fed twice a second


class Stage(NamedTuple):
    door: Door
    made: dict[str, Any]  # the workload, as it was created

    async def why(self, query: str) -> Answer:
        return await call(self.door, "GET", f"{API}/why?{query}")

    async def until(self, query: str, holds: Callable[[Any], bool]) -> Any:
        """An answer for which that holds: history is written a moment after what it tells."""
        async with asyncio.timeout(WAIT_S):
            while True:
                got = await self.why(query)
                if got.status == 200 and holds(got.json):
                    return got.json
                await asyncio.sleep(0.05)

    async def say(self, index: int, reason: str) -> None:
        us = self.door.planes["us"]
        scheduler = await us.as_role(Role.SCHEDULER)
        status = SchedulingRequestStatus(reason=reason, detail="as told", next_owner="scheduler")
        ok(await us.send(scheduler, PutStatus("SchedulingRequest", "risk", f"api-{index}", status)))

    async def pause(self) -> str:
        """A moment that lies between what was done and what is done next, on both planes' clocks."""
        planes = [plane.authority for plane in self.door.planes.values()]
        at_ms = max(plane.plane_ms() for plane in planes) + 1
        async with asyncio.timeout(WAIT_S):
            while min(plane.plane_ms() for plane in planes) <= at_ms:
                await asyncio.sleep(0.002)
        return quote(datetime.fromtimestamp(at_ms / 1000, UTC).isoformat())


@contextlib.asynccontextmanager
async def stage(folder: Path, *more: str) -> AsyncIterator[Stage]:
    """A workload with two slots that wait for capacity in the region us; `more` regions have nothing of it."""
    async with open_door("us", *more, archive=folder) as door:
        made = await call(door, "POST", f"{GROUP}/namespaces/risk/workloads", workload("api", replicas=2))
        assert made.status == 201, made.body
        us, uid = door.planes["us"], made.json["metadata"]["uid"]
        assigner = await us.as_role(Role.ASSIGNMENT)
        found = Stage(door, made.json)
        await found.pause()  # slots assigned within the millisecond of their workload would stand at its time already
        limit = Resources(8_000, 8 * GI)
        grant = Grant(
            metadata=Metadata(name="us", namespace="risk"), spec=GrantSpec(region="us", version=1, during=limit, after=limit)
        )
        ok(await us.send(OPERATOR, Put("Grant", grant)))
        for index in (0, 1):
            request = request_of("risk", "api", index)
            spec = replace(request.spec, slot=replace(request.spec.slot, uid=uid))
            ok(await us.send(assigner, Put("SchedulingRequest", replace(request, spec=spec), mode="create")))
            await found.say(index, "WaitingForCapacity")
        yield found


def reasons(got: Any) -> list[str]:
    return [one.get("reason", "") for one in got["status"]["slots"]]


def both_told(got: Any) -> bool:
    """The archive has come to where both say what they wait for."""
    return len(reasons(got)) == 2 and "PendingEvaluation" not in reasons(got)


async def test_an_earlier_time_tells_what_was_waited_for_then(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        then = await found.pause()
        for index in (0, 1):
            await found.say(index, "WaitingForQuota")
        assert reasons((await found.why("")).json) == ["WaitingForQuota"] * 2
        told = await found.until(f"at={then}", both_told)
        assert reasons(told) == ["WaitingForCapacity"] * 2
        assert told["status"]["atTime"]
        assert "atTime" not in (await found.why("")).json["status"]


async def test_an_earlier_revision_of_the_workload_is_read_on_every_plane_at_its_time(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        await found.pause()
        patched = await call(found.door, "PATCH", API, {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
        version = patched.json["metadata"]["resourceVersion"]
        await found.pause()
        await found.say(0, "WaitingForQuota")
        await found.until("", lambda got: "WaitingForQuota" in reasons(got))
        told = await found.until(f"at={version}", both_told)
        assert reasons(told) == ["WaitingForCapacity"] * 2
        first = found.made["metadata"]["resourceVersion"]
        told = await found.until(f"at={first}", lambda got: True)
        assert told["status"]["slots"] == [], "nothing was assigned yet"


async def test_an_earlier_generation_is_told_as_it_last_stood(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        await found.pause()
        got = await call(found.door, "PATCH", API, {"spec": {"replicas": 5}}, media=MERGE)
        assert got.json["metadata"]["generation"] == 2
        await found.pause()
        await found.say(1, "WaitingForQuota")
        told = await found.until("generation=1", both_told)
        assert told["metadata"]["generation"] == 1
        assert reasons(told) == ["WaitingForCapacity"] * 2
        now = (await found.why("generation=2")).json
        assert (now["metadata"]["generation"], now["status"]["slots"]) == (2, []), "no slot is of that generation yet"
        none = await found.why("generation=3")
        assert none.status == 404
        assert "it is at 2" in none.json["message"]


async def test_one_slot_is_told_alone_and_one_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        told = (await found.why("slot=1")).json
        assert [one["name"] for one in told["status"]["slots"]] == ["api-1"]
        assert told["status"]["summary"].startswith("api-1 is Pending: WaitingForCapacity: as told")
        assert (await found.why("slot=7")).status == 404
        for bad in ("slot=x", "generation=x", "at=yesterday"):
            assert (await found.why(bad)).status == 400, bad


async def test_a_slot_of_another_workload_that_had_this_name_is_not_told_as_this_ones(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        us = found.door.planes["us"]
        left_over = request_of("risk", "api", 7)  # of one whose uid was another
        ok(await us.send(await us.as_role(Role.ASSIGNMENT), Put("SchedulingRequest", left_over, mode="create")))
        assert (await found.why("slot=7")).status == 404
        assert (await found.why("slot=1")).status == 200


async def test_a_slot_that_is_bound_while_it_is_looked_for_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(tmp_path) as found:
        us, region = found.door.planes["us"], found.door.cuttable["us"]
        await us.add_node("n1")
        scheduler = await us.as_role(Role.SCHEDULER)
        page, bound = region.page, list[str]()

        async def page_then_bind(plural: str, *args: Any, **more: Any) -> Any:
            got = await page(plural, *args, **more)
            if plural == "schedulingrequests" and not bound:
                bound.append(ok(await us.send(scheduler, bind_of("risk", "api-0", "n1"))).key)
            return got

        monkeypatch.setattr(region, "page", page_then_bind)
        told = (await found.why("")).json
        assert bound
        assert [(one["name"], one["state"]) for one in told["status"]["slots"]] == [("api-1", "Pending"), ("api-0", "Bound")]


async def test_a_region_that_is_away_now_hides_nothing_of_the_others_then(tmp_path: Path) -> None:
    async with stage(tmp_path, "eu") as found:
        then = await found.pause()
        await call(found.door, "PATCH", API, {"spec": {"replicas": 5}}, media=MERGE)
        for index in (0, 1):
            await found.say(index, "WaitingForQuota")
        await found.until(f"at={then}", both_told)
        found.door.cuttable["eu"].cut()
        for query in (f"at={then}", "generation=1"):
            got = await found.why(query)
            assert got.status == 200, got.body
            assert reasons(got.json) == ["WaitingForCapacity"] * 2
            assert any("eu is unreachable" in text for text in got.warnings)
        found.door.cuttable["us"].cut()
        assert (await found.why(f"at={then}&region=us")).json["status"]["slots"] == []


async def test_a_region_that_comes_back_meanwhile_is_not_read_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as found:
        then = await found.pause()
        await found.until(f"at={then}", both_told)
        region = found.door.cuttable["us"]
        real = region.revision_at

        async def away(ms: int) -> int:
            await real(ms)
            raise Unreachable("us")

        monkeypatch.setattr(region, "revision_at", away)
        got = await found.why(f"at={then}")
        assert (got.status, got.json["status"]["slots"]) == (200, [])


async def test_beyond_the_horizon_is_410_with_how_far_back_history_reaches(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        await found.until(f"at={await found.pause()}", both_told)
        got = await found.why("at=2020-01-01T00:00:00Z")
        assert got.status == 410
        assert "history does not reach back so far" in got.json["message"]
