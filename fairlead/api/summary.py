"""What the state of a workload or of a slot comes to, in one sentence: the most decisive thing first, and who acts next.

Owns the words; reads what explaining.py has found and asks nobody. Pure. Called by explaining.py for `/why`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairlead.model.meta import Condition

_TO_DO: Final = {
    "RetriesSpent": "raise spec.job.retries to let it go on",
    "DeadlinePassed": "set a later spec.job.deadlineTime to let it go on",
}


def summary_of(
    workload: Any, pending: Sequence[dict[str, Any]], slots: Sequence[dict[str, Any]], unknown: Sequence[str],
    failure: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """`unknown`: regions that could not be asked; `failure`: the last that is known of any of its slots."""
    metadata, status = workload.metadata, workload.status
    if metadata.deletion_time is not None:
        left = ", ".join(metadata.finalizers) or "nothing"
        return f"it is being deleted; still to be done: {left}"
    if status.observed_generation < metadata.generation:
        return f"generation {metadata.generation} has not been looked at yet by the workload controller"
    ended = verdict_of(workload)
    if ended is not None:
        return _ended(metadata, ended, failure)
    counts = status.replicas
    wanted = counts.desired or workload.spec.replicas
    if pending:
        most = pending[0]
        next_owner = f"; next is {most['nextOwner']}" if most.get("nextOwner") else ""
        return (
            f"{most['count']} of {wanted} wait: {most['reason']}{': ' + most['detail'] if most.get('detail') else ''}{next_owner}"
        )
    if slots:
        return words_of(slots[0])
    return _nothing_waits(workload, wanted, unknown, failure)


def _nothing_waits(workload: Any, wanted: int, unknown: Sequence[str], failure: dict[str, Any] | None) -> str:
    counts, spec = workload.status.replicas, workload.spec
    serve = f"{counts.serving} of {wanted} serve"
    if unknown:
        apart = f"of {', '.join(unknown)} nothing is known: it cannot be reached"
        if spec.job is not None or counts.serving >= wanted:
            return f"{_running(workload) if spec.job is not None else serve}; {apart}{_standing_in(workload)}"
        return f"{serve}; {apart}" + (
            "; next is recovery-controller" if spec.workload_class == "critical" else "; it must come back"
        )
    if spec.job is not None:
        return f"nothing waits: {_running(workload)}"
    if counts.serving >= wanted:
        return f"nothing waits: {serve}{_standing_in(workload)}"
    if failure is not None:
        return f"{serve}, and what is started fails: {failure['note']}{_times(failure)}; next is repair-controller"
    return f"its status says that {serve}, and no slot waits anywhere: the status is late; next is workload-controller"


def _standing_in(workload: Any) -> str:
    """What serves in place of a lost region is not where it is wanted."""
    said = condition_of(workload, "Recovering")
    return f"; {said.reason}, {said.message}" if said is not None and said.status == "True" else ""


def _running(workload: Any) -> str:
    counts, said = workload.status.replicas, condition_of(workload, "Complete")
    return f"{counts.started} run" + (f", {said.message}" if said is not None and said.message else "")


def _ended(metadata: Any, ended: Condition, failure: dict[str, Any] | None) -> str:
    if ended.type == "Complete":
        return f"it is complete: {ended.message}"
    last = f"; the last: {failure['note']}" if failure is not None else ""
    logs = f"`fairlead logs wl/{metadata.name} -n {metadata.namespace}` shows what it wrote"
    again = f"{_TO_DO[ended.reason]}, or" if ended.reason in _TO_DO else "to run it again"
    return f"Failed: {ended.reason}: {ended.message}{last}; {logs}; {again} delete it and apply it anew"


def _times(failure: dict[str, Any]) -> str:
    often = f"{failure['count']} times, last " if failure["count"] > 1 else ""
    return f" ({often}{failure['ageSeconds']:.0f} s ago)"


def verdict_of(workload: Any) -> Condition | None:
    """Of a job that is over: that it is complete, or that it was given up."""
    if workload.spec.job is None:
        return None
    found = (condition_of(workload, kind) for kind in ("Complete", "Failed"))
    return next((one for one in found if one is not None and one.status == "True"), None)


def condition_of(workload: Any, kind: str) -> Condition | None:
    return next((one for one in workload.status.conditions if one.type == kind), None)


def words_of(slot: dict[str, Any]) -> str:
    detail = f": {slot['detail']}" if slot.get("detail") else ""
    next_owner = f"; next is {slot['nextOwner']}" if slot.get("nextOwner") else ""
    late = f"; {slot['late']}" if slot.get("late") else ""
    reason = f": {slot['reason']}" if slot.get("reason") else ""
    return f"{slot['name']} is {slot['state']}{reason}{detail}{next_owner}{late}"
