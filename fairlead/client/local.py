"""The local socket of a plane's server as an address: `unix:PATH`, for people on its own machine (docs/security.md).

Owns the form of the address and the way around the kernel's bound on a socket's path. Never connects and never listens. Used by
http1.py, by the command line and by fairlead/security/local.py, which listens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

SCHEME: Final = "unix:"
NAME: Final = "break-glass.sock"  # in a server's data directory
_PATH_BYTES_MAX: Final = 107  # what the kernel takes, without the byte that ends it


def address_of(path: str) -> str:
    return SCHEME + os.path.abspath(path)


def path_of(server: str) -> str:
    """Empty: another kind of address."""
    return server.removeprefix(SCHEME) if server.startswith(SCHEME) else ""


@contextlib.contextmanager
def short(path: str) -> Iterator[str]:
    """The same socket by a name that is short enough to bind or to connect: data directories may lie deep."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield path
        return
    folder, name = os.path.split(path)
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{held}/{name}"
    finally:
        os.close(held)
