"""The outside prober: asks a workload's endpoints at a steady rate and tells what a client would have seen. "Serving" is what it
sees, whatever any plane says.

Owns the pace and the choice of endpoint (each in turn). Requests start when they are due, however slow earlier ones are, so that
a stall shows as what it is. Sends plain GETs without credentials. Called by `fairlead probe`, drills and benchmarks.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.ports import Clock, Random, Tasks
from fairlead.serving.dns_client import Unresolved, find
from fairlead.serving.feed import members_in
from fairlead.serving.http_get import Got, get
from fairlead.serving.measured import NO_ENDPOINTS, Measures

RESOLVE_S: Final = 1.0  # how old an answer may be: below the TTL, so that the prober sees a withdrawal no later than others
UNDER_WAY_MAX: Final = 1_000
RATE_MAX: Final = 5_000.0
DURATION_S_MAX: Final = 86_400.0


class Target(NamedTuple):
    region: str
    slot: int
    address: str
    port: int


Resolve = Callable[[], Awaitable[Sequence[Target]]]  # raises Unresolved
Send = Callable[[str, int, str, float], Awaitable[Got]]


class ProbeOptions(msgspec.Struct, frozen=True):
    workload: str
    tenant: str
    rate_per_s: float = 10.0
    duration_s: float = 10.0
    port: str = "http"  # by name
    path: str = "/"
    timeout_s: float = 1.0
    region: str = ""  # only this one
    max_outage_s: float | None = None  # more than this fails the check

    def faults(self) -> list[str]:
        out = []
        if not 0 < self.rate_per_s <= RATE_MAX:
            out.append(f"--rate must be above 0 and at most {RATE_MAX:g}, got {self.rate_per_s:g}")
        if not 0 < self.duration_s <= DURATION_S_MAX:
            out.append(f"--duration must be above 0 and at most {DURATION_S_MAX:g} seconds, got {self.duration_s:g}")
        if self.timeout_s <= 0:
            out.append(f"--timeout must be above 0, got {self.timeout_s:g}")
        if not self.path.startswith("/") or not self.path.isascii() or any(c <= " " for c in self.path):
            out.append("--path must start with '/' and hold no spaces")
        return out


class Prober:
    def __init__(self, options: ProbeOptions, resolve: Resolve, clock: Clock, send: Send = get) -> None:
        faults = options.faults()
        if faults:
            raise ValueError("; ".join(faults))
        self._options = options
        self._resolve = resolve
        self._clock = clock
        self._send = send
        self._targets: Sequence[Target] = ()
        self._next = 0
        self._under_way = 0
        self._began_s = 0.0
        self.measures = Measures()

    async def run(self, stop: asyncio.Event | None = None) -> Measures:
        """For its duration, or until `stop` is set; then waits for what is under way."""
        stop = stop or asyncio.Event()
        await self._look()
        self._began_s = self._clock.monotonic()
        async with Tasks() as tasks:
            looking = tasks.start(self._keep_looking(), "resolve")
            ending = tasks.start(self._end(stop), "duration")
            async with Tasks() as requests:
                await self._pace(requests, stop)
                ended_s = self._now_s()
            looking.cancel()
            ending.cancel()
        present = {(target.region, target.slot) for target in self._targets}
        self.measures.finish(ended_s, present)  # what was still under way then is no outage after it
        return self.measures

    def _now_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    async def _end(self, stop: asyncio.Event) -> None:
        await self._clock.sleep(self._options.duration_s)
        stop.set()

    async def _pace(self, requests: Tasks, stop: asyncio.Event) -> None:
        step_s, number = 1 / self._options.rate_per_s, 0
        while not stop.is_set() and number * step_s < self._options.duration_s:
            if self._under_way >= UNDER_WAY_MAX:
                self.measures.skipped += 1
            else:
                self._begin(requests)
            number += 1
            await self._clock.sleep(max(0.0, number * step_s - self._now_s()))
        due = min(self._now_s(), self._options.duration_s) * self._options.rate_per_s
        self.measures.skipped += max(0, int(due) - number)

    def _begin(self, requests: Tasks) -> None:
        if not self._targets:
            self.measures.all.failure(self._now_s(), NO_ENDPOINTS)
            return
        target = self._targets[self._next % len(self._targets)]
        self._next += 1
        self._under_way += 1
        requests.start(self._ask(target), f"GET {target.region}/{target.slot}")

    async def _ask(self, target: Target) -> None:
        sent_s = self._now_s()
        measures = self.measures.of(target.region, target.slot, sent_s)
        try:
            got = await self._send(target.address, target.port, self._options.path, self._options.timeout_s)
        finally:
            self._under_way -= 1
        now_s = self._now_s()
        for measure in measures:
            if got.success:
                measure.success(now_s, now_s - sent_s)
            else:
                measure.failure(now_s, got.error or f"HTTP {got.status}")

    async def _keep_looking(self) -> None:
        while True:
            await self._clock.sleep(RESOLVE_S)
            await self._look()

    async def _look(self) -> None:
        """What was found last stays in use while nothing newer can be had, as in any client."""
        try:
            found = await self._resolve()
        except Unresolved:
            self.measures.resolve_failures += 1
            return
        wanted = self._options.region
        self._targets = [target for target in found if not wanted or target.region == wanted]


def through_dns(options: ProbeOptions, server: tuple[str, int], random: Random, zone: str = "svc.fairlead.local") -> Resolve:
    async def resolve() -> Sequence[Target]:
        found = await find(server, options.tenant, options.workload, options.port, random, zone)
        best = min((one.priority for one in found), default=0)  # as SRV clients do: others only where there is no better one
        return [Target(one.region, one.slot, one.address, one.port) for one in found if one.priority == best]

    return resolve


def through_document(options: ProbeOptions, read: Callable[[], Awaitable[bytes]]) -> Resolve:
    """`read` gives the endpoints document: from a file, or from the API."""

    async def resolve() -> Sequence[Target]:
        try:
            members = members_in(await read())
        except (OSError, ValueError) as error:
            raise Unresolved(str(error)) from error
        ports = [(member, member.port(options.port)) for member in members]
        return [Target(m.region, m.slot, m.address, port) for m, port in ports if port is not None]

    return resolve


def through_file(options: ProbeOptions, root: Path) -> Resolve:
    """`root` is the document itself, or the directory that feed.py writes."""
    path = root / options.tenant / f"{options.workload}.json" if root.is_dir() else root

    async def read() -> bytes:
        return path.read_bytes()

    return through_document(options, read)


# --- the command -----------------------------------------------------------------------------------------------------------


async def probe(
    options: ProbeOptions, resolve: Resolve, clock: Clock, stop: asyncio.Event | None = None, send: Send = get
) -> tuple[dict[str, Any], bool]:
    """The body of `fairlead probe`: one object for --json, and whether the check passed (else exit code 8)."""
    results = (await Prober(options, resolve, clock, send).run(stop)).results()
    shown = {
        "name": "probe",
        "params": msgspec.to_builtins(options),
        "environment": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 2),
        },
        "results": results,
    }
    limit_s = options.max_outage_s
    return shown, results["succeeded"] > 0 and (limit_s is None or results["longest_outage_s"] <= limit_s)


def rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """A table for people: a head, a line for each slot and region, and one for all."""
    table: list[tuple[str, ...]] = [("REGION", "SLOT", "SENT", "OK", "P50", "P99", "OUTAGE", "ERRORS")]
    table += [_row(slot["region"], str(slot["slot"]), slot) for slot in results["slots"]]
    table += [_row(region, "all", of) for region, of in results["regions"].items()]
    return [*table, _row("all", "all", results)]


def _row(region: str, slot: str, of: dict[str, Any]) -> tuple[str, ...]:
    latencies = ["-" if of[field] is None else f"{of[field]:.1f}ms" for field in ("p50_ms", "p99_ms")]
    errors = ", ".join(f"{error} x{count}" for error, count in of["errors"].items()) or "-"
    share = f"{of['success_ratio']:.2%}"
    return (region, slot, str(of["sent"]), share, *latencies, f"{of['longest_outage_s']:.2f}s", errors)
