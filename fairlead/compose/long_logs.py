"""Keeps the files into which the local platform's processes print from growing without end: a long one is set aside, and of those
set aside a few are kept.

A process that starts gets a new file. Of one that runs the text is copied and the file emptied, because the process goes on to
write into the file that it was given; it was opened to be appended to, so nothing is torn. What it writes between the last read
and the emptying, some microseconds, is lost. Called by processes.py, and by links.py, whose process is there as long as the
platform is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from fairlead.ports import Clock

BYTES_MAX: Final = 8 << 20
KEPT: Final = 3  # with the one that is written: 32 MiB a process at most, and what it prints between two looks
LOOK_S: Final = 10.0
_PIECE_BYTES: Final = 256 << 10  # read and written within a step: half a millisecond


def set_aside(log: Path) -> None:
    """One that has grown long makes room. Nobody writes into it."""
    if _is_long(log):
        _shift(log)
        log.replace(_kept(log, 1))


class LongLogs:
    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def run(self, say: Callable[[str], None]) -> None:
        while True:
            await self.look(say)
            await self._clock.sleep(LOOK_S)

    async def look(self, say: Callable[[str], None]) -> None:
        """At all there are: nodes come and go while the platform runs."""
        for log in sorted(self._folder.glob("*.log")):
            copy = log.with_name(f"{log.name}.copy")
            try:
                if _is_long(log):
                    await self._empty(log, copy)
            except OSError as error:
                with contextlib.suppress(OSError):
                    copy.unlink()
                say(f"{log.name} cannot be set aside, which is tried again: {error.strerror or error}")

    async def _empty(self, log: Path, copy: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with log.open("rb") as read, os.fdopen(os.open(copy, flags, 0o600), "wb") as write:
            for _ in range(2 * BYTES_MAX // _PIECE_BYTES):  # one that grew by as much since is cut, not followed for ever
                if not _pass_on(read, write):
                    break
                await self._clock.sleep(0)
            _pass_on(read, write)  # what came since the last look, in the step that empties it
        _shift(log)
        copy.replace(_kept(log, 1))
        os.truncate(log, 0)


def _is_long(log: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return log.stat().st_size > BYTES_MAX
    return False


def _kept(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")


def _shift(log: Path) -> None:
    """Room for a first one; the last goes."""
    for number in range(KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            _kept(log, number).replace(_kept(log, number + 1))


def _pass_on(read: BinaryIO, write: BinaryIO) -> int:
    return write.write(read.read(_PIECE_BYTES))
