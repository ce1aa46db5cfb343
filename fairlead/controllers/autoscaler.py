"""Sets a service's replicas by how busy those are that serve, and says why it did or did not.

Decides nothing itself (decide/autoscaling.py does): reads the load that was reported or asked for (decide/loads.py), the
workload's counts, why its slots wait, and the overrides; while what was ordered has not come, or waits for what no capacity
cures, or most are not ready, nothing is added, whatever the load. Writes `spec.replicas` as a manager of its own, so that a
manifest that names replicas and this one are seen to disagree. Runs in the global plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.decide.admission.workload import fewest_slots
from fairlead.decide.autoscaling import Load, ReplicaRule, Scaling, blocked_by, replicas
from fairlead.decide.loads import Annotated, Loads, Unasked, taken_over
from fairlead.decide.overrides import all_in_force, ends_ms, touches, words
from fairlead.decide.regional import is_record
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.kinds.intent import Autoscaler, AutoscalerStatus, WantedThen, Workload
from fairlead.model.kinds.policy import Override
from fairlead.model.meta import Condition, set_condition

MANAGER: Final = "autoscaler"
LOOK_MS: Final = 5_000
LATELY_MAX: Final = 60  # remembered amounts: the window is cut into so many parts
GAP_MS: Final = 3 * LOOK_MS  # beyond a part of the window, between two that are remembered: meanwhile no load was known
_API: Final = "fairlead.dev/v1alpha1"


def _workload(item: Item) -> Name | None:
    return item.tenant, item.hot.spec.workload


class AutoscalerController:
    name = "autoscaler"
    follows = ("autoscalers", "workloads", "overrides")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {"autoscalers": {"workload": _workload}}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, asked: Loads | None = None) -> None:
        self._annotated: Loads = Annotated()
        self._asked: Loads = asked or Unasked()  # of those whose replicas say it themselves

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "autoscalers":
                return (item.key,)
            case "workloads":
                return [each.key for each in view.cache.by("autoscalers", "workload", item.key)]
            case _:
                return self.resync(view) if item.hot.spec.kind == "autoscaler-pause" else ()

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("autoscalers")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        scaler: Autoscaler | None = view.cache.get("autoscalers", *key)
        if scaler is None or scaler.metadata.deletion_time is not None:
            return Result()
        item = view.cache.item("workloads", key[0], scaler.spec.workload)
        workload: Workload | None = item.object if item is not None else None
        paused = _paused(view, key[0], scaler.spec.workload, workload, now_ms)
        loads = self._annotated if scaler.spec.metric is None else self._asked
        said = loads.reported(scaler, now_ms)
        held = _held(view, key, scaler, workload, paused, said.silent)
        if held is not None or workload is None or item is None or said.permille is None:
            reason, message = held or ("NoLoad", said.silent)
            status = _said(scaler.status, scaler, workload, reason, message, now_ms)
            wake_ms = min(now_ms + LOOK_MS, ends_ms(paused)) if paused is not None else now_ms + LOOK_MS
            return Result(_status(key, scaler, status), wake_ms)
        load = _load(scaler, workload, said.permille, said.age_s, now_ms)
        found = replicas(_rule(scaler, workload), load)
        status = _after(scaler, workload, said.permille, found, now_ms)
        bodies: list[Body] = []
        if found.replicas != workload.spec.replicas:
            managed = taken_over(workload.metadata.managed_fields, MANAGER, _API)
            meta = replace(workload.metadata, managed_fields=managed)
            made = replace(workload, metadata=meta, spec=replace(workload.spec, replicas=found.replicas))
            bodies.append(Put("Workload", made, "update", view.revision(item)))
        return Result([*bodies, *_status(key, scaler, status)], now_ms + LOOK_MS)


def _paused(view: View, tenant: str, name: str, workload: Workload | None, now_ms: int) -> Override | None:
    """The override that does, of several the one that lasts longest. One that names regions pauses work that has slots there:
    its replicas are one number for all of them. What a region ordered while it was on its own is about its nodes alone."""
    regions = [row.region for row in workload.status.regions] if workload is not None else []
    ordered = all_in_force((each.hot for each in view.cache.all("overrides")), "autoscaler-pause", now_ms)
    found = [each for each in ordered if not is_record(each) and touches(each, tenant, name, regions)]
    return max(found, key=ends_ms, default=None)


def _held(
    view: View, key: Name, scaler: Autoscaler, workload: Workload | None, paused: Override | None, silent: str
) -> tuple[str, str] | None:
    """(reason, message) of what keeps it from deciding at all."""
    rivals = view.cache.by("autoscalers", "workload", (key[0], scaler.spec.workload))
    first = min(each.key for each in rivals if each.hot.metadata.deletion_time is None)
    if first != key:
        return "Contested", f"autoscaler {first[1]} sets the replicas of {scaler.spec.workload} already"
    if workload is None or workload.metadata.deletion_time is not None:
        return "NoWorkload", f"there is no workload {scaler.spec.workload}"
    if workload.spec.job is not None or workload.spec.suspend:
        return "NotScaled", "it is a job or suspended"
    if paused is not None:
        return "Paused", words(paused)
    if workload.status.observed_generation != workload.metadata.generation:
        return "NotSeen", "what was ordered last is not counted yet"
    return ("NoLoad", silent) if silent else None


def _rule(scaler: Autoscaler, workload: Workload) -> ReplicaRule:
    """Its bounds, and no fewer than the workload says it must have: admission refuses that, whoever asks."""
    spec = scaler.spec
    fewest, field = fewest_slots(workload.spec)
    return ReplicaRule(
        max(spec.min_replicas, fewest), spec.max_replicas, spec.target_percent * 10, surge=spec.surge,
        up_wait_s=spec.up_wait_seconds, down_window_s=spec.down_window_seconds,
        minimum_by=field if fewest > spec.min_replicas else "",
    )  # fmt: skip


def _load(scaler: Autoscaler, workload: Workload, busy: int, age_s: float, now_ms: int) -> Load:
    status = scaler.status
    since_up_s = (now_ms - millis(status.last_up_time)) / 1000 if status.last_up_time is not None else 1e9
    lately = [((now_ms - millis(then.time)) / 1000, then.replicas) for then in status.wanted_lately]
    followed_s, gap_s = 0.0, _part(scaler).total_seconds() + GAP_MS / 1000
    for ago_s, _ in reversed(lately):
        if ago_s - followed_s > gap_s:
            break
        followed_s = ago_s
    return Load(
        workload.spec.replicas, workload.status.replicas.serving, busy, since_up_s, lately, followed_s, age_s,
        blocked_by(workload.status.pending),
    )  # fmt: skip


def _part(scaler: Autoscaler) -> timedelta:
    return timedelta(seconds=scaler.spec.down_window_seconds / LATELY_MAX)


def _after(scaler: Autoscaler, workload: Workload, busy: int, found: Scaling, now_ms: int) -> AutoscalerStatus:
    """Its memory after a decision: the load in tenths, and the most that was wanted in each part of the window, so that a steady
    load writes nothing for a while."""
    status = scaler.status
    lately = _remembered(scaler, now_ms)
    if not lately or instant(now_ms) - lately[-1].time >= _part(scaler):
        lately.append(WantedThen(time=instant(now_ms), replicas=found.wanted))
    elif lately[-1].replicas < found.wanted:
        lately[-1] = replace(lately[-1], replicas=found.wanted)
    up = found.replicas > workload.spec.replicas
    status = replace(
        status, replicas=found.replicas, wanted=found.wanted, busy_permille=busy, wanted_lately=tuple(lately[-2 * LATELY_MAX :]),
        last_up_time=instant(now_ms) if up else status.last_up_time,
    )  # fmt: skip
    return _said(status, scaler, workload, found.reason, found.why, now_ms)


def _remembered(scaler: Autoscaler, now_ms: int) -> list[WantedThen]:
    """Those within the window, and the last one before it: that shows that the load was known when the window began."""
    oldest = instant(now_ms) - timedelta(seconds=scaler.spec.down_window_seconds)
    lately = scaler.status.wanted_lately
    before = sum(then.time <= oldest for then in lately)
    return list(lately[max(0, before - 1) :])


def _said(
    status: AutoscalerStatus, scaler: Autoscaler, workload: Workload | None, reason: str, message: str, now_ms: int
) -> AutoscalerStatus:
    generation = scaler.metadata.generation
    condition = Condition(
        type="Scaling", status="True" if reason == "Following" else "False", reason=reason, message=message,
        observed_generation=generation, last_transition_time=instant(now_ms),
    )  # fmt: skip
    ordered = status.replicas if reason == "Following" or workload is None else workload.spec.replicas
    conditions = set_condition(status.conditions, condition)
    return replace(status, observed_generation=generation, replicas=ordered, conditions=conditions)


def _status(key: Name, scaler: Autoscaler, status: AutoscalerStatus) -> list[Body]:
    return [PutStatus("Autoscaler", *key, status, uid=scaler.metadata.uid)] if status != scaler.status else []
