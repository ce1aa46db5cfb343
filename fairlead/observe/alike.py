"""Steps of a timeline that many slots made alike, as one row with a count. Pure. What `fairlead timeline` prints without --all.

Owns which steps are alike: the same change of the same kind of object in the same plane by the same role, with no pause between
them. Never drops a step: the counts of all rows add up to the steps. Called by the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from fairlead.observe.timeline import Step

OF_SLOTS: Final = ("schedulingrequest/", "binding/", "instance/", "evictionrequest/")
PAUSE_MS: Final = 10_000  # a wave of slots that starts, is repaired or rolls out has shorter gaps; what comes later is another

_PLACE: Final = re.compile(r" (?:to|on) ([^ ,]+)")  # the node of a binding's step
# What was done, before what is the slot's own: its node and token, how often it was restarted, what a wait is about.
_CHANGE: Final = {
    "binding": re.compile(r".*?(?= to | on |$)"),
    "instance": re.compile(r"[^,:]*"),
    "schedulingrequest": re.compile(r"waits: [^:]*|.*"),
}


class Row(NamedTuple):
    time_ms: int
    last_ms: int
    plane: str
    object: str
    what: str
    owner: str
    evidence: str
    steps: int  # how many it stands for


def rows_of(steps: Iterable[Step]) -> list[Row]:
    """Of steps in the order of time; a row stands where its first step was."""
    open_groups: dict[tuple[str, str, str, str], list[Step]] = {}
    groups: list[list[Step]] = []
    for step in steps:
        if not step.object.startswith(OF_SLOTS):
            groups.append([step])
            continue
        key = (step.plane, step.object.partition("/")[0], change_of(step), step.owner.partition(" ")[0])
        group = open_groups.get(key)
        if group is None or step.time_ms - group[-1].time_ms > PAUSE_MS:
            group = open_groups[key] = []
            groups.append(group)
        group.append(step)
    return [_row(group) for group in groups]


def change_of(step: Step) -> str:
    pattern = _CHANGE.get(step.object.partition("/")[0])
    found = pattern.match(step.what) if pattern is not None else None
    return found[0] if found is not None else step.what


def _row(group: list[Step]) -> Row:
    first, last = group[0], group[-1]
    if len(group) == 1:
        return Row(first.time_ms, first.time_ms, *first[1:2], *first[3:7], 1)
    kind = first.object.partition("/")[0]
    slots = list(dict.fromkeys(step.object.rpartition("/")[2] for step in group))
    of = first.object if len(slots) == 1 else f"{kind}/{slots[0]} and {len(slots) - 1} more"
    what = first.what if len({step.what for step in group}) == 1 else change_of(first) + _places(group)
    owners = {step.owner for step in group}
    owner = first.owner if len(owners) == 1 else f"{len(owners)} of {first.owner.partition(' ')[0]}"
    evidence = first.evidence if len({step.evidence for step in group}) == 1 else ""
    return Row(first.time_ms, last.time_ms, first.plane, of, what, owner, evidence, len(group))


def _places(group: list[Step]) -> str:
    nodes = {found[1] for step in group if step.object.startswith("binding/") and (found := _PLACE.search(step.what))}
    return f" on {len(nodes)} node{'s' if len(nodes) > 1 else ''}" if nodes else ""
