"""From standby to leader, in P4's order: watch the leader's sign of life, compare-and-set the epoch, read the head, tail to it,
compare the chain. What follows (the epoch-start batch, serving) is the authority's.

Owns this process's memory of the plane while it does not lead, and the knowledge that the store once lost history: what this life
of it saw, and what an earlier one did.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from fairlead.authority.building import Deposed
from fairlead.authority.follower import Behind, Forked, check_history
from fairlead.authority.judge import Settings
from fairlead.authority.memory import PlaneMemory
from fairlead.authority.remembering import Remembering, Seen, Told, lost_since
from fairlead.authority.term import CLOCK_RATE_ERROR, LEASE_TTL_S, Term
from fairlead.authority.truncation import JournalKept
from fairlead.ports import Clock, Ids, Kept
from fairlead.store.contract import (
    Committed,
    Contended,
    Fence,
    Fenced,
    Head,
    OutcomeUnknown,
    Store,
    StoreUnreachable,
    Unavailable,
)

log = logging.getLogger(__name__)

# Leases: so long a leader has to begin a new incarnation before it is taken for one that does not know.
PATIENCE: Final = 1
# One that has written nothing yet may be waiting for a lease first (`_outwait`); who deposed it for that would wait for another.
WAITING: Final = 2


class Timing(msgspec.Struct, frozen=True):
    lease_ttl_s: float = LEASE_TTL_S
    renew_s: float = 3.0
    poll_s: float = 0.5  # how often a standby looks
    ring_size: int = 200_000
    journal: JournalKept = JournalKept()


class Candidate:
    def __init__(
        self, store: Store, clock: Clock, ids: Ids, settings: Settings, timing: Timing, name: str, stopping: Callable[[], bool],
        kept: Kept | None = None,
    ) -> None:  # fmt: skip
        """`kept`: where this server remembers how far it has seen the store."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._timing = timing
        self._name = name
        self._stopping = stopping
        self.head: Head | None = None
        self.heard = clock.monotonic()  # when the store last said where it stands
        # In which incarnation the store lost history that was seen here, if it did: whoever leads next begins a new one (P6).
        self._lost_in: int | None = None
        self._own: Fence | None = None  # under which this process led last
        self._deposes = False  # leadership is taken from somebody who lives, or may
        self._remembering = Remembering(kept)
        self._before = self._remembering.last()  # until this life has taken over
        self._told = Told(self._before)
        # The latest incarnation and epoch that the store was seen at: it never goes back by itself.
        self._latest = (0, 0) if self._before is None else (self._before.incarnation, self._before.epoch)
        self._hurried = asyncio.Event()
        self.memory = self._fresh()

    def _fresh(self) -> PlaneMemory:
        return PlaneMemory(self._store, self._clock, self._settings, self._timing.ring_size)

    def forget(self) -> None:
        """Everything in memory was ours only while we led (P3)."""
        self.memory.hub.end()
        self.memory.early.end("this server stopped leading; list again from another")
        self.memory = self._fresh()

    async def open(self) -> None:
        """Raises StoreError when the store cannot be used at all; waits while it is only out of reach."""
        while not self._stopping():
            try:
                self.head = self._seen(await self._store.open())
                await self._compare_with_before(self.head)
                await check_history(self._store, self._clock)
                return
            except StoreUnreachable as error:
                log.warning("store out of reach: %s", error)
                await self._clock.sleep(error.retry_after_s)

    def lost_history(self, incarnation: int) -> None:
        """The store no longer has what was seen here in that incarnation."""
        self._lost_in = max(incarnation, self._lost_in or 0)

    async def stand_by(self) -> Head | None:
        """Keeps memory warm and watches the leader. The head when leadership is free to take, or must be taken from somebody who
        does not know what the store has lost; None when stopped."""
        silent_since = led_since = self._clock.monotonic()
        seen: object = None
        led: object = None
        led_from = 0  # where the history was when it was first seen to lead
        limit_s = self._limit_s
        self._deposes = False
        while not self._stopping():
            try:
                head = self.head = self._seen(await self._store.head())
                await self._keep_warm(head)
                if not head.holder or self._was_last(head) or await self._store.leader_gone():
                    self._deposes = self._was_led_since(head)
                    return head
            except StoreUnreachable as error:
                log.info("store out of reach: %s", error)
                await self._clock.sleep(error.retry_after_s)
                continue
            now = self._clock.monotonic()
            if head.sign_of_life() != seen:
                seen, silent_since = head.sign_of_life(), now
            elif now - silent_since >= limit_s:
                return head
            if head.fence() != led:
                led, led_since, led_from = head.fence(), now, head.position
            elif self._lost_in is not None and now - led_since >= limit_s * (PATIENCE if head.position > led_from else WAITING):
                log.warning("epoch %d leads without what the store has lost: it is taken from it", head.epoch)
                self._deposes = True
                return head
            await self._pause()
        return None

    @property
    def _limit_s(self) -> float:
        return self._timing.lease_ttl_s * (1 + CLOCK_RATE_ERROR)

    def _was_last(self, head: Head) -> bool:
        """The store lost history, and by what is left of it nobody has led since this process did: there is nobody to wait for,
        and others, who may not know of it, must not come first."""
        own = self._own
        if self._lost_in is None or own is None:
            return False
        return head.fence() == own or (head.incarnation, head.epoch) < (own.incarnation, own.epoch)

    def _was_led_since(self, head: Head) -> bool:
        """Somebody else led in what the store has lost: it may live and trust itself, and talk to nodes, with nothing left there
        that could show it."""
        own = self._own
        is_later = own is None or self._latest > (own.incarnation, own.epoch)
        return is_later and self._latest > (head.incarnation, head.epoch)

    def _seen(self, head: Head) -> Head:
        self.heard = self._clock.monotonic()
        at = (head.incarnation, head.epoch)
        if at < self._latest:  # lost, and nodes and other planes have heard of it: they would refuse it, given out again (P9)
            self.lost_history(self._latest[0])
        elif self._lost_in is not None and head.incarnation > self._lost_in:
            self._lost_in = None  # somebody else knew, and has begun a new incarnation
        self._latest = max(self._latest, at)
        return head

    async def _compare_with_before(self, head: Head) -> None:
        """With what an earlier life of this server saw: while it was down, nobody here could see the store lose anything."""
        try:
            lost = await lost_since(self._before, head, self._store, self._clock) if self._before is not None else ""
        except Forked as fork:
            lost = str(fork)
        if lost and self._before is not None:
            log.warning("the store lost history while this server was down: %s", lost)
            self.lost_history(self._before.incarnation)

    def saw(self, fence: Fence, position: int, chain: bytes) -> None:
        """A batch became durable, and nobody has heard of it yet."""
        self._remembering.note(
            Seen(fence.incarnation, fence.epoch, position, chain, self._leases()), self.memory.pledged.position
        )

    def _leases(self) -> float:
        return self._told.note(self.memory.plane, lost=self._lost_in is not None)

    def _remember(self, head: Head) -> None:
        """What a standby shows to those who read here."""
        position, chain, lease_s = self.memory.state.position, self.memory.follower.chain, self._leases()
        if chain and (head.position, head.hash) == (position, chain) and self._lost_in is None:
            self._remembering.note(Seen(head.incarnation, head.epoch, position, chain, lease_s), self.memory.pledged.position)

    def hurry(self) -> None:
        """Somebody waits for what the leader has written just now: look at once."""
        self._hurried.set()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._timing.poll_s):
                await self._hurried.wait()
        except TimeoutError:
            return
        self._hurried.clear()

    async def _keep_warm(self, head: Head) -> None:
        try:
            if not self.memory.loaded:
                await self._load()
                head = await self._store.head()  # what was loaded may be ahead of the head that was read before it
            await self.memory.catch_up(head)
            self._remember(head)
        except Forked as fork:
            self._forked(fork)  # the next look loads anew

    async def _load(self) -> None:
        try:
            await self.memory.load()
        except StoreUnreachable:
            self.forget()  # the next one begins with nothing, or what was read by now would be counted twice
            raise

    def _forked(self, fork: Forked) -> None:
        log.warning("memory is dropped: %s", fork)
        if not isinstance(fork, Behind):
            self.lost_history(self.memory.ctx.incarnation)
        self.forget()

    async def acquire(self, observed: Head) -> tuple[Fence | None, float]:
        """The fence, and when the request for it was sent: trust counts from then."""
        holder = f"{self._name}/{self._ids.token()}"
        sent = self._clock.monotonic()
        result = await self._store.acquire(holder, observed)
        match result:
            case Fence():
                return result, sent
            case OutcomeUnknown():
                # It may have landed, or land later. Its holder is ours alone: the head tells.
                head = await self._read_head()
                if head is not None and head.holder == holder:
                    return head.fence(), sent
            case Contended() | Unavailable():
                pass
        await self._clock.sleep(self._timing.poll_s)
        return None, sent

    async def _read_head(self) -> Head | None:
        try:
            return await self._store.head()
        except StoreUnreachable:
            return None

    async def take_over(self, fence: Fence, sent: float) -> tuple[Term, Head]:
        """After the epoch is ours: read the head, tail to it, compare. Only then may anything be written."""
        if self._deposes:
            sent = await self._outwait(fence)
        head = await self._store.head()
        if head.fence() != fence:
            raise Deposed(f"{head.holder} acquired epoch {head.epoch} meanwhile")
        await self._compare_with_before(head)
        try:
            if not self.memory.loaded or self.memory.state.horizon > head.materialised:
                self.forget()  # cold, or memory no longer reaches back to what the store has materialised
                await self._load()
            await self._reach(head)
        except Forked as fork:
            await self._load_again(head, fork)
        lost = self._lost_in is not None
        if lost:
            log.warning("the store lost history that was seen here: a new incarnation begins")
            fence = await self._new_incarnation(fence, head)
            self._lost_in = None
        self._before, self._own = None, fence
        self._latest = max(self._latest, (fence.incarnation, fence.epoch))
        memory = self.memory
        memory.begin(fence.incarnation)
        follower = memory.follower
        cold_since_ms = None if follower.seen_at else follower.last_ms
        term = Term(fence, head.hash, sent, self._clock, self._timing.lease_ttl_s, follower.plane_ms(), cold_since_ms)
        term.told_s = self._told.begin(memory.plane, fence, lost=lost)
        memory.ctx.plane_ms = term.plane_ms
        memory.ctx.leader_since_ms = term.plane_ms()
        gc.collect()
        gc.freeze()  # what was loaded stays; a full collection over it would stop the loop for a second (P17)
        return term, head

    async def _outwait(self, fence: Fence) -> float:
        """Whoever led until now may trust itself for one more lease, counted from before ours began: nothing is written or
        answered until it is over. Says when the last renewal left."""
        until = self._clock.monotonic() + self._limit_s
        while True:
            sent = self._clock.monotonic()
            if isinstance(await self._store.renew(fence), Fenced):
                raise Deposed("somebody else acquired meanwhile")
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                return sent
            await self._clock.sleep(min(left_s, self._timing.renew_s))

    async def _reach(self, head: Head) -> None:
        """The head, with everything that the store's objects lack at hand: the leader writes it there, and the journal will not
        be asked for it again."""
        state = self.memory.state
        if state.horizon > head.materialised:  # the head that was read is no longer the store's
            raise Forked(f"the objects are at {state.horizon}, and were at {head.materialised} a moment ago")
        state.hold(head.materialised)
        await self.memory.catch_up(head)

    async def _load_again(self, head: Head, fork: Forked) -> None:
        self._forked(fork)
        try:
            await self._load()
            await self._reach(head)
        except Forked as again:
            self._forked(again)
            raise Deposed(f"the store changes under this takeover: {again}") from again

    async def _new_incarnation(self, fence: Fence, head: Head) -> Fence:
        wanted = max(head.incarnation, self.memory.ctx.incarnation, self._latest[0]) + 1
        result = await self._store.set_incarnation(fence, wanted)
        if not isinstance(result, Committed):
            raise Deposed(f"could not begin incarnation {wanted}: {result}")
        self._latest = max(self._latest, (wanted, fence.epoch))
        return Fence(wanted, fence.epoch, fence.holder)
