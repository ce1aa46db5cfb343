"""The file that tells shims how long Exclusive instances may run: two instants of CLOCK_BOOTTIME, regional and global ones.

Replaced whole at every acknowledged heartbeat, so that a shim reads the old or the new one, and an agent that is gone, stopped or
cut off leaves a file whose time runs out (P9, S12). Read by drivers/shim.py.
"""

from __future__ import annotations

from pathlib import Path


def write_fence(path: Path, region_until: float, global_until: float) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{region_until:.3f} {global_until:.3f}\n")
    fresh.rename(path)
