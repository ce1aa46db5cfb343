"""Asks the replicas of services how busy they are, where their Autoscaler says at which page and under which name they tell it.

Owns the pace, how many are asked at once and what counts as an answer. Asks only where a region says that a replica serves: at
the address of its node and a port of its own. Keeps the last reading in memory; writes nothing. Beside the annotation, this is
where loads come from (`Loads`, fairlead/decide/loads.py). Runs with the controllers of the global plane.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.client.plane import Expired, Plane
from fairlead.client.resources import Unreachable
from fairlead.decide.loads import Reported, aged, mean
from fairlead.model.hot import DECODERS
from fairlead.model.kinds.intent import Autoscaler, AutoscalerMetric, Workload
from fairlead.model.kinds.work import Endpoint, Endpoints
from fairlead.ports import Clock, Tasks
from fairlead.serving.http_get import Got
from fairlead.wire.json_codec import parse_json

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0  # a reading is believed for a minute: five may fail
TIMEOUT_S: Final = 2.0
AT_ONCE: Final = 64  # questions under way, of all services
ASKED_MAX: Final = 200  # of one service: the mean of so many is near enough

Fetch = Callable[[str, int, str, float], Awaitable[Got]]  # address, port, path, seconds
Name = tuple[str, str]


class Reading(NamedTuple):
    of: AutoscalerMetric  # what was asked for
    at_ms: int
    permille: int | None  # None: `silent` says why
    silent: str


class Scraper:
    def __init__(self, plane: Plane, regions: Mapping[str, Plane], clock: Clock, fetch: Fetch) -> None:
        self._plane = plane
        self._regions = regions
        self._clock = clock
        self._fetch = fetch
        self._places = asyncio.Semaphore(AT_ONCE)
        self._readings: dict[Name, Reading] = {}

    def reported(self, scaler: Autoscaler, now_ms: int) -> Reported:
        reading = self._readings.get((scaler.metadata.namespace, scaler.metadata.name))
        if reading is None or reading.of != scaler.spec.metric:
            return Reported(None, "its replicas have not been asked yet")
        return aged(reading.permille, now_ms - reading.at_ms, "asked for") if reading.permille is not None else _silent(reading)

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(EVERY_S)

    def stop(self) -> None:
        """It is cancelled with everything that works while this server leads."""

    async def look(self) -> None:
        """Every service with a metric, once."""
        try:
            found = [each.hot for each in await self._plane.list("autoscalers")]
        except (Expired, Unreachable):
            return
        asked: dict[Name, Autoscaler] = {
            (each.metadata.namespace, each.metadata.name): each for each in found if each.spec.metric is not None
        }
        self._readings = {key: reading for key, reading in self._readings.items() if key in asked}
        async with Tasks() as tasks:
            for key, scaler in asked.items():
                tasks.start(self._read_one(key, scaler), f"load of {key[1]}")

    async def _read_one(self, key: Name, scaler: Autoscaler) -> None:
        try:
            await self._read(key, scaler)
        except Exception:  # of one service: those of other tenants are read all the same
            log.exception("the load of %s/%s cannot be read", *key)
            assert scaler.spec.metric is not None, "only those are read"
            silent = "its replicas could not be asked: the server's log says why"
            self._readings[key] = Reading(scaler.spec.metric, self._plane.plane_ms(), None, silent)

    async def _read(self, key: Name, scaler: Autoscaler) -> None:
        metric = scaler.spec.metric
        assert metric is not None, "only those are read"
        at_ms = self._plane.plane_ms()
        serving, there = await self._serving(key[0], scaler.spec.workload)
        sample = there[:: -(-len(there) // ASKED_MAX)] if there else []
        expected = len(sample) if len(sample) < len(there) else max(len(there), serving)
        figures: list[float | None] = [None] * len(sample)

        async def one(index: int, endpoint: Endpoint) -> None:
            async with self._places:
                figures[index] = await self._ask(metric, endpoint)

        async with Tasks() as tasks:
            for index, endpoint in enumerate(sample):
                tasks.start(one(index, endpoint), f"slot {endpoint.slot}")
        permille, silent = mean(figures, expected, metric.full)
        self._readings[key] = Reading(metric, at_ms, permille, silent)

    async def _serving(self, tenant: str, workload: str) -> tuple[int, list[Endpoint]]:
        """How many serve as the global plane counts them, and those that regions name. A region that does not answer names none,
        and is missed in the count."""
        out: list[Endpoint] = []
        counted = await _got(self._plane, "workloads", tenant, workload)
        for region in self._regions.values():
            found = await _got(region, "endpoints", tenant, workload)
            out += found.spec.endpoints if isinstance(found, Endpoints) else ()
        return counted.status.replicas.serving if isinstance(counted, Workload) else 0, out

    async def _ask(self, metric: AutoscalerMetric, endpoint: Endpoint) -> float | None:
        port = endpoint.ports.get(metric.port) if metric.port else next(iter(endpoint.ports.values()), None)
        if port is None:
            return None
        got = await self._fetch(endpoint.address, port, metric.path, TIMEOUT_S)
        return figure_in(got.body, metric.name) if not got.error and got.status == 200 else None


async def _got(plane: Plane, plural: str, tenant: str, name: str) -> object:
    try:
        found = await plane.get(plural, tenant, name)
    except (Expired, Unreachable):
        return None
    return DECODERS[plural].decode(found.raw) if found is not None and found.raw is not None else None


def _silent(reading: Reading) -> Reported:
    return Reported(None, reading.silent)


# --- what a page says ------------------------------------------------------------------------------------------------------


def figure_in(body: bytes, name: str) -> float | None:
    """The figure of that name on a page: a field of a JSON object, with dots between the steps to it; or the sum of its series in
    Prometheus' text form. None: there is none, or it is no number. Whoever answers is not believed in anything else."""
    if body.lstrip()[:1] == b"{":
        return _in_json(parse_json(body), name.split("."))
    lines = body.decode("utf-8", "replace").splitlines()
    found = [value for line in lines if (value := _in_line(line, name)) is not None]
    return _sound(sum(found)) if found else None  # not fsum, which raises where a page names infinities or too much


def _in_json(tree: object, steps: Sequence[str]) -> float | None:
    for step in steps:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return _sound(float(tree)) if isinstance(tree, int | float) and not isinstance(tree, bool) else None


def _in_line(line: str, name: str) -> float | None:
    """`name 1` or `name{label="x"} 1`, perhaps with a time after it."""
    if not line.startswith(name):
        return None
    rest = line[len(name) :]
    if rest.startswith("{"):
        rest = rest.rpartition("}")[2]
    elif not rest[:1].isspace():
        return None
    try:
        return float(rest.split()[0])
    except (IndexError, ValueError):
        return None


def _sound(value: float) -> float | None:
    return value if math.isfinite(value) and value >= 0 else None
