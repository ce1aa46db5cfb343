"""What `fairlead bench api` sees of servers beside its own requests: stalls, from outside and by their word; refused binds."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from bench.api_client import Api
from bench.api_rig import REGION, Rig
from bench.planes import percentile

_PROBE_S = 0.1  # often enough to see stalls, seldom enough not to be a load of its own


class Probe:
    """How long a server keeps an empty request waiting: its loop's stalls, seen from outside."""

    def __init__(self, api: Api, rig: Rig) -> None:
        self._api = api
        self._rig = rig
        self._waits: dict[str, list[float]] = {"global": [], REGION: []}

    async def run(self, plane: str) -> None:
        url = f"{self._rig.address(plane)}/livez"
        while True:
            await asyncio.sleep(_PROBE_S)
            started = time.perf_counter()
            try:
                async with self._api.session.get(url) as answer:
                    await answer.read()
            except (OSError, aiohttp.ClientConnectionError):
                continue  # it was killed, perhaps before it could answer: that is no stall
            self._waits[plane].append(time.perf_counter() - started)

    def take(self) -> dict[str, float]:
        out: dict[str, float] = {}
        for plane, waits in self._waits.items():
            name = "region" if plane == REGION else plane
            out[f"{name}_probe_p50_ms"] = round(percentile(waits, 0.5) * 1e3, 2)
            out[f"{name}_probe_p99_ms"] = round(percentile(waits, 0.99) * 1e3, 2)
            out[f"{name}_probe_max_ms"] = round(max(waits, default=0.0) * 1e3, 1)
            waits.clear()
        return out


class Stalls:
    """How late wake-ups of a server's loop came, by its own metric, since the last look."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._before: dict[str, dict[float, float]] = {}

    async def take(self) -> dict[str, float]:
        out: dict[str, float] = {}
        for plane in ("global", REGION):
            found = (await self._api.metrics(plane)).get("fairlead_loop_stall_seconds_bucket", {})
            now = {float(label.partition('le="')[2].partition('"')[0]): value for label, value in found.items()}
            before = self._before.get(plane, {})
            grown = {upto: value - before.get(upto, 0.0) for upto, value in sorted(now.items())}
            self._before[plane] = now
            total = max(grown.values(), default=0.0)
            worst = next((upto for upto, value in grown.items() if value >= 0.99 * total), 0.0) if total else 0.0
            out[f"{'region' if plane == REGION else plane}_loop_stall_p99_ms_at_most"] = round(worst * 1e3, 2)
        return out


async def conflicts(api: Api) -> int:
    """Proposed binds that the region's authority refused, so far."""
    found = (await api.metrics(REGION)).get("fairlead_bind_commit_total", {})
    fine = ('result="committed"', 'result="unknown"')
    return int(sum(count for labels, count in found.items() if not any(word in labels for word in fine)))
