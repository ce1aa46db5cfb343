"""A machine becomes a node: joins its region with a token, and is left with a directory from which its agent starts ever after.

Owns the configuration that joining writes. Called by main.py for `fairlead agent --join`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairlead.agent.settings import detect_capacity
from fairlead.compose.agent import AgentConfig
from fairlead.compose.config import TlsFiles
from fairlead.model.resources import Resources, numbered_devices
from fairlead.security.enrolment import Certified, files_in, join
from fairlead.security.files import write
from fairlead.security.hidden import Hidden
from fairlead.wire import json_codec

CONFIG = "agent.json"


def config_in(state: Path) -> Path:
    return state / CONFIG


async def enrol(state: Path, token: Hidden, servers: Sequence[str], authorities: Path) -> Path:
    """The configuration's path. One who has joined before is not asked to do it again: the token is spent."""
    path = config_in(state)
    if path.exists() and files_in(state).certificate.exists():
        return path
    addresses = tuple(server.rstrip("/") for server in servers)
    certified = await join(state, token, addresses, authorities)
    write(path, json_codec.encode(_config(state, addresses, certified)))
    return path


def _config(state: Path, addresses: tuple[str, ...], certified: Certified) -> AgentConfig:
    files, profile = files_in(state), certified.profile
    approved = Resources.parse(dict(profile.capacity)) if profile is not None else detect_capacity()
    offered = _least(detect_capacity(), approved).as_quantities()
    return AgentConfig(
        node=certified.node,
        region=certified.region,
        addresses=addresses,
        state=str(state),
        zone=profile.zone if profile is not None else "",
        pool=profile.pool if profile is not None else "",
        cpu=offered.get("cpu", ""),
        memory=offered.get("memory", ""),
        scalars={name: text for name, text in offered.items() if name not in ("cpu", "memory")},
        devices=numbered_devices(profile.devices) if profile is not None else (),
        max_slots=profile.max_slots if profile is not None else 110,
        tls=TlsFiles(str(files.certificate), str(files.key), str(files.authorities)),
        renews=True,
    )


def _least(here: Resources, approved: Resources) -> Resources:
    """What the machine has, and no more than it was approved for. Of others nobody can look: it has what was approved."""
    return Resources(min(here.cpu, approved.cpu), min(here.memory, approved.memory), approved.scalars)
