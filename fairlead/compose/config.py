"""What a plane's server is started with. One record, from flags or from a file; the local platform writes one per process."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlead.scheduler.partition import Partition


class TlsFiles(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    certificate: str
    key: str
    authority: str  # whose certificates are believed


class Peer(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A plane elsewhere."""

    region: str  # empty: the global plane
    addresses: tuple[str, ...]


class PlaneConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    plane: Literal["global", "region"]
    store: str  # a URL
    data: str  # a directory for history and decisions
    region: str = ""
    name: str = "server-0"
    listen: str = "127.0.0.1:0"
    address: str = ""  # how others reach this server; empty: as it listens
    tls: TlsFiles | None = None  # by which it is served
    identity: TlsFiles | None = None  # by which it speaks to other planes
    seal_keys: str = ""  # the file of keys under which secrets are sealed; without it they are neither written nor opened here
    join_key: str = ""  # the authority's key: with it a region lets nodes join with a token, and renews their certificates
    seed: str = ""  # a directory of manifests it is born with
    peers: tuple[Peer, ...] = ()
    schedulers: int = 1
    lease_ttl_s: float = 10.0
    node_lease_s: float = 15.0

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
        elif self.tls is None and host not in ("127.0.0.1", "[::1]", "localhost"):
            out.append(f"listen: {host} can be reached from elsewhere, and that needs `tls`")
        if not 0 <= self.schedulers <= 64:
            out.append(f"schedulers: {self.schedulers} is not in 0..64")
        if self.lease_ttl_s < 1:
            out.append("leaseTtlS: below a second a leader cannot renew in time")
        return out

    def partitions(self) -> list[Partition]:
        """Each scheduler its part; what one leaves lying another picks up."""
        return [Partition(index=index, of=self.schedulers, steal_after_ms=2_000) for index in range(self.schedulers)]
