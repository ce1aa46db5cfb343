"""Owns a server's way from standby to leader and back: watching the head, taking over in P4's order, renewing.

Never judges a command (leader.py does). Called by the world, one `run` per process life.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from fairlead.sim.commit_model.host import Host
from fairlead.sim.commit_model.leader import Term
from fairlead.sim.commit_model.records import RHO, TTL_S, Answer, Fence, Head, Mutant, NotLeader, Request, State
from fairlead.sim.commit_model.store import Committed, Fenced, ModelStore

POLL_S = 0.15  # How often a standby looks at the head.
RENEW_S = 0.25  # Three renewals may be lost before the lease runs out.


class Server:
    def __init__(self, name: str, host: Host, store: ModelStore, mutant: Mutant | None, counts: Counter[str]) -> None:
        self.name = name
        self.host = host
        self.term: Term | None = None
        self._state = State()  # what this server has tailed
        self._store = store
        self._mutant = mutant
        self._counts = counts
        self._acquisitions = 0

    async def ask(self, request: Request) -> Answer:
        await self.host.wait_running()
        term = self.term
        if term is not None and not term.serving and not term.ended and self._mutant is Mutant.SERVE_BEFORE_TAIL:
            return term.peek(request)
        if term is None or not term.serving:
            return NotLeader(None)
        answer = await term.ask(request)
        await self.host.wait_running()
        return answer

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renewals())
            while True:
                observed = await self._stand_by()
                term = await self._take_over(observed)
                if term is not None:
                    await term.write()
                if self.term is not None:
                    self.term.end()
                # What the term held may be ahead of the journal or beside it. Only the journal counts.
                self.term = None
                self._state = State()

    async def _stand_by(self) -> Head:
        """Tails, and returns when the renewal counter has stood still for a whole lease on this server's own clock."""
        seen: tuple[Fence, int] | None = None
        since_s = 0.0
        while True:
            await self._tail()
            head = await self.host.reach(self._store.head())
            if head is not None:
                # Counted from when the answer is in hand: the renewal it shows was sent earlier than that.
                now_s = self.host.now()
                if (head.fence, head.renewals) != seen:
                    seen, since_s = (head.fence, head.renewals), now_s
                if head.fence.epoch == 0 or now_s - since_s > TTL_S * (1 + RHO):
                    return head
            await self.host.sleep(POLL_S)

    async def _take_over(self, observed: Head) -> Term | None:
        """P4: acquire, read the head, tail to it, compare the chain, start the epoch, serve. None if a step failed."""
        sent_s = self.host.now()
        self._acquisitions += 1
        holder = f"{self.name}/{self._acquisitions}"
        fence = await self.host.reach(self._store.acquire(holder, observed))
        if fence is None:
            return None
        term = Term(self.host, self._store, fence, self._state, sent_s, self._mutant, self._counts)
        self.term = term
        head = await self._read_head()
        if head.fence != fence:
            return None
        if self._mutant is Mutant.TAIL_BEFORE_ACQUIRE:
            self._state.position, self._state.hash = head.position, head.hash
        while self._state.position < head.position:
            await self._tail()
        if self._state.hash != head.hash:
            self._counts["chain_differs"] += 1
            return None  # The caller drops the memory; the next life reloads it.
        return term if await term.start() else None

    async def _read_head(self) -> Head:
        while True:
            head = await self.host.reach(self._store.head())
            if head is not None:
                return head

    async def _tail(self) -> None:
        for batch in await self.host.reach(self._store.tail(self._state.position)) or []:
            if batch.first == self._state.position + 1:
                self._state.apply_batch(batch)

    async def _renewals(self) -> None:
        while True:
            await self.host.sleep(RENEW_S)
            term = self.term
            if term is None:
                continue
            sent_s = self.host.now()
            result = await self.host.reach(self._store.renew(term.fence))
            if isinstance(result, Committed):
                term.lease_from_s = max(term.lease_from_s, sent_s)
            elif isinstance(result, Fenced):
                term.end()
