"""Owns the planted bugs: each takes one guard out of the production code at run time, and must be found by a checker.

A mutant names its guard, the profile that is directed at it and the invariants by which it must be found: not by a crash, which
proves nothing about the guard. Changes no file; `planted` puts the guard back when its run is over. Called by world.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fairlead.authority.judge import placing, running
from fairlead.authority.pipeline import Pipeline
from fairlead.authority.receipts import Receipts
from fairlead.authority.term import Term
from fairlead.controllers import disruption
from fairlead.decide import overrides
from fairlead.model.commands import IdempotencyKey
from fairlead.scheduler import holding
from fairlead.scheduler.holding import Holding
from fairlead.sim import (
    mutants_commits,
    mutants_deciding,
    mutants_gates,
    mutants_leases,
    mutants_moving,
    mutants_placing,
    mutants_present,
    mutants_recovery,
    mutants_running,
    mutants_taking,
    mutants_versions,
)
from fairlead.sim.planting import Mutant, Swap
from fairlead.sim.store import SimStore
from fairlead.store import memory
from fairlead.store.contract import Committed, OutcomeUnknown, Unavailable
from fairlead.store.rules import may_commit


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
    """Who is not the leader any more may commit. Position and hash guard the same, but for the moment before the next leader's
    first batch, so they are out as well for such a one."""

    def lax(head: Any, fence: Any, batch: Any) -> bool:
        return may_commit(head, fence, batch) or bool(fence.epoch < head.epoch and batch.last <= head.position)

    return [(memory, "may_commit", lax)]


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


def _leader_trusts_itself() -> list[Swap]:
    return [(Term, "valid", lambda self, now: True)]


def _no_receipts() -> list[Swap]:
    find = Receipts.find

    def forgetful(self: Receipts, ctx: Any, command: Any, hashed: bytes) -> Any:
        return None if isinstance(command.id, IdempotencyKey) else find(self, ctx, command, hashed)

    return [(Receipts, "find", forgetful)]


def _answers_early() -> list[Swap]:
    seal = Pipeline._seal

    def hasty(self: Pipeline) -> None:
        seal(self)
        self._ready[-1].building.answer()

    return [(Pipeline, "_seal", hasty)]


def _override_ends_at_clean_up() -> list[Swap]:
    def lasts(override: Any, now_ms: int) -> bool:
        return bool(override.metadata.deletion_time is None and overrides.is_agreed(override))

    def never(override: Any) -> int:
        return overrides.ends_ms(override) + 86_400_000

    return [(overrides, "is_in_force", lasts), (holding, "is_in_force", lasts), (holding, "ends_ms", never)]


def _no_override_at_commit() -> list[Swap]:
    return [(placing, "refuse_held", lambda ctx, tenant, workload: None), (Holding, "_sync", lambda self, now_ms: None)]


def _zones_not_avoided() -> list[Swap]:
    return [(overrides.Avoidance, "check", lambda self, need, row, view: row.node_class >= 0)]


def _moved_though_frozen() -> list[Swap]:
    return [(running, "refuse_frozen", lambda ctx, binding: None), (disruption, "_frozen", lambda *facts: None)]


MUTANTS: Final[dict[str, Mutant]] = {
    "override-freeze-ignored": Mutant("what is frozen stays where it is", "overrides", ("S11",), _moved_though_frozen),
    "override-ends-at-clean-up": Mutant("an override ends by evaluation", "overrides", ("S11", "L1"), _override_ends_at_clean_up),
    "override-not-at-commit": Mutant("a hold is asked for at commit", "overrides", ("S11",), _no_override_at_commit),
    "override-zones-ignored": Mutant("avoided zones are a gate at commit", "overrides", ("S11",), _zones_not_avoided),
    "store-any-fence": Mutant("an engine compares the fence", "leaders", ("S9",), _any_fence),
    "store-any-position": Mutant("an engine compares the position", "unknown", ("S18",), _any_position, 1.0),
    "store-ack-before-sync": Mutant("a store answers when it is durable", "unknown", ("S13",), _ack_before_sync),
    "unknown-is-no": Mutant("an unknown outcome is resolved, not assumed", "doubts", ("S13",), _unknown_is_no),
    "leader-trusts-itself": Mutant("a leader vouches only within its lease", "usurpers", ("S12",), _leader_trusts_itself),
    "no-receipts": Mutant("an Idempotency-Key takes effect once", "unknown", ("S13",), _no_receipts, 1.0),
    "answers-early": Mutant("nothing is answered before it is durable", "unknown", ("S13",), _answers_early),
    **mutants_leases.MUTANTS,
    **mutants_placing.MUTANTS,
    **mutants_recovery.MUTANTS,
    **mutants_moving.MUTANTS,
    **mutants_running.MUTANTS,
    **mutants_commits.MUTANTS,
    **mutants_deciding.MUTANTS,
    **mutants_gates.MUTANTS,
    **mutants_taking.MUTANTS,
    **mutants_present.MUTANTS,
    **mutants_versions.MUTANTS,
}

# Found in their first seed, in a second or two of CPU: what CI hunts on every commit.
QUICK: Final = (
    "bind-any-epoch", "no-policy-areas", "no-tenancy", "lease-no-fence", "slot-any-token", "step-any-owner", "asked-again",
    "no-fit", "no-cpu", "no-memory", "evict-any-rank", "released-twice", "watch-drops", "watch-twice", "watch-disorder",
    "reads-all", "takeover-never", "gang-what-fits", "claim-starts-at-once", "report-by-anybody",
    "lease-from-receipt", "begun-before", "deleted-alive", "any-session-reports", "canary-for-all", "scales-beyond",
    "moves-at-once", "queued-by-anybody", "reserved-by-any-role", "no-taints", "no-ports", "no-affinity",
)  # fmt: skip
