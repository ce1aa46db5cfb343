"""Asks a DNS server for the endpoints of a workload: SRV over UDP, over TCP where the answer was cut off.

Owns one question at a time and its patience. Believes only an answer to its own question. Called by the prober.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from fairlead.ports import Random
from fairlead.serving.dns_wire import AAAA, NOERROR, NXDOMAIN, SRV, A, Malformed, Name, Reply, name_of, read_reply, write_query

ATTEMPTS: Final = 3
ATTEMPT_S: Final = 0.7


class Unresolved(Exception):
    """There is no answer to be had at the moment."""


class Found(NamedTuple):
    """One target of a SRV answer. The labels of its name say region and slot."""

    region: str
    slot: int
    address: str
    port: int
    priority: int


class _Ear(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue(16)

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self.heard.full():
            self.heard.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there: the time limit ends the wait."""


async def ask(server: tuple[str, int], name: Name, type_: int, random: Random) -> Reply:
    """Raises Unresolved."""
    for _ in range(ATTEMPTS):
        number = random.randrange(1 << 16)
        try:
            async with asyncio.timeout(ATTEMPT_S):
                reply = await _over_udp(server, number, name, type_)
                if reply.truncated:
                    reply = await _over_tcp(server, number, name, type_)
        except (OSError, TimeoutError, Malformed, asyncio.IncompleteReadError):
            continue
        if reply.rcode not in (NOERROR, NXDOMAIN):
            raise Unresolved(f"the DNS server refuses with code {reply.rcode}")
        return reply
    raise Unresolved(f"the DNS server at {server[0]}:{server[1]} does not answer")


async def _over_udp(server: tuple[str, int], number: int, name: Name, type_: int) -> Reply:
    transport, ear = await asyncio.get_running_loop().create_datagram_endpoint(_Ear, remote_addr=server)
    try:
        transport.sendto(write_query(number, name, type_))
        while True:
            try:
                reply = read_reply(await ear.heard.get())
            except Malformed:
                continue
            if _is_answer(reply, number, name, type_):
                return reply
    finally:
        transport.close()


async def _over_tcp(server: tuple[str, int], number: int, name: Name, type_: int) -> Reply:
    reader, writer = await asyncio.open_connection(*server)
    try:
        packet = write_query(number, name, type_)
        writer.write(struct.pack("!H", len(packet)) + packet)
        await writer.drain()
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        reply = read_reply(await reader.readexactly(length))
        if not _is_answer(reply, number, name, type_):
            raise Malformed("answers another question")
        return reply
    finally:
        writer.close()


def _is_answer(reply: Reply, number: int, name: Name, type_: int) -> bool:
    return reply.id == number and reply.question == (name, type_)


async def knows(server: tuple[str, int], tenant: str, workload: str, random: Random, zone: str = "svc.fairlead.local") -> bool:
    """Whether there is such a workload, also one that has no endpoint just now. Raises Unresolved."""
    return (await ask(server, name_of(f"{workload}.{tenant}.{zone}"), A, random)).rcode != NXDOMAIN


async def find(
    server: tuple[str, int], tenant: str, workload: str, port: str, random: Random, zone: str = "svc.fairlead.local"
) -> Sequence[Found]:
    """Every endpoint of a workload that has the port; none where the workload is unknown. Raises Unresolved."""
    name = name_of(f"_{port}._tcp.{workload}.{tenant}.{zone}")
    reply = await ask(server, name, SRV, random)
    addresses = dict(reply.addresses)
    found: list[Found] = []
    for priority, number, target in reply.services:
        if len(target) < 2 or not target[0].isdigit():
            raise Unresolved(f"the DNS server names a target that is no slot: {target!r}")
        for address in addresses.get(target) or await _addresses(server, target, random):
            found.append(Found(target[1].decode("ascii", "replace"), int(target[0]), address, number, priority))
    return sorted(found)


async def _addresses(server: tuple[str, int], target: Name, random: Random) -> list[str]:
    """Of a target whose address did not fit beside the answer."""
    for type_ in (A, AAAA):
        found = (await ask(server, target, type_, random)).addresses.get(target)
        if found:
            return found
    return []
