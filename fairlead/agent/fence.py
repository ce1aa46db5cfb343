"""The file that tells shims how long Exclusive instances may run: two instants of CLOCK_BOOTTIME, regional and global ones.

Replaced whole at every acknowledged heartbeat, so that a shim reads the old or the new one, and an agent that is gone, stopped or
cut off leaves a file whose time runs out (P9, S12). Read by drivers/shim.py.
"""

from __future__ import annotations

from pathlib import Path


def read_fence(path: Path, now: float, lease_s: float) -> tuple[float, float] | None:
    """What an earlier agent of this machine was granted, as far as it still runs. A time further away than a lease is from
    before the machine was started anew."""
    try:
        region_until, global_until = (float(text) for text in path.read_text().split())
    except (OSError, ValueError):
        return None
    return (region_until, global_until) if max(region_until, global_until) <= now + lease_s else None


def write_fence(path: Path, region_until: float, global_until: float) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{region_until:.3f} {global_until:.3f}\n")
    fresh.rename(path)
