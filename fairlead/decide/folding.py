"""From a workload to its Revision, and from the statuses of its assignments to its own. Pure; used by the workload controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import astuple, replace

from fairlead.decide.admission.workload import execution_of, template_of
from fairlead.decide.assigning import Choice
from fairlead.decide.slots import instant
from fairlead.decide.spans import size
from fairlead.model.kinds.intent import PendingReason, RegionCounts, StageCounts, Workload, WorkloadStatus
from fairlead.model.kinds.recovery import RecoveryOrder
from fairlead.model.kinds.work import Ask, Assignment, Revision, RevisionSpec
from fairlead.model.meta import Condition, Metadata, OwnerReference, set_condition

# Whose turn it is where a workload finds no region; else its user's. What still leaves a region the disruption controller drains.
_OWNERS = {"WaitingForQuota": "quota-controller", "ResidencyBlocked": "operator", "WaitingForFence": "disruption-controller"}


def owner_of(workload: Workload) -> OwnerReference:
    meta = workload.metadata
    return OwnerReference(kind="Workload", name=meta.name, uid=meta.uid, controller=True)


def revision_spec(workload: Workload, priority: int) -> RevisionSpec:
    spec, meta = workload.spec, workload.metadata
    # How many a region carries at least, and whether slots may move on, is no concern of a slot: changing it restarts nothing.
    placement = replace(spec.placement, regions=replace(spec.placement.regions, per_region_minimum=0), overflow=True)
    ask = Ask(
        requests=spec.resources.requests,
        devices=spec.resources.devices,
        placement=placement,
        isolation=spec.isolation,
        workload_class=spec.workload_class,
        ports=tuple(sorted({port.port for port in spec.template.ports if port.port})),
        max_observation_age_seconds=spec.freshness.max_observation_age_seconds,
        labels=tuple(sorted(meta.labels.items())),
        image=spec.template.image,
    )
    return RevisionSpec(
        workload=meta.name,
        workload_uid=meta.uid,
        generation=meta.generation,
        template=template_of(spec),
        ask=ask,
        execution=execution_of(spec),
        exclusive=spec.exclusive,
        priority=priority,
        start_target_seconds=spec.start_target_seconds,
    )


def same_content(one: RevisionSpec, other: RevisionSpec) -> bool:
    """A slot that runs the one runs the other. The priority and the labels are the assignment's: a policy that ranks anew
    restarts nothing, nor does a label, with which no generation begins."""
    return _restarts(one) == _restarts(other)


def _restarts(spec: RevisionSpec) -> RevisionSpec:
    return replace(spec, generation=0, priority=0, min_serving=0, ask=replace(spec.ask, labels=()))


def revision_for(workload: Workload, priority: int, known: Iterable[Revision]) -> tuple[Revision, bool]:
    """The Revision that carries out this generation, and whether it is new. An undo finds the one it goes back to."""
    wanted = revision_spec(workload, priority)
    old = [r for r in known if r.spec.workload_uid == workload.metadata.uid and same_content(r.spec, wanted)]
    if old:
        return max(old, key=lambda r: r.spec.generation), False
    meta = Metadata(
        name=f"{workload.metadata.name}.g{wanted.generation}",
        namespace=workload.metadata.namespace,
        labels=workload.metadata.labels,
        owner_references=(owner_of(workload),),
    )
    return Revision(metadata=meta, spec=wanted), True


# --- statuses


def fold(
    workload: Workload, choice: Choice, revision: str, slots: int, assignments: Sequence[Assignment], now_ms: int,
    silent: Collection[str] = (), order: RecoveryOrder | None = None,
) -> WorkloadStatus:  # fmt: skip
    """Counts added up, reasons merged, conditions of the whole. A region that has not spoken yet counts as it last did; of one in
    `silent`, whose lease has run out, nobody knows what became of what was bound there."""
    spec, before = workload.spec, workload.status
    told = {a.spec.region: _told_of(a, f"{workload.metadata.name}.g{a.status.generation}" == revision) for a in assignments}
    unheard = {a.spec.region: not_bound(a) for a in assignments if a.spec.region in silent and not spec.suspend}
    counts = {
        region: _unknown(replicas, unheard.get(region, 0)) if region in silent else replicas for region, replicas in told.items()
    }
    total = _total(counts.values())
    total = replace(total, desired=0 if spec.suspend else slots)
    pending = _merged(a for a in assignments if a.spec.region not in silent)
    unplaced = 0 if spec.suspend else slots - sum(choice.counts.values())
    stuck = 0 if spec.suspend else sum(count for region, count in choice.counts.items() if region in silent)
    if choice.reason and unplaced + stuck > 0:
        owner = _OWNERS.get(choice.reason, "user")
        why = PendingReason(reason=choice.reason, count=unplaced + stuck, next_owner=owner, detail=choice.detail)
        pending = (why, *pending)
        total = replace(total, pending=total.pending + max(0, unplaced))
    if not (choice.reason and stuck) and any(unheard.values()):
        pending = (*pending, _silence(unheard))
    conditions = before.conditions
    said = _conditions(workload, total, assignments, choice, revision, silent)
    for condition in (*said, *_recovering(workload, order)):
        full = replace(condition, observed_generation=workload.metadata.generation, last_transition_time=instant(now_ms))
        conditions = set_condition(conditions, full)
    return WorkloadStatus(
        observed_generation=workload.metadata.generation,
        revision=revision,
        regions=tuple(RegionCounts(region=region, replicas=replicas) for region, replicas in counts.items()),
        replicas=total,
        pending=pending,
        conditions=conditions,
    )


def _told_of(assignment: Assignment, current: bool) -> StageCounts:
    """What a region counted last. Taken under another Revision, it says of none that it is up to date."""
    replicas = assignment.status.replicas
    return replicas if current or not replicas.updated else replace(replicas, updated=0)


def _unknown(told: StageCounts, waiting: int) -> StageCounts:
    """What a region said last, now that it says nothing any more."""
    return replace(told, started=0, ready=0, serving=0, draining=0, unknown=told.bound, pending=waiting)


def not_bound(assignment: Assignment) -> int:
    """Of the slots a region was given, those it has not said to be bound: they wait, and it says no reason."""
    told = assignment.status.replicas
    if assignment.status.observed_generation == assignment.metadata.generation:
        return told.pending
    return max(told.pending, size(assignment.spec.slots) - told.bound - told.succeeded)


def _silence(unheard: Mapping[str, int]) -> PendingReason:
    where = ", ".join(f"{count} in {region}" for region, count in sorted(unheard.items()) if count)
    detail = f"{where}: not heard any more, so nobody knows what they wait for"
    return PendingReason(reason="RegionSilent", count=sum(unheard.values()), next_owner="region-controller", detail=detail)


def _total(counts: Iterable[StageCounts]) -> StageCounts:
    sums = [sum(column) for column in zip(*(astuple(one) for one in counts), strict=True)]
    return StageCounts(**dict(zip(StageCounts.__struct_fields__, sums, strict=True))) if sums else StageCounts()


def _merged(assignments: Iterable[Assignment]) -> tuple[PendingReason, ...]:
    out: dict[str, PendingReason] = {}
    for assignment in assignments:
        for one in assignment.status.pending:
            known = out.get(one.reason)
            if known is None:
                out[one.reason] = one
                continue
            since = min((t for t in (known.since_time, one.since_time) if t is not None), default=None)
            again = min((t for t in (known.next_attempt_time, one.next_attempt_time) if t is not None), default=None)
            out[one.reason] = replace(known, count=known.count + one.count, since_time=since, next_attempt_time=again)
    return tuple(sorted(out.values(), key=lambda p: (-p.count, p.reason)))


def _conditions(
    workload: Workload, total: StageCounts, assignments: Sequence[Assignment], choice: Choice, revision: str,
    silent: Collection[str],
) -> list[Condition]:  # fmt: skip
    if workload.spec.job is not None:
        return [_of_regions(kind, assignments) for kind in ("Complete", "Failed")]
    spec = workload.spec
    least = max(spec.disruption.min_serving, spec.recovery.min_serving) or total.desired
    said = f"{total.serving} of {total.desired} serve"
    if spec.suspend:
        serving = Condition(type="Serving", status="False", reason="Suspended", message=said)
    elif total.desired and total.serving >= least:  # none wanted, none serving: that is nothing to be proud of
        serving = Condition(type="Serving", status="True", reason="MinServingMet", message=f"{said}, at least {least} must")
    else:
        reason = choice.reason or ("ScaledToZero" if not total.desired else "BelowMinServing")
        serving = Condition(type="Serving", status="False", reason=reason, message=f"{said}, at least {least} must")
    return [serving, _progressing(assignments, revision, silent)]


def _recovering(workload: Workload, order: RecoveryOrder | None) -> list[Condition]:
    """Said while others stand in for lost regions, and once more when that is over."""
    if order is None:
        known = any(c.type == "Recovering" for c in workload.status.conditions)
        return [Condition(type="Recovering", status="False", reason="Recovered")] if known else []
    spec = order.spec
    there = ", ".join(f"{count} in {region}" for region, count in sorted(spec.regions.items())) or "none"
    said = f"for {', '.join(spec.lost)}: {there}" if spec.lost else f"still there: {there}"
    if spec.missing:
        said = f"{said}; {spec.missing} are missing: {spec.why}"
    reason = "RecoveryShort" if spec.missing else "RegionLost" if spec.lost else "WaitingForFailback"
    return [Condition(type="Recovering", status="True", reason=reason, message=said)]


def _of_regions(kind: str, assignments: Sequence[Assignment]) -> Condition:
    found = [c for a in assignments for c in a.status.conditions if c.type == kind]
    best = next((c for c in found if c.status == "True"), found[0] if found else None)
    return best or Condition(type=kind, status="False", reason="NotStarted")


def _progressing(assignments: Sequence[Assignment], revision: str, silent: Collection[str]) -> Condition:
    """The worst of the regions': one that stands still is what one has to look at; last, one whose turn has not come."""
    order = {"ProgressDeadlineExceeded": 0, "Paused": 1, "RollingOut": 2, "Proving": 4, "Suspended": 5, "Complete": 6}
    carrying = [a for a in assignments if a.spec.slots or a.status.replicas.bound]
    found: list[tuple[int, str, Condition]] = []
    for a in carrying:
        current = a.status.observed_generation == a.metadata.generation and a.status.generation == a.spec.generation
        one = next((c for c in a.status.conditions if c.type == "Progressing"), None)
        if one is None or not current:
            one = Condition(type="Progressing", status="True", reason="RollingOut", message="not reported yet")
        rank = order.get(one.reason, 2)
        if rank > 3 and f"{a.spec.workload}.g{a.spec.generation}" != revision:
            said = f"keeps generation {a.spec.generation} until its turn comes"
            rank, one = 3, Condition(type="Progressing", status="True", reason="RollingOut", message=said)
        found.append((rank, a.spec.region, one))
    if not found:
        return Condition(type="Progressing", status="False", reason="NothingPlaced")
    _, region, worst = min(found, key=lambda each: each[:2])
    heard = "" if region not in silent else "not heard any more; it said last: "
    return replace(worst, message=f"{region}: {heard}{worst.message}")


def same_but_for_times(new: WorkloadStatus, old: WorkloadStatus) -> bool:
    def timeless(status: WorkloadStatus) -> WorkloadStatus:
        return replace(status, pending=tuple(replace(p, next_attempt_time=None) for p in status.pending))

    return timeless(new) == timeless(old)
