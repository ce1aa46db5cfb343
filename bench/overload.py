"""`fairlead bench overload`: what a plane still does when twice as much is asked of it as it can do (L10).

Real processes: a global plane on SQLite with TLS and tokens as in production, its controllers at work, and this one, which is
all of its clients. A round has three stretches. *Peak*: clients in a closed loop, as many as get most done. *Overload*: new
commands at twice that rate whatever becomes of those before; clients wait as Retry-After says, with jitter, but for a part that
comes back at once. *Half*: new commands at half the peak, until they are done as they were before. A command counts as done when
it was committed and acknowledged within its deadline. Goodput and ratio are medians over rounds: a busy machine changes from
minute to minute.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from time import perf_counter as now
from typing import Any

import msgspec

from bench.api_client import Api
from bench.api_rig import Rig, open_rig
from bench.overload_load import Load, Tally
from bench.planes import result
from bench.registry import Option
from fairlead.ports import SystemClock, Tasks

RATIO_LEAST = 0.8  # L10
BACK = 0.95
BACK_S = 60.0
_BACK_FOR_S = 3  # a lucky second is not yet being back
_LOOK_S = 1.0
_WARM_S = 2.0
_CROWDS = (16, 64)  # clients of the closed loop
_PLANE = "global"

OPTIONS = (
    Option("rounds", 5, "how often peak, overload and half load follow each other"),
    Option("peak_seconds", 3.0, "how long each closed loop goes on"),
    Option("seconds", 10.0, "how long each overload goes on"),
    Option("factor", 2.0, "how much is offered, in peaks"),
    Option("unruly", 0.1, "the share of clients that does not wait as Retry-After says"),
    Option("deadline", 5.0, "seconds after which a command that was not acknowledged counts as not done"),
    Option("connections", 600, "that all clients have together, from the beginning"),
    Option("half_seconds_max", 75.0, "give up waiting for half load to be done as before"),
)


class Leases:
    """Every lease of the plane, by a watch: in plane time, so that it does not matter when the watch is told."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}  # name -> (renewed, epoch)
        self.renewals = 0
        self.missed = 0  # longer without renewal than the lease lasts, or in other hands since
        self.gap_max_share = 0.0  # of a lease's life that went by between two renewals

    def told(self, line: bytes) -> None:
        event = msgspec.json.decode(line)
        if event["type"] == "ERROR":
            raise RuntimeError(f"the watch of leases ended: {line[:300]!r}")
        self.saw(event["object"])

    def saw(self, lease: dict[str, Any]) -> None:
        name, spec = lease["metadata"]["name"], lease["spec"]
        if not spec.get("renewedTime") or not spec.get("holder"):
            return
        renewed, epoch = datetime.fromisoformat(spec["renewedTime"]).timestamp(), int(spec.get("epoch", 0))
        before = self._last.get(name)
        self._last[name] = (renewed, epoch)
        if before is None or before == (renewed, epoch):
            return
        share = (renewed - before[0]) / float(spec.get("ttlSeconds", 10.0))
        self.renewals += 1
        self.missed += share > 1 or epoch != before[1]
        self.gap_max_share = max(self.gap_max_share, share)


class Depths:
    """How much waits in the server, by its own metrics."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._clock = SystemClock()
        self.requests_max = 0
        self.work_oldest_max_s = 0.0  # what controllers owe: how long the key that was due longest had been due

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            found = await self._api.metrics(_PLANE)
            under_way = found.get("fairlead_api_requests_in_flight", {})
            self.requests_max = max(self.requests_max, int(sum(n for verb, n in under_way.items() if "watch" not in verb)))
            oldest_s = max(found.get("fairlead_workqueue_oldest_seconds", {}).values(), default=0.0)
            self.work_oldest_max_s = max(self.work_oldest_max_s, oldest_s)


class Round:
    """One peak, one overload, one half load."""

    def __init__(self, rig: Rig, load: Load, options: dict[str, Any]) -> None:
        self._rig = rig
        self._load = load
        self._options = options
        self.peak = 0.0
        self.clients = 0
        self.peak_per_cpu_s = 0.0  # of the server's, which a busy machine does not change so much
        self.goodput = 0.0
        self.goodput_per_cpu_s = 0.0
        self.back_s: float | None = None
        self.tally = Tally(0.0)
        self.cpu: dict[str, float] = {}  # seconds of a core a second, in the overload

    async def run(self) -> None:
        await self._find_peak()
        await self._overload()
        await self._half()

    async def _find_peak(self) -> None:
        seconds = float(self._options["peak_seconds"])
        await self._load.ready()
        await self._load.closed(_CROWDS[0], min(_WARM_S, seconds))
        for clients in _CROWDS:
            before = self._rig.cpu_s()[_PLANE]
            tally = await self._load.closed(clients, seconds)
            spent = self._rig.cpu_s()[_PLANE] - before
            found = tally.per_s(tally.began, now())
            self.peak_per_cpu_s = max(self.peak_per_cpu_s, len(tally.done) / max(spent, 1e-9))
            if found > self.peak:
                self.peak, self.clients = found, clients

    async def _overload(self) -> None:
        seconds, before = float(self._options["seconds"]), self._rig.cpu_s()
        rate = self.peak * float(self._options["factor"])
        tally = self.tally = Tally(now())
        await self._load.open(tally, rate, seconds, float(self._options["unruly"]), lambda: False)
        self.goodput = tally.per_s(tally.began, tally.began + seconds)
        took = now() - tally.began
        self.goodput_per_cpu_s = len(tally.done) / max(self._rig.cpu_s()[_PLANE] - before[_PLANE], 1e-9)
        self.cpu = {name: round((used - before.get(name, 0.0)) / took, 3) for name, used in self._rig.cpu_s().items()}

    async def _half(self) -> None:
        rate, deadline_s = self.peak / 2, float(self._options["deadline"])
        tally = Tally(now())

        def is_over() -> bool:
            known = int(now() - tally.began - deadline_s)  # seconds of which the last command is done or late
            for first in range(known - _BACK_FOR_S + 1):
                if all(
                    tally.share(tally.began + n, tally.began + n + 1, rate) >= BACK for n in range(first, first + _BACK_FOR_S)
                ):
                    self.back_s = float(first)
                    return True
            return False

        await self._load.open(tally, rate, float(self._options["half_seconds_max"]), float(self._options["unruly"]), is_over)


def figures_of(rounds: list[Round], leases: Leases, depths: Depths, factor: float) -> dict[str, Any]:
    refused: Counter[int] = sum((each.tally.refused for each in rounds), Counter())
    back = [each.back_s for each in rounds]
    ratios = [each.goodput / max(each.peak, 1e-9) for each in rounds]
    return {
        "peak_per_s": round(statistics.median(each.peak for each in rounds), 1),
        "peak_clients": rounds[-1].clients,
        "goodput_per_s": round(statistics.median(each.goodput for each in rounds), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "ratios_per_cpu": [round(each.goodput_per_cpu_s / max(each.peak_per_cpu_s, 1e-9), 3) for each in rounds],
        "back_max_s": None if None in back else max(found for found in back if found is not None),
        "offered_per_s": round(factor * statistics.median(each.peak for each in rounds), 1),
        "sent": sum(each.tally.sent for each in rounds),
        "done": sum(len(each.tally.done) for each in rounds),
        "given_up": sum(each.tally.given_up for each in rounds),
        "lost": sum(each.tally.lost for each in rounds),
        "unsent": sum(each.tally.unsent for each in rounds),
        "refused": {str(code): count for code, count in sorted(refused.items())},
        "requests_waiting_max": depths.requests_max,
        "work_oldest_max_s": round(depths.work_oldest_max_s, 2),
        "lease_renewals": leases.renewals,
        "lease_renewals_missed": leases.missed,
        "lease_gap_max_share": round(leases.gap_max_share, 3),
        "overload_cpu_share": rounds[-1].cpu,
    }


def failures_of(figures: dict[str, Any]) -> list[str]:
    failures = []
    if figures["ratio"] < RATIO_LEAST:
        failures.append(f"goodput under overload is {figures['ratio']} of its peak; at least {RATIO_LEAST} is promised")
    if figures["back_max_s"] is None or figures["back_max_s"] > BACK_S:
        failures.append(f"half load was not done as before within {BACK_S:.0f} s: {figures['back_max_s']}")
    if figures["lease_renewals_missed"] or not figures["lease_renewals"]:
        failures.append(f"{figures['lease_renewals_missed']} of {figures['lease_renewals']} lease renewals were missed")
    return failures


async def main(**options: Any) -> dict[str, Any]:
    leases = Leases()
    with tempfile.TemporaryDirectory(prefix="fairlead-overload-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")) as folder:
        async with open_rig(Path(folder), 0, 1, ()) as rig, Api(rig) as api, Tasks() as tasks:
            depths = Depths(api)
            load = Load(rig.address(_PLANE), rig.token, rig.tls(), int(options["connections"]), float(options["deadline"]))
            version = await api.version("leases", _PLANE)
            for lease in await api.list("leases", _PLANE):
                leases.saw(lease)
            tasks.start(api.watch("leases", _PLANE, version, leases.told), "leases")
            tasks.start(depths.run(), "depths")
            rounds = []
            for _ in range(int(options["rounds"])):
                rounds.append(Round(rig, load, options))
                await rounds[-1].run()
            tasks.cancel()
            load.close()
    figures = figures_of(rounds, leases, depths, float(options["factor"]))
    return result("overload", options, {**figures, "failures": failures_of(figures)})
