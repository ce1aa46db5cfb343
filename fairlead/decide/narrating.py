"""What a change means to people: one version of an object and the next in, events out. Pure.

Events are about workloads and nodes, the things people named; slots are told of in the words of their workload, so that a
workload of ten thousand slots has no more events than one of three. An event in a tenant names nothing of another tenant. Called
by fairlead/controllers/narrator.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.decide.spans import size
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.access import SYSTEM_TENANT
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.intent import Region, Workload
from fairlead.model.kinds.work import Assignment, InstanceStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition

_S = SlotState


class Told(NamedTuple):
    """One thing that happened. `tenant` is where the event is kept: nodes belong to no tenant."""

    regarding: str  # PLURAL/TENANT/NAME
    tenant: str
    reason: str
    note: str
    warning: bool = False
    uid: str = ""  # of the object, where the change says it


class ReasonOf(NamedTuple):
    reason: str
    warning: bool
    meaning: str


# Every reason an event may have; docs/observing.md lists them, and a test compares.
REASONS: Final = (
    ReasonOf("Scheduled", False, "a slot has a node"),
    ReasonOf("FailedScheduling", True, "slots wait, and why, with counts"),
    ReasonOf("Preempted", True, "a slot must leave for work of higher priority"),
    ReasonOf("Draining", False, "a slot is asked to leave its node"),
    ReasonOf("Started", False, "an agent has started a slot"),
    ReasonOf("Unhealthy", True, "a probe of a slot fails"),
    ReasonOf("BackOff", True, "a slot's process ended and is started again, later each time"),
    ReasonOf("Failed", True, "a slot has failed for good; it is replaced"),
    ReasonOf("Completed", False, "a slot of a job has ended well"),
    ReasonOf("NodeSilent", True, "slots are on a node that is not heard; on the node: it is not heard"),
    ReasonOf("NodeLost", True, "a node is given up; its slots are replaced"),
    ReasonOf("NodeReady", False, "a node is heard, and takes work"),
    ReasonOf("Cordoned", False, "a node takes no new work"),
    ReasonOf("Uncordoned", False, "it does again"),
    ReasonOf("Drained", False, "nothing is left on a node that was to be drained"),
    ReasonOf("DrainBlocked", True, "something keeps a drain from going on, or its deadline has passed"),
    ReasonOf("RegionPartial", True, "a region is heard, and has lost most of its nodes, a zone, or sight of what it is told"),
    ReasonOf("RegionWhole", False, "it has them again"),
    ReasonOf("Scaled", False, "how many replicas are wanted has changed"),
    ReasonOf("Assigned", False, "how many slots a region is to run has changed"),
    ReasonOf("RolloutProgress", False, "a new generation is on its way"),
    ReasonOf("RolloutComplete", False, "every slot serves the wanted generation"),
    ReasonOf("RolloutPaused", False, "a rollout was paused"),
    ReasonOf("ProgressDeadlineExceeded", True, "a rollout has stood still for too long"),
    ReasonOf("ServingBelowMin", True, "fewer replicas serve than must"),
    ReasonOf("Serving", False, "as many replicas serve as must"),
    ReasonOf("JobComplete", False, "a job has all its completions"),
    ReasonOf("JobFailed", True, "a job has given up"),
)
_WARNINGS: Final = frozenset(row.reason for row in REASONS if row.warning)


def _of_workload(tenant: str, workload: str, reason: str, note: str, uid: str = "") -> Told:
    return Told(f"workloads/{tenant}/{workload}", tenant, reason, note, reason in _WARNINGS, uid)


def _of_node(node: Node, reason: str, note: str) -> Told:
    metadata = node.metadata
    return Told(f"nodes//{metadata.name}", SYSTEM_TENANT, reason, note, reason in _WARNINGS, metadata.uid)


def event_name(regarding: str, reason: str) -> str:
    """One event an object and reason, however often it happens."""
    return f"{regarding.rpartition('/')[2][:200]}.{reason.lower()}"


# --- slots


_STEPS: Final = {
    _S.STARTING: ("Started", "slot {slot} was started on {node}"),
    _S.FAILED: ("Failed", "slot {slot} has failed on {node}"),
    _S.SUCCEEDED: ("Completed", "slot {slot} has ended well on {node}"),
    _S.DRAINING: ("Draining", "slot {slot} is to leave {node}"),
    _S.UNKNOWN: ("NodeSilent", "slot {slot} is on {node}, which is not heard"),
}


def of_binding(
    tenant: str, name: str, old: BindingHot | None, new: BindingHot | None, last_words: str = ""
) -> Sequence[Told]:  # fmt: skip
    """Asked of every step of every slot, most of which are no news: no generator, and nothing made that is not told.
    `last_words`: what its agent said of one that has failed."""
    if new is None:
        return ()
    if old is None or old.token != new.token:
        workload, _, slot = name.rpartition("-")
        told = _of_workload(tenant, workload, "Scheduled", f"slot {slot} is to run on {new.node}", new.workload_uid)
        return (told, *[_preempted(victim, f"{tenant}/{workload}", tenant) for victim in new.start_after])
    state = new.state
    step = _STEPS.get(state)
    if step is None or old.state is state:
        return ()
    if state is _S.STARTING and old.state is not _S.BOUND:
        return ()  # it has lost readiness, or was heard again: it was started long ago
    workload, _, slot = name.rpartition("-")
    note = step[1].format(slot=slot, node=new.node)
    if last_words and state is _S.FAILED:
        note = f"{note}: {last_words}"
    return (_of_workload(tenant, workload, step[0], note, new.workload_uid),)


def _preempted(victim: str, by: str, tenant: str) -> Told:
    its_tenant, _, name = victim.partition("/")
    workload, _, slot = name.rpartition("-")
    whom = f"for {by}" if its_tenant == tenant else "for work of higher priority"
    return _of_workload(its_tenant, workload, "Preempted", f"slot {slot} must leave {whom}")


def of_instance(tenant: str, name: str, old: InstanceStatus | None, new: InstanceStatus | None) -> Iterator[Told]:
    """What its agent says that is not a step: probes that fail, processes that end and are started again."""
    if new is None or not new.message or (old is not None and (old.message, old.restarts) == (new.message, new.restarts)):
        return
    workload, _, slot = name.rpartition("-")
    if " probe: " in new.message:
        yield _of_workload(tenant, workload, "Unhealthy", f"slot {slot}: {new.message}")
    elif new.restarts > (old.restarts if old is not None else 0):
        times = "once" if new.restarts == 1 else f"{new.restarts} times"  # a life that moves on begins anew
        yield _of_workload(tenant, workload, "BackOff", f"slot {slot}: {new.message}; started again {times} on this node")


def waiting(tenant: str, workload: str, uid: str, reasons: Mapping[int, str], slot: int, detail: str) -> Told:
    """`reasons` of all slots of the workload that wait, by slot; the one that has just changed is told in full."""
    counts: dict[str, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    said = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    slots = "1 slot waits" if len(reasons) == 1 else f"{len(reasons)} slots wait"
    note = f"{slots}: {said}" + (f"; slot {slot}: {detail}" if detail else "")
    return _of_workload(tenant, workload, "FailedScheduling", note, uid)


# --- nodes


def of_node(old: Node | None, new: Node | None) -> Iterator[Told]:
    if new is None:
        return
    name = new.metadata.name
    before = old.status.health if old is not None else ""
    if new.status.health != before:
        ready = _condition(new.status.conditions, "Ready")
        why = f": {ready.message}" if ready is not None and ready.message else ""
        match new.status.health:
            case "Ready":
                yield _of_node(new, "NodeReady", f"{name} is heard")
            case "Unknown":
                yield _of_node(new, "NodeSilent", f"{name} is not heard{why}")
            case "Lost":
                yield _of_node(new, "NodeLost", f"{name} is given up{why}")
    if old is not None and new.spec.unschedulable != old.spec.unschedulable:
        reason = "Cordoned" if new.spec.unschedulable else "Uncordoned"
        yield _of_node(new, reason, f"{name} takes {'no new work' if new.spec.unschedulable else 'work again'}")
    drained = _news(old.status.conditions if old is not None else (), new.status.conditions, "Drained")
    if drained is not None and drained.reason in ("Empty", "Blocked", "DeadlinePassed"):
        reason = "Drained" if drained.status == "True" else "DrainBlocked"
        yield _of_node(new, reason, drained.message or f"{name} is empty")


# --- regions and workloads, as the global plane sees them


def of_region(old: Region | None, new: Region | None) -> Iterator[Told]:
    if new is None:
        return
    meta, now = new.metadata, _condition(new.status.conditions, "Partial")
    before = _condition(old.status.conditions, "Partial") if old is not None else None
    was = before is not None and before.status == "True"
    if now is None or (before is not None and (before.status, before.reason) == (now.status, now.reason)):
        return
    if now.status == "True" or (was and now.status == "False"):
        reason = "RegionPartial" if now.status == "True" else "RegionWhole"
        note = f"{meta.name}: {now.message}"
        yield Told(f"regions//{meta.name}", SYSTEM_TENANT, reason, note, reason in _WARNINGS, meta.uid)


_ROLLOUTS: Final = {
    "RollingOut": "RolloutProgress", "Complete": "RolloutComplete", "Paused": "RolloutPaused",
    "ProgressDeadlineExceeded": "ProgressDeadlineExceeded",
}  # fmt: skip


def of_workload(old: Workload | None, new: Workload | None) -> Iterator[Told]:
    if new is None or old is None:
        return
    tenant, name, uid = new.metadata.namespace, new.metadata.name, new.metadata.uid
    if new.spec.replicas != old.spec.replicas:
        yield _of_workload(tenant, name, "Scaled", f"from {old.spec.replicas} to {new.spec.replicas} replicas", uid)
    before, after = old.status.conditions, new.status.conditions
    if before == after:
        return
    rollout = _news(before, after, "Progressing")
    if rollout is not None and rollout.reason in _ROLLOUTS:
        yield _of_workload(tenant, name, _ROLLOUTS[rollout.reason], rollout.message, uid)
    serving, served = _condition(after, "Serving"), _condition(before, "Serving")
    if serving is not None and served is not None and serving.status != served.status:
        reason = "Serving" if serving.status == "True" else "ServingBelowMin"
        if reason == "Serving" or serving.reason == "BelowMinServing":
            yield _of_workload(tenant, name, reason, serving.message, uid)
    for kind, reason in (("Complete", "JobComplete"), ("Failed", "JobFailed")):
        ended = _news(before, after, kind)
        if ended is not None and ended.status == "True":
            yield _of_workload(tenant, name, reason, ended.message, uid)


def of_assignment(old: Assignment | None, new: Assignment | None) -> Iterator[Told]:
    if new is None or (old is not None and old.spec.slots == new.spec.slots):
        return
    was, wanted = size(old.spec.slots) if old is not None else 0, size(new.spec.slots)
    if was != wanted:
        note = f"{new.spec.region} is to run {wanted} slots, {was} before"
        yield _of_workload(new.metadata.namespace, new.spec.workload, "Assigned", note, new.spec.workload_uid)


def _condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((c for c in conditions if c.type == kind), None)


def _news(before: tuple[Condition, ...], after: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition, where it says something else than before."""
    old, new = _condition(before, kind), _condition(after, kind)
    if new is None or (old is not None and (old.status, old.reason, old.message) == (new.status, new.reason, new.message)):
        return None
    return new
