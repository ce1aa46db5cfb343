"""What the queue orders: a unit is one request, or a gang of them that goes as one. And what is said of each while it waits.

Owns the records, the list of pending reasons with who owes the next move, and the queue's limits. Decides nothing.
Called by the other modules of the queue, and by whoever reads `Queue.pending`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappush
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.resources import DeviceAsk, Resources
from fairlead.scheduler.partition import HeadStart

# Pending reasons, most decisive first, each with who owes the next move.
NEXT_OWNER: Final[dict[str, str]] = {
    "Deactivated": "user",
    "OnHold": "operator",
    "Misconfigured": "user",
    "NoMatchingCapacity": "operator",
    "ResidencyBlocked": "operator",
    "PolicyAuthorityUnreachable": "policy-controller",
    "Suspended": "user",
    "Gated": "user",
    "ExceedsMaxQuota": "operator",
    "WaitingForQuota": "quota-controller",
    "WaitingForCapacity": "scheduler",
    "TopologyBlocked": "scheduler",
    "WaitingForGang": "assignment-controller",
    "WaitingForVictims": "disruption-controller",
    "BackingOff": "scheduler",
    "PendingEvaluation": "scheduler",
}

# Where a unit is. TAKEN is in somebody's hands; WAITING has been tried; HELD is tried by nobody until something is released.
READY, TAKEN, WAITING, HELD, IN_GANG, GONE = range(6)
STATE_NAMES: Final = ("ready", "taken", "backoff", "held")  # the `queue` label of pending{queue}

NO_DEADLINE: Final = 1 << 62
Amounts = tuple[tuple[str, int], ...]  # by dimension, as the ledger names them


class QueueLimits(NamedTuple):
    backoff_first_ms: int = 1_000
    backoff_max_ms: int = 60_000  # in effect only below the resync, which is shorter by default
    put_off_max_ms: int = 5_000  # between two proposals of what may not be bound yet, where nobody knows until when
    jitter: float = 0.2
    resync_ms: int = 30_000  # nothing waits longer than this without another look (L1)
    races_at_once: int = 3  # losses of a race that cost nothing; then the node or the slot is contended, and waiting is cheaper
    min_start_ms: int = 0  # from a placement to serving at best; a deadline nearer than this is hopeless
    wake_max: int = 1_024  # of one change: about one round of the scheduler
    due_max: int = 4_096  # of one call, so that no call takes more than a few milliseconds
    stall_after: int = 64  # failures in a row after which a tenant yields every second turn
    stall_ms: int = 1_000


class Unit(msgspec.Struct, gc=False, eq=False):
    """One thing to order. `stay` numbers its present stay in one place: entries that carry an earlier number are void."""

    tenant: str
    name: str
    workload: str
    uid: str  # of the workload
    priority: int
    deadline_ms: int
    created_ms: int
    amounts: Amounts  # what fairness charges
    least: Amounts  # the smallest part that could go first: what freed capacity must at least hold
    since_ms: int
    next_attempt_ms: int
    state: int = GONE
    stay: int = 0
    rank: int = 1  # 0 goes ahead of those of the same age: it has lost a race
    slots: int = 1
    reason: str = "PendingEvaluation"
    detail: str = ""
    attempts: int = 0  # in a row without a place
    races: int = 0  # lost in a row
    by_timer: bool = False  # only the resync brought it back
    head_start: HeadStart | None = None  # another scheduler's work, which has the first try at it


class Item(Unit, gc=False, eq=False, kw_only=True):
    """One request as it was handed out. It is never changed to another spec: a new generation is another item."""

    request: SchedulingRequest
    gang: str = ""
    present: bool = True  # it is still the queue's item of that name
    hopeless: bool = False
    unsaid: bool = False  # its reason has changed since somebody wrote it down


class Pending(NamedTuple):
    """What is said of a request that has no place yet."""

    tenant: str
    name: str
    reason: str
    since_ms: int
    next_owner: str
    next_attempt_ms: int
    detail: str
    hopeless: bool


class Meters(NamedTuple):
    pending: dict[str, int]  # by STATE_NAMES
    reasons: dict[str, int]
    oldest_age_ms: int
    resync_only_progress_total: int
    hopeless: int


def known_reason(reason: str, detail: str) -> tuple[str, str]:
    """What a plug-in says keeps a slot waiting, as the list has it: a reason of its own becomes the first word of the detail."""
    if reason in NEXT_OWNER:
        return reason, detail
    return "WaitingForCapacity", f"{reason}: {detail}" if detail else reason


def to_ms(when: datetime) -> int:
    return int(when.timestamp() * 1000 + 0.5)  # as round would, at a third of its cost


def deadline_of(request: SchedulingRequest, created_ms: int) -> int:
    """The earlier of its deadline and of its creation plus its start target."""
    spec = request.spec
    found = NO_DEADLINE if spec.deadline_time is None else to_ms(spec.deadline_time)
    if spec.start_target_seconds > 0:
        found = min(found, created_ms + int(spec.start_target_seconds * 1000))
    return found


def amounts_of(requests: Resources, devices: tuple[DeviceAsk, ...]) -> Amounts:
    """By dimension, devices in thousandths under `device:RESOURCE` as the ledger books them."""
    out = requests.amounts()
    for ask in devices:
        key = f"device:{ask.resource}"
        out[key] = out.get(key, 0) + ask.count * ask.share_thousandths
    return tuple(out.items())


class LazyHeap:
    """A heap whose entries may be void by the time they come up. Void ones are swept out before they outnumber the rest."""

    __slots__ = ("_sweep_at", "_valid", "heap")

    def __init__(self, valid: Callable[[Any], bool]) -> None:
        self.heap: list[Any] = []
        self._valid = valid
        self._sweep_at = 256

    def push(self, entry: Any) -> None:
        heap = self.heap
        heappush(heap, entry)
        if len(heap) > self._sweep_at:
            heap[:] = filter(self._valid, heap)
            heapify(heap)
            self._sweep_at = max(256, 2 * len(heap))
