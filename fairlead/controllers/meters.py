"""What a controller counts, and what it says of itself with each renewal of its lease. Plain numbers.

A controller is *stalled* when what it began does not end, or a key has been due for longer than a resync, keeps failing, or wants
more after every look without end: condition Working is False then. One whose process hangs renews nothing, which the lease's own
renewal time shows.
"""

from __future__ import annotations

from typing import Final

from fairlead.client.leased import Health
from fairlead.controllers.cache import Name
from fairlead.controllers.queue import KeyQueue
from fairlead.model.commands import Refused
from fairlead.observe.histogram import Histogram

FAILURES_STALLED: Final = 8  # about ten seconds of trying
RESTLESS_RESYNCS: Final = 4  # for so long every look at a key asked for more: two minutes
RESTLESS_LOOKS: Final = 20
_ERROR_MAX: Final = 300


class Meters:
    def __init__(self) -> None:
        self.reconciles_total = 0
        self.commands_total = 0
        self.effects_total = 0
        self.resync_only_progress_total = 0
        self.restarts_total = 0
        self.oscillations_total = 0
        self.pauses_total = 0  # it stood still, and began to listen anew
        self.errors_total = 0
        self.refusals: dict[str, int] = {}
        self.last_reconcile_ms = 0
        self.last_error = ""
        self.worked = Histogram()  # one look at one key

    def looked(self, keys: int, now_ms: int, seconds: float) -> None:
        self.reconciles_total += keys
        self.last_reconcile_ms = now_ms
        self.worked.observe(seconds / keys, keys)

    def effects(self, by_resync: bool) -> None:
        self.effects_total += 1
        self.resync_only_progress_total += by_resync

    def refused(self, key: Name, refused: Refused) -> None:
        self.refusals[refused.reason] = self.refusals.get(refused.reason, 0) + 1
        self.last_error = f"{'/'.join(key)}: {refused.reason}: {refused.detail}"[:_ERROR_MAX]

    def fought(self, key: Name, words: str) -> None:
        self.oscillations_total += 1
        self.last_error = f"{'/'.join(key)}: {words}"[:_ERROR_MAX]

    def failed(self, key: Name, error: str) -> None:
        self.errors_total += 1
        self.last_error = f"{'/'.join(key)}: {error}"[:_ERROR_MAX]

    def restarted(self, error: BaseException) -> None:
        self.restarts_total += 1
        self.last_error = f"started over: {error!r}"[:_ERROR_MAX]


def health_of(meters: Meters, queue: KeyQueue, now_ms: int, resync_s: float, busy_s: float = 0.0) -> Health:
    """`busy_s`: how long the look or sweep that is under way has taken already."""
    oldest_s = queue.oldest_ms(now_ms) / 1000
    stalled = detail = ""
    if busy_s > resync_s:
        stalled, detail = "NeverEnds", f"what it began {busy_s:.0f} s ago has not ended"
    elif oldest_s > resync_s:
        stalled, detail = "Behind", f"a key has been due for {oldest_s:.0f} s"
    elif failing := queue.failing(FAILURES_STALLED):
        stalled, detail = "KeysFail", f"{len(failing)} keys fail: {_names(failing)}"
    elif restless := queue.restless(now_ms, int(RESTLESS_RESYNCS * resync_s * 1000), RESTLESS_LOOKS):
        stalled, detail = "NeverSettles", f"{len(restless)} keys want more after every look: {_names(restless)}"
    return Health(
        len(queue), oldest_s, meters.reconciles_total, meters.last_reconcile_ms, meters.last_error, stalled, detail
    )  # fmt: skip


def _names(keys: list[Name]) -> str:
    return ", ".join("/".join(key) for key in keys[:3])
