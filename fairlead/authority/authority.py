"""The authority of one plane: the single fenced writer. Standby until it leads, leader until it is deposed, standby again.

The way to leadership is candidate.py's; here it is used: commands in, judged, committed and answered; reads, watches, heartbeats.
Everything it knows it either loaded from the store or committed itself. Runs in one task group; created by main.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

from fairlead.authority.building import Building, Deposed
from fairlead.authority.candidate import Candidate, Timing
from fairlead.authority.chores import Chores
from fairlead.authority.early import EarlyFeed
from fairlead.authority.figures import Figures
from fairlead.authority.history import History
from fairlead.authority.hub import Feed, Watch
from fairlead.authority.judge import Context, Settings
from fairlead.authority.lanes import Call, Lanes
from fairlead.authority.leases import LeaseTeller, epoch_start, lapsed_leases
from fairlead.authority.ledger import NodeAccount
from fairlead.authority.limits import beyond
from fairlead.authority.materialiser import Materialiser
from fairlead.authority.meters import Meters
from fairlead.authority.past import Past
from fairlead.authority.pipeline import Pipeline
from fairlead.authority.reader import View, open_view
from fairlead.authority.state import Rec, State, at
from fairlead.authority.telling import Telling
from fairlead.authority.term import HeartbeatAck, Term
from fairlead.authority.truncation import Truncation
from fairlead.model.commands import Command, Outcome, Refused
from fairlead.model.ids import split_revision
from fairlead.model.kinds.ledger import Plane
from fairlead.model.lifecycle import Role
from fairlead.ports import Clock, Ids, Kept, Tasks
from fairlead.store.contract import (
    BATCH_COMMANDS_MAX,
    Batch,
    Fence,
    Head,
    Store,
    StoreUnreachable,
)

log = logging.getLogger(__name__)


STUCK_MS = 10_000  # as a leader's lease

Door = Callable[[Command], Command | Refused]


class Authority:
    def __init__(
        self, store: Store, clock: Clock, ids: Ids, settings: Settings, *, name: str = "server", timing: Timing | None = None,
        history: History | None = None, door: Door | None = None, kept: Kept | None = None,
    ) -> None:  # fmt: skip
        """`door` sees every command before anybody else and may change it: what must not be written down is sealed there. `kept`:
        where this server remembers how far it has seen its store; None: nowhere."""
        self._door = door
        self._store = store
        self._clock = clock
        self._settings = settings
        self._timing = timing or Timing()
        self._history = history
        self.meters = Meters()
        self._lanes = Lanes()
        self._pipeline: Pipeline | None = None
        self._lease_teller: LeaseTeller | None = None
        self._term: Term | None = None
        self._materialiser = Materialiser(store, clock, self.meters)
        self.slots_until: float | None = None  # on this clock: what this region's slot lease lasts; None: it needs none (P11)
        self._leading = asyncio.Event()
        self._not_leading = asyncio.Event()
        self._stop = asyncio.Event()
        self.past = Past(self.view, history, self.meters.landed_ms, self.plane_ms)
        self.telling = Telling(settings, history, clock)
        self._candidate = Candidate(store, clock, ids, settings, self._timing, name, self._stop.is_set, kept)

    @property
    def _state(self) -> State:
        return self._candidate.memory.state

    @property
    def _ctx(self) -> Context:
        return self._candidate.memory.ctx

    # --- what callers use --------------------------------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        return self._leading.is_set()

    @property
    def ready(self) -> bool:
        """Whether memory has the plane. Before that, reading would answer that there is nothing."""
        return self._candidate.memory.ready

    async def wait_leading(self) -> None:
        await self._leading.wait()

    async def wait_not_leading(self) -> None:
        """Called by whoever saw it lead."""
        await self._not_leading.wait()

    @property
    def fence(self) -> Fence | None:
        return self._term.fence if self._term is not None and self.leading else None

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        """Each command judged alone, in order. The answers come when what they rest on is durable."""
        for command in commands:
            if command.caller.role is Role.AUTHORITY:
                return [Refused("NotOwner", "nobody but the authority itself acts as the authority") for _ in commands]
        if self._door is None and self._materialiser.limit is None:
            return await self._submit(commands)
        passed = [self._admitted(command) for command in commands]
        inside = [command for command in passed if isinstance(command, Command)]
        outcomes = iter(await self._submit(inside))
        return [next(outcomes) if isinstance(each, Command) else each for each in passed]

    def _admitted(self, command: Command) -> Command | Outcome:
        limit = self._materialiser.limit if self.leading else None  # whoever leads by now may have room
        refused = beyond(limit, self._state, command) if limit is not None else None
        return refused or (self._door(command) if self._door is not None else command)

    async def _submit(self, commands: list[Command]) -> list[Outcome]:
        if not commands:
            return []
        pipeline = self._pipeline
        if pipeline is None or not self.leading:
            head = self._candidate.head
            holder = head.holder if head else ""
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

    def view(self, revision: int = 0) -> View:
        """Reads at the durable head, or at an earlier revision that memory reaches (else Expired)."""
        return open_view(self._state, self._ctx.incarnation, self._clock, revision)

    def watch(
        self, plural: str, after_revision: int, *, tenant: str | None = None, node: str | None = None,
        accepts: Callable[[Rec], bool] | None = None,
    ) -> Watch:  # fmt: skip
        self.view(after_revision)
        _, position = split_revision(after_revision)
        return self._candidate.memory.hub.watch(plural, position, tenant=tenant, node=node, accepts=accepts)

    def follow(self, plurals: Sequence[str], after_revision: int, *, nodes: Sequence[str] = ()) -> Feed:
        """Several kinds together, from a revision on; with `nodes`, of bindings and nodes only what concerns those."""
        self.view(after_revision)
        return Feed(self._candidate.memory.hub, plurals, split_revision(after_revision)[1], nodes)

    def follow_early(self, plurals: Sequence[str], after_revision: int) -> EarlyFeed:
        """The same, before it is durable: for components of this process that write to this plane only."""
        self.view(after_revision)
        return self._candidate.memory.early.follow(plurals, split_revision(after_revision)[1])

    @property
    def leader_address(self) -> str:
        """Where whoever leads is reached, as its epoch-start batch says; empty: not known."""
        plane: Plane | None = self._state.hot("planes", "", "self")
        return plane.spec.address if plane is not None else ""

    @property
    def store_silent_s(self) -> float | None:
        """For how long the store has said nothing; None: not for longer than it may."""
        heard = max(self._candidate.heard, self._term.heard if self._term is not None else self._candidate.heard)
        silent_s = self._clock.monotonic() - heard
        return silent_s if silent_s > self._timing.lease_ttl_s else None

    @property
    def stuck_s(self) -> float:
        """For how long the store has taken no batch, where that is too long; 0: it is not."""
        stuck_ms = self.meters.stuck_ms(self.plane_ms())
        return stuck_ms / 1000 if stuck_ms > STUCK_MS else 0.0

    @property
    def unwritable_s(self) -> float | None:
        """For how long nobody has been able to write here, as far as this server knows; None: not for longer than may be."""
        return max(self.store_silent_s or 0.0, self.stuck_s) or None

    @property
    def history_failures_total(self) -> int:
        return self._history.failures_total if self._history is not None else 0

    def plane_ms(self) -> int:
        """Plane time now; of a standby, counted on from the last batch it saw happen (P5)."""
        return self._term.plane_ms() if self._term is not None else self._candidate.memory.follower.plane_ms()

    def hurry(self) -> None:
        """A standby is to look at its store now, and not when its next look is due."""
        self._candidate.hurry()

    def bound_to(self, node: str) -> list[Rec]:
        """The bindings on a node, at the durable head. The ledger is ahead of that: what leaves the node in a batch that no store
        has taken is still there, and if the batch is lost nobody but its agent can say that it left."""
        account, state = self._ctx.ledger.nodes.get(node), self._state
        ahead = [*(account.bindings if account is not None else ()), *state.undecided("bindings")]
        found = {(rec.tenant, rec.name): at(rec, state.durable) for rec in ahead}
        return [rec for rec in found.values() if rec is not None and rec.hot.node == node]

    def observed(self) -> list[NodeAccount]:
        """The nodes' accounts, for whoever wants to know when each was heard. Soft."""
        return list(self._ctx.ledger.nodes.values())

    @property
    def position(self) -> int:
        """How many effects the durable history has."""
        return self._state.durable

    def figures(self) -> Figures:
        """For whoever serves metrics. Good across terms."""
        return Figures(lambda: self._state, lambda: self._ctx.ledger, self.plane_ms, self._clock)

    @property
    def vouches(self) -> bool:
        """Whether what is in memory is the present: a leader's that may still trust itself. Anybody else's may be behind."""
        return self._term is not None and self.leading and self._term.valid(self._clock.monotonic())

    def receipt(self, actor: str, key: str) -> Outcome | None:
        """What an Idempotency-Key came to, as far as it is durable; None if no command with it has taken effect, which only a
        leader that vouches for the present can say."""
        if not self.vouches:
            return Refused("NotLeader", "this server cannot vouch for the present", retry_after_s=1.0)
        return self._candidate.memory.receipts.lookup(self._ctx, actor, key)

    def heartbeat(self, nodes: list[tuple[str, int]]) -> HeartbeatAck | Refused:
        """Soft: (node, session) pairs heard just now. Acknowledged only while this leader may trust itself (P9), and only for the
        newest session: also for one that was registered under an earlier leader and has not been heard under this one. Where
        the newest was not heard for so long that whatever it ran has ended, the node is nobody's: unknown, to be registered."""
        term = self._term
        if term is None or not self.vouches:
            self.meters.fenced_heartbeats_total += 1
            return Refused("NotLeader", "this server cannot vouch for the present", retry_after_s=1.0)
        now_ms = term.plane_ms()
        fence_ms = self._ctx.fence_s(now_ms) * 1000
        accounts = self._ctx.ledger.nodes
        unknown: list[str] = []
        superseded: list[str] = []
        for name, session in nodes:
            account = accounts.get(name)
            if account is None or not account.known:
                unknown.append(name)
            elif session < max(account.observed_session, account.session):
                silent_ms = now_ms - max(account.observed_ms, self._ctx.leader_since_ms)
                (unknown if silent_ms > fence_ms else superseded).append(name)
            else:
                account.observed_session = session
                account.observed_ms = max(account.observed_ms, now_ms)
        left_s = None if self.slots_until is None else max(0.0, self.slots_until - self._clock.monotonic())
        grants = self._lease_teller.word(now_ms) if self._lease_teller is not None else None
        lease_s, plane = self._settings.node_lease_s, self._state.hot("planes", "", "self")
        longest_s = max(lease_s, plane.spec.longest_lease_seconds) if plane is not None else lease_s
        fence = term.fence
        return HeartbeatAck(fence.incarnation, fence.epoch, tuple(unknown), tuple(superseded), left_s, grants, lease_s, longest_s)

    def stop(self) -> None:
        """Asks `run` to finish what is under way, hand leadership over and return."""
        self._stop.set()
        self.hand_over()

    # --- the life of a server ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until stopped. Raises StoreError when the store cannot be used at all (corrupt, newer format)."""
        await self._candidate.open()
        if self._history is None:
            await self._serve()
            return
        async with Tasks() as tasks:
            tasks.start(self._history.run(self._durable_view), "history")
            await self._serve()
            tasks.cancel()
        await self._history.close()

    def _durable_view(self) -> tuple[View, State, int, int] | None:
        memory = self._candidate.memory
        if not memory.loaded:
            return None
        time_ms = self._term.plane_ms() if self._term is not None else memory.follower.last_ms
        return self.view(), memory.state, memory.ctx.incarnation, time_ms

    async def _serve(self) -> None:
        candidate = self._candidate
        while not self._stop.is_set():
            observed = await candidate.stand_by()
            if observed is None:
                return
            took = False
            try:
                fence, sent = await candidate.acquire(observed)
                if fence is None:
                    continue
                took = True
                self._term, head = await candidate.take_over(fence, sent)
                await self._lead(self._term, head)
            except* Deposed as deposed:
                log.warning("deposed: %s", deposed.exceptions[0])
                self.meters.deposed_total += 1
                if self._term is not None and any(isinstance(e, Deposed) and e.lost_history for e in deposed.exceptions):
                    candidate.lost_history(self._term.fence.incarnation)
            except* StoreUnreachable as lost:
                log.warning("store out of reach: %s", lost.exceptions[0])
            finally:
                if took:  # a standby that was not the first keeps what it knows, and who watches here goes on
                    self._step_down()

    async def _lead(self, term: Term, head: Head) -> None:
        memory = self._candidate.memory
        self._materialiser.start(head.materialised)
        behind = memory.state.changes_since(head.materialised)
        self._materialiser.note(memory.state.position, term.plane_ms(), [rec.key for rec in behind], behind)
        memory.state.let_go(head.materialised)
        self._lease_teller = LeaseTeller(memory.ctx)
        self._chores = Chores(memory.ctx, memory.receipts, self._clock, self._submit)
        self._pipeline = pipeline = Pipeline(
            memory.ctx, memory.receipts, self._store, self._clock, term, self._lanes, self.meters, self._durable,
            memory.hub.wake, memory.early,
        )  # fmt: skip
        archived = partial(self._history.archived, term.fence.incarnation) if self._history is not None else None
        self._truncation = Truncation(self._store, self._clock, self._materialiser, self._timing.journal, head, archived)
        async with Tasks() as tasks:
            begin = pipeline.commit_own([epoch_start(memory.ctx, term), *lapsed_leases(memory.ctx, term)])
            if not await term.last_wait(tasks, begin, self._stop):
                return
            tasks.start(pipeline.commit_loop(), "commit")
            tasks.start(pipeline.judge_loop(), "judge")
            tasks.start(self._renew_loop(term), "renew")
            tasks.start(self._materialiser.run(term.fence), "materialise")
            tasks.start(self._truncation.run(term.fence), "truncate")
            tasks.start(self._chores.run(), "chores")
            if not self._stop.is_set():
                self._leading.set()
                self._not_leading.clear()
            fence = term.fence
            about = {"epoch": fence.epoch, "incarnation": fence.incarnation}
            log.info("leading with epoch %d, incarnation %d", fence.epoch, fence.incarnation, extra=about)
            await self._not_leading.wait()
            if await pipeline.wait_idle():
                await term.last_wait(tasks, self._leave(term), self._stop)
            tasks.cancel()

    async def _leave(self, term: Term) -> None:
        await self._materialiser.flush(term.fence)
        await self._store.resign(term.fence)

    def _durable(self, batch: Batch, building: Building) -> None:
        """One batch became durable: whoever follows finds it, and those who pass it on are woken."""
        time_ms, recs = building.time_ms, building.recs
        memory = self._candidate.memory
        assert self._term is not None
        self._candidate.saw(self._term.fence, batch.last, batch.hash)
        memory.follower.saw(batch.hash, time_ms)
        self._materialiser.note(batch.last, time_ms, map(itemgetter(0), building.images), recs)
        self._truncation.note(batch, time_ms)
        if self._history is not None:
            self._history.hand_over(batch, memory.ctx.incarnation, time_ms, building.images)
        self.meters.durable(batch.last, time_ms)
        self._chores.note(recs)
        memory.hub.publish(recs)

    async def _renew_loop(self, term: Term) -> None:
        while True:
            await self._clock.sleep(self._timing.renew_s)
            await term.renew(self._store)

    def hand_over(self) -> None:
        """What is under way is finished; then everything is read anew, by whoever leads next: another server, or this one."""
        self._leading.clear()
        self._not_leading.set()

    def _step_down(self) -> None:
        """Everything in memory was ours only while we led: drop it, and answer whoever waits (P3)."""
        self.hand_over()
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        self._term = None
        self._candidate.forget()
        gc.unfreeze()
