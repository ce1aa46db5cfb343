"""A plane of `fairlead bench observe`: composed with some of decisions, metrics and audit, and bound to in waves. Measures, and
judges nothing."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from bench.planes import Engine, PlaneUnderBench, open_plane
from bench.schedule import Bench
from bench.schedule_cases import CASES
from fairlead.authority import authority as authorities
from fairlead.authority import pipeline
from fairlead.authority.history import History
from fairlead.authority.meters import Meters
from fairlead.authority.service import PlaneService
from fairlead.compose.metrics import ServerMetrics
from fairlead.compose.patrolling import LedgerPatrol
from fairlead.model import codec
from fairlead.model.journal import NO_COMMAND, chain_hash, encode_entry
from fairlead.observe.patrol import Patrol
from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.meters import Meters as SchedulerMeters
from fairlead.store.archive import Archive
from fairlead.store.contract import Store
from fairlead.store.decisions import DecisionLog, Settings

PARTS = ("decisions", "metrics", "audit")


class Quiet(Meters):
    """Counts nothing."""

    def committed(self, *_: Any) -> None: ...
    def durable(self, *_: Any) -> None: ...


class QuietScheduler(SchedulerMeters):
    """Counts only what the bench itself reads."""

    def took(self, *_: Any) -> None: ...
    def decided(self, *_: Any) -> None: ...
    def answered(self, *_: Any) -> None: ...
    def observed(self, *_: Any) -> None: ...


class Shown:
    """What a server shows of itself (fairlead/compose/metrics.py: Server)."""

    def __init__(self, bench: Bench) -> None:
        self.authority = bench.plane.authority
        self.components = (bench.scheduler,)
        self.peers: dict[str, Any] = {}
        self.authenticator: Any = SimpleNamespace(by_socket_total=0)  # nobody comes by a socket
        self.decisions: Any = bench.log
        self.patrol = Patrol()
        self.ledger = LedgerPatrol(bench.plane.authority, SystemClock())


_audited: ContextVar[bool] = ContextVar("audited", default=True)  # a plane's tasks keep what held when they were started


@contextmanager
def only(on: frozenset[str]) -> Iterator[None]:
    """The parts that are not in `on` are left out of what is composed meanwhile; and of what is judged, by those planes alone."""
    replaced: list[Any] = []
    if "metrics" not in on:
        replaced.append(patch.object(authorities, "Meters", Quiet))
    if "audit" not in on:
        replaced.append(patch.object(pipeline, "chain_hash", _hash_if_audited))
        replaced.append(patch.object(pipeline, "encode_entry", _command_if_audited))
    before = _audited.set("audit" in on)
    for one in replaced:
        one.start()
    try:
        yield
    finally:
        for one in replaced:
            one.stop()
        _audited.reset(before)


def _hash_if_audited(previous: bytes, blob: bytes) -> bytes:
    return chain_hash(previous, blob) if _audited.get() else previous


def _command_if_audited(command: Any, encoded: bytes, only_body: bool, effects: Any, soft: Any) -> bytes:
    if _audited.get():
        return encode_entry(command, encoded, only_body, effects, soft)
    return codec.encode((NO_COMMAND, effects, soft))


class Prompted(SystemClock):
    """The archive's: it looks for what to write when it is told to, not by chance within a wave or after it."""

    def __init__(self) -> None:
        super().__init__()
        self._told = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self._told.wait()
        self._told.clear()

    def tell(self) -> None:
        self._told.set()


class Side:
    """One of the planes that stand side by side, at work. CPU of what it does is noted per bind, each kind of work apart."""

    def __init__(self, on: frozenset[str], plane: PlaneUnderBench, bench: Bench, tasks: Tasks, keeping: Keeping) -> None:
        self.on = on
        self.plane = plane
        self.bench = bench
        self._tasks = tasks
        self._keeping = keeping
        self._waves = 0
        self._unwritten = self._open = 0  # binds that are in no file, and in no closed one
        self.bound = 0
        self.us: dict[str, list[float]] = {"binding": [], "writing": [], "closing": []}

    async def wave(self, slots: int, seconds_max: float) -> None:
        """Binds that many more, until they are durable and in the objects."""
        self._waves += 1
        authority = self.plane.authority
        assert authority.fence is not None
        with only(self.on):
            began = time.process_time()
            queued = await self.bench.send(self._tasks, slots, f"w{self._waves}x")
            await self.bench.client.wait_bound(time.perf_counter() + seconds_max)
            if self.bench.client.waiting:
                raise RuntimeError(f"{self.bench.client.waiting} of {queued} slots were not bound in time")
            await authority._materialiser.flush(authority.fence)
            self._note("binding", began, queued)
        self.bound += queued
        self._unwritten += queued
        self._open += queued

    async def write(self) -> None:
        """Decisions and history to their open segments, as production does once or twice a second."""
        archive, log = self._keeping.archive, self._keeping.log
        began = time.process_time()
        if archive is not None:
            while archive.last().position < self.plane.authority.position:
                self._keeping.clock.tell()
                await asyncio.sleep(0.002)
        if log is not None:
            log.flush()
        self._note("writing", began, self._unwritten)
        self._unwritten = 0

    def close_segments(self) -> None:
        """As the first record beyond their size would."""
        archive, log = self._keeping.archive, self._keeping.log
        began = time.process_time()
        if archive is not None:
            archive.seal()
            while archive.waiting():
                archive.close_segment()
        if log is not None:
            close_last(log)
        self._note("closing", began, self._open)
        self._open = 0

    def _note(self, work: str, began: float, binds: int) -> None:
        if binds:  # else it was the fleet's making
            self.us[work].append((time.process_time() - began) / binds * 1e6)

    async def charge_scrapes(self, every_s: float) -> None:
        """What a scrape every so many seconds of a busy plane makes of each bind. A wave takes a tenth of a second, so a scrape
        within it would be one too many or one too few."""
        if "metrics" in self.on:
            share = await _page_s(self.bench) / every_s
            self.us["binding"] = [us * (1 + share) for us in self.us["binding"]]

    def cpu_us_per_bind(self) -> float:
        return sum(_undisturbed(costs) for costs in self.us.values())

    def bytes_per_bind(self) -> dict[str, float]:
        """Of closed segments, by part."""
        kept = {"decisions": self._keeping.log, "audit": self._keeping.archive}
        return {
            part: sum(path.stat().st_size for path in one.directory.glob("*.segment")) / self.bound
            for part, one in kept.items()
            if one is not None
        }


class Keeping(NamedTuple):
    """What is kept of the binds, where it is."""

    archive: Archive | None
    log: DecisionLog | None
    clock: Prompted

    def history(self, store: Store) -> History | None:
        return History(self.archive, store, self.clock) if self.archive is not None else None


@asynccontextmanager
async def side(on: frozenset[str], engine: Engine, folder: Path, options: dict[str, Any]) -> AsyncIterator[Side]:
    """A plane with just these parts on."""
    keeping = Keeping(
        Archive(folder / "history") if "audit" in on else None,
        DecisionLog(folder / "decisions", Settings(flush_s=0)) if "decisions" in on else None,
        Prompted(),
    )
    async with AsyncExitStack() as stack:
        if keeping.log is not None:
            stack.callback(keeping.log.close)
        with only(on):
            plane = await stack.enter_async_context(open_plane(engine, options["nodes"], history=keeping.history))
            bench = Bench(plane, CASES[options["case"]], options, keeping.log)
            if "metrics" not in on:
                bench.scheduler.meters = QuietScheduler()
            tasks = await stack.enter_async_context(bench.running())
            made = Side(on, plane, bench, tasks, keeping)
            await made.write()
            made.close_segments()
        yield made


def close_last(log: DecisionLog) -> None:
    """Its open segment too, as the first record beyond its size would."""
    log.flush()
    with log._work:
        if log._current is not None:
            log._close_segment(log._current)
            log._current = None


def _undisturbed(costs: list[float]) -> float:
    """The mean of the fastest quarter."""
    return statistics.fmean(sorted(costs)[: max(1, len(costs) // 4)])


async def _page_s(bench: Bench) -> float:
    """CPU of one page."""
    clock = SystemClock()
    metrics = ServerMetrics(Shown(bench), PlaneService(bench.plane.authority, clock), clock)
    began = time.process_time()
    await metrics.text()
    return time.process_time() - began
