"""What a plane's server has of the machine it runs on: a socket, a way to dial, files and the threads that write them.

One interface, so that the simulator runs the same server on machines of its own. Picks no engine and decides nothing. Used by
plane.py; `Here` is the real one.
"""

from __future__ import annotations

import logging
import socket as sockets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from fairlead.api.local_http import make_local_server
from fairlead.api.server import Server, make_server
from fairlead.authority.history import History
from fairlead.authority.local import LocalPlane
from fairlead.client.channel import Channel
from fairlead.client.dial import Dialer
from fairlead.client.local import NAME
from fairlead.client.providing import Provider
from fairlead.compose.config import PlaneConfig
from fairlead.compose.local_nodes import LocalNodes
from fairlead.compose.seeding import seed
from fairlead.decide.access import Identity
from fairlead.model.decision import DecisionRecord
from fairlead.ports import Clock, InPlaceFile, Kept, Tasks
from fairlead.security import local
from fairlead.security.tls import ClientTls, Ends, ServerTls
from fairlead.security.tls import TlsFiles as TlsPaths
from fairlead.serving.http_get import Got, get
from fairlead.store.archive import Archive
from fairlead.store.contract import Store
from fairlead.store.decisions.log import DecisionLog

log = logging.getLogger(__name__)

ServeChannel = Callable[[Channel, Identity], Awaitable[None]]  # for whoever proves identities in another way than HTTP


class Serving(Protocol):
    async def serve(self) -> None:
        """Until stopped."""

    def stop(self) -> None: ...


class Dialling(Protocol):
    async def dial(self, address: str) -> Channel: ...

    async def close(self) -> None: ...


class Decisions(Protocol):
    def append(self, records: Sequence[DecisionRecord]) -> None: ...

    def close(self) -> None: ...


class Outside(Protocol):
    address: str  # how this server is reached when its configuration does not say it

    def serving(self, app: Any, serve: ServeChannel) -> Serving: ...

    def dialler(self) -> Dialling: ...

    def history(self, store: Store, clock: Clock) -> History | None: ...

    def seen(self) -> Kept:
        """Where it is kept how far this server has seen its store."""

    def decisions(self) -> Decisions: ...

    async def seed(self, plane: LocalPlane) -> int:
        """How many objects the plane was born with just now."""

    async def fetch(self, address: str, port: int, path: str, timeout_s: float) -> Got:
        """One page of a replica."""

    def provider(self, plane: LocalPlane, clock: Clock) -> Provider | None:
        """Who starts and stops machines for this region's node pools; None: nobody here."""


class Here:
    """The machine this process runs on. Listens from the beginning, so that the address is known."""

    def __init__(self, config: PlaneConfig) -> None:
        self._config = config
        self._data = Path(config.data)
        self._data.mkdir(parents=True, exist_ok=True)
        self._listener = _listen(config.listen)
        host, port = self._listener.getsockname()[:2]
        self.address = f"{'http' if config.tls is None else 'https'}://{host}:{port}"
        self._tls: dict[str, ServerTls | ClientTls] = {}  # by what the certificate is for

    def serving(self, app: Any, serve: ServeChannel) -> Serving:
        files = self._config.tls
        tls = None if files is None else ServerTls(TlsPaths(Path(files.certificate), Path(files.key), Path(files.authority)))
        if tls is not None:
            self._tls["server"] = tls
        near = _Listening(make_server(app, tls=None if tls is None else tls.context), self._listener)
        try:
            made = local.listen(self._data / NAME)
        except (OSError, local.SocketTaken) as error:
            # Better a server that people cannot reach from its own machine than none; what is missing is said.
            log.error("break-glass: there is no local socket: %s", error)
            return near
        return _Both(near, _Listening(make_local_server(app, local.welcome_uids()), made))

    def dialler(self) -> Dialling:
        files = self._config.identity
        if files is None:
            return Dialer(None)
        tls = self._tls["component"] = ClientTls(Path(files.authority), Path(files.certificate), Path(files.key))
        return Dialer(tls)

    def certificates(self) -> dict[str, Ends]:
        """When what this server shows to others ends, by what it is for."""
        return {purpose: tls.ends() for purpose, tls in self._tls.items()}

    def history(self, store: Store, clock: Clock) -> History | None:
        return History(Archive(self._data / "history"), store, clock)

    def seen(self) -> Kept:
        return InPlaceFile(self._data / "seen")

    def decisions(self) -> Decisions:
        return DecisionLog(self._data / "decisions")

    async def seed(self, plane: LocalPlane) -> int:
        return await seed(plane, Path(self._config.seed), self._config.plane) if self._config.seed else 0

    async def fetch(self, address: str, port: int, path: str, timeout_s: float) -> Got:
        return await get(address, port, path, timeout_s)

    def provider(self, plane: LocalPlane, clock: Clock) -> Provider | None:
        return LocalNodes(self._config, self.address, plane, clock) if self._config.local_nodes else None


class _Listening:
    """A server on a socket that listens already."""

    def __init__(self, server: Server, listener: sockets.socket) -> None:
        self._server = server
        self._listener = listener

    async def serve(self) -> None:
        await self._server.serve([self._listener])

    def stop(self) -> None:
        self._server.stop()


class _Both:
    """The server for everybody, and that of the local socket, which ends with it and never before it ends it."""

    def __init__(self, everybody: Serving, near: Serving) -> None:
        self._everybody = everybody
        self._near = near

    async def serve(self) -> None:
        async with Tasks() as tasks:
            tasks.start(self._beside(), "local socket")
            await self._everybody.serve()
            self._near.stop()

    async def _beside(self) -> None:
        try:
            await self._near.serve()
        except Exception:
            log.exception("break-glass: the local socket is gone")

    def stop(self) -> None:
        self._near.stop()
        self._everybody.stop()


def _listen(address: str) -> sockets.socket:
    host, _, port = address.rpartition(":")
    family = sockets.AF_INET6 if host.startswith("[") else sockets.AF_INET
    made = sockets.socket(family, sockets.SOCK_STREAM)
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
    made.bind((host.strip("[]"), int(port)))
    return made
