"""Room on the node: cpu, memory, slots and named scalars. Asked of what is promised and of what is lent (P12)."""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import CAPACITY, Gate, always
from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier
from fairlead.model.quantity import format_quantity


def cpu(need: Need, row: Row, view: View) -> Any:
    return (need.firm_cpu <= row.cpu_free) & (need.cpu <= row.cpu_unlent)


def memory(need: Need, row: Row, view: View) -> Any:
    return (need.firm_memory <= row.memory_free) & (need.memory <= row.memory_unlent)


def slots(need: Need, row: Row, view: View) -> Any:
    return need.slots <= row.slots_free


def scalars(need: Need, row: Row, view: View) -> Any:
    fits: Any = True
    for name, amount in need.scalars:  # over the need's own few names, never over nodes
        fits = fits & (amount * (1 - need.borrows) <= row.scalar_free(name)) & (amount <= row.scalar_unlent(name))
    return fits


def _short(name: str, ask: int, free: int, **form: Any) -> str:
    return f"needs {format_quantity(ask, **form)} {name}, {format_quantity(max(free, 0), **form)} free"


def _room(need: Need, free: int, unlent: int) -> int:
    """What this need could take. Borrowers use what is held, unless the node has promised more than it has."""
    return unlent if need.borrows and free >= 0 else min(free, unlent)


def _cpu_why(need: Need, row: Row, view: View) -> str:
    return _short("cpu", need.cpu, _room(need, row.cpu_free, row.cpu_unlent), unit_exponent=-3)


def _memory_why(need: Need, row: Row, view: View) -> str:
    return _short("memory", need.memory, _room(need, row.memory_free, row.memory_unlent), binary=True)


def _scalars_why(need: Need, row: Row, view: View) -> str:
    rooms = [(name, ask, _room(need, row.scalar_free(name), row.scalar_unlent(name))) for name, ask in need.scalars]
    return "; ".join(_short(name, ask, room) for name, ask, room in rooms if ask > room)


CPU = Gate("cpu", cpu, _cpu_why, Tier.INVARIANT, CAPACITY)
MEMORY = Gate("memory", memory, _memory_why, Tier.INVARIANT, CAPACITY)
SLOTS = Gate("slots", slots, always("it has no slot left"), Tier.INVARIANT, CAPACITY)
SCALARS = Gate("scalars", scalars, _scalars_why, Tier.INVARIANT, CAPACITY)
