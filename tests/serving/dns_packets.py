"""A DNS client for tests that shares nothing with ours: packets put together and taken apart by hand, over plain sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, NamedTuple

TYPES = {"A": 1, "NS": 2, "SOA": 6, "AAAA": 28, "SRV": 33, "AXFR": 252, "ANY": 255}


class Seen(NamedTuple):
    rcode: int
    flags: int
    answers: list[tuple[str, str, int, str]]  # name, type, ttl, text
    authority: list[tuple[str, str, int, str]]
    additional: list[tuple[str, str, int, str]]
    question: bytes
    packet: bytes

    @property
    def truncated(self) -> bool:
        return bool(self.flags & 0x0200)

    @property
    def authoritative(self) -> bool:
        return bool(self.flags & 0x0400)


def question(
    name: str, type_: str, *, id_: int = 0x1234, edns: int | None = None, version: int = 0, flags: int = 0x0100
) -> bytes:
    out = id_.to_bytes(2, "big") + flags.to_bytes(2, "big") + b"\0\1\0\0\0\0" + (b"\0\1" if edns is not None else b"\0\0")
    for label in name.rstrip(".").split("."):
        out += bytes([len(label)]) + label.encode()
    out += b"\0" + TYPES[type_].to_bytes(2, "big") + b"\0\1"
    if edns is not None:
        out += b"\0" + (41).to_bytes(2, "big") + edns.to_bytes(2, "big") + bytes([0, version, 0, 0]) + b"\0\0"
    return out


def take_apart(packet: bytes) -> Seen:
    counts = [int.from_bytes(packet[at : at + 2], "big") for at in (4, 6, 8, 10)]
    flags = int.from_bytes(packet[2:4], "big")
    at = 12
    for _ in range(counts[0]):
        _, at = name_at(packet, at)
        at += 4
    asked = packet[12:at]
    sections: list[list[tuple[str, str, int, str]]] = []
    high = 0
    for count in counts[1:]:
        rows = []
        for _ in range(count):
            name, at = name_at(packet, at)
            type_ = int.from_bytes(packet[at : at + 2], "big")
            ttl, length = int.from_bytes(packet[at + 4 : at + 8], "big"), int.from_bytes(packet[at + 8 : at + 10], "big")
            data = at + 10
            if type_ == 41:
                high = ttl >> 24
            else:
                rows.append((name, _type(type_), ttl, _text(packet, type_, data, length)))
            at = data + length
        sections.append(rows)
    assert at == len(packet), "something follows the last record"
    return Seen(flags & 15 | high << 4, flags, sections[0], sections[1], sections[2], asked, packet)


def _type(number: int) -> str:
    return next(name for name, known in TYPES.items() if known == number)


def _text(packet: bytes, type_: int, at: int, length: int) -> str:
    if type_ == 1:
        return socket.inet_ntop(socket.AF_INET, packet[at : at + length])
    if type_ == 28:
        return socket.inet_ntop(socket.AF_INET6, packet[at : at + length])
    if type_ == 33:
        numbers = [int.from_bytes(packet[at + 2 * i : at + 2 * i + 2], "big") for i in range(3)]
        assert not any(byte >= 0xC0 for byte in packet[at + 6 : at + length]), "the target of SRV may not be compressed"
        return " ".join(map(str, numbers)) + " " + name_at(packet, at + 6)[0]
    return name_at(packet, at)[0]


def name_at(packet: bytes, at: int) -> tuple[str, int]:
    labels, end = [], None
    while packet[at]:
        if packet[at] >= 0xC0:
            end = end or at + 2
            at = (packet[at] & 0x3F) * 256 + packet[at + 1]
            continue
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin-1"))
        at += 1 + packet[at]
    return ".".join(labels), end or at + 1


async def over_udp(port: int, packet: bytes, timeout_s: float = 60.0) -> bytes | None:
    """None: no answer came."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(("127.0.0.1", port))
        await loop.sock_sendall(sock, packet)
        try:
            async with asyncio.timeout(timeout_s):
                return await loop.sock_recv(sock, 70_000)
        except TimeoutError:
            return None


async def over_tcp(port: int, *packets: bytes) -> list[bytes]:
    """Several questions on one connection; what was answered before it was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.writelines(len(packet).to_bytes(2, "big") + packet for packet in packets)
        out: list[bytes] = []
        for _ in packets:
            try:
                length = int.from_bytes(await reader.readexactly(2), "big")
                out.append(await reader.readexactly(length))
            except (asyncio.IncompleteReadError, ConnectionError):
                break
        return out
    finally:
        writer.close()


def rows(seen: list[tuple[str, str, int, str]]) -> list[Any]:
    return sorted((name, type_, text) for name, type_, _, text in seen)
