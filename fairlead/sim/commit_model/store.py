"""Owns the model's store: one head, one journal, and a network to it on which writes land late, or never, or unheard.

What lands is applied at one moment, in landing order; whether the sender still waits makes no difference. Never judges
a command. Called by servers; the world reads its journal and history.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead.sim.commit_model.records import GENESIS, Batch, Fence, Head, Mutant
from fairlead.sim.loop import SimLoop

T = TypeVar("T")

RPC_LIMIT_S = 0.3  # After this a sender gives up waiting. The write may land all the same.


@dataclass(frozen=True, slots=True)
class Committed:
    pass


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    pass


@dataclass(frozen=True, slots=True)
class Superseded:
    pass


@dataclass(frozen=True, slots=True)
class Fenced:
    pass


@dataclass(frozen=True, slots=True)
class Unavailable:
    pass


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    pass


CommitResult = Committed | AlreadyThere | Superseded | Fenced | Unavailable | OutcomeUnknown
RenewResult = Committed | Fenced | OutcomeUnknown


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """Rates per call, drawn once per seed."""

    lost: float
    late: float
    reply_lost: float
    unavailable: float
    renewal_lost: float
    acquire_late: float


@dataclass(frozen=True, slots=True)
class Applied:
    """A batch that became durable, and the epoch that was in force at that moment."""

    batch: Batch
    epoch: int


class ModelStore:
    def __init__(self, loop: SimLoop, faults: StoreFaults, mutant: Mutant | None, record: Callable[[Applied], None]):
        self.journal: list[Batch] = []
        self.counts: Counter[str] = Counter()
        self.unknown: set[str] = set()  # hashes of batches whose sender was left without an answer
        self.healthy = False  # once set, no more faults
        self._head = Head(Fence(0, ""), 0, 0, GENESIS)
        self._loop = loop
        self._faults = faults
        self._mutant = mutant
        self._record = record
        self._rng = loop.stream("store")

    # The five calls. Each travels, lands, and is answered; each part may fail.

    async def head(self) -> Head | None:
        return await self._call(lambda: self._head, "head")

    async def tail(self, after: int) -> list[Batch] | None:
        return await self._call(lambda: [batch for batch in self.journal if batch.first > after], "tail")

    async def acquire(self, holder: str, observed: Head) -> Fence | None:
        return await self._call(lambda: self._acquire(holder, observed), "acquire")

    async def renew(self, fence: Fence) -> RenewResult:
        return await self._call(lambda: self._renew(fence), "renew") or OutcomeUnknown()

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        result = await self._call(lambda: self._commit(fence, batch), "commit")
        if result is None:
            self.unknown.add(batch.hash)
            self.counts["unknown"] += 1
            return OutcomeUnknown()
        return result

    # What happens when a call lands. Synchronous, so atomic.

    def _acquire(self, holder: str, observed: Head) -> Fence | None:
        head = self._head
        if head.fence != observed.fence:
            return None
        # A renewal that landed after the standby last looked has given the old leader a full lease.
        if head.renewals != observed.renewals and self._mutant is not Mutant.ACQUIRE_IGNORES_RENEWALS:
            self.counts["acquire_beaten_by_renewal"] += 1
            return None
        fence = Fence(head.fence.epoch + 1, holder)
        self._head = Head(fence, 0, head.position, head.hash)
        self.counts["takeovers"] += 1
        return fence

    def _renew(self, fence: Fence) -> RenewResult:
        head = self._head
        if head.fence != fence:
            return Fenced()
        self._head = Head(fence, head.renewals + 1, head.position, head.hash)
        return Committed()

    def _commit(self, fence: Fence, batch: Batch) -> CommitResult:
        head = self._head
        if head.fence != fence and self._mutant is not Mutant.NO_EPOCH_GUARD:
            self.counts["fenced"] += 1
            return Fenced()
        follows = head.position == batch.first - 1 and head.hash == batch.previous
        if not follows and self._mutant is not Mutant.NO_SEQ_GUARD:
            there = any(row.hash == batch.hash for row in self.journal)
            self.counts["already_there" if there else "superseded"] += 1
            return AlreadyThere() if there else Superseded()
        self.journal.append(batch)
        self._head = Head(head.fence, head.renewals, batch.last, batch.hash)
        self._record(Applied(batch, head.fence.epoch))
        return Committed()

    # The network to the store.

    async def _call(self, land: Callable[[], T], what: str) -> T | None:
        """None when no answer came in time."""
        # Every value is drawn before any branch, so that one fault does not move the draws behind it.
        there_s: float | None
        back_s: float | None
        there_s, back_s = self._delay_s(), self._delay_s()
        lost, reply_lost, unavailable, renewal, acquire = (self._rng.random() for _ in range(5))
        acquire_s = self._rng.uniform(0.05, RPC_LIMIT_S)
        faults = self._faults
        if what == "acquire" and acquire < faults.acquire_late and not self.healthy:
            there_s = acquire_s  # Slow, yet answered in time: what lands before it must count.
        if not self.healthy and (lost < faults.lost or (what == "renew" and renewal < faults.renewal_lost)):
            there_s = None
        if not self.healthy and reply_lost < faults.reply_lost:
            back_s = None
        reply: asyncio.Future[Any] = self._loop.create_future()
        if there_s is not None:
            refuse = what == "commit" and unavailable < faults.unavailable and not self.healthy
            self._loop.call_later(there_s, self._land, land, refuse, back_s, reply)
        try:
            async with asyncio.timeout(RPC_LIMIT_S):
                result: T | None = await reply
                return result
        except TimeoutError:
            return None

    def _land(self, land: Callable[[], object], refuse: bool, back_s: float | None, reply: asyncio.Future[Any]) -> None:
        result: object = Unavailable() if refuse else land()
        if refuse:
            self.counts["unavailable"] += 1
        if reply.done() and isinstance(result, Committed):
            self.counts["landed_late"] += 1  # its sender had already given up waiting
        if back_s is not None:
            self._loop.call_later(back_s, _deliver, reply, result)

    def _delay_s(self) -> float:
        quick, slow, late = self._rng.uniform(0.001, 0.01), self._rng.uniform(0.05, 2.5), self._rng.random()
        return slow if late < self._faults.late and not self.healthy else quick


def _deliver(reply: asyncio.Future[Any], result: object) -> None:
    if not reply.done():
        reply.set_result(result)
