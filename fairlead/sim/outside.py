"""Owns a server's outside in the simulator: its listener, its way to dial, its HTTP, all over the simulated network.

Implements fairlead/compose/outside.py. Not simulated: the HTTP parser, TLS, certificates (who calls is said when dialling), the
archive and the decision log (no files, no threads). Made by platform.py for every life of a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fairlead.authority.history import History
from fairlead.authority.local import LocalPlane
from fairlead.client.channel import Channel, Closed
from fairlead.client.plane import Plane
from fairlead.client.providing import Provider
from fairlead.compose.outside import Decisions, Dialling, ServeChannel, Serving
from fairlead.decide.access import Identity
from fairlead.model.commands import Caller, Command, Put, Refused
from fairlead.model.decision import DecisionRecord
from fairlead.model.lifecycle import Role
from fairlead.ports import Clock, Kept
from fairlead.serving.http_get import Got
from fairlead.sim.machines import Machine, Running
from fairlead.sim.network import End, Network
from fairlead.sim.versions import Earlier, EarlierSeen
from fairlead.store.contract import Store

log = logging.getLogger(__name__)

SEEDER: Final = Caller("seed", Role.OPERATOR)

Names = Mapping[str, Machine]  # who is behind an address


class SimDialling:
    """As one process dials, with the identity its certificate would prove."""

    def __init__(self, network: Network, process: Running, who: Identity, names: Names) -> None:
        self._network = network
        self._process = process
        self._who = who
        self._names = names

    async def dial(self, address: str) -> Channel:
        end = await self._network.dial(self._process, address, "channel", self._who, self._names[address])
        assert end.peer is not None
        self._network.machines.counts["F18"] += end.peer.process.is_earlier != self._process.is_earlier
        return Earlier(end) if self._process.is_earlier else end

    async def close(self) -> None:
        """Connections end with their owners."""


class SimServing:
    def __init__(self, network: Network, process: Running, address: str, app: Any, serve: ServeChannel) -> None:
        self._app = app
        self._serve = serve
        self._network = network
        self._process = process
        self._address = address
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        self._network.listen(self._process, self._address, "channel", self._channel)
        self._network.listen(self._process, self._address, "http", self._http)
        await self._stop.wait()

    def stop(self) -> None:
        self._stop.set()

    async def _channel(self, end: End, who: Identity) -> None:
        try:
            await self._serve(Earlier(end) if self._process.is_earlier else end, who)
        except Exception:
            log.exception("a channel of %s failed", who.name)

    async def _http(self, end: End, hello: Any) -> None:
        try:
            await answer(self._app, end)
        except Closed:
            pass
        except Exception:
            log.exception("a request failed")
        await end.close()


async def answer(app: Any, end: End) -> None:
    """One request through the ASGI application. What the application sends goes out as it comes, so that a watch streams."""
    method, path, query, headers, body = await end.receive()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "https", "path": path,
        "raw_path": path.encode(), "query_string": query, "root_path": "", "client": ("10.9.9.9", 999), "server": ("sim", 443),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers], "state": {},
    }  # fmt: skip
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        with contextlib.suppress(Closed):
            await end.receive()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        await end.send(message)

    await app(scope, receive, send)


class Answer:
    """What came of a request."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class SimHttp:
    """A program's HTTP client."""

    def __init__(self, network: Network, process: Running, names: Names) -> None:
        self._network = network
        self._process = process
        self._names = names

    async def request(
        self, address: str, method: str, path: str, *, query: bytes = b"", headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"", limit_s: float = 10.0,
    ) -> Answer:  # fmt: skip
        """Raises OSError or Closed where nothing was sent for sure or nobody knows, TimeoutError when no answer came."""
        async with asyncio.timeout(limit_s):
            end = await self._network.dial(self._process, address, "http", None, self._names[address])
            try:
                await end.send((method, path, query, list(headers), body))
                start = await end.receive()
                parts: list[bytes] = []
                while True:
                    message = await end.receive()
                    parts.append(message.get("body", b""))
                    if not message.get("more_body", False):
                        break
            finally:
                await end.close()
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], told, b"".join(parts))


class NoDecisions:
    def append(self, records: Sequence[DecisionRecord]) -> None:
        pass

    def close(self) -> None:
        pass


class SimOutside:
    def __init__(
        self, network: Network, process: Running, address: str, who: Identity, names: Names, born_with: Sequence[tuple[str, Any]]
    ) -> None:
        self.address = address
        self._network = network
        self._process = process
        self._who = who
        self._names = names
        self._born_with = born_with
        self.provides: Callable[[Plane], Provider] | None = None  # whoever starts machines for this region's pools

    def serving(self, app: Any, serve: ServeChannel) -> Serving:
        return SimServing(self._network, self._process, self.address, app, serve)

    def dialler(self) -> Dialling:
        return SimDialling(self._network, self._process, self._who, self._names)

    def history(self, store: Store, clock: Clock) -> History | None:
        return None

    def seen(self) -> Kept:
        kept = self._process.machine.file(f"seen of {self._process.program.name}")
        return EarlierSeen(kept) if self._process.is_earlier else kept

    def decisions(self) -> Decisions:
        return NoDecisions()

    async def seed(self, plane: LocalPlane) -> int:
        outcomes = await plane.submit([Command(SEEDER, Put(kind, record, mode="create")) for kind, record in self._born_with])
        for outcome in outcomes:
            if isinstance(outcome, Refused) and outcome.reason not in ("AlreadyExists", "NotLeader", "StoreUnavailable"):
                raise ValueError(f"{outcome.reason}: {outcome.detail}")
        return 0

    async def fetch(self, address: str, port: int, path: str, timeout_s: float) -> Got:
        return Got(error="Refused")  # simulated work has no pages

    def provider(self, plane: LocalPlane, clock: Clock) -> Provider | None:
        return self.provides(plane) if self.provides is not None else None
