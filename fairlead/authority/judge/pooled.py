"""The machines of a node pool: one is let go only while its node is closed and empty, and then its node is not opened again.

The node autoscaler decides on what it has read, and its provider stops a machine some seconds after its name is gone from
`NodePool.status.ordered`: whoever opens the node just before or after must not find work placed on what is about to end.
Called by objects.py and kinds.py.
"""

from __future__ import annotations

from fairlead.authority.judge.context import Context
from fairlead.decide.autoscaling import has_let_go
from fairlead.model.commands import Refused
from fairlead.model.ids import Key
from fairlead.model.kinds.capacity import Node, NodePool, NodePoolStatus
from fairlead.model.lifecycle import HOLDS_CAPACITY


def using(ctx: Context, node: str) -> list[Key]:
    """What is on a node, or has room there."""
    account = ctx.ledger.nodes.get(node)
    if account is None:
        return []
    return [b.key for b in account.bindings if b.hot.state in HOLDS_CAPACITY] + [r.key for r in account.reservations]


def refuse_order(ctx: Context, old: object, status: object) -> Refused | None:
    """Of a pool that no longer orders a machine."""
    if not isinstance(old, NodePool) or not isinstance(status, NodePoolStatus):
        return None
    for name in sorted(set(old.status.ordered).difference(status.ordered)):
        node: Node | None = ctx.state.hot("nodes", "", name)
        if node is None:
            continue  # it never came, and is turned away if it comes now
        if not node.spec.unschedulable:
            return Refused("Conflict", f"{name} is open: its machine stays until it is closed and empty", {"node": name})
        there = using(ctx, name)
        if there:
            return Refused("InUse", f"{name} still carries {len(there)} slots", {"count": len(there), "first": there[:10]})
    return None


def refuse_opened(ctx: Context, new: Node, old: Node | None) -> Refused | None:
    """Of a node that would take work from now on."""
    if new.spec.unschedulable or (old is not None and not old.spec.unschedulable):
        return None
    pool: NodePool | None = ctx.state.hot("nodepools", "", new.spec.pool)
    if pool is None or not has_let_go(pool, ctx.settings.region, new.metadata.name):
        return None
    detail = f"pool {pool.metadata.name} has let {new.metadata.name} go: its machine is about to stop"
    return Refused("BeingDeleted", detail, {"pool": pool.metadata.name})
