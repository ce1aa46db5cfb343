"""L4 and L6: what differs is said, and a slot that rightly waits excuses itself and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import JobRule, PendingReason, Workload, WorkloadSpec, WorkloadStatus
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata
from fairlead.observe.agreement import differences, nowhere, without_waiting
from fairlead.observe.differing import Objects
from fairlead.observe.intervals import Interval

TOKEN = Token(1, 1, 1)


def slot(workload: str, index: int) -> SlotRef:
    return SlotRef(workload=workload, uid=f"u-{workload}", index=index)


def named(workload: str, index: int) -> Metadata:
    return Metadata(name=f"{workload}-{index}", namespace="risk")


def wanted(workload: str, replicas: int) -> Workload:
    return Workload(
        Metadata(name=workload, namespace="risk", uid=Uid(f"u-{workload}")), WorkloadSpec(replicas=replicas),
        WorkloadStatus(revision=f"{workload}.g2"),
    )  # fmt: skip


def bound(workload: str, index: int, state: SlotState = SlotState.SERVING, generation: int = 2) -> Binding:
    spec = BindingSpec(slot=slot(workload, index), node="n1", token=TOKEN, generation=generation)
    return Binding(named(workload, index), spec, BindingStatus(state=state))


def asked(workload: str, index: int) -> SchedulingRequest:
    return SchedulingRequest(named(workload, index), SchedulingRequestSpec(slot=slot(workload, index)))


def runs_of(*bindings: Binding) -> list[Interval]:
    return [
        Interval("risk", one.metadata.name, TOKEN, "us/n1", 0.0, None, "", one.spec.slot.uid)
        for one in bindings
        if one.status.state is SlotState.SERVING
    ]


def told(workloads: list[Workload], *there: Binding | SchedulingRequest, **proven: bool) -> list[str]:
    region: dict[str, dict[tuple[str, str], Any]] = {"bindings": {}, "schedulingrequests": {}}
    for one in there:
        plural = "bindings" if isinstance(one, Binding) else "schedulingrequests"
        region[plural]["risk", one.metadata.name] = one
    top: Objects = {"workloads": {("risk", one.metadata.name): one for one in workloads}}
    running = runs_of(*(one for one in there if isinstance(one, Binding)))
    found = differences(top, {"us": region}, running)
    return [one.detail for one in without_waiting(found, lambda one: proven[one.request.metadata.name.partition("-")[0]])]


def test_what_waits_rightly_and_as_many_that_do_not_serve_are_no_difference() -> None:
    there = bound("api", 0), asked("api", 1)
    assert told([wanted("api", 2)], *there, api=True) == []
    assert len(told([wanted("api", 2)], *there, api=False)) == 2


def test_a_slot_that_waits_rightly_excuses_nothing_of_other_workloads() -> None:
    workloads = [wanted("api", 1), wanted("feed", 2)]
    there = asked("api", 0), bound("feed", 0), bound("feed", 1, SlotState.DRAINING), bound("gone", 0)
    assert told(workloads, *there, api=True) == [
        "risk/feed-1 in us is Draining",
        "risk/gone-0 in us is Serving and belongs to no workload",
        "risk/feed (revision feed.g2): 1 of 2 serve",
    ]
    both = told(workloads, asked("api", 0), asked("feed", 0), bound("feed", 1), api=True, feed=False)
    assert both == ["risk/feed-0 in us waits: PendingEvaluation", "risk/feed (revision feed.g2): 1 of 2 serve"]


def test_a_slot_that_waits_rightly_excuses_no_other_slot_of_its_workload() -> None:
    assert told([wanted("api", 3)], bound("api", 0), asked("api", 1), api=True) == ["risk/api (revision api.g2): 1 of 3 serve"]
    assert told([wanted("api", 2)], bound("api", 0, SlotState.UNKNOWN), asked("api", 1), api=True) == [
        "risk/api-0 in us is Unknown", "risk/api (revision api.g2): 0 of 2 serve",
    ]  # fmt: skip


def test_a_rollout_whose_next_slot_has_no_room_leaves_the_older_ones_serving() -> None:
    older = [bound("api", index, generation=1) for index in range(2)]
    assert told([wanted("api", 2)], *older, asked("api", 2), api=True) == []
    assert told([wanted("api", 2)], *older) == ["risk/api (revision api.g2): 0 of 2 serve"]


# --- jobs ------------------------------------------------------------------------------------------------------------------


def job(over: str = "") -> Workload:
    made = wanted("batch", 1)
    conditions = (Condition(type=over, status="True", reason=over),) if over else ()
    return replace(made, spec=WorkloadSpec(job=JobRule(completions=2)), status=replace(made.status, conditions=conditions))


def of_job(workload: Workload, *there: Binding | SchedulingRequest, done: int = 0) -> list[str]:
    region: dict[str, dict[tuple[str, str], Any]] = {"bindings": {}, "schedulingrequests": {}}
    for one in there:
        region["bindings" if isinstance(one, Binding) else "schedulingrequests"]["risk", one.metadata.name] = one
    runs = [
        Interval("risk", one.metadata.name, TOKEN, "us/n1", 0.0, None, "", one.spec.slot.uid)
        for one in there
        if isinstance(one, Binding) and one.status.state is SlotState.READY
    ]
    succeeded = {("u-batch", f"batch-{index}") for index in range(done)}
    return [one.detail for one in differences({"workloads": {("risk", "batch"): workload}}, {"us": region}, runs, succeeded)]


def test_a_job_that_runs_or_is_over_with_nothing_left_is_as_it_is_wanted() -> None:
    up = bound("batch", 1, SlotState.READY)
    assert of_job(job(), up) == []
    assert of_job(job("Complete"), bound("batch", 0, SlotState.SUCCEEDED), done=2) == []
    assert of_job(job("Failed")) == []
    assert of_job(job("Complete"), up, done=2) == ["risk/batch is over (Complete), and 1 of its slots are up and 0 wait"]


def test_a_job_that_is_forgotten_is_found_and_one_that_is_said_to_be_complete_and_is_not() -> None:
    assert of_job(job()) == ["risk/batch is not over, and nothing of it runs or waits"]
    assert of_job(job("Complete"), done=1) == ["risk/batch is said to be complete, and 1 of 2 have succeeded"]


def waiting(workload: str, replicas: int, said: int, detail: str = "there are none", **spec: Any) -> Workload:
    made = wanted(workload, replicas)
    made = replace(made, metadata=replace(made.metadata, generation=1))
    pending = (PendingReason("Misconfigured", said, detail=detail),) if said else ()
    return replace(made, spec=replace(made.spec, **spec), status=replace(made.status, pending=pending, observed_generation=1))


def found_nowhere(*workloads: Workload, **more: Any) -> list[str]:
    top: Objects = {"workloads": {("risk", one.metadata.name): one for one in workloads}, **more}
    return [one.detail for one in nowhere(top)]


def test_where_there_is_no_region_each_workload_says_that_all_it_is_asked_for_waits_and_why() -> None:
    job = JobRule(completions=6, parallelism=4)
    assert found_nowhere(waiting("api", 3, 3), waiting("batch", 1, 4, job=job), waiting("late", 3, 0, suspend=True)) == []
    assert len(found_nowhere(waiting("api", 3, 2))) == 1
    assert len(found_nowhere(waiting("api", 3, 3, detail=""))) == 1
    assert len(found_nowhere(waiting("batch", 1, 6, job=job))) == 1
    later = waiting("api", 3, 3)
    assert len(found_nowhere(replace(later, metadata=replace(later.metadata, generation=9)))) == 1, "that was about another wish"


def test_where_there_is_no_region_nothing_is_for_one_and_nothing_goes_for_ever() -> None:
    gone = waiting("api", 3, 3)
    gone = replace(gone, metadata=replace(gone.metadata, deletion_time=datetime(2026, 1, 1, tzinfo=UTC)))
    assert found_nowhere(gone) == ["risk/api is being deleted still"]
    assert found_nowhere(grants={("risk", "us"): asked("us", 0)}) == ["grants/risk/us is there, and no region"]
