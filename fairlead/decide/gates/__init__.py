"""Hard gates: where a slot may not go. One small module per gate or family, each a `Gate` found by its name.

A gate's check is one expression of operators (`<=`, `&`, `==`, table look-up; no if, and, or on the row) over a row whose fields
are Python ints in the authority and int64 columns in the scheduler (P18). It may branch on the need, which is the same for every
row. fairlead/decide/fit.py gathers the built-in gates; plug-ins come with the need. A gate never ranks; that is what scores do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier

Check = Callable[[Need, Row, View], Any]
Why = Callable[[Need, Row, View], str]

# What a slot waits for when a gate keeps it from every node: pending reasons, as docs/scheduling.md lists them.
NO_MATCH = "NoMatchingCapacity"
RESIDENCY = "ResidencyBlocked"
CAPACITY = "WaitingForCapacity"
TOPOLOGY = "TopologyBlocked"


class Gate(NamedTuple):
    name: str
    check: Check
    why: Why  # of one node that failed it
    tier: Tier = Tier.INVARIANT
    reason: str = NO_MATCH


def always(text: str) -> Why:
    return lambda need, row, view: text
