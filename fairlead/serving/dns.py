"""The authoritative DNS server: UDP and TCP on one port, on loopback unless told who else may ask.

Owns sockets, sizes and limits; what is answered is dns_zone.py's, how it is written dns_wire.py's. Never recurses and never asks
anybody. Whoever asks too much gets no answer rather than a refusal, so that a forged sender is sent nothing. Started by the root.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import struct
from collections import OrderedDict
from typing import Any, Final

import msgspec

from fairlead.ports import Clock
from fairlead.serving.dns_wire import (
    EDNS_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    QUESTION_BYTES_MAX,
    REFUSED,
    SERVFAIL,
    UDP_BYTES,
    Answer,
    Malformed,
    Query,
    read_query,
    write_answer,
    write_malformed,
)
from fairlead.serving.dns_zone import Zone

log = logging.getLogger(__name__)

CLIENTS_MAX: Final = 4_096  # whose pace is kept; beyond, the one not heard for longest is forgotten
BIND_ATTEMPTS: Final = 16  # to find one number that is free for both UDP and TCP

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class DnsSettings(msgspec.Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 5300  # 53 needs root, 5353 belongs to mDNS
    networks: tuple[str, ...] = ()  # who else may ask; needed where the host is not loopback
    rate_per_s: float = 1_000.0  # of one client: an IPv4 address or an IPv6 /64
    burst: int = 2_000
    connections_max: int = 128
    connections_per_client: int = 16
    idle_s: float = 5.0  # of a TCP connection between two questions

    def faults(self) -> list[str]:
        out = []
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return [f"host: {self.host!r} is not an IP address"]
        if not loopback and not self.networks:
            out.append(f"host: {self.host} can be reached from elsewhere, and that needs `networks`: who may ask")
        if not 0 <= self.port <= 65_535:
            out.append(f"port: {self.port} is not in 0..65535")
        if self.rate_per_s <= 0 or self.burst < 1:
            out.append("ratePerS and burst must be above 0")
        for text in self.networks:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                out.append(f"networks: {error}")
        return out


class Pace:
    """A bucket of questions per client, filled steadily."""

    def __init__(self, rate_per_s: float, burst: int, clock: Clock) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        now = self._clock.monotonic()
        left, at = self._left.pop(client, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._rate_per_s)
        allowed = left >= 1.0
        self._left[client] = (left - 1.0 if allowed else left, now)
        if len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
        return allowed


class DnsServer:
    def __init__(self, zone: Zone, clock: Clock, settings: DnsSettings | None = None) -> None:
        self.settings = settings or DnsSettings()
        faults = self.settings.faults()
        if faults:
            raise ValueError("; ".join(faults))
        self._zone = zone
        self._pace = Pace(self.settings.rate_per_s, self.settings.burst, clock)
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in self.settings.networks)
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None
        self._open: dict[str, int] = {}  # TCP connections by client
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = self.settings.port
        self.dropped_total = 0

    # --- its life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens when this returns. Raises OSError where the port is taken."""
        for attempt in range(BIND_ATTEMPTS):
            try:
                await self._bind()
                return
            except OSError:
                await self.close()
                if self.settings.port or attempt == BIND_ATTEMPTS - 1:
                    raise

    async def _bind(self) -> None:
        host = self.settings.host
        self._tcp = await asyncio.start_server(self._connected, host, self.settings.port, limit=QUESTION_BYTES_MAX + 2)
        self.port = self._tcp.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        self._udp, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), (host, self.port))

    async def close(self) -> None:
        if self._udp is not None:
            self._udp.close()
            self._udp = None
        if self._tcp is not None:
            self._tcp.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._tcp.wait_closed()
            self._tcp = None

    async def run(self) -> None:
        """Serves until cancelled."""
        await self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()

    # --- one question ----------------------------------------------------------------------------------------------------

    def may_ask(self, address: str) -> bool:
        """Loopback, or one of the networks; and not more often than its share."""
        client = self._client(address)
        return bool(client) and self._pace.allows(client)

    def _client(self, address: str) -> str:
        """As whom an address is counted: itself, or its network of IPv6; empty: it is not served here."""
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return ""
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if not ip.is_loopback and not any(ip in network for network in self._networks):
            return ""
        return str(ip) if ip.version == 4 else str(ipaddress.ip_network((ip, 64), strict=False))

    def reply(self, packet: bytes, *, datagram: bool) -> bytes | None:
        """Any bytes in; an answer, or None where none is due."""
        try:
            query = read_query(packet)
        except Malformed as error:
            return write_malformed(error)
        try:
            answer = self._zone.answer(query)
        except Exception:
            log.exception("a question could not be answered")
            answer = Answer(SERVFAIL, authoritative=False)
        if query.edns_bytes is None and answer.rcode > 15:
            answer = Answer(REFUSED, authoritative=False)
        return write_answer(query, answer, _limit(query) if datagram else MESSAGE_BYTES_MAX)

    def datagram(self, packet: bytes, sender: tuple[Any, ...]) -> None:
        if sender[1] == 0 or not self.may_ask(sender[0]):
            self.dropped_total += 1
            return
        answer = self.reply(packet, datagram=True)
        if answer is None:
            self.dropped_total += 1
        elif self._udp is not None:
            self._udp.sendto(answer, sender)

    # --- TCP -------------------------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        address = peer[0] if peer else ""
        client = self._client(address)  # a stranger takes nobody's place
        full = sum(self._open.values()) >= self.settings.connections_max
        if not client or full or self._open.get(client, 0) >= self.settings.connections_per_client:
            self.dropped_total += 1
            writer.transport.abort()
            return
        self._open[client] = self._open.get(client, 0) + 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._converse(address, reader, writer)
        finally:
            self._writers.discard(writer)
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]
            writer.close()

    async def _converse(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(self.settings.idle_s):
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                packet = await reader.readexactly(length) if length <= QUESTION_BYTES_MAX else None
            answer = self.reply(packet, datagram=False) if packet is not None and self.may_ask(address) else None
            if answer is None:
                self.dropped_total += 1
                return
            writer.write(struct.pack("!H", len(answer)) + answer)
            async with asyncio.timeout(self.settings.idle_s):
                await writer.drain()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._server.datagram(data, addr)

    def error_received(self, exc: Exception) -> None:
        """A client has gone before its answer came; nobody needs to know."""


def _limit(query: Query) -> int:
    if query.edns_bytes is None:
        return UDP_BYTES
    return max(UDP_BYTES, min(query.edns_bytes, EDNS_BYTES_MAX))
