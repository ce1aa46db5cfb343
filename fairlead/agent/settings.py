"""What an agent is configured with: its node or nodes, its times, where it keeps things. Detects what a machine has.

Called by main.py and tests; read by everything in this package.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from fairlead.model.resources import Device, Resources
from fairlead.ports import Kept

# Kept back from what instances may have: the agent, its shims and the system.
SYSTEM_CPU_MILLI: Final = 100
SYSTEM_MEMORY_BYTES: Final = 256 << 20

LOOPBACK: Final = "127.0.0.1"
_ELSEWHERE: Final = "https://192.0.2.1:7443"  # of a net that nobody has: tells which address leads out of this machine


class NodeDeclaration(msgspec.Struct, frozen=True):
    """A node as its agent registers it. Labels, zone and devices are declared; capacity is declared or detected."""

    name: str
    region: str
    zone: str = ""
    pool: str = ""
    allocatable: Resources = Resources()
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = {}
    address: str = "127.0.0.1"  # by which its instances are reached, and on which they listen
    max_slots: int = 110
    hourly_cost_millis: int = 0


class AgentSettings(msgspec.Struct, frozen=True):
    """Times in seconds. The clock error must be the region's own (authority Settings)."""

    node_lease_s: float = 15.0  # until the region says how long its own is
    clock_rate_error: float = 0.01
    heartbeat_s: float = 5.0
    heartbeat_limit_s: float = 2.0
    kill_s: float = 1.5  # from the fence time to the last process gone: the shim looks every half second
    fence_margin_s: float = 2.0
    report_s: float = 0.05
    retry_s: float = 0.5
    autonomy_s: float = 24 * 3600.0
    keep_ended_s: float = 600.0  # output of what has ended stays readable that long
    ports: tuple[int, int] = (20_000, 29_999)  # below the range the system picks from by itself
    port_begin: int = 0  # which of them is looked at first; 0: the first
    drivers: tuple[str, ...] = ("process",)  # what may be used here, whatever a template says
    state_file: Path | Kept | None = None
    fence_file: Path | Kept | None = None
    starts_max: int = 16  # under way at once
    inventory_max: int = 500  # nodes in one handshake call


def detect_capacity() -> Resources:
    """What this machine can give to instances."""
    cpus = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Resources(max(100, cpus * 1000 - SYSTEM_CPU_MILLI), max(64 << 20, memory - SYSTEM_MEMORY_BYTES))


def detect_address(servers: Sequence[str]) -> str:
    """By which others reach this machine: the address it has towards those servers. Nothing is sent to them."""
    own = [address for server in servers for address in _towards(server)]
    return _reachable(own or _towards(_ELSEWHERE))


def _reachable(own: Iterable[str]) -> str:
    """Towards a server on this very machine that is its loopback, which says nothing if there is another one."""
    loopback = ""
    for text in own:
        address = ipaddress.ip_address(text)
        if address.is_loopback:
            loopback = loopback or text
        elif not address.is_link_local:
            return text
    return loopback or LOOPBACK


def _towards(server: str) -> Iterator[str]:
    parts = urlsplit(server)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)
    except OSError:  # it has no such name now; another server may
        return
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(where)  # of a datagram: picks the way, sends nothing
                yield str(probe.getsockname()[0])
        except OSError:
            continue
