"""S10 asked of a journal: nothing that was meant to go away by itself is still there long after nobody owns it.

A reservation ends at its expiry, and a workload that is being deleted goes when no region has anything of it any more. Time is
the plane's own; while nothing was written the store may have been down, and the count begins anew. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

OWNERLESS_MS: Final = 90_000
DOWN_MS: Final = 10_000  # leases are renewed more often than this: a longer silence means that nobody could write
LOOK_MS: Final = 1_000

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

    def _ownerless(self, now_ms: int) -> dict[str, tuple[str, int]]:
        """uid -> what it is, and since when it should not be there."""
        out: dict[str, tuple[str, int]] = {}
        for (tenant, name), reservation in self._objects["reservations"].items():
            end = reservation.spec.expiry_time
            if end is not None and not reservation.spec.budget and _ms(end) < now_ms:
                out[reservation.metadata.uid] = (f"reservation {tenant}/{name}", _ms(end))
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
