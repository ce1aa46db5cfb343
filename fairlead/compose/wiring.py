"""Which processes the local platform has, who dials whom, and the ports of all that. Written once, with the layout.

Every link goes through a relay of links.py. Ports lie below the range that the kernel gives to outgoing connections, so that
none of those is in the way when the platform starts again. Called by layout.py.
"""

from __future__ import annotations

import os
import socket as sockets
import weakref
from collections.abc import Sequence
from typing import Final

from fairlead.compose.links import Link

REGIONS: Final = ("us-east", "us-west", "eu-central")
PLANES: Final = ("global", *REGIONS)
LINKS, ENDPOINTS, PEOPLE = "links", "endpoints", "people"  # processes beside planes and agents; people only dial

_HOST: Final = "127.0.0.1"
_FIRST_PORT, _PORTS = 24_000, 8_000  # above those of instances, below 32768
_STEP: Final = 61  # platforms that are made at the same moment begin looking far from each other


class Wiring:
    def __init__(self, agents: Sequence[tuple[str, str]]) -> None:
        """`agents` are (process, region). No other platform chooses these ports while this is kept: it is to be, until they are
        listened on."""
        dialled = [(agent, region) for agent, region in agents]
        dialled += [(region, "global") for region in REGIONS] + [("global", region) for region in REGIONS]
        dialled += [(ENDPOINTS, region) for region in REGIONS] + [(PEOPLE, "global")]
        held = _free_ports(len(PLANES) + len(dialled) + 1)
        weakref.finalize(self, _close, held)
        ports = iter([one.getsockname()[1] for one in held])
        self._planes = {plane: next(ports) for plane in PLANES}
        self._through = {link_name(*pair): next(ports) for pair in dialled}
        self.dns = f"{_HOST}:{next(ports)}"

    def listen(self, plane: str) -> str:
        return f"{_HOST}:{self._planes[plane]}"

    def address(self, dialler: str, plane: str) -> str:
        """How a process reaches a plane."""
        return f"https://{_HOST}:{self._through[link_name(dialler, plane)]}"

    def links(self) -> tuple[Link, ...]:
        return tuple(Link(name, f"{_HOST}:{port}", self.listen(name.partition(">")[2])) for name, port in self._through.items())


def link_name(dialler: str, plane: str) -> str:
    return f"{dialler}>{plane}"


def _free_ports(count: int) -> list[sockets.socket]:
    """Bound to them: on Linux nobody else can be, but for a server that sets SO_REUSEADDR, which listens beside it."""
    held: list[sockets.socket] = []
    for number in range(_PORTS):
        if len(held) == count:
            return held
        port = _FIRST_PORT + (os.getpid() * _STEP + number) % _PORTS
        one = sockets.socket()
        try:
            one.bind((_HOST, port))  # not yet with SO_REUSEADDR: it would not see what another platform holds
            one.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            if _is_taken_udp(_HOST, port):
                raise OSError(f"{port} is somebody's UDP port")  # one of these is for DNS
            held.append(one)
        except OSError:
            one.close()
    _close(held)
    raise ValueError(f"fewer than {count} ports are free from {_FIRST_PORT} to {_FIRST_PORT + _PORTS - 1}")


def _close(held: Sequence[sockets.socket]) -> None:
    for one in held:
        one.close()


def is_taken(address: str, *, udp: bool = False) -> bool:
    """Whether somebody listens there already; with `udp`, on either protocol."""
    host, _, port = address.rpartition(":")
    if udp and _is_taken_udp(host, int(port)):
        return True
    with sockets.socket() as one:
        one.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            one.bind((host, int(port)))
        except OSError:
            return True
    return False


def _is_taken_udp(host: str, port: int) -> bool:
    with sockets.socket(type=sockets.SOCK_DGRAM) as one:
        try:
            one.bind((host, port))
        except OSError:
            return True
    return False
