"""Asked of a journal: room that a recovery budget held and a slot had claimed is held again in the entry that releases the slot
(P12), so that it is for sale at no moment (S8).

Not where the budget, its node or the tenant's grant has no use for it: by this module's own reading of them. Shares nothing with
the judge but the model. Asked by QueuedChecker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairlead.model.kinds.work import Binding
from fairlead.observe.escrow import in_use, spendable

BLOCK: Final = 10_000  # rooms of one shape are numbered from a multiple of this on

Objects = Mapping[str, Mapping[tuple[str, str], Any]]


def is_for_sale(binding: Binding, objects: Objects, incarnation: int, now_ms: int) -> bool:
    """After the entry that released it: what it had claimed is nobody's, and should be its budget's."""
    tenant, room = binding.metadata.namespace, binding.spec.claimed
    if (tenant, room) in objects["reservations"] or (tenant, room) in objects["schedulingrequests"]:
        return False
    node = objects["nodes"].get(("", binding.spec.node))
    if node is None or node.metadata.deletion_time is not None:
        return False
    if node.spec.unschedulable or node.status.health != "Ready" or not node.status.schedulable:
        return False
    return _is_wanted(room, tenant, node.spec.region, objects, now_ms) and _is_granted(binding, objects, incarnation, now_ms)


def _is_wanted(room: str, tenant: str, region: str, objects: Objects, now_ms: int) -> bool:
    name, _, index = room.rpartition("-")
    holding = objects["holdings"].get((tenant, f"{name.partition('.')[2]}.{region}"))
    if holding is None or holding.metadata.deletion_time is not None:
        return False
    ends = holding.spec.expiry_time
    block, number = divmod(int(index), BLOCK)
    shapes = holding.spec.shapes
    within = block < len(shapes) and number < shapes[block].count
    return within and (ends is None or now_ms < ends.timestamp() * 1000)


def _is_granted(binding: Binding, objects: Objects, incarnation: int, now_ms: int) -> bool:
    """With what is given back still charged, as it would be if it were held; and as much again, for what it had left of its room:
    that is gone by now."""
    tenant, given = binding.metadata.namespace, binding.spec.requests
    grants = [grant for (owner, _), grant in objects["grants"].items() if owner == tenant]
    term = next(iter(objects["grantterms"].values()), None)
    if len(grants) != 1:
        return False
    charged = in_use(objects, tenant) + given + given
    return not charged.exceeding(spendable(grants[0], term, incarnation, now_ms))
