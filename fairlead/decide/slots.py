"""A slot as controllers see it, and what of it counts for what. Pure; made from a controller's cache, read by decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from fairlead.model.kinds.intent import PendingReason, StageCounts
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import ON_NODE, SlotState

_S = SlotState
RUNNING: Final = frozenset({_S.BOUND, _S.STARTING, _S.READY, _S.SERVING})
STARTED: Final = frozenset({_S.STARTING, _S.READY, _S.SERVING, _S.DRAINING, _S.UNKNOWN})
ENDED: Final = frozenset({_S.RELEASED, _S.SUCCEEDED})


class Slot(msgspec.Struct, frozen=True, gc=False):
    index: int
    state: SlotState  # Pending and Reserved: it has a request; else a binding
    generation: int
    epoch: int
    token: Token | None = None
    node: str = ""
    attempt: int = 1  # of a request: 0 while no life of this epoch ever began
    ready: bool = False  # the agent says that it can serve
    in_traffic: bool = False  # Endpoints name it
    leaving: bool = False  # somebody asked for its eviction, and that has not ended
    approved: bool = False  # its eviction keeps its workload's budget: traffic is to be withdrawn
    ours: bool = False  # the eviction was asked for by the rollout itself
    lost: bool = False  # its node was declared Lost
    request: SchedulingRequest | None = None

    @property
    def serves(self) -> bool:
        """Counts as available: it serves, and nobody is taking it away."""
        return self.state is _S.SERVING and not self.leaving


Slots = Mapping[int, Slot]


def counts(desired: int, generation: int, slots: Slots) -> StageCounts:
    """Stages counted apart, each including those further on: bound, started, ready, serving."""
    states = [slot.state for slot in slots.values()]
    return StageCounts(
        desired=desired,
        reserved=states.count(_S.RESERVED),
        bound=sum(state in ON_NODE for state in states),
        started=sum(state in STARTED for state in states),
        ready=states.count(_S.READY) + states.count(_S.SERVING),
        serving=states.count(_S.SERVING),
        unknown=states.count(_S.UNKNOWN),
        pending=states.count(_S.PENDING),
        draining=states.count(_S.DRAINING),
        failed=states.count(_S.FAILED),
        succeeded=states.count(_S.SUCCEEDED),
        updated=sum(slot.generation == generation and slot.state in ON_NODE for slot in slots.values()),
    )


def pending_reasons(slots: Slots) -> tuple[PendingReason, ...]:
    """Why slots wait, by reason, the most frequent first."""
    groups: dict[str, list[SchedulingRequest]] = {}
    for slot in slots.values():
        if slot.request is not None:
            groups.setdefault(slot.request.status.reason, []).append(slot.request)
    out = []
    for reason, requests in groups.items():
        since = [r.status.since_time for r in requests if r.status.since_time is not None]
        again = [r.status.next_attempt_time for r in requests if r.status.next_attempt_time is not None]
        first = requests[0].status
        out.append(
            PendingReason(
                reason=reason,
                count=len(requests),
                since_time=min(since, default=None),
                next_owner=first.next_owner,
                next_attempt_time=min(again, default=None),
                detail=first.detail,
            )
        )
    return tuple(sorted(out, key=lambda p: (-p.count, p.reason)))


def instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def millis(when: datetime | None) -> int:
    return round(when.timestamp() * 1000) if when is not None else 0
