"""Rules about the neighbours: spread, affinity, anti-affinity in both directions, ports, the maximum on one node.

What they count is kept by fairlead/decide/topology.py; a need without such rules passes without a look.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import CAPACITY, TOPOLOGY, Check, Gate, Why
from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier


def _check(name: str) -> Check:
    def check(need: Need, row: Row, view: View) -> Any:
        return need.topology is None or need.topology.check(name, row, view)

    return check


def _why(name: str) -> Why:
    def why(need: Need, row: Row, view: View) -> str:
        return need.topology.why(name, row, view) if need.topology is not None else ""

    return why


SPREAD = Gate("spread", _check("spread"), _why("spread"), Tier.INVARIANT, TOPOLOGY)
AFFINITY = Gate("affinity", _check("affinity"), _why("affinity"), Tier.INVARIANT, TOPOLOGY)
ANTI_AFFINITY = Gate("anti-affinity", _check("anti-affinity"), _why("anti-affinity"), Tier.INVARIANT, TOPOLOGY)
MAX_PER_NODE = Gate("max-per-node", _check("max-per-node"), _why("max-per-node"), Tier.INVARIANT, TOPOLOGY)
PORTS = Gate("ports", _check("ports"), _why("ports"), Tier.INVARIANT, CAPACITY)
