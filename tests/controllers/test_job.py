"""The job controller, looked at as a value: a picture in, commands out."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.job import JobController
from fairlead.decide import jobs
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import AssignmentStatus, SlotRange
from fairlead.model.lifecycle import SlotState
from tests.controllers.test_overrides import fill
from tests.controllers.test_repair import NOW, bound, order

_S = SlotState


def slot(index: int, state: SlotState) -> tuple[str, Any]:
    plural, binding = bound(state)
    spec = replace(binding.spec, slot=SlotRef(workload="api", uid="u", index=index))
    return plural, replace(binding, metadata=replace(binding.metadata, name=f"api-{index}"), spec=spec)


def looked(job: JobRule, *slots: tuple[str, Any], **status: Any) -> list[Body]:
    plural, assignment = order(job, **status)
    spec = replace(assignment.spec, slots=(SlotRange(first=0, last=job.completions - 1),))
    view = fill(View(JobController.indexes, {}), (plural, replace(assignment, spec=spec)), *slots)
    return list(JobController("r").reconcile(("t", "api"), view, NOW).bodies)


def status_in(bodies: list[Body]) -> AssignmentStatus:
    (status,) = [body.status for body in bodies if isinstance(body, PutStatus)]
    assert isinstance(status, AssignmentStatus)
    return status


def test_failures_that_find_no_room_yet_are_said_to_be_counted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_BYTES_MAX", 0)  # as few are remembered as ever
    job = JobRule(completions=200, parallelism=200, retries=1000)
    status = status_in(looked(job, *(slot(index, _S.FAILED) for index in range(120))))
    assert (status.failures, len(status.failed)) == (100, 100)
    assert status.conditions[0].message == "0 of 200 completions, 100 failures, 20 more to be counted"


def test_what_runs_beyond_the_completions_is_asked_to_leave_and_what_was_counted_is_cleared_away() -> None:
    job = JobRule(completions=2, parallelism=2)
    done = (SlotRange(first=0, last=0), SlotRange(first=3, last=3))
    bodies = looked(job, slot(0, _S.SUCCEEDED), slot(1, _S.READY), slot(3, _S.SUCCEEDED), slot(5, _S.READY), completed=done)
    asked = [body.object.metadata.name for body in bodies if isinstance(body, Put)]
    cleared = [body.name for body in bodies if isinstance(body, Delete)]
    assert (asked, cleared) == (["api-5"], ["api-0", "api-3"])
    status = status_in(bodies)
    assert status.replicas.succeeded == 1, "the other is beyond what the job asks for"
    assert status.conditions[0].message == "1 of 2 completions, 0 failures"
