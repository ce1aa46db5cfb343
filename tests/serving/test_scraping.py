"""How busy replicas say they are: what counts as an answer, and the way from the page of a sample to more replicas of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.plane import Expired
from fairlead.compose.config import Peer, PlaneConfig
from fairlead.compose.plane import PlaneServer
from fairlead.controllers.autoscaler import AutoscalerController
from fairlead.controllers.runtime import Runtime
from fairlead.decide.admission import faults
from fairlead.decide.loads import BELIEVED_MS, LOAD, mean
from fairlead.model.codec import encode
from fairlead.model.commands import Put
from fairlead.model.kinds.intent import (
    Autoscaler,
    AutoscalerMetric,
    AutoscalerSpec,
    StageCounts,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from fairlead.model.kinds.work import Endpoint, Endpoints, EndpointsSpec
from fairlead.model.meta import Metadata
from fairlead.model.registry import KINDS
from fairlead.ports import SystemClock, SystemIds
from fairlead.samples.program import Site
from fairlead.serving.http_get import Got, get
from fairlead.serving.scraping import ASKED_MAX, AT_ONCE, Scraper, figure_in
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, FakeClock, ok
from tests.controllers.test_planes import world

NOW = 1_700_000_000_000
BUSY = AutoscalerMetric(name="busy", port="http")
PAGE = b"""# HELP busy How busy it is.
# TYPE busy gauge
busy 0.5
busy_total{of="all"} 9
requests{code="200",path="/a b}"} 3 1700000000000
requests{code="500"} 1
broken NaN
worse
"""


@pytest.mark.parametrize(
    ("body", "name", "figure"),
    [
        (PAGE, "busy", 0.5),
        (PAGE, "requests", 4.0),
        (PAGE, "busy_total", 9.0),
        (PAGE, "broken", None),
        (PAGE, "worse", None),
        (PAGE, "bus", None),
        (b' {"load": {"busy": 0.25, "well": true, "low": -1}}', "load.busy", 0.25),
        (b'{"load": {"busy": 0.25, "well": true, "low": -1}}', "load.well", None),
        (b'{"load": {"busy": 0.25, "well": true, "low": -1}}', "load.low", None),
        (b'{"load": {"busy": 0.25}}', "load", None),
        (b'{"load": {"busy": 0.25}}', "load.busy.more", None),
        (b'{"load": ', "load", None),
        (b'{"load": 1' + b"0" * 400 + b"}", "load", None),
        (b"\xff\xfe", "busy", None),
        (b"", "busy", None),
        (b"busy +Inf\nbusy -Inf\n", "busy", None),
        (b"busy 1.7e308\nbusy 1.7e308\n", "busy", None),
    ],
)
def test_a_figure_is_read_from_prometheus_text_or_json_and_nothing_else_is_believed(
    body: bytes, name: str, figure: float | None
) -> None:
    assert figure_in(body, name) == figure


def test_the_mean_counts_where_half_of_those_that_serve_have_said_it() -> None:
    assert mean([0.5, 1.0, None], 3, 1.0) == (750, "")
    assert mean([30.0], 1, 60.0) == (500, "")
    assert mean([0.5, None, None], 3, 1.0) == (None, "1 of 3 that serve said how busy they are")
    assert mean([0.5], 3, 1.0)[0] is None, "a region did not say who serves there"
    assert mean([], 0, 1.0)[0] is None
    assert mean([1e9], 1, 1.0)[0] is None, "somebody has the unit wrong"
    assert mean([1e308], 1, 1.0) == (None, "inf thousandths is not a load: what is `full`?")
    assert mean([1e308, 1e308], 2, 1.0)[0] is None


@pytest.mark.parametrize(
    "metric",
    [
        AutoscalerMetric(name=""),
        AutoscalerMetric(name="busy now"),
        AutoscalerMetric(name="busy", path="metrics"),
        AutoscalerMetric(name="busy", path="/a b"),
        AutoscalerMetric(name="busy", path="/a\r\nHost: other"),
        AutoscalerMetric(name="busy", port="HTTP!"),
        AutoscalerMetric(name="busy", full=0.0),
        AutoscalerMetric(name="busy", full=float("nan")),
    ],
)
def test_a_metric_that_cannot_be_asked_for_is_refused(metric: AutoscalerMetric) -> None:
    found = [fault.path for fault in faults(KINDS["autoscalers"], scaler(metric), None)]
    assert found
    assert all(path.startswith("spec.metric.") for path in found)
    assert faults(KINDS["autoscalers"], scaler(BUSY), None) == ()


def scaler(metric: AutoscalerMetric | None = BUSY, tenant: str = "risk") -> Autoscaler:
    meta = Metadata(name="s", namespace=tenant, annotations={LOAD: "5000@2030-01-01T00:00:00Z"})
    return Autoscaler(metadata=meta, spec=AutoscalerSpec(workload="api", max_replicas=20, metric=metric, up_wait_seconds=1.0))


class Told:
    """A plane that has these objects; None: it does not answer."""

    def __init__(self, **objects: Any) -> None:
        self.objects, self.now_ms = objects, NOW

    def plane_ms(self) -> int:
        return self.now_ms

    async def list(self, plural: str) -> list[Any]:
        return [SimpleNamespace(hot=each) for each in self.objects[plural]]

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Any:
        found = self.objects[plural]
        if found is None:
            raise Expired("nobody answers", 0)
        return SimpleNamespace(raw=encode(found))


def served(count: int, ports: dict[str, int]) -> Endpoints:
    slots = tuple(Endpoint(slot, "n", f"10.0.0.{slot}", ports) for slot in range(count))
    return Endpoints(Metadata(name="api", namespace="risk"), EndpointsSpec(endpoints=slots))


def counted(serving: int) -> Workload:
    status = WorkloadStatus(replicas=StageCounts(serving=serving))
    return Workload(Metadata(name="api", namespace="risk"), WorkloadSpec(replicas=serving), status)


class Pages:
    """Every replica is half busy, but those that are not there."""

    def __init__(self, *gone: str, status: int = 200) -> None:
        self.gone, self.status = gone, status
        self.asked: list[tuple[str, int, str]] = []
        self.at_once = self.most_at_once = 0

    async def fetch(self, address: str, port: int, path: str, timeout_s: float) -> Got:
        self.asked.append((address, port, path))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return Got(error="Timeout") if address in self.gone else Got(self.status, b"busy 0.5\n")


async def read(scraper: Scraper, now_ms: int = NOW, metric: AutoscalerMetric | None = BUSY) -> Any:
    await scraper.look()
    return scraper.reported(scaler(metric), now_ms)


def made(pages: Pages, top: Told, **regions: Told) -> Scraper:
    planes: Any = regions
    above: Any = top
    return Scraper(above, planes, FakeClock(), pages.fetch)


async def test_every_replica_that_a_region_names_is_asked_at_its_own_port() -> None:
    ports = {"admin": 9, "http": 80}
    top = Told(autoscalers=[scaler()], workloads=counted(3))
    pages = Pages()
    scraper = made(pages, top, east=Told(endpoints=served(2, ports)), west=Told(endpoints=served(1, ports)))
    assert scraper.reported(scaler(), NOW).permille is None, "nobody was asked yet"
    assert (await read(scraper)).permille == 500
    assert sorted(pages.asked) == [("10.0.0.0", 80, "/metrics"), ("10.0.0.0", 80, "/metrics"), ("10.0.0.1", 80, "/metrics")]
    assert scraper.reported(scaler(), NOW + BELIEVED_MS + 1000).permille is None, "that was a while ago"
    other = AutoscalerMetric(name="busy", port="admin")
    assert scraper.reported(scaler(other), NOW).permille is None, "something else was asked for"
    top.objects["autoscalers"] = [scaler(None)]
    await scraper.look()
    assert scraper._readings == {}


@pytest.mark.parametrize(
    ("pages", "serving", "west", "permille"),
    [
        (Pages("10.0.0.0"), 2, served(0, {}), 500),
        (Pages("10.0.0.0", "10.0.0.1"), 2, served(0, {}), None),
        (Pages(), 4, None, 500),
        (Pages(), 5, None, None),
        (Pages(status=404), 2, served(0, {}), None),
        (Pages(), 5, served(3, {"other": 1}), None),
    ],
)
async def test_those_that_do_not_answer_are_missed(pages: Pages, serving: int, west: Any, permille: int | None) -> None:
    top = Told(autoscalers=[scaler()], workloads=counted(serving))
    scraper = made(pages, top, east=Told(endpoints=served(2, {"http": 80})), west=Told(endpoints=west))
    found = await read(scraper)
    assert found.permille == permille
    assert bool(found.silent) is (permille is None)


async def test_of_very_many_some_are_asked_and_few_at_a_time() -> None:
    pages, many = Pages(), 5 * ASKED_MAX + 1
    top = Told(autoscalers=[scaler()], workloads=counted(many))
    scraper = made(pages, top, east=Told(endpoints=served(many, {"http": 80})))
    assert (await read(scraper)).permille == 500
    assert ASKED_MAX / 2 < len(pages.asked) <= ASKED_MAX
    assert pages.most_at_once <= AT_ONCE


ODD = AutoscalerMetric(name="busy", port="http", path="/odd")


@pytest.mark.parametrize("page", [b"busy 1e308\n", b"busy +Inf\nbusy -Inf\n", b"busy 1.7e308\nbusy 1.7e308\n", None])
async def test_what_one_services_replicas_say_keeps_no_other_from_being_read(page: bytes | None) -> None:
    """None: to ask them fails in a way that nobody thought of."""
    pages = Pages()

    async def fetch(address: str, port: int, path: str, timeout_s: float) -> Got:
        if path != ODD.path:
            return await pages.fetch(address, port, path, timeout_s)
        if page is None:
            raise RuntimeError("never seen before")
        return Got(200, page)

    top: Any = Told(autoscalers=[scaler(ODD), scaler(tenant="billing")], workloads=counted(1))
    east: Any = Told(endpoints=served(1, {"http": 80}))
    scraper = Scraper(top, {"east": east}, FakeClock(), fetch)
    await scraper.look()
    assert scraper.reported(scaler(tenant="billing"), NOW).permille == 500
    found = scraper.reported(scaler(ODD), NOW)
    assert found.permille is None
    assert found.silent not in ("", "its replicas have not been asked yet")


@asynccontextmanager
async def sample(site: Site) -> AsyncIterator[int]:
    server = await asyncio.start_server(site._connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_sample_that_is_asked_much_says_so_and_gets_more_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two planes with their controllers; all replicas are one sample here, which answers over HTTP."""
    monkeypatch.setenv("CAPACITY_PER_S", "1")
    site = Site(lambda query: "here\n", asyncio.Event())
    async with sample(site) as port, world() as w:

        async def fetch(address: str, wanted: int, path: str, timeout_s: float) -> Got:
            assert wanted == 8000, "as its agent says"
            return await get("127.0.0.1", port, path, timeout_s)

        scraper = Scraper(w.top.local, {REGION: w.low.local}, w.top.plane.clock, fetch)
        w.top.control(AutoscalerController(scraper))
        await w.apply()
        await w.until(lambda: w.serves(2))
        ok(await w.top.plane.send(OPERATOR, Put("Autoscaler", scaler())))
        for _ in range(14):  # in ten seconds, of ten that it could answer
            assert (await get("127.0.0.1", port, "/", 1.0)).status == 200
        assert (await get("127.0.0.1", port, "/metrics", 1.0)).body == b"# TYPE busy gauge\nbusy 1.400\n"
        await scraper.look()
        await w.until(lambda: w.workload().spec.replicas == 4)  # type: ignore[union-attr]
        await w.until(lambda: w.serves(4))


async def test_the_server_of_the_global_plane_asks_the_replicas_of_every_region(tmp_path: Path) -> None:
    peers = (Peer(region="eu", addresses=("http://127.0.0.1:1",)),)
    config = PlaneConfig(plane="global", store="memory:", data=str(tmp_path), peers=peers)
    server = PlaneServer(config, MemoryStore(MemoryDisk()), SystemClock(), SystemIds(), random.Random(1))
    parts = server._new_parts()
    (scraper,) = [part for part in parts if isinstance(part, Scraper)]
    (scaling,) = [part.controller for part in parts if isinstance(part, Runtime) and part.controller.name == "autoscaler"]
    assert isinstance(scaling, AutoscalerController)
    assert scaling._asked is scraper
    assert list(scraper._regions) == ["eu"]
