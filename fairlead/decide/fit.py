"""Does this need fit this node, and if not, every reason. The only feasibility function: proposers and the authority call it.

The gates themselves are in fairlead/decide/gates; here they are gathered and asked together. One source answers for one node
(ints) in about a microsecond and for ten thousand (columns) in a tenth of a millisecond (P18). `tests/decide/test_fit.py` holds
vector[i] == scalar(row i) for every gate, and feasible() equal to all of them.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import Gate
from fairlead.decide.gates.capacity import CPU, MEMORY, SCALARS, SLOTS, scalars
from fairlead.decide.gates.devices import DEVICES, devices
from fairlead.decide.gates.isolation import ISOLATION
from fairlead.decide.gates.neighbours import AFFINITY, ANTI_AFFINITY, MAX_PER_NODE, PORTS, SPREAD
from fairlead.decide.gates.node import CORDON, HANDSHAKE, HEALTH, OBSERVATION
from fairlead.decide.gates.node_class import LABELS, REGIONS, RESIDENCE, TAINTS, TENANCY, ZONES
from fairlead.decide.need import ClassVerdicts, DeviceNeed, Need, Row, View

__all__ = [
    "GATES", "S6_GATES", "ClassVerdicts", "DeviceNeed", "Gate", "Need",
    "Row", "View", "feasible", "has_room", "open_to", "reasons",
]  # fmt: skip

# Where the law, the tenant and the operator allow a slot to be at all (S6).
S6_GATES: tuple[Gate, ...] = (REGIONS, ZONES, RESIDENCE, TENANCY)

# In the order in which reasons read best: what a person can least change first.
GATES: tuple[Gate, ...] = (
    *S6_GATES, LABELS, TAINTS, CORDON, HEALTH, HANDSHAKE, OBSERVATION, ISOLATION, CPU, MEMORY, SLOTS, SCALARS, DEVICES, PORTS,
    MAX_PER_NODE, SPREAD, ANTI_AFFINITY, AFFINITY,
)  # fmt: skip


def feasible(need: Need, row: Row, view: View) -> Any:
    """True where the need fits. One bool for one node; a mask for columns.

    The same verdict as all of GATES, in fewer steps: what a person is told apart is asked together, without a call per gate. In
    two halves, because the first is the same for many needs and a proposer may keep it.
    """
    return open_to(need, row, view) & has_room(need, row, view)


def open_to(need: Need, row: Row, view: View) -> Any:
    """Whether the node takes such work at all: its class, its state, who has it to himself. Asks nothing about amounts."""
    holder = row.exclusive_to
    fits: Any = (
        (need.classes.allowed[row.node_class] == 1)
        & ((row.healthy & row.schedulable) > row.cordoned)
        & (view.now_ms - need.max_age_ms <= row.observed_ms)
        & ((holder == 0) | (holder == need.tenant))
    )
    if need.exclusive:
        fits = fits & ((row.used_by == 0) | (row.used_by == need.tenant))
    return fits


def has_room(need: Need, row: Row, view: View) -> Any:
    """Whether what is asked is free there, and the neighbours and the policy's own gates agree."""
    fits: Any = (
        (need.firm_cpu <= row.cpu_free)
        & (need.cpu <= row.cpu_unlent)
        & (need.firm_memory <= row.memory_free)
        & (need.memory <= row.memory_unlent)
        & (need.slots <= row.slots_free)
    )
    if need.scalars or need.devices:
        fits = fits & scalars(need, row, view) & devices(need, row, view)
    if need.topology is not None:
        fits = fits & need.topology.own(row, view) & need.topology.coarse(row, view)
    for gate in need.extra:
        fits = fits & gate.check(need, row, view)
    return fits


def reasons(need: Need, row: Row, view: View, gates: tuple[Gate, ...] | None = None) -> dict[str, str]:
    """Every gate one node fails, with the reason: all of them and the policy's own, or only `gates`. Empty means it fits."""
    asked = (*GATES, *need.extra) if gates is None else gates
    return {gate.name: gate.why(need, row, view) for gate in asked if not gate.check(need, row, view)}
