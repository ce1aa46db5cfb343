"""What a scheduler leaves behind of each attempt: what it looked at, what it chose and why, what became of it.

Slots of one shape that are decided in one cycle share a record, so that explaining costs a few microseconds a slot. A record has
two halves: what was decided, whose hash the binding carries in the journal, and the outcomes, which are known only when the
authority has answered. Bodies lie in the decision log (fairlead/store/decisions), not in the journal.
"""

from __future__ import annotations

import hashlib

import msgspec

from fairlead.model import codec


class _Body(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Kept as arrays: a field may only ever be added at the end, with a default."""


class Candidate(_Body, frozen=True):
    """One of the best nodes, and what each score gave it: (score, weight, rate)."""

    node: str
    total: int
    rates: tuple[tuple[str, int, int], ...] = ()


class Attempt(_Body, frozen=True):
    """One slot's part in a decision. `node` is empty where none was found; `reason` is then why it waits."""

    tenant: str
    name: str  # WORKLOAD-INDEX
    generation: int
    epoch: int
    queued_ms: int  # from creation to this decision
    node: str = ""
    victims: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""
    next_owner: str = ""
    next_attempt_ms: int = 0


class Decided(_Body, frozen=True):
    scheduler: str
    time_ms: int  # plane time
    policy_revision: int
    observed_revision: int  # up to where the scheduler's picture went
    age_ms: int  # how old that was
    strategy: str
    ask: dict[str, str]  # what each slot of the record asks for, in words
    nodes: int  # how many were looked at
    feasible: int
    ruled_out: dict[str, int] = {}  # gate -> nodes it ruled out, each counted at the first gate it failed
    reasons: dict[str, str] = {}  # of a few nodes, by name: why each was ruled out
    candidates: tuple[Candidate, ...] = ()
    quota: dict[str, str] = {}  # tenant -> what is left of its grant where that decided
    attempts: tuple[Attempt, ...] = ()


class Result(_Body, frozen=True):
    """What became of one attempt: Bound, or the authority's refusal, or the reason it waits."""

    outcome: str
    detail: str = ""
    revision: int = 0


class DecisionRecord(_Body, frozen=True):
    id: str
    decided: Decided
    results: tuple[Result, ...] = ()  # in the order of the attempts


def decision_id(decided: Decided) -> str:
    return hashlib.blake2b(codec.encode(decided), digest_size=12).hexdigest()
