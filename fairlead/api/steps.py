"""One slot's way from being wanted to serving, step by step: what was done when, on which evidence, and where it stands still.

Owns the words of each step; reads what explaining.py has found and asks nobody. Pure. Called by explaining.py for `/why`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from fairlead.model.lifecycle import SlotState

STEPS: Final = ("desired", "queued", "reserved", "bound", "started", "ready", "serving", "repaired")
DONE, STUCK, AHEAD, SKIPPED = "done", "stuck", "ahead", "not needed"

_S = SlotState
# The last step that a slot in this state has made; what comes after it is what it waits for.
_MADE: Final = {
    _S.PENDING: "queued",
    _S.RESERVED: "reserved",
    _S.BOUND: "bound",
    _S.STARTING: "started",
    _S.READY: "ready",
    _S.SERVING: "serving",
    _S.SUCCEEDED: "serving",
}
_BROKEN: Final = frozenset({_S.UNKNOWN, _S.FAILED, _S.DRAINING})  # what is left to do to them is to clear them away


def steps_of(slot: Any, instance: Any, shown: Mapping[str, Any], revision: str, *, job: bool = False) -> list[dict[str, Any]]:
    """`slot`: its request or binding as it is served; `instance`: what its agent says of it, or None; `shown`: what is told of it
    otherwise, with its last decision. A job's way ends before the serving."""
    state, last = _S(slot.status.state), slot.status.last_transition
    broken = state in _BROKEN
    before = (getattr(slot.status, "before_unknown", None) or (last.before if last is not None else None)) if broken else state
    reached = STEPS.index(_MADE.get(before or _S.BOUND, "bound"))
    evidence = _evidence(slot, instance, shown, revision)
    out = []
    for number, name in enumerate(STEPS):
        time, told = evidence.get(name, (None, ""))
        standing = SKIPPED if job and name == "serving" else _standing(name, number, reached, broken)
        if standing == STUCK:
            time, told = shown.get("sinceTime"), _waits(shown, told)
        elif standing == AHEAD or (job and name == "serving"):
            time, told = None, ""
        step = {"step": name, "state": standing, "time": time, "evidence": told}
        out.append({key: value for key, value in step.items() if value not in (None, "")})
    return out


def _standing(name: str, number: int, reached: int, broken: bool) -> str:
    if name == "repaired":
        return STUCK if broken else SKIPPED
    if name == "reserved" and number < reached:
        return SKIPPED
    if number <= reached:
        return DONE
    return STUCK if number == _next(reached) and not broken else AHEAD


def _next(reached: int) -> int:
    """A reservation is a step of its own only for those who ask for one: whoever waits in the queue waits to be bound."""
    return STEPS.index("bound") if STEPS[reached] in ("queued", "reserved") else reached + 1


def _evidence(slot: Any, instance: Any, shown: Mapping[str, Any], revision: str) -> dict[str, tuple[datetime | None, str]]:
    spec, metadata = slot.spec, slot.metadata
    out: dict[str, tuple[datetime | None, str]] = {"desired": (None, f"generation {spec.generation}")}
    decision = shown.get("lastDecision") or {}
    if not hasattr(spec, "token"):
        out["queued"] = (metadata.creation_time, f"epoch {spec.epoch}, priority {spec.priority}, revision {revision}")
        out["bound"] = (None, _decided(decision))
        last = slot.status.last_transition
        if _S(slot.status.state) is _S.RESERVED and last is not None:
            out["reserved"] = (last.time, f"by {last.by}")
        return out
    queued_s = float(decision.get("queuedSeconds") or 0.0) if decision.get("epoch") == spec.token.epoch else 0.0
    asked = metadata.creation_time - timedelta(seconds=queued_s) if metadata.creation_time is not None else None
    out["queued"] = (asked, f"epoch {spec.token.epoch}" + (f", {queued_s:.1f} s until it was decided" if queued_s else ""))
    token = f"{spec.token.incarnation}.{spec.token.epoch}.{spec.token.attempt}"
    on = f"{spec.node}, token {token}, policy {spec.policy_revision}, grant {spec.grant_version}"
    out["bound"] = (metadata.creation_time, on + (f", decision {spec.decision}" if spec.decision else ""))
    out["reserved"] = (None, f"took the room of {spec.claimed}" if spec.claimed else "bound in one step")
    if instance is not None:
        again = f"started again {instance.restarts} times" if instance.restarts else "by its agent"
        out["started"] = (instance.started_time, again)
        out["ready"] = (instance.ready_time, "its probes pass" if instance.ready else "")
    last = slot.status.last_transition
    if last is not None and last.to is _S.SERVING:
        out["serving"] = (last.time, f"put in traffic by {last.by}, revision {revision}")
    return out


def _decided(decision: Mapping[str, Any]) -> str:
    """What the scheduler looked at when it last found no place."""
    if not decision:
        return "no scheduler has decided about it yet"
    nodes, seen = decision.get("nodes") or {}, decision.get("evidence") or {}
    told = [f"policy {decision.get('policyRevision', 0)}"]
    told.append(f"{nodes.get('feasible', 0)} of {nodes.get('lookedAt', 0)} nodes would do")
    told += [f"{count} ruled out by {gate}" for gate, count in sorted((nodes.get("ruledOut") or {}).items(), key=lambda p: -p[1])]
    if decision.get("quota") and decision["quota"] != decision.get("detail"):  # which is said already
        told.append(f"quota: {decision['quota']}")
    told.append(f"seen at revision {seen.get('observedRevision', '0')}, {seen.get('ageSeconds', 0.0):.1f} s old")
    return ", ".join(told)


def _waits(shown: Mapping[str, Any], told: str) -> str:
    parts = [": ".join(part for part in (str(shown.get("reason") or ""), str(shown.get("detail") or "")) if part)]
    if shown.get("nextOwner"):
        parts.append(f"next is {shown['nextOwner']}")
    return "; ".join(part for part in (*parts, told) if part)
