"""`fairlead bench observe`: what decisions, metrics and audit cost per bind, how large decisions are, and how long `why` takes.

The same load as `bench schedule` runs again and again in this process, each time on a new plane: with everything on, without one
of the three, and without all of them, in turns. Runs of one round are compared with each other, and the median of the rounds
counts: the machine's speed changes by half from one minute to the next, in both directions, so that the best run of each kind
would compare a fast minute with a slow one. CPU counts client, scheduler, authority, the store's thread and what the parts
write afterwards, closed segments included. Only this bench can switch them off:

- decisions: no records are made and kept (fairlead/store/decisions)
- metrics: nothing is counted, nobody scrapes; with them, the whole page is made after the run, and charged as if it were
  asked for every `--scrape` seconds
- audit: no command in the journal's entries, no hash chain, no archive of thirty days beside the store

Sizes are of closed segments: where workloads come whole, as above, and where slots come one by one, `--rate` a second.
`why` is asked of a real front door over a global plane and a region: a workload whose slots all wait, each with its last decision
looked up among `--kept` attempts.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bench.observe_why import why_latencies
from bench.planes import PlaneUnderBench, engine_named, open_plane, percentile, result
from bench.registry import Option
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
from fairlead.model.journal import NO_COMMAND
from fairlead.observe.patrol import Patrol
from fairlead.ports import SystemClock
from fairlead.scheduler.meters import Meters as SchedulerMeters
from fairlead.store.archive import Archive
from fairlead.store.contract import Store
from fairlead.store.decisions import DecisionLog, Settings

OPTIONS = (
    Option("case", "basic", "what is scheduled: " + ", ".join(CASES), tuple(CASES)),
    Option("nodes", 5000, "nodes of the fleet"),
    Option("slots", 20_000, "slots to bind in each run"),
    Option("rounds", 5, "runs of each kind"),
    Option("engine", "sqlite", "where it is made durable", ("memory", "sqlite")),
    Option("scrape", 15.0, "seconds of CPU between two scrapes, a busy plane's seconds; Prometheus' own default is 60"),
    Option("kept", 1_000_000, "attempts in the log that `why` looks into"),
    Option("asked", 200, "times that `why` is asked"),
    Option("rate", 100, "binds a second, for thirty days; and for `--rate-seconds` to measure the size of a decision"),
    Option("rate_seconds", 20, "seconds of that; 0: not measured"),
    Option("seconds_max", 120, "give up on a run after this long"),
)
PARTS = ("decisions", "metrics", "audit")
SHARE_MAX = 0.15
WHY_MAX_MS = 200.0
DAYS = 30
SEGMENT_BYTES = 1 << 20  # of decisions: so small that a run closes several, as an hour of production does


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


@contextmanager
def only(on: frozenset[str]) -> Iterator[None]:
    """The parts that are not in `on` are left out of what is composed meanwhile."""
    out = [part for part in PARTS if part not in on]
    replaced: list[Any] = []
    if "metrics" in out:
        replaced.append(patch.object(authorities, "Meters", Quiet))
    if "audit" in out:
        replaced.append(patch.object(pipeline, "chain_hash", lambda previous, blob: previous))
        replaced.append(patch.object(pipeline, "encode_entry", _only_effects))
    for one in replaced:
        one.start()
    try:
        yield
    finally:
        for one in replaced:
            one.stop()


def _only_effects(command: Any, encoded: bytes, only_body: bool, effects: Any, soft: Any) -> bytes:
    return codec.encode((NO_COMMAND, effects, soft))


async def one_run(on: frozenset[str], options: dict[str, Any]) -> dict[str, float]:
    """CPU per bind with just these parts on; and the size of what they kept."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="fairlead-observe-") as name, only(on):
        folder = Path(name)
        archive = Archive(folder / "history") if "audit" in on else None
        log = DecisionLog(folder / "decisions", Settings(segment_bytes=SEGMENT_BYTES)) if "decisions" in on else None

        def history(store: Store) -> History | None:
            return History(archive, store, clock) if archive is not None else None

        async with engine_named(options["engine"]) as engine, open_plane(engine, options["nodes"], history=history) as plane:
            bench = Bench(plane, CASES[options["case"]], options, log)
            if "metrics" not in on:
                bench.scheduler.meters = QuietScheduler()
            await _settle(plane, archive)
            figures = await bench.run()
            began = time.process_time()
            await _settle(plane, archive)
            if log is not None:
                close_last(log)
                log.close()
            after = time.process_time() - began
            if "metrics" in on:
                took_s = figures["cpu_us_per_bind"] * figures["bound"] / 1e6
                after += await _page_s(bench) * took_s / options["scrape"]
        if figures["failures"]:
            raise RuntimeError("; ".join(figures["failures"]))
        bound = figures["bound"]
        size = sum(path.stat().st_size for path in (folder / "decisions").glob("*.segment"))
        kept = sum(path.stat().st_size for path in (folder / "history").rglob("*") if path.is_file()) if archive else 0
        return {
            "us": figures["cpu_us_per_bind"] + after / bound * 1e6,
            "decision_bytes": size / bound,
            "audit_bytes": kept / bound,
        }


async def _settle(plane: PlaneUnderBench, archive: Archive | None) -> None:
    """What was committed is in the objects and in closed segments. Both are written now and then, so by chance within a run or
    beside it; this way a run pays for all of its own, and for nothing of the fleet's making before it."""
    fence = plane.authority.fence
    assert fence is not None
    await plane.authority._materialiser.flush(fence)
    if archive is None:
        return
    while archive.last().position < plane.authority.position:
        await SystemClock().sleep(0.01)
    archive.seal()
    while archive.waiting():
        archive.close_segment()


def close_last(log: DecisionLog) -> None:
    """Its open segment too, as the first record beyond its size would."""
    log.flush()
    with log._work:
        if log._current is not None:
            log._close_segment(log._current)
            log._current = None


async def _page_s(bench: Bench) -> float:
    """CPU of one page. A run takes a second or two, so a scrape within it would be one too many or one too few."""
    clock = SystemClock()
    metrics = ServerMetrics(Shown(bench), PlaneService(bench.plane.authority, clock), clock)
    began = time.process_time()
    await metrics.text()
    return time.process_time() - began


async def costs(options: dict[str, Any]) -> dict[str, Any]:
    everything = frozenset(PARTS)
    kinds = {"on": everything, **{f"without_{part}": everything - {part} for part in PARTS}, "off": frozenset()}
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    names = list(kinds)
    for number in range(options["rounds"]):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seen[name].append(await one_run(kinds[name], {**options, "rate": 0}))
    us = {name: statistics.median(run["us"] for run in runs) for name, runs in seen.items()}
    return {
        "share_of_cpu_per_bind": _share(seen["off"], seen["on"]),
        "cpu_us_per_bind": round(us["on"], 1),
        "cpu_us_per_bind_off": round(us["off"], 1),
        **{f"{part}_share": _share(seen[f"without_{part}"], seen["on"]) for part in PARTS},
        "cpu_us_per_bind_runs": {name: [round(run["us"], 1) for run in runs] for name, runs in seen.items()},
        "bytes_per_decision_whole": round(seen["on"][0]["decision_bytes"], 1),
        "audit_bytes_per_bind": round(seen["on"][0]["audit_bytes"], 1),
    }


def _share(without: list[dict[str, float]], whole: list[dict[str, float]]) -> float:
    """The median over the rounds: a machine that changes its speed changes it for a round, not for one kind of run."""
    return round(statistics.median(1 - less["us"] / all_on["us"] for less, all_on in zip(without, whole, strict=True)), 4)


async def main(**options: Any) -> dict[str, Any]:
    results = await costs(options)
    times = DAYS * 86_400 * options["rate"]
    results["decisions_30_days_whole_bytes"] = round(results["bytes_per_decision_whole"] * times)
    if options["rate_seconds"]:
        slots = options["rate"] * options["rate_seconds"]
        alone = await one_run(frozenset(PARTS), {**options, "slots": slots})
        results["bytes_per_decision"] = round(alone["decision_bytes"], 1)
        results["decisions_30_days_bytes"] = round(alone["decision_bytes"] * times)
    results["decisions_kept_bytes"] = Settings().max_bytes
    took, slots = await why_latencies(options["kept"], options["asked"])
    results |= {
        "why_slots": slots,
        "why_p50_ms": round(percentile(took, 0.5), 2),
        "why_p99_ms": round(percentile(took, 0.99), 2),
    }
    failures = []
    if results["share_of_cpu_per_bind"] > SHARE_MAX:
        failures.append(f"observing costs {results['share_of_cpu_per_bind']:.1%} of the CPU per bind, more than {SHARE_MAX:.0%}")
    if results.get("decisions_30_days_bytes", 0) > results["decisions_kept_bytes"]:
        failures.append(f"{DAYS} days of decisions do not fit in the {results['decisions_kept_bytes']} bytes that are kept")
    if results["why_p99_ms"] > WHY_MAX_MS:
        failures.append(f"why took {results['why_p99_ms']} ms, more than {WHY_MAX_MS:.0f}")
    return result("observe", options, {**results, "failures": failures})
