"""Owns what becomes of log lines in a simulated world: what production code logs as an error is a finding, the rest is unheard.

Called by whoever runs a world: world.py, and the benchmark that replays a grid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead.sim.loop import SimLoop

_ROOT = "fairlead"


class _Log(logging.Handler):
    """What production code logs as an error is a finding: it says that it met what it did not expect."""

    def __init__(self, loop: SimLoop, found: Callable[[str, str, str], None]) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        who = self._loop.current.name if self._loop.current is not None else ""
        self._found("X2", who, f"{record.getMessage()}: {error!r}" if error else record.getMessage())


@contextmanager
def hearing(loop: SimLoop, found: Callable[[str, str, str], None]) -> Iterator[None]:
    """`found` is told the invariant, who and what, from here to the end of it."""
    root, handler = logging.getLogger(_ROOT), _Log(loop, found)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is printed meanwhile: what is destroyed at the end of a world may say what it likes."""
    root, nobody = logging.getLogger(_ROOT), logging.NullHandler()
    before, root.propagate = root.propagate, False
    root.addHandler(nobody)
    try:
        yield
    finally:
        root.propagate = before
        root.removeHandler(nobody)
