"""Which drills are due: a file says how often each is practised, the kept results say when each was last.

Owns the form of the file. Pure but for reading it; runs nothing. Called by program.py for `fairlead drill --due`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fairlead.drills.catalogue import DRILLS
from fairlead.wire import json_codec

DAY_S: Final = 86_400.0
EVERY: Final = "everyDays"
EARLY_S: Final = 6 * 3_600.0  # a nightly timer that comes a little earlier than last time must not skip a night


class Last(NamedTuple):
    time_s: float
    passed: bool


def read(path: Path) -> dict[str, float]:
    """Days between two runs, by drill. Raises ValueError, in words, for a file that is none."""
    try:
        tree = json_codec.parse_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    every = tree.get(EVERY) if isinstance(tree, dict) else None
    if not isinstance(every, dict) or not every or set(tree if isinstance(tree, dict) else ()) != {EVERY}:
        raise ValueError(f'{path} is no schedule: write {{"{EVERY}": {{"region-loss": 7}}}}')
    for name, days in every.items():
        if name not in DRILLS:
            raise ValueError(f"{path}: there is no drill {name}; there are {', '.join(DRILLS)}")
        if isinstance(days, bool) or not isinstance(days, int | float) or not days > 0:
            raise ValueError(f"{path}: {name} is to be run every {days} days, which is no number above 0")
    return {name: float(days) for name, days in every.items()}


def due(every: Mapping[str, float], last: Mapping[str, Last], now_s: float) -> list[str]:
    """Those never run, those that failed last time, those whose time has come; the longest overdue first, then as in the file."""
    overdue_s: dict[str, float] = {}
    for name, days in every.items():
        before = last.get(name)
        if before is None or not before.passed:
            overdue_s[name] = float("inf")
        elif now_s - before.time_s >= days * DAY_S - EARLY_S:
            overdue_s[name] = now_s - before.time_s - days * DAY_S
        elif before.time_s > now_s:
            overdue_s[name] = 0.0  # a clock stood wrong: its word is not good enough to skip a drill
    return sorted(overdue_s, key=lambda name: -overdue_s[name])
