"""How long agents count on what a leader tells them, over a change of leaders that do not all tell the same. Pure.

A leader tells its agents its own lease with every acknowledgement. Whoever heard only the one before it may count on that one's:
until such an agent has certainly stopped, the region waits for the longest of them (P9). Used by the authority when it begins to
lead; every leader writes down what it tells, and what may still be counted on.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.decide.slots import millis
from fairlead.model.kinds.ledger import PlaneSpec


def longest_lease_s(before: PlaneSpec | None, own_s: float, fence_of: Callable[[float], float], now_ms: int) -> float:
    """That any agent may count on when a leader with this lease of its own begins. `before`: what the last one wrote down;
    `now_ms`: up to where the time since then was measured."""
    if before is None:
        return own_s
    passed_s = (now_ms - millis(before.acquired_time)) / 1000
    still_s = before.longest_lease_seconds if passed_s < fence_of(before.longest_lease_seconds) else 0.0
    return max(own_s, before.node_lease_seconds, still_s)
