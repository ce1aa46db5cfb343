"""B5 asked of a journal: a region that suspects its own hearing of a zone gives up its nodes one at a time (docs/agents.md).

A zone is suspect while as many of its nodes are said to be silent together as docs/agents.md names; the sums are this file's own.
Who is heard again in the same look is written beside whoever is lost, in any order, so a loss is judged some seconds later: who
is not suspected any more by then was none of the silent. Fed by bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from fairlead.model.kinds.capacity import Node
from fairlead.model.meta import Condition

LEAST: Final = 3  # nodes that are silent together
SHARE: Final = 0.3  # of the zone's nodes that are not lost
APART: Final = timedelta(seconds=9)  # less one, for a next leader's clock
JUDGED_MS: Final = 3_000
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

Found = Callable[[str, str], None]


class _Loss(NamedTuple):
    due_ms: int
    zone: str
    name: str
    silent: frozenset[str]  # the others that were suspected when it was lost
    present: int
    after: str


class SuspectChecker:
    """Tell it of every change of a node before it is applied, and of every batch after it."""

    def __init__(self, objects: dict[str, dict[tuple[str, str], Any]], found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._losses: list[_Loss] = []

    def node(self, old: Node | None, new: Node | None, now_ms: int) -> None:
        if old is None or new is None:
            return
        self._checked["B5"] += _suspected(new) and not _suspected(old)
        if new.status.health != "Lost" or old.status.health == "Lost":
            return
        self._checked["B5/lost"] += _suspected(old)
        others = [each for each in self._zone(new.spec.zone) if each.metadata.name != new.metadata.name]
        began = _since(new)
        for other in others:
            if other.status.health == "Lost" and began - _since(other) < APART:
                silent = frozenset(each.metadata.name for each in others if _suspected(each))
                present = 1 + sum(each.status.health != "Lost" for each in others)
                name, after = new.metadata.name, other.metadata.name
                self._losses.append(_Loss(now_ms + JUDGED_MS, new.spec.zone, name, silent, present, after))
                return

    def batch_ended(self, now_ms: int) -> None:
        for loss in [each for each in self._losses if each.due_ms <= now_ms]:
            self._losses.remove(loss)
            silent = 1 + sum(
                each.metadata.name in loss.silent and (_suspected(each) or each.status.health == "Lost")
                for each in self._zone(loss.zone)
            )
            if silent >= LEAST and silent > SHARE * loss.present:
                why = f"while {silent} of {loss.present} nodes of {loss.zone} were silent"
                self._found("B5", f"{loss.name} was called lost less than ten seconds after {loss.after}, {why}")

    def _zone(self, zone: str) -> list[Node]:
        return [node for node in self._objects["nodes"].values() if node.spec.zone == zone]


def _condition(node: Node, kind: str) -> Condition | None:
    return next((one for one in node.status.conditions if one.type == kind), None)


def _suspected(node: Node) -> bool:
    one = _condition(node, "ObservationSuspect")
    return node.status.health == "Unknown" and one is not None and one.status == "True"


def _since(node: Node) -> datetime:
    """When its health became what it is, as who decided it says."""
    ready = _condition(node, "Ready")
    return (ready.last_transition_time if ready is not None else None) or _NEVER
