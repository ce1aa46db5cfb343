"""The authority of one plane: the single fenced writer. Standby until it leads, leader until it is deposed, standby again.

Takeover in P4's order: compare-and-set the epoch, read the head, tail to it, compare the chain, commit the epoch-start batch,
serve.
Everything it knows it either loaded from the store or committed itself. Runs in one task group; created by main.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable

import msgspec

from fairlead.authority.chores import Chores
from fairlead.authority.follower import Follower, Forked, check_history
from fairlead.authority.history import History
from fairlead.authority.hot import hot_of
from fairlead.authority.hub import Expired, Hub, Watch
from fairlead.authority.judge import Context, Settings
from fairlead.authority.judge.context import Effect, instant, put
from fairlead.authority.lanes import Call, Lanes
from fairlead.authority.materialiser import Materialiser
from fairlead.authority.meters import Meters
from fairlead.authority.pipeline import Deposed, Pipeline
from fairlead.authority.reader import View, open_view
from fairlead.authority.receipts import Receipts
from fairlead.authority.state import ADDED, Rec, State
from fairlead.authority.term import CLOCK_RATE_ERROR, LEASE_TTL_S, Term
from fairlead.authority.truncation import JournalKept, Truncation
from fairlead.model.commands import Command, Outcome, Refused
from fairlead.model.ids import key, split_revision
from fairlead.model.ids import revision as revision_of
from fairlead.model.kinds.ledger import Plane, PlaneSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.ports import Clock, Ids, Tasks
from fairlead.store.contract import (
    BATCH_COMMANDS_MAX,
    Batch,
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
from fairlead.store.rules import sign_of_life

log = logging.getLogger(__name__)


class Timing(msgspec.Struct, frozen=True):
    lease_ttl_s: float = LEASE_TTL_S
    renew_s: float = 3.0
    poll_s: float = 0.5  # how often a standby looks
    ring_size: int = 200_000
    journal: JournalKept = JournalKept()


class HeartbeatAck(msgspec.Struct, frozen=True, gc=False):
    """Fenced like a write (P9): an agent rejects a lower (incarnation, epoch) than it has seen."""

    incarnation: int
    epoch: int
    unknown_nodes: tuple[str, ...] = ()


class Authority:
    def __init__(
        self, store: Store, clock: Clock, ids: Ids, settings: Settings, *, name: str = "server", timing: Timing | None = None,
        history: History | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._name = name
        self._timing = timing or Timing()
        self._history = history
        self.meters = Meters()
        self._lanes = Lanes()
        self._pipeline: Pipeline | None = None
        self._term: Term | None = None
        self._head: Head | None = None
        self._materialiser = Materialiser(store, clock, self.meters)
        self._leading = asyncio.Event()
        self._stop = asyncio.Event()
        self._saw_fork = False
        self._fresh_state()

    def _fresh_state(self) -> None:
        self._state = State(hot_of, self._timing.ring_size)
        self._follower = Follower(self._store, self._clock, self._state)
        self._ctx = Context(self._state, self._settings)
        self._receipts = Receipts(self._state)
        self._hub = Hub(self._state)
        self._chores = Chores(self._ctx, self._receipts, self._clock, self._submit_own)
        self._warm = False

    # --- what callers use --------------------------------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        return self._leading.is_set()

    async def wait_leading(self) -> None:
        await self._leading.wait()

    @property
    def fence(self) -> Fence | None:
        return self._term.fence if self._term is not None and self.leading else None

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        """Each command judged alone, in order. The answers come when what they rest on is durable."""
        for command in commands:
            if command.caller.role is Role.AUTHORITY:
                return [Refused("NotOwner", "nobody but the authority itself acts as the authority") for _ in commands]
        return await self._submit(commands)

    async def _submit(self, commands: list[Command]) -> list[Outcome]:
        if not commands:
            return []
        pipeline = self._pipeline
        if pipeline is None or not self.leading:
            holder = self._head.holder if self._head else ""
            no = Refused("NotLeader", f"this server does not lead; {holder or 'nobody yet'} does", {"holder": holder}, (), 1.0)
            return [no for _ in commands]
        if len(commands) > BATCH_COMMANDS_MAX:
            detail = f"{len(commands)} commands in one call, at most {BATCH_COMMANDS_MAX}; send several calls"
            too_many = Refused("TooLarge", detail)
            return [too_many for _ in commands]
        call = Call(commands, asyncio.get_running_loop().create_future())
        refused = self._lanes.put(call)
        if refused is not None:
            self.meters.overloaded_total += 1
            return [refused for _ in commands]
        pipeline.wake()
        return await call.done

    async def _submit_own(self, commands: list[Command]) -> list[Outcome]:
        return await self._submit(commands)

    def view(self, revision: int = 0) -> View:
        """Reads at the durable head, or at an earlier revision that memory reaches (else Expired)."""
        return open_view(self._state, self._ctx.incarnation, self._clock, revision)

    async def get_at(self, plural: str, tenant: str, name: str, revision: int) -> Rec | None:
        """One object at any earlier revision within retention: from memory, else from the archive."""
        try:
            return self.view(revision).get(plural, tenant, name)
        except Expired:
            if self._history is None:
                raise
            found = await self._history.get(key(plural, tenant, name), revision)
            return None if found is None else Rec(plural, tenant, name, found[0], found[1], None, None, ADDED)

    async def revision_at(self, time_ms: int) -> int:
        """The newest revision at or before that plane time."""
        if self._history is None:
            raise Expired("this server keeps no history", self._state.horizon)
        point = await self._history.point_at(time_ms)
        return revision_of(point.incarnation, point.position)

    def watch(
        self,
        plural: str,
        after_revision: int,
        *,
        tenant: str | None = None,
        node: str | None = None,
        accepts: Callable[[Rec], bool] | None = None,
    ) -> Watch:
        self.view(after_revision)
        _, position = split_revision(after_revision)
        return self._hub.watch(plural, position, tenant=tenant, node=node, accepts=accepts)

    def receipt(self, actor: str, key: str) -> Outcome | None:
        """What an Idempotency-Key came to, as far as it is durable; None if it is not known."""
        return self._receipts.lookup(self._ctx, actor, key)

    def heartbeat(self, nodes: list[tuple[str, int]]) -> HeartbeatAck | Refused:
        """Soft: (node, session) pairs heard just now. Acknowledged only while this leader may trust itself (P9)."""
        term = self._term
        if term is None or not self.leading or not term.valid(self._clock.monotonic()):
            self.meters.fenced_heartbeats_total += 1
            return Refused("NotLeader", "this server cannot vouch for the present", retry_after_s=1.0)
        now_ms = term.plane_ms()
        accounts = self._ctx.ledger.nodes
        unknown: list[str] = []
        for name, session in nodes:
            account = accounts.get(name)
            if account is None or not account.known:
                unknown.append(name)
            elif session >= account.observed_session:
                account.observed_session = session
                account.observed_ms = max(account.observed_ms, now_ms)
        return HeartbeatAck(term.fence.incarnation, term.fence.epoch, tuple(unknown))

    def stop(self) -> None:
        """Asks `run` to finish what is under way, hand leadership over and return."""
        self._stop.set()

    # --- the life of a server ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until stopped. Raises StoreError when the store cannot be used at all (corrupt, newer format)."""
        self._head = await self._store.open()
        await check_history(self._store, self._clock)
        if self._history is None:
            await self._serve()
            return
        async with Tasks() as tasks:
            tasks.start(self._history.run(self._durable_view), "history")
            await self._serve()
            tasks.cancel()
        await self._history.close()

    def _durable_view(self) -> tuple[View, State, int, int] | None:
        if not self._warm:
            return None
        time_ms = self._term.plane_ms() if self._term is not None else self._follower.last_ms
        return self.view(), self._state, self._ctx.incarnation, time_ms

    async def _serve(self) -> None:
        while not self._stop.is_set():
            head = await self._stand_by()
            if head is None:
                return
            fence, sent = await self._acquire(head)
            if fence is None:
                continue
            try:
                await self._take_over(fence, sent)
                await self._lead()
            except* Deposed as deposed:
                log.warning("deposed: %s", deposed.exceptions[0])
                self._saw_fork |= any(isinstance(e, Deposed) and e.lost_history for e in deposed.exceptions)
            except* StoreUnreachable as lost:
                log.warning("store out of reach: %s", lost.exceptions[0])
            finally:
                self._step_down()

    async def _stand_by(self) -> Head | None:
        """Keeps memory warm and watches the leader. Returns the head when leadership is free to take, None when stopped."""
        silent_since = self._clock.monotonic()
        seen: object = None
        limit_s = self._timing.lease_ttl_s * (1 + CLOCK_RATE_ERROR)
        while not self._stop.is_set():
            try:
                head = self._head = await self._store.head()
                await self._keep_warm(head)
                if not head.holder or await self._store.leader_gone():
                    return head
            except StoreUnreachable as error:
                log.info("store out of reach: %s", error)
                await self._clock.sleep(error.retry_after_s)
                continue
            now = self._clock.monotonic()
            if sign_of_life(head) != seen:
                seen, silent_since = sign_of_life(head), now
            elif now - silent_since >= limit_s:
                return head
            await self._clock.sleep(self._timing.poll_s)
        return None

    async def _keep_warm(self, head: Head) -> None:
        try:
            if not self._warm:
                await self._follower.load()
                self._warm = True
            await self._follower.catch_up(head)
            self._ctx.begin(head.incarnation)
        except Forked as fork:
            log.warning("reloading: %s", fork)
            self._saw_fork = True  # whoever leads next must not continue the numbering of what is gone
            self._fresh_state()
            await self._follower.load()
            self._warm = True
            await self._follower.catch_up(await self._store.head())

    async def _acquire(self, observed: Head) -> tuple[Fence | None, float]:
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

    async def _take_over(self, fence: Fence, sent: float) -> None:
        """After the epoch is ours: read the head, tail to it, compare, and only then write (P4)."""
        head = await self._store.head()
        if head.fence() != fence:
            raise Deposed(f"{head.holder} acquired epoch {head.epoch} meanwhile")
        try:
            if not self._warm or self._state.horizon > head.materialised:
                self._fresh_state()  # cold, or memory no longer reaches back to what the store has materialised
                await self._follower.load()
                self._warm = True
            await self._follower.catch_up(head)
        except Forked as fork:
            log.warning("reloading: %s", fork)
            self._saw_fork = True
            self._fresh_state()
            await self._follower.load()
            self._warm = True
            await self._follower.catch_up(head)
        if self._saw_fork:
            log.warning("the store lost history that was seen here: a new incarnation begins (P6)")
            fence = await self._new_incarnation(fence, head)
            self._saw_fork = False
        self._ctx.begin(fence.incarnation)
        self._materialiser.start(head.materialised)
        start_ms = self._plane_time_at_start()
        self._materialiser.note(self._state.position, start_ms, self._state.changes_since(head.materialised))
        self._term = Term(fence, head.hash, sent, self._clock, self._timing.lease_ttl_s, start_ms)
        self._ctx.plane_ms = self._term.plane_ms
        self._ctx.leader_since_ms = self._term.plane_ms()
        gc.collect()
        gc.freeze()  # what was loaded stays; a full collection over it would stop the loop for a second (P17)

    async def _new_incarnation(self, fence: Fence, head: Head) -> Fence:
        wanted = max(head.incarnation, self._ctx.incarnation) + 1
        result = await self._store.set_incarnation(fence, wanted)
        if not isinstance(result, Committed):
            raise Deposed(f"could not begin incarnation {wanted}: {result}")
        return Fence(wanted, fence.epoch, fence.holder)

    def _plane_time_at_start(self) -> int:
        """P5: a warm standby continues from the last batch it saw; a cold start takes the later of that and the wall clock."""
        follower = self._follower
        if follower.seen_at:
            return follower.last_ms + max(0, int((self._clock.monotonic() - follower.seen_at) * 1000))
        return max(follower.last_ms, int(self._clock.wall() * 1000))

    async def _lead(self) -> None:
        term = self._term
        assert term is not None
        self._pipeline = pipeline = Pipeline(
            self._ctx, self._receipts, self._store, self._clock, term, self._lanes, self.meters, self._durable
        )
        archived = self._history.archived if self._history is not None else None
        self._truncation = Truncation(self._store, self._clock, self._materialiser, self._timing.journal, archived)
        await pipeline.commit_own([self._epoch_start(term)])
        async with Tasks() as tasks:
            tasks.start(pipeline.commit_loop(), "commit")
            tasks.start(pipeline.judge_loop(), "judge")
            tasks.start(self._renew_loop(term), "renew")
            tasks.start(self._materialiser.run(term.fence), "materialise")
            tasks.start(self._truncation.run(term.fence), "truncate")
            tasks.start(self._chores.run(), "chores")
            self._leading.set()
            log.info("leading with epoch %d, incarnation %d", term.fence.epoch, term.fence.incarnation)
            await self._stop.wait()
            self._leading.clear()
            await pipeline.wait_idle()
            await self._materialiser.flush(term.fence)
            await self._store.resign(term.fence)
            tasks.cancel()

    def _epoch_start(self, term: Term) -> Effect:
        """The first batch of a term: nothing older can land after it, and readers learn who leads."""
        old: Plane | None = self._state.hot("planes", "", "self")
        now = instant(term.plane_ms())
        metadata = old.metadata if old else Metadata(name="self", uid=self._ctx.next_uid(), creation_time=now)
        spec = PlaneSpec(
            plane="global" if self._settings.plane == "global" else "region",
            region=self._settings.region,
            holder=term.fence.holder,
            epoch=term.fence.epoch,
            incarnation=term.fence.incarnation,
            acquired_time=now,
        )
        plane = Plane(metadata=metadata, spec=spec)
        return put("planes", "", "self", plane, plane)

    def _durable(self, batch: Batch, time_ms: int, recs: list[Rec]) -> None:
        """One batch became durable: tell everybody who follows."""
        self._follower.chain, self._follower.last_ms = batch.hash, time_ms
        self._follower.seen_at = self._clock.monotonic()
        self._materialiser.note(batch.last, time_ms, recs)
        self._truncation.note(batch, time_ms)
        self._chores.note(recs)
        self._hub.publish(recs)

    async def _renew_loop(self, term: Term) -> None:
        while True:
            await self._clock.sleep(self._timing.renew_s)
            sent = self._clock.monotonic()
            result = await self._store.renew(term.fence)
            if isinstance(result, Fenced):
                raise Deposed(f"epoch {result.head.epoch} leads, held by {result.head.holder}")
            if isinstance(result, Committed):
                term.renewed(sent)

    def _step_down(self) -> None:
        """Everything in memory was ours only while we led: drop it, and answer whoever waits (P3)."""
        self._leading.clear()
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        self._term = None
        self._hub.end()
        self._fresh_state()
        gc.unfreeze()
