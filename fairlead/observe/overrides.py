"""S11 asked of a journal: what an override orders is kept while it is in force, and from its end on it orders nothing.

Owns its own reading of when an override ends and whom it is about, and shares nothing with the judge but the model. Fed by
JournalChecker with every change, before it is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fairlead.model.kinds.policy import Override
from fairlead.model.lifecycle import Role, SlotState

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]

TTL_S_MAX: Final = 14_400
SAID_LATE_MS: Final = 35_000  # a reason that is written may be as old as what its writer has heard (L3)
_AGE: Final = "fairlead.dev/mirrored-age-ms"
_BY_SOCKET: Final = "break-glass:"  # before the name of who asked at a server's local socket: one person all the same
_TWO_PEOPLE: Final = ("recovery", "emergency-quota")


def _end_ms(override: Override) -> int:
    meta = override.metadata
    age = meta.annotations.get(_AGE, "")
    born_ms = round(meta.creation_time.timestamp() * 1000) if meta.creation_time is not None else 0
    return born_ms - (int(age) if age.isdecimal() else 0) + override.spec.ttl_seconds * 1000


class OverrideChecker:
    def __init__(self, objects: Objects, found: Found) -> None:
        self._objects = objects
        self._found = found
        self._ended: dict[tuple[str, str], tuple[Override, int]] = {}  # holds that were taken away, and when
        self._said_from_ms = 0  # before this, holds may have been taken away that it has not heard of

    def begun(self, now_ms: int) -> None:
        """After the state at which a history begins: holds that were taken away before are not known."""
        self._said_from_ms = now_ms + SAID_LATE_MS

    def changed(self, plural: str, old: Any, new: Any, now_ms: int, role: Role | None) -> bool:
        """True where something was judged. What agents bring back is where it is, whoever holds it."""
        if plural == "overrides":
            return self._override(old, new, now_ms)
        if plural == "bindings" and role is Role.DISRUPTION and new is not None:
            return bool(self._objects["overrides"]) and self._drained(old, new, now_ms)
        by_scheduler = role is Role.SCHEDULER
        if plural == "bindings" and by_scheduler and new is not None and (old is None or old.spec.token != new.spec.token):
            return bool(self._objects["overrides"]) and self._bound(new, now_ms)
        if plural == "schedulingrequests" and new is not None and new.status.reason == "OnHold":
            return self._said(old, new, now_ms)
        return False

    def _override(self, old: Override | None, new: Override | None, now_ms: int) -> bool:
        last = new or old
        if last is None:
            return False
        name = (last.metadata.namespace, last.metadata.name)
        gone = new is None or new.metadata.deletion_time is not None
        if gone and last.spec.kind == "hold":
            self._ended.setdefault(name, (last, min(now_ms, _end_ms(last))))
        if new is None:
            return False
        spec = new.spec
        if not 0 < spec.ttl_seconds <= TTL_S_MAX:
            self._found("S11", f"override {name} lasts {spec.ttl_seconds} s")
        if spec.approver and spec.approver.removeprefix(_BY_SOCKET) == spec.requester.removeprefix(_BY_SOCKET):
            self._found("S11", f"override {name} was approved by {spec.approver}, who asked for it")
        is_copy = _AGE in new.metadata.annotations  # one that is cut off learns of an extension when it is heard again
        if old is not None and not is_copy and old.spec != spec and now_ms >= _end_ms(old):
            self._found("S11", f"override {name} was changed after its end")
        return True

    def _bound(self, binding: Any, now_ms: int) -> bool:
        tenant, workload = binding.metadata.namespace, binding.spec.slot.workload
        node = self._objects["nodes"].get(("", binding.spec.node))
        region, zone = (node.spec.region, node.spec.zone) if node is not None else ("", "")
        for name, override in sorted(self._objects["overrides"].items()):
            if override.metadata.deletion_time is not None or now_ms >= _end_ms(override):
                continue
            kind = override.spec.kind
            if kind in ("hold", "zone-avoidance") and _is_about(override, tenant, workload, region, zone):
                self._found("S11", f"{tenant}/{binding.metadata.name} was bound to {binding.spec.node} under {kind} {name}")
        return True

    def _drained(self, old: Any, new: Any, now_ms: int) -> bool:
        """A freeze keeps what is wanted where it is."""
        if new.status.state is not SlotState.DRAINING or (old is not None and old.status.state is SlotState.DRAINING):
            return False
        tenant, slot = new.metadata.namespace, new.spec.slot
        orders = [
            o for (owner, _), o in self._objects["assignments"].items() if owner == tenant and o.spec.workload == slot.workload
        ]
        wanted = [
            order
            for order in orders
            if order.metadata.deletion_time is None
            and not order.spec.suspend
            and any(span.first <= slot.index <= span.last for span in order.spec.slots)
        ]
        for name, override in sorted(self._objects["overrides"].items()):
            holds = override.metadata.deletion_time is None and now_ms < _end_ms(override) and override.spec.kind == "freeze"
            if holds and any(_is_about(override, tenant, slot.workload, order.spec.region, "") for order in wanted):
                self._found("S11", f"{tenant}/{new.metadata.name} was drained under freeze {name}")
        return True

    def _said(self, old: Any, new: Any, now_ms: int) -> bool:
        """A slot is said to be held: somebody must have held it, within what its writer may not have heard yet."""
        if old is not None and (old.status.reason, old.status.detail) == (new.status.reason, new.status.detail):
            return False
        if now_ms < self._said_from_ms:
            return False
        holds = [(o, _end_ms(o)) for o in self._objects["overrides"].values() if o.spec.kind == "hold"]
        tenant, workload = new.metadata.namespace, new.spec.slot.workload
        ends = [
            end_ms
            for hold, end_ms in (*holds, *self._ended.values())
            if _is_about(hold, tenant, workload, next(iter(hold.spec.scope.regions), ""), "")
        ]
        if all(now_ms >= end_ms + SAID_LATE_MS for end_ms in ends):
            slot = f"{new.metadata.namespace}/{new.metadata.name}"
            self._found("S11", f"{slot} is said to be on hold, and the last hold ended {now_ms - max(ends, default=0)} ms ago")
        return True


def _is_about(override: Override, tenant: str, workload: str, region: str, zone: str) -> bool:
    scope = override.spec.scope
    tenants = scope.tenants or (override.metadata.namespace,)
    if override.spec.kind in _TWO_PEOPLE and not override.spec.approver:
        return False
    names = (workload, f"{tenant}/{workload}")
    return (
        (tenant in tenants or "*" in tenants)
        and (not scope.workloads or any(name in scope.workloads for name in names))
        and (not scope.regions or region in scope.regions)
        and (not scope.zones or zone in scope.zones)
    )
