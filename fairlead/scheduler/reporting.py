"""The status of waiting requests: reason, since, next owner, next attempt, written where the reason changed.

Bounded: so many a second at most, the longest unsaid first. The moments in between are the queue's own (`Queue.pending`), which
is always up to date; what is durable is what a person or another component needs after this scheduler is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from fairlead.model.commands import Accepted, Caller, Command, Outcome, PutStatus, Refused
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.units import NEXT_OWNER

REPORTS_MAX: Final = 256  # a call
_PASSING: Final = frozenset({"Overloaded", "StoreUnavailable", "NotLeader"})  # refused, whatever it was that was said


class Reporter:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def commands(self, caller: Caller, now_ms: int) -> list[Command]:
        out = []
        for pending, request in self._queue.said(REPORTS_MAX):
            status = replace(
                request.status,
                reason=pending.reason,
                detail=pending.detail[:1024],
                since_time=_instant(pending.since_ms),
                next_owner=NEXT_OWNER.get(pending.reason, "scheduler"),
                next_attempt_time=_instant(pending.next_attempt_ms),
            )
            out.append(
                Command(caller, PutStatus("SchedulingRequest", pending.tenant, pending.name, status, uid=request.metadata.uid))
            )
        return out

    def heard(self, commands: Sequence[Command], outcomes: Sequence[Outcome]) -> None:
        """What was not written is said again: nothing else would, as long as the reason stays the same."""
        for command, outcome in zip(commands, outcomes, strict=True):
            lost = outcome.reason in _PASSING if isinstance(outcome, Refused) else not isinstance(outcome, Accepted)
            if lost and isinstance(command.body, PutStatus):
                self._queue.say_again(command.body.tenant, command.body.name)


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
