"""The clients of `fairlead bench overload`: many small commands over HTTPS, as fast as they are answered or at a rate, each with
a deadline, obeying Retry-After or not. Owns the connections, the clocks on commands and what became of each. Judges nothing.

Speaks HTTP by hand, because a client library takes as much of a core as the server does, and this machine may have only two.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
from collections import Counter
from collections.abc import Callable
from time import perf_counter as now
from typing import Any
from urllib.parse import urlsplit

import httptools
import msgspec

from bench.api_client import GROUP, workload
from bench.api_rig import TENANTS
from fairlead.ports import Tasks

IMPATIENT_S = 0.1  # after which those come back who do not read what they are told
IMPATIENT_TRIES_MAX = 5  # then even they have given up
LOST = 0  # instead of a status: the connection went
UNSENT = -1  # there was none to be had


class Wire(asyncio.Protocol):
    """One kept connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._parser: Any = None
        self._waiting: asyncio.Future[tuple[int, float]] | None = None
        self._after_s = 0.0
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._answer(LOST)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._after_s = float(value)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.gone = self.gone or not self._parser.should_keep_alive()
        self._answer(status)

    def _answer(self, status: int) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result((status, self._after_s))
        self._waiting = None

    async def ask(self, data: bytes) -> tuple[int, float]:
        self._after_s = 0.0
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._waiting

    def close(self) -> None:
        self.gone = True
        if self._transport is not None:
            self._transport.abort()


class Wires:
    def __init__(self, address: str, tls: ssl.SSLContext, most: int) -> None:
        """`most`: of all clients together. A command that finds none free is not even sent, and counts as not done."""
        parts = urlsplit(address)
        self._host, self._port, self._tls = parts.hostname or "", parts.port or 443, tls
        self._free: list[Wire] = []
        self._open = 0
        self._most = most

    async def ask(self, data: bytes, until: float) -> tuple[int, float]:
        """(status, seconds it said to wait). Whoever has no answer by then hangs up, as people's tools do: TimeoutError."""
        wire: Wire | None = None
        try:
            async with asyncio.timeout(until - now()):
                wire = self._kept() or await self._dial()
                if wire is None:
                    return UNSENT, 0.0
                answer = await wire.ask(data)
        except OSError:
            if isinstance(wire, Wire):
                self._drop(wire)
            raise
        if wire.gone:
            self._drop(wire)
        else:
            self._free.append(wire)
        return answer

    async def ready(self, hello: bytes) -> None:
        """All of them are there: clients that come to overload a server had theirs before. One that has never asked for anything
        would be hung up on."""
        while self._open < self._most:
            wire = await self._dial()
            if wire is not None:
                await wire.ask(hello)
                self._free.append(wire)

    def _kept(self) -> Wire | None:
        while self._free:
            wire = self._free.pop()
            if not wire.gone:
                return wire
            self._drop(wire)
        return None

    async def _dial(self) -> Wire | None:
        if self._open >= self._most:
            return None
        self._open += 1
        try:
            _, wire = await asyncio.get_running_loop().create_connection(Wire, self._host, self._port, ssl=self._tls)
        except BaseException:
            self._open -= 1
            raise
        return wire

    def _drop(self, wire: Wire) -> None:
        self._open -= 1
        wire.close()

    def close(self) -> None:
        for wire in self._free:
            self._drop(wire)
        self._free.clear()


class Tally:
    """What became of the commands of one stretch."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.sent = 0
        self.done: list[tuple[float, float]] = []  # (when it was to be sent, when it was acknowledged), those in time
        self.refused: Counter[int] = Counter()  # answers by code: one command may be refused several times
        self.given_up = 0  # no answer, or none but refusals, by the deadline
        self.lost = 0  # the connection went before there was an answer
        self.unsent = 0

    def per_s(self, since: float, until: float) -> float:
        """Commands acknowledged in time, by when they were acknowledged."""
        return sum(since <= acked < until for _, acked in self.done) / max(until - since, 1e-9)

    def share(self, since: float, until: float, rate: float) -> float:
        """Of the commands of that stretch, how many were acknowledged in time."""
        return sum(since <= begun < until for begun, _ in self.done) / max((until - since) * rate, 1e-9)


class Load:
    def __init__(self, address: str, token: str, tls: ssl.SSLContext, connections: int, deadline_s: float) -> None:
        self._wires = Wires(address, tls, connections)
        self._token = token
        self._host = urlsplit(address).netloc
        self._deadline_s = deadline_s
        self._random = random.Random(1)
        self._serial = 0

    def close(self) -> None:
        self._wires.close()

    async def ready(self) -> None:
        await self._wires.ready(f"GET /livez HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    def _request(self) -> bytes:
        self._serial += 1
        tenant = f"t{self._serial % TENANTS}"
        body = msgspec.json.encode(workload(tenant, f"w{self._serial}", 0))  # no replicas: there is no region to place them in
        head = (
            f"POST {GROUP}/namespaces/{tenant}/workloads HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def closed(self, clients: int, seconds: float) -> Tally:
        """Each client sends its next command when the last one was answered."""
        tally = Tally(now())
        until = tally.began + seconds

        async def client() -> None:
            while now() < until:
                await self._command(tally, now(), True)

        async with Tasks() as tasks:
            for number in range(clients):
                tasks.start(client(), f"client {number}")
        return tally

    async def open(self, tally: Tally, rate: float, seconds: float, unruly: float, is_over: Callable[[], bool]) -> None:
        """So many new commands a second, whatever becomes of those before; `unruly`: the share that does not wait as told."""
        async with Tasks() as tasks:
            for number in range(max(1, int(rate * seconds))):
                due = tally.began + number / rate
                wait_s = due - now()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                    if is_over():
                        break
                tasks.start(self._command(tally, due, self._random.random() >= unruly), "command")

    async def _command(self, tally: Tally, due: float, obeys: bool) -> None:
        tally.sent += 1
        until, data = due + self._deadline_s, self._request()
        for tries in itertools.count(1):
            try:
                status, after_s = await self._wires.ask(data, until)
            except TimeoutError:
                tally.given_up += 1
                return
            except OSError:
                status, after_s = LOST, 0.0
            if 200 <= status < 300:
                tally.done.append((due, now()))
                return
            if status == UNSENT:
                tally.unsent += 1
                return
            if status == LOST:
                tally.lost += 1
            else:
                tally.refused[status] += 1
            # Half as long again at most, so that those who were refused together do not come back together.
            wait_s = max(after_s, IMPATIENT_S) * (1 + self._random.random() / 2) if obeys else IMPATIENT_S
            if now() + wait_s >= until or (not obeys and tries >= IMPATIENT_TRIES_MAX):
                tally.given_up += 1
                return
            await asyncio.sleep(wait_s)
