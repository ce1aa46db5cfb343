"""A component that does not get on is seen by everybody who looks: `get controllers`, `/readyz?verbose` and the metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.components import standing
from fairlead.client import reporting
from fairlead.client.leased import Health
from fairlead.client.plane import Plane
from fairlead.compose import plane as composed
from fairlead.compose.controllers import controllers_of
from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Controller, Result, View
from fairlead.controllers.meters import Meters, health_of
from fairlead.controllers.queue import KeyQueue
from fairlead.controllers.runtime import RuntimeSettings
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.meta import Metadata
from fairlead.ports import Clock, system_random
from fairlead.scheduler.meters import STALLED_S
from fairlead.scheduler.meters import Meters as SchedulerMeters
from tests.observe.servers import Served, served
from tests.observe.test_metrics import one, scraped
from tests.observe.work import a_node

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NOW_MS = 1_000_000


class Stuck:
    """Takes the place of the disruption controller: a pure function that is never done."""

    name = "disruption"
    follows = ("nodes",)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (("", item.name),)

    def resync(self, view: View) -> Iterable[Name]:
        return [("", item.name) for item in view.cache.all("nodes")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        return Result((), now_ms)


class Hanging(Stuck):
    """Waits for something that never comes."""

    sweep_s = 1.0

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        return Result()

    async def sweep(self, plane: Plane, clock: Clock) -> list[Any]:
        await asyncio.Event().wait()
        return []


def use(monkeypatch: pytest.MonkeyPatch, stuck: Controller) -> None:
    def with_stuck(*arguments: Any) -> Any:
        return [(stuck if each.name == stuck.name else each, own, other) for each, own, other in controllers_of(*arguments)]

    def hurried(holder: str, of_term: bool) -> RuntimeSettings:
        return RuntimeSettings(holder=holder, of_term=of_term, resync_s=0.5, renew_s=0.2)

    monkeypatch.setattr(composed, "controllers_of", with_stuck)
    monkeypatch.setattr(composed, "RuntimeSettings", hurried)
    monkeypatch.setattr(reporting, "LOOK_S", 0.2)


async def rows(s: Served, token: str) -> dict[str, dict[str, Any]]:
    code, _, text = await s.get("/apis/fairlead.dev/v1alpha1/controllers", token, TABLE)
    assert code == 200, text
    table = json.loads(text)
    names = [column["name"] for column in table["columnDefinitions"]]
    return {row["cells"][0]: dict(zip(names, row["cells"], strict=True)) for row in table["rows"]}


@pytest.mark.parametrize(("stuck", "reason"), [(Stuck(), "NeverSettles"), (Hanging(), "NeverEnds")])
async def test_a_controller_that_never_ends_its_work_shows_in_all_three_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: Controller, reason: str
) -> None:
    use(monkeypatch, stuck)
    async with served(tmp_path) as s:
        token = await s.token("operator")
        await a_node(s, "n0")
        found = await rows(s, token)
        end = s.clock.monotonic() + 60.0
        while found["disruption"]["Stalled"] != "yes":
            assert s.clock.monotonic() < end, found
            await s.clock.sleep(0.1)
            found = await rows(s, token)
        row = found["disruption"]
        assert (row["Plane"], row["Holder"], row["Why"].split(":")[0]) == ("eu", "server-0", reason)
        assert found["assignment"]["Stalled"] == found["scheduler-0"]["Stalled"] == "no"
        code, _, text = await s.get("/readyz?verbose")
        assert f"[-]controller-disruption stalled: {reason}" in text
        assert "[+]controller-scheduler-0 works" in text
        assert (code, text.splitlines()[-1], "n0" in text) == (200, "ready", False)
        metrics = await scraped(s, token)
        assert one(metrics, "controller_stalled", controller="disruption") == 1
        assert one(metrics, "controller_stalled", controller="scheduler-0") == 0


async def test_controllers_are_found_by_discovery_and_read_like_any_kind(tmp_path: Path) -> None:
    async with served(tmp_path, plane="global") as s:
        token = await s.token("operator")
        root = "/apis/fairlead.dev/v1alpha1"
        listed = json.loads((await s.get(root, token))[2])["resources"]
        (row,) = [row for row in listed if row["name"] == "controllers"]
        assert (row["kind"], row["verbs"], row["namespaced"]) == ("Controller", ["get", "list", "watch"], False)
        await s.until(lambda: all(each.serving for each in s.server.components))
        one_of = json.loads((await s.get(f"{root}/controllers/workload", token))[2])
        assert (one_of["kind"], one_of["spec"]["region"], one_of["spec"]["holder"]) == ("Controller", "global", "server-0")
        assert (await s.get(f"{root}/controllers", await s.token("tenant-admin", ("risk",))))[0] == 403
        async with s.http.delete(
            f"{s.server.address}{root}/controllers/workload", headers={"Authorization": f"Bearer {token}"}
        ) as no:
            assert no.status == 405


def lease(holder: str = "server-0", silent_s: float = 0.0, health: Health | None = None) -> Lease:
    renewed = datetime.fromtimestamp(NOW_MS / 1000 - silent_s, tz=UTC)
    spec = LeaseSpec(role="repair-controller", holder=holder, epoch=3, ttl_seconds=10.0, renewed_time=renewed)
    return Lease(metadata=Metadata(name="repair"), spec=spec, status=(health or Health()).status())


@pytest.mark.parametrize(
    ("found", "word", "reason"),
    [
        (lease(), "no", ""),
        (lease(silent_s=15.0), "no", ""),
        (lease(silent_s=15.1), "yes", "NotRenewed"),
        (lease(holder=""), "unheld", "NotHeld"),
        (lease(health=Health(stalled="KeysFail", detail="one")), "yes", "KeysFail"),
        (lease(silent_s=99.0, health=Health(stalled="KeysFail")), "yes", "NotRenewed"),
    ],
)
def test_what_others_see_of_a_lease(found: Lease, word: str, reason: str) -> None:
    assert standing(found, NOW_MS)[:2] == (word, reason)


def test_a_key_that_settles_now_and_then_is_no_stall() -> None:
    queue, key = KeyQueue(system_random()), ("t", "a")
    for at_ms in range(0, 5_000, 100):
        queue.looked(key, at_ms, more=True)
    assert health_of(Meters(), queue, 5_000, 1.0).stalled == "NeverSettles"
    assert health_of(Meters(), queue, 5_000, 2.0).stalled == ""
    queue.looked(key, 5_000, more=False)
    assert health_of(Meters(), queue, 5_000, 1.0).stalled == ""


def test_a_scheduler_with_work_and_no_answer_is_stalled_and_an_idle_one_is_not() -> None:
    meters = SchedulerMeters()
    meters.progress_ms, late_ms = 1_000, 1_001 + int(STALLED_S * 1000)
    assert meters.health(late_ms, has_work=True).stalled == "NeverEnds"
    assert meters.health(late_ms, has_work=False).stalled == ""
    meters.rested_ms = late_ms - 5  # its work has only come
    assert meters.health(late_ms, has_work=True).stalled == ""
