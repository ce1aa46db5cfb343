"""What agents say of their instances, gathered and sent in batches: each step only where it is legal from where the slot stands.

Owns the commands and what their answers mean. A report is derived from state, not from events, so sending it again after a lost
answer changes nothing. Called by fairlead/agent/host.py.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from fairlead.agent.node import Node
from fairlead.agent.slot import Slot
from fairlead.decide.instances import steps_to_report
from fairlead.model.commands import Accepted, Caller, Command, Outcome, Refused, Report
from fairlead.model.ids import split_revision
from fairlead.model.kinds.work import InstanceStatus
from fairlead.model.lifecycle import Role, SlotState

log = logging.getLogger(__name__)

# The plane says that our view is old; its feed will bring the new one, or that our session is over.
_STALE: Final = frozenset({"NotFound", "StaleToken", "WrongNode", "FencedOut"})
_STEPS: Final = frozenset({"NoSuchStep", "NotOwner"})


def agent_caller(node: str) -> Caller:
    return Caller(node, Role.AGENT, node=node)


class Said(NamedTuple):
    """One command of a batch and what it is about."""

    node: Node
    slot: Slot
    to: SlotState | None
    status: InstanceStatus | None
    command: Command
    position: int = 0  # where the slot stood in the plane's history when this was said, as far as its node knew


def reports_of(node: Node, slot: Slot, now: float) -> list[Said]:
    """The steps that are ours to make now, then the facts where they changed."""
    bound = node.current(slot)
    if bound is None or node.superseded:
        return []
    condition = slot.condition(now)
    status = slot.status(condition)
    if condition == "none" and not slot.message and bound.state is not SlotState.DRAINING:
        return []
    # Whoever hears of it may start it elsewhere.
    leaves = bound.state is SlotState.DRAINING or slot.over or condition == "failed"
    if leaves and node.doubts(slot, now):
        return []
    if leaves and any(other.there for other in node.lives_of(slot.key) if other is not slot or slot.over):
        return []  # no life of it may be here then, not even a later one
    steps: list[SlotState | None] = list(steps_to_report(bound.state, condition))
    if not steps and slot.reported != status and bound.state is not SlotState.RELEASED:
        steps = [None]
    said = []
    for step in steps:
        told = status if step is steps[-1] and step is not SlotState.RELEASED else None
        body = Report(slot.id.tenant, slot.id.name, slot.id.token, step, told, node.session)
        said.append(Said(node, slot, step, told, Command(agent_caller(node.name), body), bound.position))
    return said


def answered(said: Said, outcome: Outcome) -> bool:
    """Takes one answer in. True: it must be said again."""
    bound = said.node.current(said.slot)
    if isinstance(outcome, Accepted):
        if said.status is not None:
            said.slot.reported = said.status
        position = split_revision(outcome.revision)[1]
        if bound is not None and said.to is not None and position >= bound.position:
            bound.state, bound.position = said.to, position
        return False
    if isinstance(outcome, Refused):
        if outcome.reason in _STALE:
            log.info("%s: %s", said.slot.id.text, outcome.detail, extra=said.slot.id.about)
            return False
        if outcome.reason in _STEPS and bound is not None and bound.position != said.position:
            return True  # it was long under way, and the feed has told of a later state than the one it speaks of
        state = outcome.facts.get("state")
        if outcome.reason in _STEPS and bound is not None and state and state != bound.state.value:
            bound.state = SlotState(state)
            return True
        if outcome.reason in _STEPS:
            return False
    return True
