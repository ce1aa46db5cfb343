"""What a plane's server is started with, and how any program's configuration is read from its file. The local platform writes one
file per process; deploy/example has some for several hosts.

A text in a file may name variables of the environment as ${NAME}, so that addresses and folders stand in one place for all files
of a host. Nothing else is looked up there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from fairlead.scheduler.partition import Partition
from fairlead.security.oidc import OidcSettings
from fairlead.security.tls import why_not_listen
from fairlead.wire import json_codec

NODE_LEASE_S: Final = (1.0, 3600.0)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class TlsFiles(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    certificate: str  # a file in PEM
    key: str  # its private key, a file that nobody else may read
    authority: str  # whose certificates are believed: a file in PEM, ca.pem of `fairlead certs`


class Peer(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A plane elsewhere."""

    region: str  # empty: the global plane
    addresses: tuple[str, ...]  # of all its servers, https://HOST:PORT; any of them will do


class PlaneConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    plane: Literal["global", "region"]  # which kind of plane this is a server of
    store: str  # a URL, as docs/operations/store.md lists them; the same for every server of the plane
    data: str  # a directory of this server's own, for history, decisions and the local socket
    region: str = ""  # the region's name; empty for the global plane
    name: str = "server-0"  # unique among the plane's servers; its component certificate must bear it
    listen: str = "127.0.0.1:0"  # HOST:PORT; port 0 is any; beyond loopback it takes `tls`
    address: str = ""  # how others reach this server; empty: as it listens
    tls: TlsFiles | None = None  # by which it is served
    identity: TlsFiles | None = None  # by which it speaks to other planes
    seal_keys: str = ""  # the file of keys under which secrets are sealed; without it they are neither written nor opened here
    oidc: OidcSettings | None = None  # a provider whose tokens are taken too
    join_key: str = ""  # the authority's key: with it a region lets nodes join with a token, and renews their certificates
    local_nodes: str = ""  # the local platform's directory: with it a region starts agents for pools of the provider `local`
    seed: str = ""  # a directory of manifests; applied each time this server begins to lead, where they are not there
    peers: tuple[Peer, ...] = ()  # of a region: the global plane; of the global plane: every region
    schedulers: int = 1  # how many a region's leader runs, 0 to 64; each has a part of the workloads
    lease_ttl_s: float = 10.0  # of leadership: a lost leader is replaced after this; the same for every server of the plane
    node_lease_s: float = 15.0  # 1 to 3600: a node that is not heard for so long is Unknown; agents are told
    slot_lease_s: float = 60.0  # alike in all regions: what runs once in the world stops when the global plane is away longer
    grant_lease_s: int = 600  # of the grants that regions are leased; the global plane says it
    repair_period_s: float = 10.0  # between looks for what nobody looks after any more; its owner has three of them first

    def faults(self) -> list[str]:
        """Everything wrong with it, in words."""
        out = []
        if self.plane == "region" and not self.region:
            out.append("a region's plane needs `region`")
        if self.plane == "global" and self.region:
            out.append("the global plane has no `region`")
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            out.append(f"listen: {self.listen!r} is not HOST:PORT")
        else:
            out += self._exposed(host.strip("[]"))
        if not 0 <= self.schedulers <= 64:
            out.append(f"schedulers: {self.schedulers} is not in 0..64")
        if self.local_nodes and (self.plane != "region" or not self.join_key or self.tls is None):
            out.append("localNodes: starting agents takes a region with `tls` and a `joinKey`")
        if not NODE_LEASE_S[0] <= self.node_lease_s <= NODE_LEASE_S[1]:
            out.append(f"nodeLeaseS: {self.node_lease_s:g} is not in {NODE_LEASE_S[0]:g}..{NODE_LEASE_S[1]:g} seconds")
        if self.repair_period_s <= 0:
            out.append("repairPeriodS: must be above 0")
        if self.lease_ttl_s < 1:
            out.append("leaseTtlS: below a second a leader cannot renew in time")
        return out

    def _exposed(self, host: str) -> list[str]:
        """Whoever asks is always asked who they are; beyond this machine that takes TLS."""
        why = why_not_listen(host, tls=self.tls is not None, authentication=True)
        out = [f"listen: {why}; set `tls`"] if why else []
        if host in ("0.0.0.0", "::", "") and not self.address:
            out.append("address: others need a name to reach this server by; `listen` says only that it listens everywhere")
        return out

    def partitions(self) -> list[Partition]:
        """Each scheduler its part; what one leaves lying another picks up."""
        return [Partition(index=index, of=self.schedulers, steal_after_ms=2_000) for index in range(self.schedulers)]


def read_config(path: Path, wanted: type[Any], environment: Mapping[str, str] | None = None) -> Any:
    """Raises ValueError that says what is wrong with the file."""
    known = os.environ if environment is None else environment
    written = path.read_bytes()
    _decoded(path, written, wanted)  # so that a fault is told as it stands in the file
    tree: Any = json_codec.parse_json(written)
    names = {field.encode_name for field in msgspec.structs.fields(wanted)}
    strange = sorted(name for name in tree if name not in names)
    if strange:
        raise ValueError(f"{path}: there is no setting {strange[0]!r}; there are {', '.join(sorted(names))}")
    return _decoded(path, json_codec.encode(_filled_in(tree, known, path)), wanted)


def _decoded(path: Path, text: bytes, wanted: type[Any]) -> Any:
    decoded = json_codec.decode(text, wanted)
    if isinstance(decoded, tuple):
        raise ValueError(f"{path}: {decoded[0].path}: {decoded[0].message}")
    return decoded


def _filled_in(tree: Any, known: Mapping[str, str], path: Path) -> Any:
    if isinstance(tree, dict):
        return {name: _filled_in(value, known, path) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_filled_in(value, known, path) for value in tree]
    if not isinstance(tree, str):
        return tree
    missing = [name for name in _VARIABLE.findall(tree) if name not in known]
    if missing:
        raise ValueError(f"{path}: ${{{missing[0]}}} is not set in the environment")
    return _VARIABLE.sub(lambda found: known[found[1]], tree)
