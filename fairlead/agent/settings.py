"""What an agent is configured with: its node or nodes, its times, where it keeps things. Detects what a machine has.

Called by main.py and tests; read by everything in this package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from fairlead.model.resources import Device, Resources
from fairlead.ports import Kept

# Kept back from what instances may have: the agent, its shims and the system.
SYSTEM_CPU_MILLI: Final = 100
SYSTEM_MEMORY_BYTES: Final = 256 << 20


class NodeDeclaration(msgspec.Struct, frozen=True):
    """A node as its agent registers it. Labels, zone and devices are declared; capacity is declared or detected."""

    name: str
    region: str
    zone: str = ""
    pool: str = ""
    allocatable: Resources = Resources()
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = {}
    address: str = "127.0.0.1"
    max_slots: int = 110
    hourly_cost_millis: int = 0


class AgentSettings(msgspec.Struct, frozen=True):
    """Times in seconds. The lease and the clock error must be the region's own (authority Settings)."""

    node_lease_s: float = 15.0
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
