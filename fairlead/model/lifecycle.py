"""The life of a slot as data: which step may follow which, who owns it, what the authority checks, how it is undone.

The authority judges every change of a slot by `owner_of`; docs/reference/lifecycle.md is drawn from STEPS. One step, one owner.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class SlotState(enum.Enum):
    # Members are singletons, so identity is as good as Enum's hash of the name, and this one is not a Python call.
    __hash__ = object.__hash__

    PENDING = "Pending"
    RESERVED = "Reserved"
    BOUND = "Bound"
    STARTING = "Starting"
    READY = "Ready"
    SERVING = "Serving"
    DRAINING = "Draining"
    UNKNOWN = "Unknown"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"
    RELEASED = "Released"


class Role(enum.Enum):
    """Who sends a command. A role is proven by the caller's credentials; leased roles also carry an epoch."""

    __hash__ = object.__hash__

    USER = "user"
    OPERATOR = "operator"
    BREAK_GLASS = "break-glass"
    AUTHORITY = "authority"
    SCHEDULER = "scheduler"
    AGENT = "agent"
    ASSIGNMENT = "assignment-controller"
    WORKLOAD = "workload-controller"
    ROLLOUT = "rollout-controller"
    JOB = "job-controller"
    NODE = "node-controller"
    DISRUPTION = "disruption-controller"
    REPAIR = "repair-controller"
    RECOVERY = "recovery-controller"
    QUOTA = "quota-controller"
    POLICY = "policy-controller"
    OVERRIDE = "override-controller"
    REGION_HEALTH = "region-health-controller"
    AUTOSCALER = "autoscaler"
    GARBAGE = "garbage-collector"
    MIRROR = "mirror"
    NARRATOR = "narrator"


# Roles of which one process at a time may act. Their commands carry a lease's name and epoch (S9).
LEASED_ROLES: Final = frozenset(Role) - {Role.USER, Role.OPERATOR, Role.BREAK_GLASS, Role.AUTHORITY, Role.AGENT}

_S = SlotState

# The slot's process is, or may be, on a node.
ON_NODE: Final = frozenset({_S.BOUND, _S.STARTING, _S.READY, _S.SERVING, _S.DRAINING, _S.UNKNOWN})
# A live slot counts against its node and its tenant.
LIVE: Final = ON_NODE | {_S.RESERVED}
# A binding in one of these still holds its capacity: nobody has shown that the process is gone.
HOLDS_CAPACITY: Final = ON_NODE | {_S.FAILED}


class Step(NamedTuple):
    owner: Role
    guards: str
    undo: str = ""


def _table() -> dict[tuple[SlotState | None, SlotState], Step]:
    agent, node, repair = Role.AGENT, Role.NODE, Role.REPAIR
    steps: dict[tuple[SlotState | None, SlotState], Step] = {
        (None, _S.PENDING): Step(Role.ASSIGNMENT, "generation; quota exists; policy parses", "withdraw"),
        (_S.PENDING, _S.RESERVED): Step(
            Role.SCHEDULER,
            "slot epoch; generation; node fit; devices; grant room; residency; tenancy; policy revision; fencing",
            "release",
        ),
        (_S.PENDING, _S.BOUND): Step(Role.SCHEDULER, "the guards of both steps it joins", "unbind"),
        (_S.RESERVED, _S.PENDING): Step(Role.SCHEDULER, "the reservation's token; at expiry the authority, after it repair"),
        (_S.RESERVED, _S.BOUND): Step(
            Role.SCHEDULER, "the reservation's token; generation; gang complete; rollout permits", "unbind"
        ),
        (_S.BOUND, _S.STARTING): Step(agent, "binding token", "stop"),
        (_S.STARTING, _S.READY): Step(agent, "binding token", "stop"),
        (_S.STARTING, _S.SUCCEEDED): Step(agent, "binding token; exit code"),
        (_S.READY, _S.SUCCEEDED): Step(agent, "binding token; exit code"),
        (_S.READY, _S.SERVING): Step(Role.ROLLOUT, "generation; probe streak; endpoints version", "withdraw traffic"),
        (_S.SERVING, _S.READY): Step(Role.ROLLOUT, "readiness lost; traffic withdrawn"),
        (_S.READY, _S.STARTING): Step(agent, "binding token; readiness lost or restarted in place"),
        (_S.DRAINING, _S.RELEASED): Step(agent, "binding token; process gone"),
        (_S.UNKNOWN, _S.RELEASED): Step(repair, "fence time passed (Exclusive) or withdrawn from Endpoints (Replicated)"),
        (_S.FAILED, _S.RELEASED): Step(
            repair, "none for Exclusive: its agent has said that it ended; else withdrawn from Endpoints"
        ),
        (_S.RELEASED, _S.PENDING): Step(repair, "slot epoch + 1; desired still wants the slot"),
    }
    for state in (_S.BOUND, _S.STARTING, _S.READY, _S.SERVING):
        steps[state, _S.FAILED] = Step(agent, "binding token; restart policy spent")
        steps[state, _S.DRAINING] = Step(Role.DISRUPTION, "disruption budget; priority; inside a claim the authority")
        steps[state, _S.UNKNOWN] = Step(node, "lease expired; evidence age")
        steps[_S.UNKNOWN, state] = Step(node, "heard again; same binding token")
    steps[_S.UNKNOWN, _S.DRAINING] = Step(node, "heard again while draining; same binding token")
    steps[_S.UNKNOWN, _S.FAILED] = Step(node, "heard again; same binding token; exit code")
    steps[_S.UNKNOWN, _S.SUCCEEDED] = Step(node, "heard again; same binding token; exit code")
    steps[_S.DRAINING, _S.UNKNOWN] = Step(node, "lease expired; evidence age")
    return steps


STEPS: Final = _table()

# The few steps the authority itself makes inside another entry: expiry of a reservation, and the victims of a claim (P12).
AUTHORITY_STEPS: Final = frozenset({(_S.RESERVED, _S.PENDING), *(edge for edge, step in STEPS.items() if edge[1] is _S.DRAINING)})


def may_step(before: SlotState | None, after: SlotState, by: Role) -> bool:
    step = STEPS.get((before, after))
    if step is None:
        return False
    return step.owner is by or (by is Role.AUTHORITY and (before, after) in AUTHORITY_STEPS)


def owner_of(before: SlotState | None, after: SlotState) -> Role | None:
    """The owner of that step; None where there is no such step."""
    step = STEPS.get((before, after))
    return step.owner if step else None
