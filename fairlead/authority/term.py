"""One term of leadership: the fence, how long this process may trust itself, the chain of hashes, and plane time (P4, P5); and
what a heartbeat is answered with while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from fairlead.authority.building import Deposed
from fairlead.decide.lasting import GrantWord
from fairlead.ports import Clock, Tasks
from fairlead.store.contract import Committed, Fence, Fenced, Store

LEASE_TTL_S = 10.0
CLOCK_RATE_ERROR = 0.01  # rho: how far two machines' monotonic clocks may drift apart


class HeartbeatAck(msgspec.Struct, frozen=True, gc=False):
    """Fenced like a write (P9): an agent rejects a lower (incarnation, epoch) than it has seen."""

    incarnation: int
    epoch: int
    unknown_nodes: tuple[str, ...] = ()
    superseded_nodes: tuple[str, ...] = ()  # heard from a session that is not the newest of that node
    global_valid_s: float | None = None  # what is left of the region's slot lease (P11); None: it needs none
    grants: GrantWord | None = None  # how the leases of its grants stand (P13); None: nothing is leased
    lease_s: float = 0.0  # how long an agent may count on it
    longest_s: float = 0.0  # and the longest that another agent of its node may have been told


class Term:
    def __init__(
        self, fence: Fence, chain: bytes, sent: float, clock: Clock, ttl_s: float, last_ms: int, cold_since_ms: int | None = None
    ) -> None:
        """`cold_since_ms`: the time of the last batch, where nobody has measured how long ago that was."""
        self.is_cold = cold_since_ms is not None
        self.measured_ms = last_ms if cold_since_ms is None else cold_since_ms  # beyond that, time may be a wall clock's
        self.unmeasured_ms = last_ms - self.measured_ms  # which nobody has seen pass
        self.told_s = 0.0  # the longest lease that agents were told in what the store has lost
        self.fence = fence
        self.chain = chain
        self._clock = clock
        self._ttl_s = ttl_s
        self._trusted_until = sent + ttl_s * (1 - CLOCK_RATE_ERROR)
        self._last_ms = last_ms
        self._base_ms = last_ms
        self._base_monotonic = clock.monotonic()

    def renewed(self, sent: float) -> None:
        """The store confirmed a renewal or a commit that left at `sent`: trust counts from then, not from the answer."""
        self._trusted_until = max(self._trusted_until, sent + self._ttl_s * (1 - CLOCK_RATE_ERROR))

    @property
    def heard(self) -> float:
        """When the last request left that the store confirmed."""
        return self._trusted_until - self._ttl_s * (1 - CLOCK_RATE_ERROR)

    async def renew(self, store: Store) -> bool:
        """Raises Deposed where the store says that somebody else leads; False: the store did not say."""
        sent = self._clock.monotonic()
        result = await store.renew(self.fence)
        if isinstance(result, Fenced):
            raise Deposed(f"epoch {result.head.epoch} leads, held by {result.head.holder}")
        if isinstance(result, Committed):
            self.renewed(sent)
        return isinstance(result, Committed)

    async def confirm(self, store: Store) -> None:
        """A refusal or a repetition says what the present is; only a leader whose lease still runs may say that."""
        while not self.valid(self._clock.monotonic()):
            if not await self.renew(store):
                await self._clock.sleep(0.1)

    def valid(self, now: float) -> bool:
        return now < self._trusted_until

    async def last_wait(self, tasks: Tasks, work: Coroutine[Any, Any, None], stopped: asyncio.Event) -> bool:
        """Waits for what the store is asked; once stopped, until the lease has run out and no longer. False: it was given up.
        What was sent may still land, and nobody is told that it did not: the next leader finds it at its position, or not (P1,
        P3)."""
        asked, ended = tasks.start(work, "for the store"), asyncio.Event()
        asked.add_done_callback(lambda _: ended.set())  # awaited itself, its cancellation would look like ours
        bound = tasks.start(self._give_up(asked, stopped), "for the end of the lease")
        await ended.wait()
        bound.cancel()
        return not asked.cancelled()

    async def _give_up(self, asked: asyncio.Task[None], stopped: asyncio.Event) -> None:
        await stopped.wait()
        while self.valid(self._clock.monotonic()):
            await self._clock.sleep(0.01)
        asked.cancel()

    def plane_ms(self) -> int:
        """Plane time: where the journal stood, plus what passed since on our own monotonic clock. Never goes back."""
        passed = int((self._clock.monotonic() - self._base_monotonic) * 1000)
        now_ms = self._base_ms + passed
        if now_ms > self._last_ms:
            self._last_ms = now_ms
        return self._last_ms
