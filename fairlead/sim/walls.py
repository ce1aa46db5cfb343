"""Owns the walls of the simulation: while a world runs, chance, threads, sockets and programs of the real one are out of reach.

Code that reaches for one fails with SimForbidden where it stands, instead of making a seed mean two things. Collections of the
garbage collector are the loop's to time. Called by world.py around every run.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from fairlead.sim.loop import SimForbidden


def _forbidden(name: str) -> Any:
    def reach(*args: Any, **kwargs: Any) -> NoReturn:
        raise SimForbidden(f"{name} was called inside the simulation; it must be reached through a port")

    return reach


@contextmanager
def walls() -> Iterator[None]:
    behind: list[tuple[Any, str]] = [
        (os, "urandom"), (threading.Thread, "start"), (socket.socket, "connect"), (socket.socket, "bind"),
        (subprocess.Popen, "__init__"),
    ]  # fmt: skip
    kept = [(owner, name, getattr(owner, name)) for owner, name in behind]
    still = [(gc, name, getattr(gc, name)) for name in ("collect", "freeze", "unfreeze")]
    for owner, name, _ in kept:
        setattr(owner, name, _forbidden(f"{getattr(owner, '__name__', owner)}.{name}"))
    for owner, name, _ in still:
        setattr(owner, name, lambda *_: 0)
    try:
        yield
    finally:
        for owner, name, real in (*kept, *still):
            setattr(owner, name, real)


@contextmanager
def unheard() -> Iterator[None]:
    """What dead processes leave is destroyed when their world is; Python would print what their coroutines make of it."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that a process died before it awaited
        try:
            yield
        finally:
            gc.collect()
            sys.unraisablehook = before
