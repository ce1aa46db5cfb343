"""What a region says it has given up or let go, asked of its state at the commit: neither queued nor bound, and it was asked for.

The global plane gives such slots to another region (ADRs 0024, 0025, 0042), so this word is a promise. Called by objects.py.
"""

from __future__ import annotations

from fairlead.authority.judge.context import Context
from fairlead.decide.spans import holds, indices, size
from fairlead.model.commands import Refused
from fairlead.model.kinds.work import Assignment, AssignmentStatus
from fairlead.model.registry import REGION


def refuse_given_up(ctx: Context, old: object, status: object) -> Refused | None:
    if ctx.settings.plane != REGION or not isinstance(old, Assignment) or not isinstance(status, AssignmentStatus):
        return None
    order, given = old.spec, status.given_up
    if not given:
        return None
    if size(given) > order.give_up:
        return Refused("Conflict", f"{size(given)} slots are given up, and {order.give_up} were asked for")
    for index in indices(given):
        name = f"{order.workload}-{index}"
        if not holds(order.slots, index):
            return Refused("Conflict", f"{name} is given up, and was not this region's")
        for plural in ("schedulingrequests", "bindings"):
            if ctx.state.get(plural, old.metadata.namespace, name) is not None:
                return Refused("Conflict", f"{name} is given up, and there are {plural} of it still")
    return None


def refuse_none_left(ctx: Context, old: object, status: object) -> Refused | None:
    """Of what runs once in the world, or runs once and was taken from this region: that nothing is left here of what is not
    wanted any more starts it elsewhere. After lost history a node may run what nobody remembers, until each has said what it
    runs, or has certainly ended it (S12, P11)."""
    if ctx.settings.plane != REGION or not isinstance(old, Assignment) or not isinstance(status, AssignmentStatus):
        return None
    if old.spec.exclusive != "global" and not old.spec.leaving:
        return None
    if status.unwanted or status.observed_generation != old.metadata.generation:
        return None
    said_before = not old.status.unwanted and old.status.observed_generation == old.metadata.generation
    return None if said_before else ctx.refuse_unlisted(f"what {old.metadata.name} is to let go")
