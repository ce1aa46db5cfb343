"""What a placed slot that does not serve waits for, and who makes its next step: read off the table of steps. Pure."""

from __future__ import annotations

from typing import Any, Final

from fairlead.model.lifecycle import STEPS, SlotState

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


def next_of(binding: Any, instance: Any) -> dict[str, Any]:
    """`binding` and the status of its instance (None: nothing was said of it) as they are served."""
    state = SlotState(binding.status.state)
    reason, detail = _WORDS.get(state, ("", ""))
    step = _NEXT.get(state)
    owner = STEPS[state, step].owner.value if step is not None else ""
    said = instance.message if instance is not None else ""
    last = binding.status.last_transition
    since = last.time if last is not None else binding.metadata.creation_time
    deadline = binding.status.drain_deadline_time if state is _S.DRAINING else None
    out = {"reason": reason, "detail": f"{detail}: {said}" if said else detail, "sinceTime": since, "nextOwner": owner}
    return {**out, "nextAttemptTime": deadline, "restarts": instance.restarts if instance is not None else None}
