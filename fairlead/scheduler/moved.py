"""Slots that were moved off a node to make room there: for a while another node is proposed for them.

A plan of two moves frees its room in two steps, and what it is made for sleeps until the last of them; whoever left first would
take back the place it left, which is often the best there is. So its request names that node and a time (controllers/repair.py),
and until then any other is taken. A preference with an end and no gate: the authority knows nothing of it, and after that time
the slot may go back. Owns no state. Called by the cycle, the queue and its wake-ups.
"""

from __future__ import annotations

from fairlead.decide.slots import millis
from fairlead.scheduler.ranking import Ranking
from fairlead.scheduler.snapshot import Snapshot
from fairlead.scheduler.units import Item, Unit


def kept_off_until_ms(item: Item, now_ms: int) -> int:
    """0: it may go anywhere."""
    spec = item.request.spec
    until_ms = millis(spec.left_until_time) if spec.left_node else 0
    return until_ms if until_ms > now_ms else 0


def row_left(item: Item, snapshot: Snapshot) -> int:
    """The row that it is not to go back to yet; -1: there is none."""
    return snapshot.row_of.get(item.request.spec.left_node, -1) if kept_off_until_ms(item, snapshot.now_ms) else -1


def best_but(ranking: Ranking, row: int) -> int:
    """The best of all others; -1: it fits none of them."""
    best = ranking.best()
    return best if best != row or best < 0 else next((each for each, _ in ranking.top(2) if each != row), -1)


def has_left(unit: Unit, node: str) -> bool:
    return bool(node) and isinstance(unit, Item) and unit.request.spec.left_node == node
