"""HTTP over a server's local socket: who connects is asked of the kernel, before a byte of the request is looked at.

Owns the refusal of strangers, and tells the application who is there (`PEER_LOCAL`). What they may is decided as for everybody
(fairlead/api/authz.py). Has connections of its own, so that nobody else's can be too many. Called by fairlead/compose/outside.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from typing import Any, ClassVar, Final

from starlette.applications import Starlette

from fairlead.api.failures import Failure
from fairlead.api.identity import PEER_LOCAL
from fairlead.api.server import BoundedHttp, Server, make_server
from fairlead.security.local import LocalPeer, peer_of
from fairlead.wire.json_codec import encode

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64  # people on one machine


def make_local_server(app: Starlette, uids: Set[int]) -> Server:
    """To be given a socket of fairlead/security/local.py. Lets in nobody but those users."""

    class Welcoming(LocalHttp):
        welcome = frozenset(uids)

    server = make_server(app, connections_max=CONNECTIONS_MAX)
    server.protocol = Welcoming
    return server


class LocalHttp(BoundedHttp):
    welcome: ClassVar[frozenset[int]] = frozenset()
    _stranger: LocalPeer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        end: Any = transport.get_extra_info("socket")
        peer = peer_of(end.fileno())
        if peer.uid in self.welcome:
            self.app_state = {**self.app_state, PEER_LOCAL: peer}
            return
        self._stranger = peer
        log.warning("break-glass: %s (%s) is not let in by the local socket", peer.name, peer)

    def on_headers_complete(self) -> None:
        """Refused when there is something to be answered: whoever asks learns why."""
        if self._stranger is None:
            super().on_headers_complete()
            return
        message = f"the local socket is for the server's own user and root; this is {self._stranger}"
        self._refuse("403 Forbidden", encode(Failure(403, message).status()))
