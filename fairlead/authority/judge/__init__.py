"""Judging: a command and the present state in, effects or a refusal out. Pure, so that a replay judges the same (P2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from fairlead.authority.judge import bulk, leases, objects, placing, running
from fairlead.authority.judge.callers import refuse_caller
from fairlead.authority.judge.context import Context, Draft, Effect, Judgement, Settings
from fairlead.model.commands import (
    Bind,
    BindGang,
    BindMany,
    Body,
    Caller,
    Command,
    Delete,
    Enqueue,
    LeaseAcquire,
    LeaseRelease,
    LeaseRenew,
    Move,
    Put,
    PutStatus,
    ReleaseReservation,
    Report,
    Reserve,
)
from fairlead.model.meta import Evidence

__all__ = ["Context", "Draft", "Effect", "Judgement", "Settings", "judge"]


# By type, because this is asked for every command; the signature is the same for all.
_JUDGES: dict[type, Callable[[Context, Caller, Any, Evidence | None], Judgement]] = {
    Bind: placing.bind,
    BindGang: placing.bind_gang,
    BindMany: bulk.bind_many,
    Enqueue: bulk.enqueue,
    Reserve: placing.reserve,
    ReleaseReservation: lambda ctx, caller, body, _: placing.release_reservation(ctx, caller, body),
    Report: running.report,
    Move: running.move,
    Put: objects.put_object,
    PutStatus: objects.put_status,
    Delete: lambda ctx, caller, body, _: objects.delete_object(ctx, caller, body),
    LeaseAcquire: lambda ctx, caller, body, _: leases.acquire(ctx, caller, body),
    LeaseRenew: lambda ctx, caller, body, _: leases.renew(ctx, caller, body),
    LeaseRelease: lambda ctx, caller, body, _: leases.release(ctx, caller, body),
}
assert set(_JUDGES) == set(get_args(Body)), "a command without a judge"


def judge(ctx: Context, command: Command) -> Judgement:
    refused = refuse_caller(ctx, command)
    if refused is not None:
        return refused
    body = command.body
    return _JUDGES[type(body)](ctx, command.caller, body, command.evidence)
