"""Owns people who only read: one of each tenant, who asks for what is his and for what is not, over the real API, and hands every
answer to a checker (S17).

Writes nothing. Started by world.py where a scenario has readers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from fairlead.client.channel import Closed
from fairlead.model.registry import GLOBAL
from fairlead.observe.reads import ReadChecker
from fairlead.sim.born import TENANTS
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.machines import Running
from fairlead.sim.platform import Platform
from fairlead.sim.viewers import viewer_of

API: Final = "/apis/fairlead.dev/v1alpha1"
KINDS: Final = (
    "workloads", "assignments", "bindings", "schedulingrequests", "grants", "quotas", "events", "tenants", "nodes", "regions",
)  # fmt: skip
NAMES: Final = ("api", "index", "score", "default")


def path_of(draws: Draws) -> tuple[str, str]:
    """The kind, and a path: of his tenant, of another, of all of them, or one object by name."""
    plural, tenant, name, how = draws.choice(KINDS), draws.choice(TENANTS), draws.choice(NAMES), draws.random()
    if plural in ("tenants", "nodes", "regions"):
        return plural, f"{API}/{plural}" if how < 0.5 else f"{API}/{plural}/{tenant}"
    if how < 0.4:
        return plural, f"{API}/{plural}"
    return plural, f"{API}/namespaces/{tenant}/{plural}" + (f"/{name}" if how > 0.8 else "")


def readers(platform: Platform, checker: ReadChecker) -> Callable[[Running], Awaitable[Any]]:
    async def main(running: Running) -> None:
        http, draws = platform.http(running), platform.loop.stream("readers")
        addresses = platform.planes[GLOBAL].addresses
        while True:
            await sleep(draws.expovariate(platform.scenario.work.readers / 60))
            tenant, address = draws.choice(TENANTS), draws.choice(addresses)
            plural, path = path_of(draws)
            headers = [("authorization", f"Bearer {platform.reader_tokens[tenant]}")]
            try:
                answer = await http.request(address, "GET", path, headers=headers)
            except (OSError, Closed, TimeoutError):
                continue
            platform.machines.counts[f"read_{answer.status}"] += 1
            if answer.status == 200:
                checker.answered(viewer_of(tenant), (tenant,), plural, msgspec.json.decode(answer.body))

    return main
