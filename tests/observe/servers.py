"""A plane's server in this process, over real HTTP, with a token for each built-in role that a test asks for."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from fairlead.compose.config import PlaneConfig
from fairlead.compose.plane import PlaneServer
from fairlead.model.commands import Accepted, Body, Caller, Command, Put
from fairlead.model.kinds.access import AccessBinding, AccessBindingSpec, Subject, Token, TokenSpec
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import Tenant
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.security import tokens
from fairlead.store.memory import MemoryDisk, MemoryStore

OPERATOR = Caller("ada", Role.OPERATOR)
REGION = "eu"
WAIT_S = 60.0


class Served:
    def __init__(self, server: PlaneServer, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.http = http
        self.clock = SystemClock()
        self.mirror: Caller | None = None  # see work.py
        self.nodes: list[str] = []  # whose agents are heard

    async def beat(self) -> None:
        while True:
            self.server.authority.heartbeat([(name, 1) for name in self.nodes])
            await self.clock.sleep(1.0)

    async def put(self, kind: str, record: Any, caller: Caller = OPERATOR) -> Accepted:
        return await self.send(Put(kind, record), caller)

    async def send(self, body: Body, caller: Caller = OPERATOR) -> Accepted:
        (got,) = await self.server.authority.submit([Command(caller, body)])
        assert isinstance(got, Accepted), got
        return got

    async def token(self, role: str, tenants: tuple[str, ...] = ("*",)) -> str:
        """Of a new person who has that role."""
        minted = tokens.mint(SystemIds(), "fairlead-system")
        subject = Subject(name=f"some-{role}")
        expiry = datetime.fromtimestamp(self.clock.wall(), tz=UTC) + timedelta(hours=1)
        spec = TokenSpec(hash=minted.hash, subject=subject, expiry_time=expiry)
        await self.put("Token", Token(metadata=Metadata(name=minted.name, namespace="fairlead-system"), spec=spec))
        given = AccessBindingSpec(role=role, subjects=(subject,), tenants=tenants)
        await self.put("AccessBinding", AccessBinding(metadata=Metadata(name=f"some-{role}"), spec=given))
        return minted.text.reveal_bytes().decode()

    async def get(self, path: str, token: str = "", accept: str = "*/*") -> tuple[int, str, str]:
        """(code, content type, text)."""
        headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
        async with self.http.get(self.server.address + path, headers=headers) as answer:
            return answer.status, answer.headers.get("content-type", ""), await answer.text()

    async def until(self, condition: Callable[[], Any], what: str = "this") -> None:
        end = self.clock.monotonic() + WAIT_S
        while not condition():
            assert self.clock.monotonic() < end, f"{what} never came"
            await self.clock.sleep(0.02)


@asynccontextmanager
async def served(folder: Path, *, plane: str = "region", **more: Any) -> AsyncIterator[Served]:
    """With a tenant `risk` that has a grant, in a region; leading, its components at work."""
    region = REGION if plane == "region" else ""
    config = PlaneConfig(plane=plane, store="memory:", data=str(folder), region=region, lease_ttl_s=5.0)  # type: ignore[arg-type]
    server = PlaneServer(config, MemoryStore(MemoryDisk()), SystemClock(), SystemIds(), random.Random(1), **more)
    async with Tasks() as tasks, aiohttp.ClientSession() as http:
        running = tasks.start(server.run(), "server")
        made = Served(server, http)
        await made.until(lambda: server.components and all(each.serving for each in server.components), "leadership")
        beating = tasks.start(made.beat(), "agents")
        await made.put("Tenant", Tenant(metadata=Metadata(name="risk")))
        if region:
            during = Resources(cpu=1_000_000, memory=1 << 50)
            grant = GrantSpec(region=region, version=1, during=during, after=during)
            await made.put("Grant", Grant(metadata=Metadata(name=region, namespace="risk"), spec=grant))
        try:
            yield made
        finally:
            beating.cancel()
            server.stop()
            await running
