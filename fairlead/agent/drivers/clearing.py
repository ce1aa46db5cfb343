"""Clears away directories that an instance has filled: however deep, however many files, wherever their links lead.

Owns one thread, because a million files take a dozen seconds in which the agent must renew its lease. A directory found inside
is moved up to the top before it is emptied, so depth costs neither stack nor descriptors, and nothing is reached by a path or
through a link. What cannot be removed is left for the next start; no failure leaves this module. Called by process.py.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

STEPS_MAX: Final = 100_000_000  # removals in one directory: whoever has more than that is still filling it
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Clearing:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clearing")
        self._stopped = threading.Event()

    def start(self, path: Path) -> None:
        """Returns at once. The directory must have been put where nobody uses it any more."""
        self._thread.submit(self._clear, path)

    def _clear(self, path: Path) -> None:
        try:
            if not clear(path, self._stopped):
                log.warning("%s cannot be cleared away now; the next agent tries again", path)
        except Exception as error:
            log.warning("%s cannot be cleared away now; the next agent tries again: %r", path, error)

    def close(self) -> None:
        """What is not done yet is left for the next agent."""
        self._stopped.set()
        self._thread.shutdown(wait=False, cancel_futures=True)


def clear(path: Path, stopped: threading.Event) -> bool:
    """True: nothing of it is left."""
    top = os.open(path, _FOLDER)
    try:
        os.fchmod(top, 0o700)  # it is nobody's any more: not even of a user to whom its number is given next
        emptying = _Emptying(top, stopped)
        while emptying.go_over():
            pass
    finally:
        os.close(top)
    if emptying.left:
        return False
    path.rmdir()
    return True


class _Emptying:
    """Of one directory, in passes: each removes what lies at the top, and brings up what lay one step below."""

    def __init__(self, top: int, stopped: threading.Event) -> None:
        self._top = top
        self._stopped = stopped
        self._numbers = itertools.count()
        self._steps = 0
        self.left = True

    def go_over(self) -> bool:
        """One pass. False: the directory is empty, or another pass would change nothing."""
        before, self.left = self._steps, False
        with os.scandir(self._top) as entries:
            for entry in entries:
                self.left = True
                if self._over():
                    return False
                if entry.is_dir(follow_symlinks=False):
                    self._remove_folder(entry.name)
                else:
                    self._unlink(entry.name, self._top)
        return self._steps > before

    def _over(self) -> bool:
        return self._stopped.is_set() or self._steps >= STEPS_MAX

    def _remove_folder(self, name: str) -> None:
        with contextlib.suppress(OSError):
            folder = os.open(name, _FOLDER, dir_fd=self._top)
            try:
                self._empty(folder)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=self._top)
            self._steps += 1

    def _empty(self, folder: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._over():
                    return
                if entry.is_dir(follow_symlinks=False):
                    self._bring_up(entry.name, folder)
                else:
                    self._unlink(entry.name, folder)

    def _bring_up(self, name: str, folder: int) -> None:
        with contextlib.suppress(OSError):
            os.rename(name, str(next(self._numbers)), src_dir_fd=folder, dst_dir_fd=self._top)
            self._steps += 1

    def _unlink(self, name: str, folder: int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
            self._steps += 1
