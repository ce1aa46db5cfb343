"""The lock that dies with the leading process: how a standby on the same host learns at once that its leader is dead.

Owns one small file beside the database, PATH + ".leader": an exclusive flock on it, and in it the name of the holder that took
the lock last. Proves death and nothing else: it guards no write (the fence does), and nobody waits for it. The kernel frees a
flock when the last thread of its process is gone, so nothing that process began can land after it is seen free.
Called by SqliteStore, on its write thread.
"""

from __future__ import annotations

import fcntl
import os


class LeaderLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._held: int | None = None
        self._holder = ""

    def take(self, holder: str) -> None:
        """For whoever has acquired the head. A stopped predecessor may still have the lock; then we lead without it, and
        its name in the file says that this lock proves nothing about us."""
        if self._held is None:
            self._held, self._holder = self._open_locked(), ""
        if self._held is not None and self._holder != holder:
            os.ftruncate(self._held, 0)
            os.pwrite(self._held, holder.encode(), 0)
            self._holder = holder

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def fenced_by(self, holder: str) -> None:
        """Somebody leads: unless that is ourselves (a late answer of an earlier term), we do not."""
        if holder != self._holder:
            self.release()

    def was_left_by(self, holder: str) -> bool:
        """True if that holder had the lock and has it no more."""
        if self._held is not None:
            return False
        descriptor = self._open_locked()
        if descriptor is None:
            return False
        try:
            return os.pread(descriptor, 4096, 0) == holder.encode()
        finally:
            os.close(descriptor)

    def _open_locked(self) -> int | None:
        """None if somebody has it, or if it cannot be had at all: then only the lease's silence tells."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor
