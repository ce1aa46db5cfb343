"""Owns one leadership: the speculative and the durable head, the commands in flight, and what each is answered.

A Term begins after takeover and ends for good when the server learns that it is fenced; nothing of it outlives that. It
never acquires, tails or renews (server.py does) and never reads the journal. Called by its server.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.sim.commit_model.host import Host
from fairlead.sim.commit_model.records import (
    RHO,
    TTL_S,
    Accepted,
    Answer,
    Batch,
    Command,
    Effect,
    Fence,
    Mutant,
    NotLeader,
    ReadResult,
    Refused,
    Request,
    State,
    Unknown,
    judge,
    make_batch,
)
from fairlead.sim.commit_model.store import (
    AlreadyThere,
    CommitResult,
    Committed,
    Fenced,
    ModelStore,
    OutcomeUnknown,
    Superseded,
    Unavailable,
)

BATCH_EFFECTS_MAX = 4
RETRY_S = 0.05


@dataclass(slots=True, eq=False)
class Open:
    """A command this term has judged. Kept after its answer too: a late copy must get the same one."""

    command: Command
    answer: asyncio.Future[Answer]
    verdict: Effect | Refused | Accepted
    judged_at: int  # position of the head that the verdict depends on, its own effect included


class Term:
    def __init__(
        self,
        host: Host,
        store: ModelStore,
        fence: Fence,
        durable: State,
        lease_from_s: float,
        mutant: Mutant | None,
        counts: Counter[str],
    ) -> None:
        self.fence = fence
        self.durable = durable
        self.serving = False
        self.ended = False
        self.lease_from_s = lease_from_s
        self._speculative = durable.copy()
        self._open: dict[str, Open] = {}
        self._pending: list[Open] = []  # accepted, for the next batch
        self._held_back: list[Open] = []  # refusals and duplicates whose head is not durable yet
        self._work: asyncio.Future[None] | None = None
        self._host = host
        self._store = store
        self._mutant = mutant
        self._counts = counts

    # Asking.

    def valid(self) -> bool:
        """Whether no other leader can have begun to serve. Counted from when the last renewal was sent."""
        if self._mutant is Mutant.TRUST_OWN_LEASE_TOO_LONG:
            return True
        return self._host.now() < self.lease_from_s + TTL_S * (1 - RHO)

    async def ask(self, request: Request) -> Answer:
        forgetful = self._mutant is Mutant.REFUSAL_FORGOTTEN
        if request.epoch != self.fence.epoch and not forgetful:
            return NotLeader(self.fence.epoch)
        command = request.command
        if command.kind == "read":
            return ReadResult(self.durable.position, self.durable.holders.get(command.slot)) if self.valid() else Unknown()
        known = self._open.get(command.id)
        if known is not None and forgetful and known.answer.done() and isinstance(known.verdict, Refused):
            known = None
        if known is not None and not (self._mutant is Mutant.DUPLICATE_NOT_JOINED and not known.answer.done()):
            self._counts["joined"] += 1
            return await asyncio.shield(known.answer)
        opened = Open(command, asyncio.get_running_loop().create_future(), Refused("Unavailable", 0), 0)
        self._open[command.id] = opened
        self._judge(opened)
        return await asyncio.shield(opened.answer)

    def peek(self, request: Request) -> Answer:
        """For SERVE_BEFORE_TAIL only: what a term that has not started would say. It accepts nothing yet."""
        if request.epoch != self.fence.epoch:
            return NotLeader(self.fence.epoch)
        if request.command.kind == "read":
            return ReadResult(self.durable.position, self.durable.holders.get(request.command.slot))
        verdict = self.durable.receipts.get(request.command.id) or judge(self.durable, request.command)
        if isinstance(verdict, Effect) or not self.valid():
            return NotLeader(None)
        # Remembered like any other refusal, so that what this mutant shows is staleness and nothing else.
        opened = Open(request.command, asyncio.get_running_loop().create_future(), verdict, self.durable.position)
        self._open.setdefault(request.command.id, opened)
        _settle(opened, verdict)
        return verdict

    def _judge(self, opened: Open) -> None:
        command, head = opened.command, self._speculative
        receipts = self.durable.receipts if self._mutant is Mutant.DUPLICATE_NOT_JOINED else head.receipts
        verdict = receipts.get(command.id) or judge(head, command)
        opened.verdict = verdict
        if isinstance(verdict, Effect):
            head.apply(verdict)
            self._pending.append(opened)
            self._wake()
        else:
            self._held_back.append(opened)
        opened.judged_at = head.position
        self._answer_held_back()

    def _answer_held_back(self) -> None:
        """Refusals and duplicates leave when the head they were judged on is durable, in the order they came."""
        waiting = self._held_back
        self._held_back = []
        for opened in waiting:
            early = self._mutant is Mutant.REFUSAL_BEFORE_DURABLE
            if opened.judged_at > self.durable.position and not early:
                self._counts["held_back"] += 1
                self._held_back.append(opened)
            elif self.valid():
                assert not isinstance(opened.verdict, Effect)
                _settle(opened, opened.verdict)
            else:
                self._counts["lease_ran_out"] += 1
                self._forget(opened)

    def _forget(self, opened: Open) -> None:
        """No definite answer was given, so a retry may be judged afresh."""
        _settle(opened, Unknown())
        if self._open.get(opened.command.id) is opened:
            del self._open[opened.command.id]

    # Writing.

    async def start(self) -> bool:
        """Commits the epoch-start batch. Only then may the term serve."""
        batch = make_batch(self.fence.epoch, self.durable.position, self.durable.hash, (Effect(None),))
        result = await self._commit(batch)
        while isinstance(result, Unavailable):
            await self._host.sleep(RETRY_S)
            result = await self._commit(batch)
        if self.ended or not isinstance(result, Committed | AlreadyThere):
            return False
        self.durable.apply_batch(batch)
        self._speculative = self.durable.copy()
        self.serving = True
        return True

    async def write(self) -> None:
        """Group commit: what was accepted while one batch was in flight makes up the next. Returns when it is over."""
        while not self.ended:
            if not self._pending:
                self._work = asyncio.get_running_loop().create_future()
                await self._host.reach(self._work)
                continue
            members, self._pending = self._pending[:BATCH_EFFECTS_MAX], self._pending[BATCH_EFFECTS_MAX:]
            effects = tuple(opened.verdict for opened in members if isinstance(opened.verdict, Effect))
            batch = make_batch(self.fence.epoch, self.durable.position, self.durable.hash, effects)
            result = await self._commit(batch)
            if self.ended:
                return
            match result:
                case Committed() | AlreadyThere():
                    self._became_durable(batch, members)
                case Unavailable():
                    self._undo(members)
                case Fenced() | Superseded() | OutcomeUnknown():
                    self.end()

    async def _commit(self, batch: Batch) -> CommitResult:
        """Resubmits the same batch until its outcome is known. Never returns OutcomeUnknown."""
        uncertain = False
        while True:
            sent_s = self._host.now()
            result = await self._host.reach(self._store.commit(self.fence, batch))
            if isinstance(result, OutcomeUnknown):
                if self._mutant is Mutant.BLIND_RETRY_AFTER_UNKNOWN:
                    return Unavailable()
                uncertain = True
            elif isinstance(result, Unavailable) and uncertain and self._mutant is not Mutant.UNAVAILABLE_SETTLES_UNKNOWN:
                # This submission is certainly absent; the earlier one may still land.
                self._counts["unavailable_after_unknown"] += 1
            else:
                if isinstance(result, Committed) and self._mutant is Mutant.COMMIT_EXTENDS_LEASE:
                    self.lease_from_s = max(self.lease_from_s, sent_s)
                return result
            if self.ended:
                return result
            await self._host.sleep(RETRY_S)

    def _became_durable(self, batch: Batch, members: Iterable[Open]) -> None:
        self.durable.apply_batch(batch)
        for opened in members:
            _settle(opened, self.durable.receipts[opened.command.id])
        self._answer_held_back()

    def _undo(self, members: Iterable[Open]) -> None:
        """The batch is certainly absent: go back to the durable head and judge again what was judged on top of it."""
        self._counts["undone"] += 1
        # A definite no needs the lease like any other: a newer leader may yet accept a copy of the command.
        definite = self.valid() or self._mutant is Mutant.UNAVAILABLE_WITHOUT_LEASE
        for opened in members:
            if definite:
                _settle(opened, Refused("Unavailable", self.durable.position))
            else:
                self._forget(opened)
        again = sorted(self._pending + self._held_back, key=lambda opened: opened.judged_at)
        self._pending, self._held_back = [], []
        self._speculative = self.durable.copy()
        for opened in again:
            if not opened.answer.done():
                self._judge(opened)

    def end(self) -> None:
        """Fenced: drop everything. Nobody who still waits can be told what became of his command."""
        if self.ended:
            return
        self.ended = True
        self.serving = False
        for opened in self._open.values():
            _settle(opened, self._last_word(opened))
        self._wake()

    def _last_word(self, opened: Open) -> Answer:
        if isinstance(opened.verdict, Effect):
            if self._mutant is Mutant.ANSWER_COMMITTED_ON_FENCED:
                return Accepted(opened.judged_at, opened.verdict.token)
            if self._mutant is Mutant.ANSWER_ABSENT_ON_FENCED:
                return Refused("Unavailable", self.durable.position)
        return Unknown()

    def _wake(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.set_result(None)


def _settle(opened: Open, answer: Answer) -> None:
    if not opened.answer.done():
        opened.answer.set_result(answer)
