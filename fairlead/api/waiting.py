"""What a slot that does not serve waits for, and who makes its next step: read off the table of steps, what is known of its node,
and the times that were promised. Pure. Called by explaining.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from fairlead.model.lifecycle import STEPS, Role, SlotState

_S = SlotState
# The way forward from each state; who owns that step is in the table.
_NEXT: Final = {
    _S.BOUND: _S.STARTING,
    _S.STARTING: _S.READY,
    _S.READY: _S.SERVING,
    _S.DRAINING: _S.RELEASED,
    _S.UNKNOWN: _S.RELEASED,
    _S.FAILED: _S.RELEASED,
}
_WORDS: Final = {
    _S.BOUND: ("WaitingForAgent", "its node has not started it yet"),
    _S.STARTING: ("WaitingForProbes", "it was started, and its probes do not pass yet"),
    _S.READY: ("WaitingForTraffic", "it is ready, and gets no requests yet"),
    _S.DRAINING: ("WaitingForStop", "it is being stopped"),
    _S.UNKNOWN: ("NodeSilent", "its node has not been heard for a lease"),
    _S.FAILED: ("WaitingForRepair", "it failed, and is to be replaced"),
}
_OF_JOB: Final = {_S.READY: (_S.SUCCEEDED, "Running", "it runs, until it ends by itself")}  # in place of the above

_SILENT: Final = ("Unknown", "Lost")  # healths of a node
_APPROVER: Final = "approver"  # a person, not a component
LATE_S: Final = 30.0  # a resync: whoever has not looked by then does not get on
OLD_S: Final = 10.0  # a picture older than this is behind the plane


def next_of(binding: Any, instance: Any, node_health: str = "", repairs_wait: str = "", *, job: bool = False) -> dict[str, Any]:
    """`binding` and the status of its instance (None: nothing was said of it) as they are served. `repairs_wait`: the override
    under which repairs wait for a second person, if there is one. `job`: it belongs to one, which serves nobody."""
    state = SlotState(binding.status.state)
    reason, detail = _WORDS.get(state, ("", ""))
    step = _NEXT.get(state)
    if job and state in _OF_JOB:
        step, reason, detail = _OF_JOB[state]
    owner = STEPS[state, step].owner.value if step is not None else ""
    if state in (_S.BOUND, _S.STARTING, _S.READY) and node_health in _SILENT:
        reason, detail, owner = "NodeSilent", f"its node {binding.spec.node} has not been heard for a lease", Role.NODE.value
    elif state in (_S.UNKNOWN, _S.FAILED) and repairs_wait:
        reason, detail, owner = "WaitingForApproval", f"repairs wait for a second person: {repairs_wait}", _APPROVER
    elif state is _S.UNKNOWN and binding.spec.execution == "Exclusive":
        reason = "WaitingForFence"
        detail = f"its node {binding.spec.node} is silent; another copy may start only when that one has certainly stopped"
    elif state is _S.STARTING and instance is not None and instance.restarts:
        times = "once" if instance.restarts == 1 else f"{instance.restarts} times"
        reason, detail = "Restarting", f"its process ended and was started again, {times} (`fairlead logs` shows what it wrote)"
    said = instance.message if instance is not None else ""
    last = binding.status.last_transition
    since = last.time if last is not None else binding.metadata.creation_time
    deadline = binding.status.drain_deadline_time if state is _S.DRAINING else None
    out = {"reason": reason, "detail": f"{detail}: {said}" if said else detail, "sinceTime": since, "nextOwner": owner}
    return {**out, "nextAttemptTime": deadline, "restarts": instance.restarts if instance is not None else None}


def late_of(next_attempt: datetime | None, now: datetime, decided_age_s: float | None) -> str:
    """Why a slot that waits may wait for nothing: its next look is overdue, or the last was at an old picture. Empty: neither."""
    overdue_s = (now - next_attempt).total_seconds() if next_attempt is not None else 0.0
    if overdue_s > LATE_S:
        return f"its next look was due {overdue_s:.0f} s ago: its scheduler does not get on (`fairlead get controllers`)"
    if decided_age_s is not None and decided_age_s > OLD_S:
        return f"it was last decided on a picture that was {decided_age_s:.0f} s old: its scheduler is behind the plane"
    return ""
