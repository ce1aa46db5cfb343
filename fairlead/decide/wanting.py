"""Which slots of an assignment there should be: of a service by its rollout, of a job by its completions. Pure."""

from __future__ import annotations

from fairlead.decide import jobs, rollout
from fairlead.decide.overflow import without_given
from fairlead.decide.slots import Slots
from fairlead.model.kinds.work import Assignment


def wanted(assignment: Assignment | None, slots: Slots, now_ms: int) -> dict[int, int]:
    """Index -> the generation its next life is to run. No assignment: none."""
    if assignment is None:
        return {}
    deleting = assignment.metadata.deletion_time is not None
    if assignment.spec.job is not None:
        return jobs.wanted(assignment.spec, assignment.status, slots, now_ms, deleting=deleting)
    want = rollout.wanted(assignment.spec, slots, deleting=deleting)
    return without_given(want, assignment.spec, assignment.status, slots) if assignment.spec.give_up else want
