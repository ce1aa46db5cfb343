"""Amounts and nodes in words, for people who read a plan. Called by unblocking.py and asks.py."""

from __future__ import annotations

from fairlead.model.kinds.capacity import Node
from fairlead.model.resources import Resources

_GI = 1 << 30
MI = 1 << 20


def amounts_text(amounts: Resources) -> str:
    parts = [f"{amounts.cpu / 1000:g} CPU"] if amounts.cpu else []
    if amounts.memory:
        whole = amounts.memory % _GI == 0
        parts.append(f"{amounts.memory // _GI}Gi memory" if whole else f"{-(-amounts.memory // MI)}Mi memory")
    parts += [f"{amount} {name}" for name, amount in amounts.scalars]
    return ", ".join(parts) or "nothing"


def shape_text(node: Node) -> str:
    spec = node.spec
    where = f" in zone {spec.zone}" if spec.zone else ""
    pool = f" to pool {spec.pool}" if spec.pool else ""
    cost = f", {spec.hourly_cost_millis / 1000:g} an hour" if spec.hourly_cost_millis else ""
    return f"of {amounts_text(spec.allocatable)}{where}{pool} (as {node.metadata.name}{cost})"
