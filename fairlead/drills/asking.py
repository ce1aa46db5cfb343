"""What a drill asks of the platform and tells it: the resource API as an administrator uses it, through the door that people
use or straight from one plane, and a plane's metrics.

Owns the clients. Judges nothing. Called by scene.py and the drills.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from fairlead.client.contexts import ClientConfig
from fairlead.client.rest import RestClient
from fairlead.client.rest_errors import ApiError, NotFound, OutcomeUnknown, Unreachable
from fairlead.client.rest_shapes import Link, Query, Resource
from fairlead.compose.layout import Layout, read_config
from fairlead.model.registry import KINDS
from fairlead.ports import Clock, Ids, system_random
from fairlead.security.tls import client_context
from fairlead.wire.json_codec import API_VERSION

TIMEOUT_S: Final = 10.0
DOOR: Final = ""  # where people knock: the relay in front of the global plane
ADMIN, APPROVER = "admin", "approver"  # people of the local platform
NO_ANSWER: Final = (ApiError, Unreachable, OutcomeUnknown, TimeoutError, asyncio.TimeoutError)

Tree = dict[str, Any]


class Asking:
    def __init__(self, layout: Layout, clock: Clock, ids: Ids) -> None:
        self._layout = layout
        self._clock = clock
        self._ids = ids
        self._clients: dict[str, RestClient] = {}
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def client(self, plane: str = DOOR, timeout_s: float = TIMEOUT_S, who: str = ADMIN) -> RestClient:
        name = f"{who}/{plane}/{timeout_s:g}"
        if name not in self._clients:
            address = self._layout.address_of(plane) if plane else self._door()
            token = self._layout.path("run", f"{who}.token").read_text().strip()
            link = Link(address, client_context(self._layout.path("pki", "ca.pem")), token, "fairlead-drill")
            made = RestClient(link, clock=self._clock, ids=self._ids, jitter=system_random().random, timeout_s=timeout_s)
            self._clients[name] = await self._open.enter_async_context(made)
        return self._clients[name]

    def _door(self) -> str:
        config: ClientConfig = read_config(self._layout.path("client.json"), ClientConfig)
        return config.context("admin").server

    # --- reading ---------------------------------------------------------------------------------------------------------

    async def get(self, plural: str, tenant: str, name: str, plane: str = DOOR) -> Tree | None:
        try:
            found: Tree = await (await self.client(plane)).get(kind(plural), tenant, name)
        except NotFound:
            return None
        return found

    async def items(self, plural: str, tenant: str = "", plane: str = DOOR) -> list[Tree]:
        return (await (await self.client(plane)).list(Query(kind(plural), tenant))).items

    async def slots(self, plural: str, tenant: str, workload: str, plane: str = DOOR) -> list[Tree]:
        """Bindings, requests or instances of one workload."""
        return [one for one in await self.items(plural, tenant, plane) if workload_of(one) == workload]

    async def counts(self, tenant: str, workload: str) -> dict[str, int]:
        """Its replicas by stage, as its status says; nothing where there is no such workload."""
        found = await self.get("workloads", tenant, workload) or {}
        counts: dict[str, int] = (found.get("status") or {}).get("replicas") or {}
        return counts

    async def why(self, tenant: str, workload: str) -> dict[str, str]:
        """Why each of its slots that do not serve waits, as `fairlead why` has it: reason by slot."""
        told = await (await self.client()).read(kind("workloads").path(tenant, workload, "why"))
        return {one["name"]: str(one.get("reason") or "") for one in (told.get("status") or {}).get("slots") or ()}

    async def metric(self, name: str, plane: str, **labels: str) -> float:
        """The sum over the series of a metric on one server; 0 where it has none."""
        text = b""
        async for piece in (await self.client(plane)).text("/metrics", {}):
            text += piece
        return sum_of(text.decode(), f"fairlead_{name}", labels)

    # --- writing ---------------------------------------------------------------------------------------------------------

    async def create(self, plural: str, tenant: str, name: str, spec: Tree) -> Tree:
        """Labelled with its own name, so that rules can be about it."""
        metadata = {"name": name, "labels": {"app": name}}
        body = {"apiVersion": API_VERSION, "kind": kind(plural).kind, "metadata": metadata, "spec": spec}
        return (await (await self.client()).create(kind(plural), tenant, body)).object

    async def patch(self, plural: str, tenant: str, name: str, spec: Tree) -> Tree:
        return (await (await self.client()).patch(kind(plural), tenant, name, {"spec": spec})).object

    async def annotate(self, plural: str, tenant: str, name: str, notes: dict[str, str]) -> Tree:
        body = {"metadata": {"annotations": notes}}
        return (await (await self.client()).patch(kind(plural), tenant, name, body)).object

    async def approve(self, tenant: str, name: str) -> None:
        """An override, as the second person of the local platform."""
        body = {"spec": {"approver": APPROVER}}
        await (await self.client(who=APPROVER)).patch(kind("overrides"), tenant, name, body)

    async def delete(self, plural: str, tenant: str, name: str) -> None:
        try:
            await (await self.client()).delete(kind(plural), tenant, name)
        except NotFound:
            return


def kind(plural: str) -> Resource:
    info = KINDS[plural]
    return Resource(info.plural, info.kind, info.namespaced)


def workload_of(slot: Tree) -> str:
    spec = slot.get("spec") or {}
    return str((spec.get("slot") or {}).get("workload") or "")


def sum_of(text: str, name: str, labels: dict[str, str]) -> float:
    """Of an exposition in Prometheus' text form."""
    total = 0.0
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        found, _, inside = series.partition("{")
        if found == name and all(f'{label}="{wanted}"' in inside for label, wanted in labels.items()):
            total += float(value)
    return total
