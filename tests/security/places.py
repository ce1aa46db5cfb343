"""A place with a local authority and what it issued, and a real server behind TLS: for tests here and of the API."""

from __future__ import annotations

import asyncio
import socket as sockets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn

from fairlead.api.identity import PeerProtocol
from fairlead.ports import SystemClock, Tasks
from fairlead.security.certificates import LocalAuthority, Named, Pair, instant
from fairlead.security.files import write, write_private
from fairlead.security.joining import FileIssuer
from fairlead.security.tls import ServerTls, TlsFiles, client_context


class Place:
    def __init__(self, directory: Path, name: str = "one") -> None:
        self.directory = directory
        self.clock = SystemClock()
        self.pair = LocalAuthority.create(name, instant(self.clock.wall()))
        self.authority = LocalAuthority(self.pair)
        self.authorities = directory / "ca.pem"
        write(self.authorities, self.pair.certificate)
        write_private(directory / "ca.key", self.pair.key.reveal_bytes())
        self.issuer = FileIssuer(self.authorities, directory / "ca.key")
        self.files = TlsFiles(directory / "server.pem", directory / "server.key", self.authorities)
        self.write_server("server-0")

    def write_server(self, name: str) -> Pair:
        pair = self.authority.issue(Named("server", name), instant(self.clock.wall()), hosts=["localhost", "127.0.0.1"])
        write_private(self.files.key, pair.key.reveal_bytes())
        write(self.files.certificate, pair.certificate)
        return pair

    def client(self, named: Named | None = None, *, lifetime: timedelta | None = None) -> ssl.SSLContext:
        """What somebody dials with: with a certificate of their own, if they have one."""
        if named is None:
            return client_context(self.authorities)
        pair = self.authority.issue(named, instant(self.clock.wall()), lifetime=lifetime)
        return self.client_with(pair, named.name)

    def client_with(self, pair: Pair, name: str) -> ssl.SSLContext:
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        write(certificate, pair.certificate)
        write_private(key, pair.key.reveal_bytes())
        return client_context(self.authorities, certificate, key)


@asynccontextmanager
async def serving(app: Any, tls: ServerTls | None) -> AsyncIterator[str]:
    """As a plane's server is run: the one context for ever, the protocol that tells certificates."""
    listener = sockets.socket()
    listener.bind(("127.0.0.1", 0))
    options: dict[str, Any] = {"ssl_context_factory": lambda config, default: tls.context} if tls is not None else {}
    config = uvicorn.Config(app, log_level="error", http=PeerProtocol, ws="wsproto", lifespan="off", **options)
    server = uvicorn.Server(config)
    async with Tasks() as tasks:
        running = tasks.start(server.serve(sockets=[listener]), "uvicorn")
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running
