"""What every judge of a slot says alike: the record of a step, and the refusal of one that is not the caller's."""

from __future__ import annotations

from fairlead.authority.judge.context import Context
from fairlead.model.commands import Caller, Refused
from fairlead.model.kinds.slot import Transition
from fairlead.model.lifecycle import SlotState, owner_of
from fairlead.model.meta import Evidence


def transition(ctx: Context, caller: Caller, before: SlotState | None, to: SlotState, evidence: Evidence | None) -> Transition:
    return Transition(to, caller.actor, ctx.now, before, caller.fencing_epoch, evidence)


def refuse_step(caller: Caller, before: SlotState | None, to: SlotState) -> Refused:
    """There is no such step, or it belongs to somebody else."""
    owner = owner_of(before, to)
    name = before.value if before else "new"
    facts = {"state": name}
    if owner is None:
        return Refused("NoSuchStep", f"a slot never goes from {name} to {to.value}", facts)
    return Refused("NotOwner", f"{name} -> {to.value} belongs to {owner.value}, not to {caller.role.value}", facts)
