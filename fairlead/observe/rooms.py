"""How many rooms of a recovery budget a region has for a service, by sums over its nodes, reservations and bindings.

Nothing of the recovery or the standing controller's, and no status of the budget: where they say that there is no room, this is
what proves it. Called by the simulator when a service is not back after the loss of a region.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.model.kinds.capacity import RecoveryBudget, Reservation, ReservationSpec
from fairlead.model.kinds.slot import STANDING, SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.waiting import Objects

RoomFor = Callable[[Any, Objects], str]  # the node that has room for a request, or nothing


def rooms_for(budget: RecoveryBudget, ask: Resources, objects: Objects, room_for: RoomFor) -> int:
    """Those that are held on nodes that are well and nobody has claimed, and those that are neither held nor claimed although
    there is a place for them."""
    tenant, name = budget.metadata.namespace, budget.metadata.name
    well = {node for (_, node), one in objects.get("nodes", {}).items() if one.status.health == "Ready"}
    held = [
        one.spec
        for (owner, _), one in objects.get("reservations", {}).items()
        if owner == tenant and one.spec.budget == name and not one.spec.claimer and not ask.exceeding(one.spec.requests)
    ]
    claimed = sum(
        owner == tenant and one.status.state in HOLDS_CAPACITY and one.spec.claimed.startswith(f"{STANDING}{name}-")
        for (owner, _), one in objects.get("bindings", {}).items()
    )
    shapes = [shape for shape in budget.spec.shapes if not ask.exceeding(shape.requests)]
    free = sum(spec.node in well for spec in held)
    left = sum(shape.count for shape in shapes) - len(held) - claimed
    return free + (_places(budget, shapes[0].requests, left, objects, room_for) if left > 0 else 0)


def _places(budget: RecoveryBudget, shape: Resources, most: int, objects: Objects, room_for: RoomFor) -> int:
    """How many more of them nodes and the grant have room for: each that finds a place is there when the next one looks."""
    tenant = budget.metadata.namespace
    spec = SchedulingRequestSpec(
        slot=SlotRef(workload=f"{STANDING}{budget.metadata.name}", uid="", index=0),
        ask=Ask(requests=shape, workload_class=budget.spec.workload_class),
        standing=True,
    )
    request = SchedulingRequest(Metadata(name="one-more", namespace=tenant), spec)
    reservations = dict(objects.get("reservations", {}))
    for number in range(most):
        node = room_for(request, {**objects, "reservations": reservations})
        if not node:
            return number
        taken = ReservationSpec(node=node, requests=shape, budget=budget.metadata.name)
        reservations[tenant, f"one-more-{number}"] = Reservation(Metadata(name=f"one-more-{number}", namespace=tenant), taken)
    return most
