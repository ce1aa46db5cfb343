"""A TCP proxy that breaks the network on command, between a store and its server. Owns the connections through it and
counts what it did to them; never looks inside the bytes, so it serves PostgreSQL and etcd alike.

Each control applies to the connections that exist now; with `future=True` also to those opened later. That is what lets
a test hold a commit back while its resubmission goes through on a new connection. Nothing here is random or timed,
except `delay_replies`. Called by fault tests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

CHUNK_BYTES = 65536
HELD_BYTES_MAX = 64 * 1024 * 1024  # A test that holds more has forgotten to release.
WAIT_S = 60.0


@dataclass(slots=True)
class Counts:
    connections: int = 0
    refused: int = 0
    resets: int = 0
    request_bytes: int = 0
    reply_bytes: int = 0
    held_bytes: int = 0  # held back now, not in all
    released_bytes: int = 0
    dropped_request_bytes: int = 0
    dropped_reply_bytes: int = 0
    delayed_replies: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    requests: Literal["pass", "hold", "drop"] = "pass"
    replies: Literal["pass", "drop"] = "pass"
    reply_delay_s: float = 0.0
    hold_last_bytes: int = 0  # With "pass": forwards all but the newest bytes, so a message arrives without its end.


class Proxy:
    """`async with Proxy(server_port) as proxy:` and give the store `proxy.port`."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self.counts = Counts()
        self.port = 0
        self._target = (target_host, target_port)
        self._server: asyncio.Server | None = None
        self._flows: set[_Flow] = set()
        self._rule = Rule()
        self._refusing = False
        self._waiting: list[tuple[Callable[[Counts], bool], asyncio.Future[None]]] = []

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        flows = list(self._flows)
        for flow in flows:
            flow.end()
        for flow in flows:
            await flow.ended.wait()

    def pass_through(self) -> None:
        """Everything works again, for new connections. Those that lost bytes stay silent, as after a real fault: a
        stream with a hole in it would be a fault no network makes."""
        self._refusing = False
        self._rule = Rule()
        for flow in self._flows:
            if not flow.lost_bytes:
                flow.rule = Rule()

    def delay_replies(self, seconds: float, *, future: bool = False) -> None:
        self._set(future, reply_delay_s=seconds)

    def drop_replies(self, *, future: bool = False) -> None:
        """Requests arrive, answers do not."""
        self._set(future, replies="drop")

    def drop_everything(self, *, future: bool = False) -> None:
        self._set(future, requests="drop", replies="drop")

    def refuse_connections(self) -> None:
        """New connections are reset at once; existing ones live on."""
        self._refusing = True

    def reset_connections(self) -> None:
        """RST to both sides of every connection."""
        for flow in list(self._flows):
            self.counts.resets += 1
            flow.end()

    def hold_requests(self, *, future: bool = False) -> None:
        """Requests wait here until `release`, even if their client hangs up: that is how a write lands late."""
        self._set(future, requests="hold")

    def held(self) -> list[bytes]:
        """What waits here now, per connection that has some."""
        return [bytes(flow.held) for flow in self._flows if flow.held]

    def hang_up_on_clients(self) -> None:
        """Clients whose requests are held see their connection end, at once instead of at their time limit; the servers
        see nothing. So a server that is given a long limit, as a slow machine needs, costs no wait for the client's."""
        for flow in self._flows:
            if flow.held:
                flow.leave_client()

    def hold_request_ends(self, count: int, *, future: bool = False) -> None:
        """The newest `count` bytes of each connection wait here until `release`; what was before them is forwarded."""
        self._set(future, hold_last_bytes=count)

    async def release(self) -> int:
        """Delivers what is held and returns how many connections got some, once the server answered on each of them (or
        closed it). Answers go to clients that are still there."""
        flows = [flow for flow in self._flows if flow.held]
        for flow in self._flows:
            flow.rule = replace(flow.rule, requests="pass", hold_last_bytes=0)
        self._rule = replace(self._rule, requests="pass", hold_last_bytes=0)
        for flow in flows:
            await flow.deliver()
        async with asyncio.timeout(WAIT_S):
            for flow in flows:
                await flow.answered.wait()
        return len(flows)

    async def wait_until(self, reached: Callable[[Counts], bool]) -> None:
        """Waits for the counters instead of sleeping: `await proxy.wait_until(lambda c: c.held_bytes > 0)`."""
        if not reached(self.counts):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((reached, future))
            async with asyncio.timeout(WAIT_S):
                await future

    def changed(self) -> None:
        for reached, future in self._waiting:
            if not future.done() and reached(self.counts):
                future.set_result(None)
        self._waiting = [(reached, future) for reached, future in self._waiting if not future.done()]

    def _set(self, future: bool, **changes: object) -> None:
        for flow in self._flows:
            flow.rule = replace(flow.rule, **changes)  # type: ignore[arg-type]
        if future:
            self._rule = replace(self._rule, **changes)  # type: ignore[arg-type]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts.connections += 1
        if self._refusing:
            self.counts.refused += 1
            writer.transport.abort()
            return
        try:
            upstream = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()  # The server is down: the client must see that too.
            return
        flow = _Flow(self, self._rule, (reader, writer), upstream)
        self._flows.add(flow)
        try:
            await flow.run()
        finally:
            self._flows.discard(flow)
            self.counts.held_bytes -= len(flow.held)
            flow.ended.set()


class _Flow:
    """One connection through the proxy."""

    def __init__(
        self,
        proxy: Proxy,
        rule: Rule,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.rule = rule
        self.held = bytearray()
        self.lost_bytes = False
        self.answered = asyncio.Event()  # set by every reply; cleared when held bytes are delivered
        self.ended = asyncio.Event()
        self._proxy = proxy
        self._client = client
        self._server = server
        self._delivered = asyncio.Event()
        self._replies_ended = asyncio.Event()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump_requests())
                pumps.create_task(self._pump_replies())
        finally:
            self.end()

    def end(self) -> None:
        """abort() sends RST where data is unread and FIN otherwise; either way both sides see the end."""
        self._client[1].transport.abort()
        self._server[1].transport.abort()
        self._delivered.set()
        self._replies_ended.set()
        self.answered.set()

    def leave_client(self) -> None:
        self._client[1].transport.abort()

    async def deliver(self) -> None:
        data, self.held = bytes(self.held), bytearray()
        counts = self._proxy.counts
        counts.held_bytes -= len(data)
        counts.released_bytes += len(data)
        if not self._server[0].at_eof():  # A server that hung up meanwhile will not answer.
            self.answered.clear()
        await self._forward(data)
        self._delivered.set()
        self._proxy.changed()

    async def _pump_requests(self) -> None:
        reader = self._client[0]
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                await self._request(data)
                self._proxy.changed()
        if self.held:
            await self._delivered.wait()
            await self._replies_ended.wait()  # A server that sees EOF too early might not run what it was sent.
        self._server[1].close()

    async def _request(self, data: bytes) -> None:
        counts, rule = self._proxy.counts, self.rule
        if rule.requests == "drop":
            counts.dropped_request_bytes += len(data)
            self.lost_bytes = True
            return
        if rule.requests == "hold" or rule.hold_last_bytes:
            keep = len(self.held) + len(data) if rule.requests == "hold" else rule.hold_last_bytes
            assert len(self.held) + len(data) <= HELD_BYTES_MAX, "held too much: release() was forgotten"
            counts.held_bytes -= len(self.held)
            self.held += data
            cut = max(0, len(self.held) - keep)
            data = bytes(self.held[:cut])
            del self.held[:cut]
            counts.held_bytes += len(self.held)
        await self._forward(data)

    async def _forward(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._server[1].write(data)
            await self._server[1].drain()
            self._proxy.counts.request_bytes += len(data)

    async def _pump_replies(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._server[0].read(CHUNK_BYTES):
                self.answered.set()
                await self._reply(data)
                self._proxy.changed()
        self.answered.set()
        self._replies_ended.set()
        if self.rule.replies == "pass":  # In the black hole even the server's FIN is lost.
            self._client[1].close()

    async def _reply(self, data: bytes) -> None:
        counts = self._proxy.counts
        if self.rule.reply_delay_s:
            counts.delayed_replies += 1
            await asyncio.sleep(self.rule.reply_delay_s)
        if self.rule.replies == "drop":
            counts.dropped_reply_bytes += len(data)
            self.lost_bytes = True
            return
        counts.reply_bytes += len(data)
        with contextlib.suppress(ConnectionError):  # The client gave up; the answer goes nowhere, as on a real network.
            self._client[1].write(data)
            await self._client[1].drain()
