"""A process that somebody waits for: by its pidfd, without a thread, and reaped whatever becomes of those who wait.

Owns the descriptor and its reader in the loop. Decides nothing about the process. Called by process.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from fairlead.agent.drivers.processes import start_time
from fairlead.ports import Signal


class Watched:
    def __init__(self, pid: int, pidfd: int, *, child: bool) -> None:
        """`child`: of this agent, so that it must be reaped here."""
        self.pid = pid
        self.gone = Signal()
        self.then: Callable[[], None] = lambda: None  # called once, when it is gone
        self._pidfd = pidfd
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pidfd, self._ended)

    def look(self) -> bool:
        """True: it has ended, also where the loop has not come to it yet; then nothing more is told of it."""
        if not self.gone.is_set() and start_time(self.pid) is None:
            self.then = lambda: None
            self._ended()
        return self.gone.is_set()

    def kill(self) -> None:
        """With its process group, which it leads."""
        if not self.gone.is_set():  # else its number may be another's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Nobody waits for it any more; it goes on."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _ended(self) -> None:
        self.let_go()
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self.gone.set()
        self.then()


def watch_child(pid: int) -> Watched:
    """Of a process that was just started. One that cannot be watched is ended: nobody would ever reap it."""
    try:
        return Watched(pid, os.pidfd_open(pid), child=True)
    except OSError:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
