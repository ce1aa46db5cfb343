"""What an agent does about one instance and what it says of it: pure, from what is bound, what runs and how its lease stands.

Owns when to start, stop, kill and forget; the restart policy; the steps to report, taken from the lifecycle table. Never looks at
a process or a clock. Called by fairlead/agent.
"""

from __future__ import annotations

import functools
import math
from typing import Final, Literal

import msgspec

from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import STEPS, Role, SlotState

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MOST_S: Final = 60.0
STABLE_S: Final = 60.0  # a run this long pays for the failures before it

_S = SlotState
_STARTABLE: Final = frozenset({_S.BOUND, _S.STARTING, _S.READY, _S.SERVING})
_OVER: Final = frozenset({_S.DRAINING, _S.RELEASED, _S.FAILED, _S.SUCCEEDED})

Phase = Literal["absent", "launching", "running", "stopping", "ended"]
Verdict = Literal["", "again", "succeeded", "failed"]
RestartPolicy = Literal["Always", "OnFailure", "Never"]


class Order(msgspec.Struct, frozen=True, gc=False):
    """What the region wants of one slot on this node: its binding, as far as an agent cares."""

    token: Token
    state: SlotState
    execution: Literal["Replicated", "Exclusive"] = "Replicated"
    exclusive: Literal["region", "global"] = "region"
    start_after: tuple[str, ...] = ()
    provisional: bool = False  # above what its tenant may keep here when the lease of the grant ends (P13)


class Life(msgspec.Struct, frozen=True, gc=False):
    """How the instance stands. `due`: the pause before its next start is over."""

    phase: Phase = "absent"
    verdict: Verdict = ""
    due: bool = True
    exclusive: bool = False


class Contact(msgspec.Struct, frozen=True, gc=False):
    """How the agent stands with its region. `synced`: the present inventory is confirmed; negative times are over."""

    synced: bool
    lease_left_s: float  # of Exclusive work, less the time a kill takes
    autonomy_left_s: float
    grant_left_s: float = math.inf  # of what is provisional, likewise
    superseded: bool = False  # another agent took this node's name
    leaving: bool = False  # everything is to stop, and the agent with it


class Start(msgspec.Struct, frozen=True, gc=False):
    pass


class Stop(msgspec.Struct, frozen=True, gc=False):
    """`at_once`: no grace; the time to ask nicely is over."""

    reason: str
    at_once: bool = False


class Forget(msgspec.Struct, frozen=True, gc=False):
    pass


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Nothing to do now; `reason` says what is waited for, where somebody might ask."""

    reason: str = ""


Action = Start | Stop | Forget | Wait


def decide(order: Order | None, life: Life, contact: Contact, blocked: str = "") -> Action:
    """`order` None: nothing is bound here under this instance's token, and that is certain. `blocked` names what must end
    before this may start."""
    if life.phase in ("running", "stopping"):
        return _while_there(order, life, contact)
    if life.phase == "launching":
        return Wait()
    if order is None:
        return Forget()
    return _while_gone(order, life, contact, blocked)


def _while_there(order: Order | None, life: Life, contact: Contact) -> Action:
    exclusive = life.exclusive or (order is not None and order.execution == "Exclusive")
    if exclusive and order is None:  # its region has lost that it was bound: whoever has it now waits no longer than for a kill
        return Stop("it is not bound here any more", at_once=True)
    if exclusive and (contact.lease_left_s <= 0 or contact.superseded):
        return Stop("its lease is over", at_once=True)
    if order is not None and order.provisional and contact.grant_left_s <= 0:
        return Stop("the lease of its tenant's grant is over", at_once=True)
    if life.phase == "stopping":
        return Wait()
    if contact.superseded or contact.leaving:
        return Stop("another agent speaks for this node" if contact.superseded else "its node is shut down")
    if order is None:
        return Stop("it is not bound here any more")
    if order.state in _OVER:
        return Stop(f"it is {order.state.value}")
    if contact.autonomy_left_s <= 0:
        return Stop("the region was not heard of for too long")
    return Wait()


def _while_gone(order: Order, life: Life, contact: Contact, blocked: str) -> Action:
    lost = order.state is _S.UNKNOWN and order.execution == "Replicated" and life.phase == "ended"
    if (
        contact.superseded
        or contact.leaving
        or life.verdict in ("succeeded", "failed")
        or not (order.state in _STARTABLE or lost)
    ):
        return Wait()
    if blocked:
        return Wait(f"waits for {blocked} to end")
    if not life.due:
        return Wait("waits before it is started again")
    # A first start, and every start of Exclusive work, needs the region's word of just now; what ran before is kept running.
    fresh = contact.synced and contact.lease_left_s > 0
    if not fresh and (life.phase == "absent" or order.execution == "Exclusive"):
        return Wait("waits for contact with the region")
    if order.provisional and contact.grant_left_s <= 0:
        return Wait("waits for the lease of its tenant's grant")
    if contact.autonomy_left_s <= 0:
        return Wait("the region was not heard of for too long")
    return Start()


# --- restarts --------------------------------------------------------------------------------------------------------------


class Again(msgspec.Struct, frozen=True, gc=False):
    delay_s: float
    restarts: int


Ending = Again | Literal["succeeded", "failed"]


def after_exit(policy: RestartPolicy, max_restarts: int, restarts: int, code: int, ran_s: float, excused: bool) -> Ending:
    """What follows the end of a run that nobody asked for. One ended by its fence, or with its machine, did nothing wrong: it may
    come back."""
    if excused:
        return Again(0.0, restarts)
    if code == 0 and policy != "Always":
        return "succeeded"
    if policy == "Never":
        return "failed"
    restarts = 0 if ran_s >= STABLE_S else restarts
    if restarts >= max_restarts:
        return "failed"
    return Again(min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(restarts, 16)), restarts + 1)


# --- reports ---------------------------------------------------------------------------------------------------------------

Condition = Literal["none", "starting", "ready", "succeeded", "failed", "gone"]


def condition_of(life: Life, ready: bool) -> Condition:
    if life.phase == "absent":
        return "none"
    if life.phase == "ended":
        return life.verdict if life.verdict in ("succeeded", "failed") else "gone"
    return "ready" if ready and life.phase == "running" else "starting"


@functools.cache
def steps_to_report(state: SlotState, condition: Condition) -> tuple[SlotState, ...]:
    """The steps an agent may make from where the region believes the slot to be; none where it is not the agent's turn."""
    if condition == "none":
        return (_S.RELEASED,) if state is _S.DRAINING else ()  # it was drained before it ever started
    if condition in ("gone", "succeeded", "failed") and state is _S.DRAINING:
        return (_S.RELEASED,)
    goals = {"starting": _S.STARTING, "ready": _S.READY, "succeeded": _S.SUCCEEDED, "failed": _S.FAILED, "gone": _S.STARTING}
    # A run that ended and will start again is starting; so is one whose readiness was lost. Serving is the rollout's to end.
    if state is _S.SERVING and condition != "failed":
        return ()
    return _path(state, goals[condition])


def _path(before: SlotState, goal: SlotState) -> tuple[SlotState, ...]:
    """The shortest way over steps that agents own."""
    ways: dict[SlotState, tuple[SlotState, ...]] = {before: ()}
    waiting = [before]
    while waiting:
        here = waiting.pop(0)
        if here is goal:
            return ways[here]
        for (source, target), step in STEPS.items():
            if source is here and step.owner is Role.AGENT and target not in ways:
                ways[target] = (*ways[here], target)
                waiting.append(target)
    return ()
