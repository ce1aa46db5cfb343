"""Judging: a command and the present state in, effects or a refusal out. Pure, so that a replay judges the same (P2)."""

from __future__ import annotations

from typing import assert_never

from fairlead.authority.judge import leases, objects, placing, running
from fairlead.authority.judge.callers import refuse_caller
from fairlead.authority.judge.context import Context, Draft, Effect, Judgement, Settings
from fairlead.model.commands import (
    Bind,
    BindGang,
    Command,
    Delete,
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

__all__ = ["Context", "Draft", "Effect", "Judgement", "Settings", "judge"]


def judge(ctx: Context, command: Command) -> Judgement:
    refused = refuse_caller(ctx, command)
    if refused is not None:
        return refused
    caller, body, evidence = command.caller, command.body, command.evidence
    match body:
        case Bind():
            return placing.bind(ctx, caller, body, evidence)
        case Report():
            return running.report(ctx, caller, body, evidence)
        case PutStatus():
            return objects.put_status(ctx, caller, body)
        case Put():
            return objects.put_object(ctx, caller, body)
        case Move():
            return running.move(ctx, caller, body, evidence)
        case Reserve():
            return placing.reserve(ctx, caller, body, evidence)
        case BindGang():
            return placing.bind_gang(ctx, caller, body, evidence)
        case ReleaseReservation():
            return placing.release_reservation(ctx, caller, body)
        case Delete():
            return objects.delete_object(ctx, caller, body)
        case LeaseRenew():
            return leases.renew(ctx, caller, body)
        case LeaseAcquire():
            return leases.acquire(ctx, caller, body)
        case LeaseRelease():
            return leases.release(ctx, caller, body)
        case _:
            assert_never(body)
