"""Counts a job's completions and failures, ends it when it is complete, has failed too often or is too late, and reports upward.

What counts is durable in the assignment's status before the binding that showed it goes. Never queues (the assignment
controller does, by fairlead/decide/jobs.py) and never drains (it asks). Runs in every region plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, SLOT_OBJECTS, assignment_of, revision_of, slots_of
from fairlead.decide import jobs
from fairlead.decide.queueing import Told, same_but_for_times, status_of
from fairlead.decide.slots import RUNNING, instant, millis
from fairlead.decide.spans import among
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Assignment, AssignmentStatus, EvictionRequest, EvictionRequestSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Condition, Metadata, set_condition

STATUS_MS: Final = 1000
_S = SlotState


class JobController:
    name = "job"
    named = SLOT_OBJECTS
    follows = ("assignments", "revisions", "grants", *SLOT_OBJECTS)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = SLOT_INDEXES
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, region: str) -> None:
        self._region = region
        self._written_ms: dict[Name, int] = {}

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "assignments":
                return ((item.tenant, item.hot.spec.workload),) if item.hot.spec.job is not None else ()
            case "revisions":
                key = (item.tenant, item.hot.spec.workload)
                assignment = assignment_of(view.cache, key)
                return (key,) if assignment is not None and assignment.spec.job is not None else ()
            case "grants":
                return ()
            case _:
                key = workload_of(item)
                assignment = assignment_of(view.cache, key)  # of a service: nothing to look at
                return (key,) if assignment is None or assignment.spec.job is not None else ()

    def resync(self, view: View) -> Iterable[Name]:
        return [(i.tenant, i.hot.spec.workload) for i in view.cache.all("assignments") if i.hot.spec.job is not None]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        assignment = assignment_of(cache, key)
        if assignment is None or assignment.spec.job is None:
            self._written_ms.pop(key, None)
            return Result()
        job, slots = assignment.spec.job, slots_of(cache, key, Role.JOB.value)
        deleting = assignment.metadata.deletion_time is not None
        so_far = jobs.count(assignment.status, slots)
        verdict = jobs.verdict(job, so_far, now_ms)
        want = jobs.wanted(assignment.spec, assignment.status, slots, now_ms, deleting=deleting)
        told = Told(
            cache.item("grants", key[0], self._region) is not None,
            revision_of(cache, key, assignment.spec.generation) is not None,
        )
        status = status_of(assignment, slots, want, told, now_ms)
        status = _with_count(status, so_far, verdict, job, assignment, now_ms)
        bodies: list[Body] = []
        ended = [slot.index for slot in slots.of(_S.SUCCEEDED)]
        going = set(ended) if deleting else among(assignment.status.completed, ended)
        for slot in slots.values():
            name = f"{key[1]}-{slot.index}"
            if slot.state is _S.SUCCEEDED and slot.index in going:
                bodies.append(Delete("Binding", key[0], name))
            elif slot.state in RUNNING and slot.index not in want and not slot.leaving:
                bodies.append(_ask(assignment, slot.index, slot.epoch, verdict or "not wanted any more"))
        deadline_ms = millis(job.deadline_time) if job.deadline_time is not None and not verdict else None
        return self._with_status(key, assignment, status, bodies, deadline_ms, now_ms)

    def _with_status(
        self,
        key: Name,
        assignment: Assignment,
        status: AssignmentStatus,
        bodies: list[Body],
        deadline_ms: int | None,
        now_ms: int,
    ) -> Result:
        before = assignment.status
        if same_but_for_times(status, before):
            return Result(bodies, deadline_ms)
        due_ms = self._written_ms.get(key, 0) + STATUS_MS
        if now_ms < due_ms and replace(status, replicas=before.replicas, pending=before.pending) == before:
            return Result(bodies, min(due_ms, deadline_ms or due_ms))
        self._written_ms[key] = now_ms
        bodies.append(PutStatus("Assignment", key[0], assignment.metadata.name, status, uid=assignment.metadata.uid))
        return Result(bodies, deadline_ms)


def _with_count(
    status: AssignmentStatus, so_far: jobs.Count, verdict: jobs.Verdict, job: JobRule, assignment: Assignment, now_ms: int
) -> AssignmentStatus:
    done = jobs.done(job, so_far)
    conditions = status.conditions
    message = f"{done} of {job.completions} completions, {so_far.failures} failures"
    if so_far.uncounted:
        message += f", {so_far.uncounted} more to be counted"
    for kind, reasons in (("Complete", ("Complete",)), ("Failed", ("RetriesSpent", "DeadlinePassed"))):
        found = Condition(
            type=kind,
            status="True" if verdict in reasons else "False",
            reason=verdict if verdict in reasons else "Running",
            message=message,
            observed_generation=assignment.metadata.generation,
            last_transition_time=instant(now_ms),
        )
        conditions = set_condition(conditions, found)
    desired = 0 if verdict else min(job.parallelism, job.completions - done, status.replicas.desired)
    replicas = replace(status.replicas, succeeded=done, failed=so_far.failures, desired=desired)
    return replace(
        status,
        completed=so_far.completed,
        failed=so_far.failed,
        failures=so_far.failures,
        replicas=replicas,
        conditions=conditions,
    )


def _ask(assignment: Assignment, index: int, epoch: int, reason: str) -> Put:
    order = assignment.spec
    ref = SlotRef(workload=order.workload, uid=order.workload_uid, index=index)
    spec = EvictionRequestSpec(slot=ref, reason=f"job: {reason}", requester=Role.JOB.value, epoch=epoch)
    metadata = Metadata(name=ref.object_name, namespace=assignment.metadata.namespace)
    return Put("EvictionRequest", EvictionRequest(metadata=metadata, spec=spec))
