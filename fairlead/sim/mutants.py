"""Owns the planted bugs: each takes one guard out of the production code at run time, and must be found by a checker.

A mutant names its guard, the profile that is directed at it and the invariants by which it must be found: not by a crash, which
proves nothing about the guard. Changes no file; `planted` puts the guard back when its run is over. Called by world.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from fairlead.agent.node import Node
from fairlead.agent.remembered import Remembered
from fairlead.authority.hub import Hub
from fairlead.authority.judge import callers, placing, running
from fairlead.authority.pipeline import Pipeline
from fairlead.authority.receipts import Receipts
from fairlead.authority.term import Term
from fairlead.decide import overrides
from fairlead.model.commands import IdempotencyKey, Refused
from fairlead.scheduler import holding
from fairlead.scheduler.holding import Holding
from fairlead.sim.driver import Instances
from fairlead.sim.store import SimStore
from fairlead.store import memory
from fairlead.store.contract import Committed, OutcomeUnknown, Unavailable

Swap = tuple[Any, str, Any]


class Mutant(msgspec.Struct, frozen=True):
    guard: str
    profile: str
    invariants: tuple[str, ...]
    swaps: Callable[[], list[Swap]]
    minutes: float = 2.0


@contextmanager
def planted(name: str) -> Iterator[None]:
    if not name:
        yield
        return
    swaps = MUTANTS[name].swaps()
    kept = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in swaps]
    for owner, attribute, new in swaps:
        setattr(owner, attribute, new)
    try:
        yield
    finally:
        for owner, attribute, old in reversed(kept):
            setattr(owner, attribute, old)


# --- what is taken out -----------------------------------------------------------------------------------------------------


def _any_fence() -> list[Swap]:
    def may_commit(head: Any, fence: Any, batch: Any) -> bool:
        return bool(head.position == batch.first - 1 and head.hash == batch.previous)

    return [(memory, "may_commit", may_commit)]


def _any_position() -> list[Swap]:
    def may_commit(head: Any, fence: Any, batch: Any) -> bool:
        return bool(head.fence() == fence)

    return [(memory, "may_commit", may_commit)]


def _ack_before_sync() -> list[Swap]:
    """The store says Committed and forgets: every answer to a commit that was lost counts as one that landed."""
    commit = SimStore.commit

    async def lying(self: SimStore, fence: Any, batch: Any) -> Any:
        result = await commit(self, fence, batch)
        return Committed() if isinstance(result, OutcomeUnknown) else result

    return [(SimStore, "commit", lying)]


def _unknown_is_no() -> list[Swap]:
    commit = SimStore.commit

    async def sure(self: SimStore, fence: Any, batch: Any) -> Any:
        result = await commit(self, fence, batch)
        return Unavailable("Timeout", "it did not answer") if isinstance(result, OutcomeUnknown) else result

    return [(SimStore, "commit", sure)]


def _no_lease_fence() -> list[Swap]:
    return [(callers, "_fenced", lambda ctx, command: None)]


def _any_token() -> list[Swap]:
    def bound(ctx: Any, caller: Any, body: Any) -> Any:
        rec = ctx.state.get("bindings", body.tenant, body.name)
        return rec if rec is not None else Refused("NotFound", "no slot")

    return [(running, "_bound", bound)]


def _agent_takes_any_token() -> list[Swap]:
    return [(Remembered, "see", lambda self, tenant, name, token: True)]


def _agent_lease_never_ends() -> list[Swap]:
    return [
        (Node, "until", lambda self, slot: float("inf")),
        (Node, "expire", lambda self, now: False),
        (Node, "overdue", lambda self, now: False),
        (Instances, "_look_at_fence", lambda self, run: None),  # the shim guards the same
    ]


def _leader_trusts_itself() -> list[Swap]:
    return [(Term, "valid", lambda self, now: True)]


def _no_fence_wait() -> list[Swap]:
    return [(running, "_not_proven_gone", lambda ctx, binding: None)]


def _no_fit() -> list[Swap]:
    return [(placing, "feasible", lambda need, row, ctx: True)]


def _no_grant() -> list[Swap]:
    return [(placing, "_grant", lambda ctx, body, need, account, devices: None)]


def _no_receipts() -> list[Swap]:
    find = Receipts.find

    def forgetful(self: Receipts, ctx: Any, command: Any, hashed: bytes) -> Any:
        return None if isinstance(command.id, IdempotencyKey) else find(self, ctx, command, hashed)

    return [(Receipts, "find", forgetful)]


def _answers_early() -> list[Swap]:
    seal = Pipeline._seal

    def hasty(self: Pipeline) -> None:
        seal(self)
        Pipeline._answer(self._ready[-1].building)

    return [(Pipeline, "_seal", hasty)]


def _twins_both_stay() -> list[Swap]:
    return [(Node, "supersede", lambda self, why: None)]


def _watch_drops() -> list[Swap]:
    publish = Hub.publish

    def lossy(self: Hub, recs: Any) -> None:
        publish(self, recs[:-1] if len(recs) > 2 else recs)

    return [(Hub, "publish", lossy)]


def _override_ends_at_clean_up() -> list[Swap]:
    def lasts(override: Any, now_ms: int) -> bool:
        return bool(override.metadata.deletion_time is None and overrides.is_agreed(override))

    def never(override: Any) -> int:
        return 1 << 50

    return [(overrides, "is_in_force", lasts), (holding, "is_in_force", lasts), (holding, "ends_ms", never)]


def _no_override_at_commit() -> list[Swap]:
    return [(placing, "refuse_held", lambda ctx, tenant, workload: None), (Holding, "_sync", lambda self, now_ms: None)]


def _zones_not_avoided() -> list[Swap]:
    return [(overrides.Avoidance, "check", lambda self, need, row, view: row.node_class >= 0)]


MUTANTS: Final[dict[str, Mutant]] = {
    "override-ends-at-clean-up": Mutant("an override ends by evaluation", "overrides", ("S11",), _override_ends_at_clean_up),
    "override-not-at-commit": Mutant("a hold is asked for at commit", "overrides", ("S11",), _no_override_at_commit),
    "override-zones-ignored": Mutant("avoided zones are a gate at commit", "overrides", ("S11",), _zones_not_avoided),
    "store-any-fence": Mutant("an engine compares the fence", "leaders", ("S9", "S13", "S18"), _any_fence),
    "store-any-position": Mutant("an engine compares the position", "unknown", ("S9", "S18"), _any_position),
    "store-ack-before-sync": Mutant("a store answers when it is durable", "unknown", ("S13", "S14"), _ack_before_sync),
    "unknown-is-no": Mutant("an unknown outcome is resolved, not assumed", "unknown", ("S13", "S18"), _unknown_is_no),
    "lease-no-fence": Mutant("a leased role carries its lease's epoch", "leaders", ("S9",), _no_lease_fence),
    "slot-any-token": Mutant("a report carries the binding's token", "exclusive", ("S9", "S7"), _any_token),
    "agent-any-token": Mutant(
        "an agent refuses a token below one it has seen", "exclusive", ("S9", "S12"), _agent_takes_any_token
    ),
    "agent-no-lease": Mutant("an agent stops Exclusive work when its lease ends", "exclusive", ("S12",), _agent_lease_never_ends),
    "leader-trusts-itself": Mutant("a leader vouches only within its lease", "leaders", ("S12", "S13"), _leader_trusts_itself),
    "no-fence-wait": Mutant("an Exclusive slot is released after its fence time", "exclusive", ("S12",), _no_fence_wait),
    "no-fit": Mutant("the authority checks capacity again", "tight", ("S2", "S3"), _no_fit),
    "no-grant": Mutant("the authority checks the grant again", "tight", ("S4",), _no_grant),
    "no-receipts": Mutant("an Idempotency-Key takes effect once", "unknown", ("S13",), _no_receipts),
    "answers-early": Mutant("nothing is answered before it is durable", "unknown", ("S13", "S14"), _answers_early),
    "watch-drops": Mutant("a feed tells everything that was committed", "first", ("S15",), _watch_drops),
    "twins-both-stay": Mutant("an agent whose session is over stops", "twins", ("S12",), _twins_both_stay),
}
