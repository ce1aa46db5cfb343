"""The file that tells shims how long Exclusive instances may run: two instants of CLOCK_BOOTTIME, regional and global ones.

Replaced whole at every acknowledged heartbeat, so that a shim reads the old or the new one, and an agent that is gone, stopped or
cut off leaves a file whose time runs out (P9, S12). Read by drivers/shim.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fairlead.ports import Kept, KeptFile

log = logging.getLogger(__name__)


def read_fence(kept: Path | Kept, now: float, lease_s: float) -> tuple[float, float] | None:
    """What an earlier agent of this machine was granted, as far as it still runs. A time further away than a lease is from
    before the machine was started anew."""
    try:
        written = _file(kept).read() or b""
        region_until, global_until = (float(text) for text in written.split())
    except (OSError, ValueError):
        return None
    return (region_until, global_until) if max(region_until, global_until) <= now + lease_s else None


def write_fence(kept: Path | Kept, region_until: float, global_until: float) -> None:
    """Not made durable: a machine that lost power runs nothing, and an older time is only shorter. The same where the disk is
    full: what is Exclusive ends at the time written before."""
    try:
        _file(kept).write(f"{region_until:.3f} {global_until:.3f}\n".encode(), durable=False)
    except OSError as error:
        log.warning("the fence time cannot be written: %s", error)


def _file(kept: Path | Kept) -> Kept:
    return KeptFile(kept) if isinstance(kept, Path) else kept
