"""Ports for servers that a test starts, and starts again, at an address that others must know beforehand.

A port that was merely found free is anybody's until the server listens: a server of another worker gets it, or a connection that
somebody dials, and so it is again while a killed server is down. So each is held, bound but not listening, until the tests end.
Linux lets a server listen beside such a socket where both set SO_REUSEADDR, as all that the tests start do, and gives the port to
nobody who asks for any. Where nobody listens, who dials it is refused.
"""

from __future__ import annotations

import socket
from typing import Final

_HELD: Final[list[socket.socket]] = []


def free_ports(count: int) -> list[int]:
    """Of 127.0.0.1, for TCP. Nobody else is given one of them while this process lives."""
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        _HELD.append(one)
    return [one.getsockname()[1] for one in _HELD[len(_HELD) - count :]]
