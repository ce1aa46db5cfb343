"""What /proc says of processes: which one a pid means, and which ones carry a mark. Linux only. Called by process.py."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

PASSES_MAX = 200  # of looking and killing; a tree that forks faster than this is stopped by its pids limit


def boot_id() -> str:
    """Pids and start times mean something within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """In ticks since boot, which with the pid names one process for ever; None: gone, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def open_same(pid: int, started: int | None) -> int | None:
    """A pidfd of that pid, if it is still the process that started then. Looked at after opening, so it cannot change."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    found = start_time(pid)
    if found is None or (started is not None and found != started):
        os.close(pidfd)
        return None
    return pidfd


def kill_marked(marks: tuple[str, ...], also: Callable[[], list[int]]) -> int | None:
    """Kills every process whose environment bears one of the marks, and those `also` names, until none is left. How many those
    were; None: some may be left, such as one that the kernel does not let go yet."""
    killed: set[int] = set()
    for _ in range(PASSES_MAX):
        found = kill_found(marks, also)
        if not found:
            return len(killed)
        killed |= found
    return None


def kill_found(marks: tuple[str, ...], also: Callable[[], list[int]]) -> set[int]:
    """The same once. Whom it found: nobody is left when that is nobody."""
    wanted = [mark.encode() for mark in marks]
    found = {pid for pid in _marked(wanted) + also() if start_time(pid) is not None}
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _marked(wanted: list[bytes]) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            if any(mark in environment for mark in wanted):
                found.append(int(entry))
    return found
