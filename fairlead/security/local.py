"""Break-glass on the machine itself: the local socket of a server, and who is at its other end.

Owns the socket's file and the reading of the kernel's word about a peer. The file is of mode 0600, and whoever connects must have
the user id of the server or of root all the same: a directory that was opened too far lets nobody else in. Decides no rights:
those are BY_SOCKET of fairlead/decide/access_roles.py. Called by fairlead/compose/outside.py and fairlead/api/local_http.py.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

from fairlead.client.local import short

_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid
_NO_LOGIN: Final = 0xFFFFFFFF  # what the kernel says of a process that comes of no login
_ROOT: Final = 0


class LocalPeer(NamedTuple):
    """Who connected, as the kernel says it."""

    uid: int
    pid: int
    name: str

    def __str__(self) -> str:
        return f"uid {self.uid} pid {self.pid}"


class SocketTaken(Exception):
    """Another server listens there."""


def welcome_uids() -> frozenset[int]:
    """Whoever could read the server's keys and its store anyway."""
    return frozenset({_ROOT, os.geteuid()})


def listen(path: Path) -> socket.socket:
    """Bound, for its owner only, not listening yet: nobody can connect before its mode is set. What a server that was killed
    left is replaced; raises SocketTaken where one lives, OSError where there can be no socket."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as asking, short(str(path)) as name, contextlib.suppress(ConnectionRefusedError):
            asking.connect(name)
            raise SocketTaken(f"{path}: another server listens there")
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short(str(path)) as name:
            made.bind(name)
        path.chmod(0o600)
    except OSError:
        made.close()
        raise
    return made


def peer_of(descriptor: int) -> LocalPeer:
    """Of a connected local socket. The name is that of whoever logged in, where the kernel knows it: it stays the same person's
    through `su` and `sudo`, by which all become one user."""
    with socket.socket(fileno=os.dup(descriptor)) as end:
        pid, uid, _ = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return LocalPeer(uid, pid, user_name(login_of(pid, uid)))


def login_of(pid: int, uid: int) -> int:
    try:
        said = int(Path("/proc", str(pid), "loginuid").read_text())
    except (OSError, ValueError):
        return uid
    return uid if said == _NO_LOGIN else said


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
