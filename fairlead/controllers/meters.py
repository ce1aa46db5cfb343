"""What a controller counts, and what it says of itself with each renewal of its lease. Plain numbers.

A controller is *stalled* when a key has been due for longer than a resync, or keeps failing: condition Working is False then. One
whose process hangs renews nothing, which the lease's own renewal time shows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fairlead.controllers.cache import Name
from fairlead.controllers.queue import KeyQueue
from fairlead.model.commands import Refused
from fairlead.model.kinds.ledger import LeaseStatus
from fairlead.model.meta import Condition

FAILURES_STALLED: Final = 8  # about ten seconds of trying
_ERROR_MAX: Final = 300


class Meters:
    def __init__(self) -> None:
        self.reconciles_total = 0
        self.commands_total = 0
        self.effects_total = 0
        self.resync_only_progress_total = 0
        self.restarts_total = 0
        self.errors_total = 0
        self.refusals: dict[str, int] = {}
        self.last_reconcile_ms = 0
        self.last_error = ""
        self.stalled = False
        self.queue_length = 0
        self.oldest_s = 0.0

    def looked(self, keys: int, now_ms: int) -> None:
        self.reconciles_total += keys
        self.last_reconcile_ms = now_ms

    def effects(self, by_resync: bool) -> None:
        self.effects_total += 1
        self.resync_only_progress_total += by_resync

    def refused(self, key: Name, refused: Refused) -> None:
        self.refusals[refused.reason] = self.refusals.get(refused.reason, 0) + 1
        self.last_error = f"{'/'.join(key)}: {refused.reason}: {refused.detail}"[:_ERROR_MAX]

    def failed(self, key: Name, error: str) -> None:
        self.errors_total += 1
        self.last_error = f"{'/'.join(key)}: {error}"[:_ERROR_MAX]

    def restarted(self, error: BaseException) -> None:
        self.restarts_total += 1
        self.last_error = f"started over: {error!r}"[:_ERROR_MAX]


def told(meters: Meters, queue: KeyQueue, now_ms: int, resync_s: float) -> LeaseStatus:
    """The status that goes along with a renewal."""
    oldest_s = queue.oldest_ms(now_ms) / 1000
    failing = queue.failing(FAILURES_STALLED)
    meters.queue_length, meters.oldest_s = len(queue), oldest_s
    meters.stalled = oldest_s > resync_s or bool(failing)
    if oldest_s > resync_s:
        working = Condition(type="Working", status="False", reason="Behind", message=f"a key has been due for {oldest_s:.0f} s")
    elif failing:
        names = ", ".join("/".join(key) for key in failing[:3])
        working = Condition(type="Working", status="False", reason="KeysFail", message=f"{len(failing)} keys fail: {names}")
    else:
        working = Condition(type="Working", status="True", reason="Reconciling")
    last = datetime.fromtimestamp(meters.last_reconcile_ms / 1000, tz=UTC) if meters.last_reconcile_ms else None
    return LeaseStatus(
        queue_length=len(queue),
        oldest_seconds=oldest_s,
        reconciles=meters.reconciles_total,
        last_reconcile_time=last,
        last_error=meters.last_error,
        conditions=(working,),
    )
