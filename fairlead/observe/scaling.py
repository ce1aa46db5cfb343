"""B1 asked of the global plane's journal: what the autoscaler orders of a service is within what it promises
(docs/autoscaling.md).

Replicas within their bounds, and nothing else of the workload; more only where those ordered before serve and none of them waits
for what no capacity cures, and not again before the wait is over; fewer only down to the most that was wanted within the window.
An order is written on the version of the workload that was seen, so it is held against what is there at the commit. Owns its own
memory; shares nothing with who decides but the model. Fed by bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.kinds.intent import Autoscaler, Workload
from fairlead.observe.too_soon import LATE_MS, TooSoon

CURED: Final = frozenset({"WaitingForCapacity", "NoMatchingCapacity", "TopologyBlocked"})
PLACING: Final = frozenset({"", "PendingEvaluation", "BackingOff", "WaitingForVictims"})
KEPT: Final = 240  # amounts that were wanted: an autoscaler remembers half as many

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]


class ReplicaChecker:
    """B1. Tell it of every change before it is applied."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int], too_soon: TooSoon) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._too_soon = too_soon
        self._raised_ms: dict[str, int] = {}  # the workload's uid -> when an autoscaler last added to it
        self._wanted: dict[str, list[tuple[int, int]]] = {}  # the autoscaler's uid -> when it wanted how many

    def changed(self, plural: str, at: Slot, old: Any, new: Any, now_ms: int) -> None:
        """Of what an autoscaler wrote."""
        if plural == "autoscalers" and new is not None and _reason(new) in ("Following", "Blocked"):
            lately = self._wanted.setdefault(new.metadata.uid, [])
            lately.append((now_ms, new.status.wanted))
            del lately[:-KEPT]
        elif plural == "workloads" and old is not None and new is not None:
            for detail in self._ordered(at, old, new, now_ms):
                self._found("B1", f"{'/'.join(at)}: {detail}")

    def _ordered(self, at: Slot, old: Workload, new: Workload, now_ms: int) -> Iterable[str]:
        before, now, uid = old.spec.replicas, new.spec.replicas, old.metadata.uid
        if replace(new.spec, replicas=before) != old.spec:
            yield "an autoscaler changed more of it than its replicas"
        named = sorted((one.metadata.name, one) for (tenant, _), one in self._objects["autoscalers"].items() if tenant == at[0])
        mine = [one for _, one in named if one.spec.workload == at[1] and one.metadata.deletion_time is None]
        if not mine:
            yield "no autoscaler is for it"
            return
        floor, most = _floor(mine[0], old), mine[0].spec.max_replicas
        if not floor <= now <= max(floor, most):
            yield f"{now} replicas were ordered; it may have {floor} to {most}"
        raised, within = now > before, floor <= before <= max(floor, most)
        self._checked["B1/up" if raised else "B1/down"] += now != before
        if within:  # a bound that was moved holds at once
            yield from self._raised(mine[0], old, now, now_ms) if raised else ()
            lately = tuple(self._wanted.get(mine[0].metadata.uid, ()))
            self._too_soon.ask(now_ms, "B1", partial(_lowered, mine[0], lately, before, now))
        if raised:
            self._raised_ms[uid] = now_ms

    def _raised(self, scaler: Autoscaler, old: Workload, now: int, now_ms: int) -> Iterable[str]:
        ordered, serving, words = old.spec.replicas, old.status.replicas.serving, f"{now} replicas were ordered"
        if ordered - serving > scaler.spec.surge or 2 * serving < ordered:
            yield f"{words} while {serving} of {ordered} served; {scaler.spec.surge} may be on their way"
        if old.status.observed_generation != old.metadata.generation:
            yield f"{words} on counts of generation {old.status.observed_generation}; it is at {old.metadata.generation}"
        blocked = {one.reason for one in old.status.pending if one.count and one.reason not in CURED | PLACING}
        if blocked:
            yield f"{words} while some waited for {', '.join(sorted(blocked))}"
        last_ms = self._raised_ms.get(old.metadata.uid)
        if last_ms is not None:
            due_ms, after = last_ms + int(scaler.spec.up_wait_seconds * 1000), f"{(now_ms - last_ms) / 1000:.1f} s after the last"
            self._too_soon.unless(due_ms, now_ms, "B1", f"{old.metadata.namespace}/{old.metadata.name}: {words} {after} addition")


def _lowered(scaler: Autoscaler, wanted: Sequence[tuple[int, int]], before: int, now: int, now_ms: int) -> str:
    """What would be wrong if that was ordered at this time."""
    if now >= before:
        return ""
    window_ms = scaler.spec.down_window_seconds * 1000
    since_ms, words = (
        now_ms - window_ms + LATE_MS,
        f"{scaler.metadata.namespace}/{scaler.spec.workload}: {now} replicas were left",
    )
    most = max((count for at_ms, count in wanted if at_ms > since_ms), default=0)
    if now < min(most, scaler.spec.max_replicas, before):
        return f"{words}, and {most} were wanted within {window_ms / 1000:.0f} s"
    if not wanted or wanted[0][0] > since_ms:
        return f"{words} before a load was known for {window_ms / 1000:.0f} s"
    return ""


def _floor(scaler: Autoscaler, workload: Workload) -> int:
    """No fewer, by the autoscaler or by the workload itself."""
    spec, regions = workload.spec, workload.spec.placement.regions
    spread = regions.per_region_minimum * len(regions.allowed)
    return max(scaler.spec.min_replicas, spec.recovery.min_serving, spec.disruption.min_serving, spread)


def _reason(scaler: Autoscaler) -> str:
    return next((one.reason for one in scaler.status.conditions if one.type == "Scaling"), "")
