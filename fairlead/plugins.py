"""Finds the plug-ins that are installed and imports them: entry points of the groups fairlead.gates, .scores and .extensions.

Importing is I/O and runs other people's code, so it happens here, once, when a process starts, and never in a decision. What is
broken is left out and reported; a policy revision that names it is refused by the plane, which is where it matters. Called by the
composition root, which hands the registry to the authority's settings and to the scheduler.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final, NamedTuple

from fairlead.decide.plugins import BUILT_INS, SORTS, Registry, Sort

GROUPS: Final[dict[Sort, str]] = {sort: f"fairlead.{sort}" for sort in SORTS}


class Loaded(NamedTuple):
    registry: Registry
    faults: tuple[str, ...]  # a line about each plug-in that could not be taken


def load_plugins(registry: Registry = BUILT_INS) -> Loaded:
    found: list[tuple[Sort, str, Any]] = []
    broken: list[str] = []
    for sort, group in GROUPS.items():
        # In order of name: which of two that collide is taken must not depend on the order of directories.
        for point in sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value)):
            try:
                found.append((sort, point.name, point.load()))
            except Exception as error:  # whatever its import raises is its own fault, not a reason to stop
                broken.append(f"{sort[:-1]} plug-in {point.name!r}: {point.value} cannot be loaded: {_told(error)}")
    whole, refused = registry.with_plugins(found)
    return Loaded(whole, (*broken, *refused))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
