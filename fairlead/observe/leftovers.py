"""S10 asked of a journal: nothing that was meant to go away by itself is still there long after nobody owns it.

A reservation of a slot ends at its expiry, which it has and which is near; a workload that is being deleted goes when no region
has anything of it any more. And S20: members of a gang that wait for their fellows do not wait for long beside fellows that are
bound already. Time is the plane's own; while nothing was written the store may have been down, and the count begins anew. Fed by
JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final

from fairlead.model.lifecycle import SlotState

OWNERLESS_MS: Final = 90_000
DOWN_MS: Final = 10_000  # leases are renewed more often than this: a longer silence means that nobody could write
LOOK_MS: Final = 1_000
RESERVED_MS: Final = 300_000  # the longest that a slot's place may be reserved
PARTIAL_MS: Final = 60_000  # S20
RUNS: Final = (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING)

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]


class LeftoverChecker:
    """Tell it of every batch, after it was applied."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._up_since_ms = self._last_ms = self._looked_ms = 0
        self._bare: dict[str, int] = {}  # uid of what nobody owns -> since when
        self._reserved: dict[str, int] = {}  # uid of a slot's reservation -> since when
        self._partial: dict[str, int] = {}  # uid of a workload whose gang is bound in part -> since when
        self._told: set[str] = set()

    def batch_ended(self, now_ms: int) -> None:
        if now_ms - self._last_ms > DOWN_MS:
            self._up_since_ms = now_ms
        self._last_ms = now_ms
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        ownerless = self._ownerless(now_ms)
        self._bare = {uid: self._bare.get(uid, since_ms) for uid, (_, since_ms) in ownerless.items()}
        for uid, (what, _) in ownerless.items():
            self._checked["S10"] += 1
            age_ms = now_ms - max(self._bare[uid], self._up_since_ms)
            if age_ms > OWNERLESS_MS and uid not in self._told:
                self._told.add(uid)
                self._found("S10", f"{what} has had no owner for {age_ms / 1000:.0f} s")
        self._gangs(now_ms)

    def _gangs(self, now_ms: int) -> None:
        waits = {
            request.spec.slot.uid: (tenant, request.spec.gang)
            for (tenant, _), request in self._objects["schedulingrequests"].items()
            if request.spec.gang and not request.spec.suspend
        }
        bound = self._bound(waits) if waits else ()
        self._partial = {uid: self._partial.get(uid, now_ms) for uid in bound}
        self._checked["S20"] += len(self._partial)
        for uid, since_ms in self._partial.items():
            age_ms = now_ms - max(since_ms, self._up_since_ms)
            if age_ms > PARTIAL_MS and f"gang {uid}" not in self._told:
                self._told.add(f"gang {uid}")
                gang = "/".join(waits[uid])
                self._found("S20", f"of gang {gang} some are bound and some wait for all of it, for {age_ms / 1000:.0f} s")

    def _bound(self, waits: Collection[str]) -> list[str]:
        """Those of these workloads of which a slot that is wanted is bound. One that leaves is nobody's fellow any more."""
        wanted = {
            (order.spec.workload_uid, index)
            for order in self._objects["assignments"].values()
            if order.spec.workload_uid in waits
            for span in order.spec.slots
            for index in range(span.first, span.last + 1)
        }
        bound = [one.spec.slot for one in self._objects["bindings"].values() if one.status.state in RUNS]
        return sorted({slot.uid for slot in bound if (slot.uid, slot.index) in wanted})

    def _ownerless(self, now_ms: int) -> dict[str, tuple[str, int]]:
        """uid -> what it is, and since when it should not be there."""
        out: dict[str, tuple[str, int]] = {}
        seen: dict[str, int] = {}
        for (tenant, name), reservation in self._objects["reservations"].items():
            uid, made, end = reservation.metadata.uid, reservation.metadata.creation_time, reservation.spec.expiry_time
            if reservation.spec.budget:
                continue
            since_ms = seen[uid] = self._reserved.get(uid, _ms(made) if made is not None else now_ms)
            end_ms = since_ms if end is None or _ms(end) > since_ms + RESERVED_MS else _ms(end)  # else nobody could have it
            if end_ms < now_ms:
                out[uid] = (f"reservation {tenant}/{name}", end_ms)
        self._reserved = seen
        going = [w for w in self._objects["workloads"].values() if w.metadata.deletion_time is not None and w.metadata.finalizers]
        if going:
            owned = {assignment.spec.workload_uid for assignment in self._objects["assignments"].values()}
            for workload in going:
                if workload.metadata.uid not in owned:
                    name = f"{workload.metadata.namespace}/{workload.metadata.name}"
                    out[workload.metadata.uid] = (f"a finalizer of workload {name}", now_ms)
        return out


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
