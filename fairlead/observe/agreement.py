"""L4 and L6 asked of journals and of what really runs: actual is desired, and nothing runs or is held that nobody wants.

Reads the objects of a global plane and of its regions as a checker rebuilt them, and the runs as whoever stands outside saw them.
Owns no state; says in words what differs. Called by the simulator after healing, and by tests of real platforms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.model.lifecycle import SlotState
from fairlead.observe.intervals import Interval

Objects = Mapping[str, Mapping[tuple[str, str], Any]]  # plural -> (tenant, name) -> object

_UP = (SlotState.READY, SlotState.SERVING)
_REST = (SlotState.SUCCEEDED,)


def differences(top: Objects, regions: Mapping[str, Objects], running: Iterable[Interval]) -> list[str]:
    """Empty: everything is as it is wanted."""
    out = []
    wanted = {w.metadata.uid: w for w in top.get("workloads", {}).values()}
    serving: Counter[str] = Counter()
    for region, objects in regions.items():
        for binding in objects.get("bindings", {}).values():
            uid, state = binding.spec.slot.uid, binding.status.state
            workload = wanted.get(uid)
            name = f"{binding.metadata.namespace}/{binding.metadata.name} in {region}"
            if workload is None:
                out.append(f"{name} is {state.value} and belongs to no workload")
            elif workload.spec.job is None and state is SlotState.SERVING:
                serving[uid] += f".g{binding.spec.generation}" == workload.status.revision[workload.status.revision.rfind(".g") :]
            elif state not in _REST and not (workload.spec.job is not None and state in _UP):
                out.append(f"{name} is {state.value}")
        for request in objects.get("schedulingrequests", {}).values():
            name = f"{request.metadata.namespace}/{request.metadata.name} in {region}"
            out.append(f"{name} waits: {_reason(request)}")
        for reservation in objects.get("reservations", {}).values():
            if not reservation.spec.budget:
                out.append(f"{reservation.metadata.name} in {region} is reserved still")
    for uid, workload in wanted.items():
        out += _workload(workload, serving[uid])
    return out + _runs(regions, running)


def _workload(workload: Any, serving: int) -> list[str]:
    name = f"{workload.metadata.namespace}/{workload.metadata.name}"
    if workload.metadata.deletion_time is not None:
        return [f"{name} is being deleted still"]
    if workload.spec.job is not None:
        return []
    count = 0 if workload.spec.suspend else workload.spec.replicas
    return [] if serving == count else [f"{name} (revision {workload.status.revision}): {serving} of {count} serve"]


def _reason(request: Any) -> str:
    pending = getattr(request.status, "reason", "") or "no reason"
    return str(pending)


def _runs(regions: Mapping[str, Objects], running: Iterable[Interval]) -> list[str]:
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
            out.append(f"{run.tenant}/{run.name} runs on {run.where} and is not bound there")
    return out + [f"{life[0]}/{life[1]} is up on {life[3]} and does not run there" for life in bound if life not in seen]
