"""Whether this process may give users away: by the capabilities in force, which a container may have taken from root. Linux only.
Called by process.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

STATUS: Final = Path("/proc/self/status")
# To give a user away, and to reach afterwards what belongs to it: one that could not be killed or cleared away is not started.
NEEDED: Final = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}


def lacking(status: Path = STATUS) -> tuple[str, ...]:
    """Those needed that are not in force, by name."""
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    in_force = int(lines.get("CapEff", "0"), 16)
    return tuple(name for name, bit in NEEDED.items() if not in_force >> bit & 1)
