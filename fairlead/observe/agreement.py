"""L4 and L6 asked of journals and of what really runs: actual is desired, and nothing runs or is held that nobody wants.

Reads the objects of a global plane and of its regions as a checker rebuilt them, and the runs as whoever stands outside saw them.
Owns no state; says what differs, in words and whose it is. Called by the simulator after healing, and by tests of real platforms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from fairlead.model.lifecycle import SlotState
from fairlead.observe.differing import Difference, Objects
from fairlead.observe.intervals import Interval
from fairlead.observe.left import Left
from fairlead.observe.orphans import orphans

_UP = (SlotState.READY, SlotState.SERVING)
_REST = (SlotState.SUCCEEDED,)
_PLACED = ("assignments", "grants", "grantterms")  # what is for a region


def differences(
    top: Objects, regions: Mapping[str, Objects], running: Iterable[Interval], succeeded: Collection[tuple[str, str]] = (),
    gone: str = "",
) -> list[Difference]:  # fmt: skip
    """Empty: everything is as it is wanted. `succeeded`: of jobs, the workload's uid and the slot of each that truly has. `gone`:
    a region that is lost and stays so; what the others are to have is asked then, and nothing may be forgotten."""
    left = Left(top, regions.get(gone, {}), gone) if gone else None
    regions = {region: objects for region, objects in regions.items() if region != gone}
    out: list[Difference] = []
    wanted = {w.metadata.uid: w for w in top.get("workloads", {}).values()}
    serving: Counter[str] = Counter()
    older: Counter[str] = Counter()  # that serve, of another generation
    up: Counter[str] = Counter()  # of jobs
    for region, objects in regions.items():
        for binding in objects.get("bindings", {}).values():
            uid, state = binding.spec.slot.uid, binding.status.state
            workload = wanted.get(uid)
            name = f"{binding.metadata.namespace}/{binding.metadata.name} in {region}"
            if workload is None:
                detail = f"{name} is {state.value} and belongs to no workload"
                out.append(Difference(detail, orphan=f"binding {name} {binding.metadata.uid}"))
            elif workload.spec.job is None and state is SlotState.SERVING:
                current = f".g{binding.spec.generation}" == workload.status.revision[workload.status.revision.rfind(".g") :]
                serving[uid] += current
                older[uid] += not current
            elif workload.spec.job is not None and state in _UP:
                up[uid] += 1
            elif state not in _REST:
                out.append(Difference(f"{name} is {state.value}", uid))
        for request in objects.get("schedulingrequests", {}).values():
            name = f"{request.metadata.namespace}/{request.metadata.name} in {region}"
            out.append(Difference(f"{name} waits: {_reason(request)}", request.spec.slot.uid, request, region))
        for reservation in objects.get("reservations", {}).values():
            if not reservation.spec.budget:
                detail = f"{reservation.metadata.name} in {region} is reserved still"
                out.append(Difference(detail, orphan=f"{detail} {reservation.metadata.uid}"))
    waits = Counter(one.uid for one in out if one.request is not None)
    done = Counter(uid for uid, _ in succeeded)
    out += orphans(top, regions, lost=left is not None)
    if left is not None:
        return out + left.differences(serving + older) + _runs(regions, running)
    for uid, workload in wanted.items():
        if workload.metadata.deletion_time is None and workload.spec.job is not None:
            out += _job(workload, up[uid], waits[uid], done[uid])
        else:
            out += _workload(workload, serving[uid], older[uid])
    return out + _runs(regions, running)


def nowhere(top: Objects) -> list[Difference]:
    """The same of a global plane that has no region: nothing is placed or ordered, and each workload says that all it is asked
    for waits, and why."""
    out = [Difference(f"{plural}/{'/'.join(name)} is there, and no region") for plural in _PLACED for name in top.get(plural, {})]
    for workload in top.get("workloads", {}).values():
        spec, status, meta = workload.spec, workload.status, workload.metadata
        name = f"{meta.namespace}/{meta.name}"
        count = spec.replicas if spec.job is None else min(spec.job.completions, spec.job.parallelism)
        said = sum(one.count for one in status.pending if one.reason and one.detail)
        if meta.deletion_time is not None:
            out.append(Difference(f"{name} is being deleted still", meta.uid))
        elif status.observed_generation != meta.generation or said != (0 if spec.suspend else count):
            out.append(Difference(f"{name} does not say why all of its {count} slots wait: {status.pending}", meta.uid))
    return out + orphans(top, {})


def without_waiting(found: Sequence[Difference], proven: Callable[[Difference], bool]) -> list[Difference]:
    """What is left when slots that are proven to have no place wait rightly: they, and that as many of their workload do not
    serve, are no difference. Whatever else is wrong stays, of that workload too."""
    waits = Counter(one.uid for one in found if one.request is not None and proven(one))
    return [
        one
        for one in found
        if not (one.uid in waits and (proven(one) if one.request is not None else one.serves and one.short <= waits[one.uid]))
    ]


def _workload(workload: Any, serving: int, older: int) -> list[Difference]:
    name, uid = f"{workload.metadata.namespace}/{workload.metadata.name}", workload.metadata.uid
    if workload.metadata.deletion_time is not None:
        return [Difference(f"{name} is being deleted still", uid)]
    count = 0 if workload.spec.suspend else workload.spec.replicas
    if serving == count:
        return []
    detail = f"{name} (revision {workload.status.revision}): {serving} of {count} serve"
    return [Difference(detail, uid, short=count - serving - older, serves=True)]


def _job(workload: Any, up: int, waits: int, done: int) -> list[Difference]:
    """It is over, and nothing of it is left; or something of it runs or waits. A good end is one that there was."""
    name, uid, job = f"{workload.metadata.namespace}/{workload.metadata.name}", workload.metadata.uid, workload.spec.job
    over = [one.type for one in workload.status.conditions if one.type in ("Complete", "Failed") and one.status == "True"]
    if "Complete" in over and done < job.completions:
        return [Difference(f"{name} is said to be complete, and {done} of {job.completions} have succeeded", uid)]
    if over and up + waits:
        return [Difference(f"{name} is over ({over[0]}), and {up} of its slots are up and {waits} wait", uid)]
    if not over and not up + waits and not workload.spec.suspend:
        return [Difference(f"{name} is not over, and nothing of it runs or waits", uid)]
    return []


def _reason(request: Any) -> str:
    pending = getattr(request.status, "reason", "") or "no reason"
    return str(pending)


def _runs(regions: Mapping[str, Objects], running: Iterable[Interval]) -> list[Difference]:
    out = []
    bound: dict[tuple[str, str, Any, str], Any] = {}
    for objects in regions.values():
        for (tenant, name), binding in objects.get("bindings", {}).items():
            if binding.status.state in _UP:
                bound[tenant, name, binding.spec.token, binding.spec.node] = binding
    seen = set()
    for run in running:
        life = (run.tenant, run.name, run.token, run.where.rpartition("/")[2])
        seen.add(life)
        if life not in bound:
            detail = f"{run.tenant}/{run.name} runs on {run.where} and is not bound there"
            out.append(Difference(detail, orphan=f"{detail} {run.token}"))
    lost = [(life, f"{life[0]}/{life[1]} is up on {life[3]} and does not run there") for life in bound if life not in seen]
    return out + [Difference(detail, orphan=f"{detail} {life[2]}") for life, detail in lost]
