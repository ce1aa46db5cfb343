"""Owns the walls of the simulation: while a world runs, the real one's time, chance, threads, sockets and programs are out of
reach.

Code that reaches for one fails with SimForbidden where it stands, instead of making a seed mean two things. Log lines have a time
of their own, which stands still: nobody reads it. Collections of the garbage collector are the loop's to time. Other threads of
the process are none of the world's and are let through. Called by world.py around every run.
"""

from __future__ import annotations

import _thread
import gc
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final

from fairlead.sim.loop import SimForbidden

_CLOCKS: Final = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns",
    "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "sleep",
)  # fmt: skip
# Sums over a time they are told; without one they ask what time it is. How many words each has with it.
_CALENDAR: Final = {"gmtime": 1, "localtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}
# The functions of the module, which draw from one generator that nobody has seeded. `_urandom` is what SystemRandom draws from.
_CHANCE: Final = tuple(
    name for name in random.__all__ if isinstance(getattr(getattr(random, name), "__self__", None), random.Random)
)
_SECRETS: Final = ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")
_PROGRAMS: Final = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp", "execv", "execve", "times")  # and their CPU
_NAMES: Final = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")  # asked of DNS

BEHIND: Final[tuple[tuple[Any, str], ...]] = (
    *((time, name) for name in _CLOCKS),
    *((random, name) for name in (*_CHANCE, "_urandom")),
    *((secrets, name) for name in _SECRETS),
    (uuid, "uuid1"), (uuid, "uuid4"), (os, "urandom"), (os, "getrandom"),
    (threading.Thread, "start"), (_thread, "start_new_thread"), (subprocess.Popen, "__init__"),
    *((os, name) for name in _PROGRAMS),
    *((socket.socket, name) for name in ("connect", "connect_ex", "bind", "sendto", "sendmsg")),
    *((socket, name) for name in ("socketpair", *_NAMES)),
)  # fmt: skip


@contextmanager
def walls() -> Iterator[None]:
    inside = threading.get_ident()
    with ExitStack() as stack:
        for owner, name in BEHIND:
            said = f"{getattr(owner, '__name__', owner)}.{name}"
            stack.enter_context(_instead(owner, name, _forbidden(said, getattr(owner, name), inside)))
        stack.enter_context(_instead(logging, "time", _still()))
        for name, told in _CALENDAR.items():
            stack.enter_context(_instead(time, name, _told_of(f"time.{name}", getattr(time, name), told, inside)))
        stack.enter_context(_instead(random.Random, "__init__", _seeded(random.Random.__init__, inside)))
        for name in ("collect", "freeze", "unfreeze"):
            stack.enter_context(_instead(gc, name, lambda *_: 0))
        yield


@contextmanager
def _instead(owner: Any, name: str, new: Any) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def _forbidden(name: str, real: Callable[..., Any], inside: int) -> Any:
    def reach(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != inside:
            return real(*args, **kwargs)
        raise SimForbidden(f"{name} was called inside the simulation; it must be reached through a port")

    return reach


def _told_of(name: str, real: Callable[..., Any], told: int, inside: int) -> Any:
    """A date of a time that is given, and of no other."""
    forbidden = _forbidden(name, real, inside)

    def reach(*args: Any) -> Any:
        return real(*args) if len(args) == told and args[-1] is not None else forbidden(*args)

    return reach


def _seeded(made: Callable[..., None], inside: int) -> Any:
    """A generator is made with a seed, or with what the system has of chance."""

    def init(self: random.Random, x: Any = None) -> None:
        if x is None and threading.get_ident() == inside:
            raise SimForbidden(f"random.{type(self).__name__}() has no seed; draw from a stream of the loop")
        made(self, x)

    return init


def _still() -> SimpleNamespace:
    """Time as logging asks for it."""
    return SimpleNamespace(
        time=lambda: 0.0, time_ns=lambda: 0, localtime=time.localtime, gmtime=time.gmtime, strftime=time.strftime
    )  # fmt: skip


@contextmanager
def unheard(last: bool = False) -> Iterator[None]:
    """What dead processes leave is destroyed when their world is; Python would print what their coroutines make of it. `last`: of
    its process, after which nothing is destroyed."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that a process died before it awaited
        try:
            yield
        finally:
            if not last:
                gc.collect()
                sys.unraisablehook = before
