"""uvicorn around an application, with our TLS, our client certificates, and an end that ends watches."""

from __future__ import annotations

import contextlib
import socket as sockets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from fairlead.api.server import BoundedHttp
from fairlead.compose.config import TlsFiles
from fairlead.security.tls import ServerTls
from fairlead.security.tls import TlsFiles as TlsPaths

GRACE_S = 5


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the program's: it stops this server when everything else is ready for it."""
        yield


class HttpServer:
    def __init__(self, app: Any, listener: sockets.socket, tls: TlsFiles | None) -> None:
        self._app = app
        self._listener = listener
        more: dict[str, Any] = {}
        if tls is not None:
            served = ServerTls(TlsPaths(Path(tls.certificate), Path(tls.key), Path(tls.authority)))
            more = {
                "ssl_context_factory": lambda config, default: served.context,
                "ssl_certfile": tls.certificate,
                "ssl_keyfile": tls.key,
            }
        config = uvicorn.Config(
            app, log_level="warning", lifespan="off", http=BoundedHttp, ws="wsproto", timeout_graceful_shutdown=GRACE_S,
            server_header=False, ws_max_size=8 << 20, **more,
        )  # fmt: skip
        self._server = _Server(config)

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        watches = getattr(self._app.state, "watches", None)
        if watches is not None:
            watches.drain()
        self._server.should_exit = True
