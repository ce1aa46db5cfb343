"""Owns the nouns of the model: commands, answers, batches, the replicated state and the named mutants.

Judging is here too, because it is a pure function of a state and a command. Called by every module of the model.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

TTL_S = 1.0  # How long a renewal is good for.
RHO = 0.01  # Clocks run at most this much too fast or too slow.
GENESIS = "genesis"  # The chain's value before the first batch.


class Mutant(enum.Enum):
    """One safeguard removed. The text says what the broken program does instead."""

    NO_SEQ_GUARD = "the store appends a batch wherever its head is"
    NO_EPOCH_GUARD = "the store takes a commit under any fence"
    TAIL_BEFORE_ACQUIRE = "a standby acquires after its last tail, and leads from what it had"
    SERVE_BEFORE_TAIL = "a new leader answers reads and refusals before it has tailed to the head"
    REFUSAL_BEFORE_DURABLE = "a refusal is answered while the head it was judged on is in flight"
    BLIND_RETRY_AFTER_UNKNOWN = "after OutcomeUnknown the batch is given up for absent and its position used again"
    UNAVAILABLE_SETTLES_UNKNOWN = "Unavailable to a resubmission is taken for the fate of the first submission too"
    UNAVAILABLE_WITHOUT_LEASE = "a leader whose lease ran out still answers that a command is certainly absent"
    DUPLICATE_NOT_JOINED = "a duplicate of a command in flight is judged as if it were new"
    ANSWER_COMMITTED_ON_FENCED = "Fenced is answered as committed"
    ANSWER_ABSENT_ON_FENCED = "Fenced is answered as certainly absent"
    REFUSAL_FORGOTTEN = "a leader takes a late copy of a command it has refused, or that was meant for another epoch"
    TRUST_OWN_LEASE_TOO_LONG = "a leader answers reads and refusals until somebody tells it that it is fenced"
    COMMIT_EXTENDS_LEASE = "a leader counts its lease from commits too, which standbys do not watch"
    ACQUIRE_IGNORES_RENEWALS = "acquire compares the fence only, so a renewal may land just before it"


@dataclass(frozen=True, slots=True)
class Command:
    id: str
    kind: Literal["claim", "release", "read"]
    slot: str


@dataclass(frozen=True, slots=True)
class Request:
    command: Command
    epoch: int  # the leadership it is meant for; another one refuses it


@dataclass(frozen=True, slots=True)
class Accepted:
    position: int
    token: int  # how many commands this slot has accepted, so a result is more than a yes


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Literal["Held", "Free", "Unavailable"]
    judged_at: int  # the position of the head it was judged on
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class ReadResult:
    position: int
    holder: str | None


@dataclass(frozen=True, slots=True)
class NotLeader:
    epoch: int | None  # the epoch this server leads in, if it leads


@dataclass(frozen=True, slots=True)
class Unknown:
    """No definite answer; the command may or may not take effect. Ask again with the same id."""


Answer = Accepted | Refused | ReadResult | NotLeader | Unknown
Definite = Accepted | Refused | ReadResult


@dataclass(frozen=True, slots=True)
class Effect:
    """What a command changed. An epoch start is an effect without a command."""

    command_id: str | None
    slot: str = ""
    holder: str | None = None
    token: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    epoch: int
    first: int
    last: int
    previous: str
    hash: str
    effects: tuple[Effect, ...]


def make_batch(epoch: int, position: int, previous: str, effects: tuple[Effect, ...]) -> Batch:
    """The batch that follows `position`. Its hash names its content and the whole history before it."""
    digest = hashlib.blake2b(repr((previous, epoch, effects)).encode(), digest_size=8).hexdigest()
    return Batch(epoch, position + 1, position + len(effects), previous, digest, effects)


@dataclass(frozen=True, slots=True)
class Fence:
    epoch: int
    holder: str


@dataclass(frozen=True, slots=True)
class Head:
    fence: Fence
    renewals: int
    position: int
    hash: str


@dataclass(slots=True)
class State:
    """What a journal prefix amounts to."""

    position: int = 0
    hash: str = GENESIS
    holders: dict[str, str | None] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    receipts: dict[str, Accepted] = field(default_factory=dict)

    def copy(self) -> State:
        return replace(self, holders=dict(self.holders), tokens=dict(self.tokens), receipts=dict(self.receipts))

    def apply(self, effect: Effect) -> None:
        self.position += 1
        if effect.command_id is not None:
            self.holders[effect.slot] = effect.holder
            self.tokens[effect.slot] = effect.token
            self.receipts[effect.command_id] = Accepted(self.position, effect.token)

    def apply_batch(self, batch: Batch) -> None:
        for effect in batch.effects:
            self.apply(effect)
        self.hash = batch.hash


def judge(state: State, command: Command) -> Effect | Refused:
    """Pure: what this command does to this state, or the fact that forbids it."""
    holder = state.holders.get(command.slot)
    token = state.tokens.get(command.slot, 0) + 1
    if command.kind == "claim":
        if holder is not None:
            return Refused("Held", state.position, holder)
        return Effect(command.id, command.slot, command.id, token)
    if holder is None:
        return Refused("Free", state.position)
    return Effect(command.id, command.slot, None, token)
