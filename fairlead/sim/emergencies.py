"""Owns emergency quotas in a simulated platform: one person orders them, another agrees or does not, some are taken back early.

Each may add to all regions or to one. None is prolonged: what was approved may not change. All end by themselves, also after the
faults. Draws from a stream of its own; writes as people do, through the API. Started by trying.py, where a scenario has any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

from fairlead.sim.born import TENANTS
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.platform import Platform
from fairlead.sim.viewers import APPROVER
from fairlead.wire import json_codec

API: Final = f"/apis/{json_codec.API_VERSION}"
TTL_S: Final = (20, 91)
THINKS_S: Final = (0.0, 6.0)  # until somebody agrees
USED_S: Final = (3.0, 60.0)  # until it is taken back, where it is: after its end that changes nothing any more
MORE: Final[tuple[dict[str, str], ...]] = (
    {"cpu": "500m"},
    {"cpu": "900m"},
    {"cpu": "1800m"},
    {"cpu": "1200m", "gpu": "1"},
)


class Write(Protocol):
    """Method, path, body, the name of what is written, and whose token: nobody's is the administrator's."""

    def __call__(self, method: str, path: str, body: Any, name: str, token: str = "") -> Awaitable[Any]: ...


class Order(NamedTuple):
    """One emergency quota, and what becomes of it."""

    tenant: str
    more: dict[str, str]
    regions: list[str]  # none: all
    ttl_s: int
    thinks_s: float
    by_asker: bool  # whoever asks tries to agree as well, before another does
    agreed: bool
    taken_back: bool
    used_s: float

    def body(self, name: str) -> dict[str, Any]:
        scope = {"tenants": [self.tenant], "regions": self.regions}
        spec = {"kind": "emergency-quota", "reason": "flood", "ttlSeconds": self.ttl_s, "scope": scope, "parameters": self.more}
        return {"apiVersion": json_codec.API_VERSION, "kind": "Override", "metadata": {"name": name}, "spec": spec}


def drawn(draws: Draws, regions: tuple[str, ...]) -> Order:
    tenant, more, region, regional = draws.choice(TENANTS), draws.choice(MORE), draws.choice(regions), draws.random() < 0.4
    ttl_s, thinks_s = draws.randrange(*TTL_S), draws.uniform(*THINKS_S)
    by_asker, agreed, back = draws.random() < 0.3, draws.random() < 0.9, draws.random() < 0.3
    return Order(tenant, more, [region] * regional, ttl_s, thinks_s, by_asker, agreed, back, draws.uniform(*USED_S))


class Emergencies:
    def __init__(self, platform: Platform, write: Write, tell: Callable[[str], None], stopped: Callable[[], bool]) -> None:
        self._platform = platform
        self._counts = platform.machines.counts
        self._write = write
        self._tell = tell
        self._stopped = stopped

    async def run(self) -> None:
        draws, number = self._platform.loop.stream("emergencies"), 0
        async with asyncio.TaskGroup() as group:  # several are in force at once, and one goes on where another ends
            while not self._stopped():
                await sleep(draws.expovariate(self._platform.scenario.work.emergencies / 60))
                order, number = drawn(draws, self._platform.regions), number + 1
                if not self._stopped():
                    group.create_task(self._one(order, f"e{number}"))

    async def _one(self, order: Order, name: str) -> None:
        path = f"{API}/namespaces/{order.tenant}/overrides"
        where = ", ".join(order.regions) or "all regions"
        self._tell(f"asks for emergency {name}: {order.more} for {order.tenant} in {where} for {order.ttl_s} s")
        if not _done(await self._write("POST", path, order.body(name), name)):
            return
        await sleep(order.thinks_s)
        if order.by_asker and not self._stopped():
            own = await self._write("PATCH", f"{path}/{name}", {"spec": {"approver": "ada"}}, name)
            self._counts["emergency/own"] += own is not None and own.status == 403
        if not order.agreed or self._stopped():
            return
        self._tell(f"agrees to emergency {name}")
        agreed = {"spec": {"approver": APPROVER}}
        self._counts["emergency/agreed"] += _done(
            await self._write("PATCH", f"{path}/{name}", agreed, name, token=self._platform.approver_token)
        )
        await sleep(order.used_s)
        if order.taken_back and not self._stopped():
            self._tell(f"takes emergency {name} back")
            self._counts["emergency/back"] += _done(await self._write("DELETE", f"{path}/{name}", None, name))


def _done(answer: Any) -> bool:
    return answer is not None and answer.status < 300
