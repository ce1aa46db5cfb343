"""From commands to durable effects: judge, gather, commit, publish, answer. One instance per term of leadership.

Two loops share the work. The judge takes commands from the lanes and applies what it accepts to the speculative state; what is
made of it right here may join its batch (joining.py). The committer sends one batch at a time to the store, and while it waits
the next batch grows: that is the group commit. Nothing is answered before the head it was judged on is durable (P3). After
OutcomeUnknown the same bytes go again (P1). Ends with Deposed when the store says that somebody else leads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from fairlead.authority.building import Building, Deposed, Sealed
from fairlead.authority.early import Early
from fairlead.authority.joining import Joining
from fairlead.authority.judge import Context, Draft, judge
from fairlead.authority.judge.context import Effect
from fairlead.authority.lanes import Call, Lanes
from fairlead.authority.meters import Meters
from fairlead.authority.pace import Pace
from fairlead.authority.receipts import OWN_RECEIPT, Receipts, hash_of
from fairlead.authority.term import Term
from fairlead.authority.undone import Undone
from fairlead.model import codec
from fairlead.model.commands import Accepted, BindMany, Command, IdempotencyKey, Outcome, Refused, Unknown
from fairlead.model.journal import NO_COMMAND, Entry, Header, chain_hash, encode_blob, encode_entry
from fairlead.ports import Clock, Signal, next_turn
from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    BATCH_COMMANDS_MAX,
    FORMAT,
    AlreadyThere,
    Batch,
    Committed,
    Fenced,
    OutcomeUnknown,
    Store,
    Superseded,
    Unavailable,
)

log = logging.getLogger(__name__)

READY_MAX = 2  # Batches that may wait for the store before judging pauses.
SLICE_COMMANDS = 256
SLICE_S = 0.004  # The loop is given back at least this often while judging (P17: no callback over 10 ms).
RESUBMIT_S = (0.0, 0.02, 0.05, 0.1, 0.25)  # Waits between resubmissions; the last one repeats.
_BATCH_ROOM = BATCH_BYTES_MAX - 16 * 1024  # for the header and the array around the entries
_ENTRY_MAX = BATCH_BYTES_MAX * 3 // 4  # the largest object fits twice: as the command's body and as its effect

Published = Callable[[Batch, Building], None]


class Pipeline:
    def __init__(
        self, ctx: Context, receipts: Receipts, store: Store, clock: Clock, term: Term, lanes: Lanes, meters: Meters,
        published: Published, wake_watchers: Callable[[], None], early: Early,
    ) -> None:  # fmt: skip
        self._ctx = ctx
        self._receipts = receipts
        self._store = store
        self._clock = clock
        self._term = term
        self._lanes = lanes
        self._meters = meters
        self._published = published
        self._wake_watchers = wake_watchers
        self._early = early
        self._joining = Joining(early, clock)
        self._undone = Undone()
        self._pace = Pace()
        self._building: Building | None = None
        self._ready: deque[Sealed] = deque()
        self._sending: Sealed | None = None
        self._again: deque[tuple[Call, int]] = deque()  # judged on a head that was taken back
        self._judge_wake = Signal()
        self._commit_wake = Signal()
        self._chain = term.chain  # hash of the speculative head

    def wake(self) -> None:
        self._judge_wake.set()

    # --- judging -----------------------------------------------------------------------------------------------------

    async def judge_loop(self) -> None:
        while True:
            if len(self._ready) >= READY_MAX or not (self._again or len(self._lanes)):
                self._judge_wake.clear()
                await self._judge_wake.wait()
                continue
            self._judge_slice()
            self._joining.begin()
            while self._is_open and self._joining.waits():
                await self._clock.sleep(0)
                if self._again or len(self._lanes):
                    self._judge_slice()
                    self._joining.go_on()
            if self._is_open:
                self._seal()
            if self._sending is None and len(self._ready) == 1:
                self._commit_on_the_spot(self._ready[0])
            self._joining.tell_rest()
            if self._again or len(self._lanes):  # else it waits anyway
                await self._clock.sleep(0)

    @property
    def _is_open(self) -> bool:
        """A batch grows that the store could have."""
        return self._sending is None and not self._ready and self._building is not None

    def _judge_slice(self) -> None:
        until = self._clock.monotonic() + SLICE_S
        budget = SLICE_COMMANDS
        while budget > 0 and len(self._ready) < READY_MAX:
            if self._again:
                call, index = self._again.popleft()
                self._judge_one(call, index)
                budget -= 1
                continue
            call_next = self._lanes.take()
            if call_next is None:
                return
            budget -= self._judge_some(call_next, budget, until)
            if self._clock.monotonic() > until:
                return

    def _judge_some(self, call: Call, budget: int, until: float) -> int:
        judged = 0
        commands = len(call.commands)
        while call.next < commands and judged < budget and len(self._ready) < READY_MAX and not self._again:
            index = call.next
            call.next += 1
            parts = self._judge_one(call, index)
            judged += parts
            if (judged % 32 == 0 or parts > 1) and self._clock.monotonic() > until:
                break
        if call.next < commands:
            self._lanes.unfinished(call)
        return judged

    def _judge_one(self, call: Call, index: int) -> int:
        """Tells how many parts the command had: what it weighs in a slice."""
        building = self._building or self._start()
        command = call.commands[index]
        body = command.body
        if call.history != self._lanes.history and self._undone.is_ground_of(call, command):
            no = Refused("StaleEvidence", "what this was decided on was taken back before it was durable")
            building.answers.append((call, index, no))
            return 1
        if command.term and command.term != self._term.fence.epoch:
            no = Refused("NotLeader", f"this was meant for term {command.term}; this is {self._term.fence.epoch}")
            building.answers.append((call, index, no))
            return 1
        outcome: Outcome | None = None
        hashed = b""
        try:
            if command.id is None or type(body) in OWN_RECEIPT:
                encoded = codec.encode(command)
            else:
                encoded = codec.encode(body)
                hashed = hash_of(command, encoded)
                outcome = self._receipts.find(self._ctx, command, hashed)
        except (TypeError, OverflowError, ValueError) as error:
            building.answers.append((call, index, Refused("Invalid", f"the command cannot be stored: {error}")))
            return 1
        if outcome is None:
            outcome = self._judge_new(command, encoded, hashed)
            if outcome is None:  # it did not fit: the next batch takes it, before all that was sent after it
                self._seal()
                self._again.appendleft((call, index))
                return 1
        elif isinstance(outcome, Accepted):
            self._meters.replays_total += 1
        building.answers.append((call, index, outcome))
        if building.commands >= BATCH_COMMANDS_MAX:
            self._seal()
        return len(body.binds) if type(body) is BindMany else 1

    def _judge_new(self, command: Command, encoded: bytes, hashed: bytes) -> Outcome | None:
        """`encoded` is the command's body; where `hashed` is empty the command needs no receipt, and it is the whole command."""
        ctx = self._ctx
        try:
            judged = judge(ctx, command)
        except Exception as error:
            # Judging changes nothing, so a command that breaks a judge must not take the plane down with it.
            log.exception("judging %s of %s failed", type(command.body).__name__, command.caller.actor)
            judged = Refused("JudgeFailed", f"{type(error).__name__}: {error}")
        if type(judged) is Refused:
            self._meters.refused(judged.reason)
            if hashed:
                self._receipts.refused(ctx, command, hashed, judged)
            return judged
        for _, refused in judged.refused:
            self._meters.refused(refused.reason)
        if judged.dry_run or not judged.effects:
            position = judged.position or ctx.state.position
            revision, again = ctx.revision(position), not judged.dry_run
            return Accepted(revision, judged.key, judged.uid, judged.epoch, judged.token, again, judged.refused)
        return self._accept(command, encoded, hashed, judged)

    def _accept(self, command: Command, encoded: bytes, hashed: bytes, draft: Draft) -> Outcome | None:
        ctx, building, effects = self._ctx, self._building, draft.effects
        assert building is not None
        placed = len(effects) if draft.placed else 0
        before = ctx.state.position - placed
        position = before + len(effects)
        images = [(f"{e.plural}/{e.tenant}/{e.name}", e.raw) for e in effects]
        answer = Accepted(
            ctx.revision(position), draft.key or images[-1][0], draft.uid, draft.epoch, draft.token, False, draft.refused
        )
        if type(command.id) is IdempotencyKey and hashed:
            receipt = self._receipts.effect_of_key(ctx, command.caller, command.id, hashed, answer, position)
            effects = [*effects, receipt]
            images.append((receipt.key, receipt.raw))
        entry = encode_entry(command, encoded, bool(hashed), images, draft.soft)
        size, window = len(entry), self._receipts.window_bytes(command, answer) if hashed else 0
        if size > _ENTRY_MAX or (building.size + size + window > _BATCH_ROOM and building.entries):
            ctx.state.undo_to(before)
            detail = f"the command takes {size} bytes of at most {_ENTRY_MAX}; split it"
            return Refused("TooLarge", detail) if size > _ENTRY_MAX else None
        for effect in effects[placed:] if placed else effects:
            ctx.state.place(effect)
        building.recs += effects
        self._joining.judged(effects)
        building.images += images
        building.entries.append(entry)
        building.size += size + window
        building.commands += 1
        if hashed:
            self._receipts.accepted(ctx, command, hashed, answer, position)
        return answer

    def _start(self) -> Building:
        self._ctx.set_time(self._term.plane_ms())
        self._building = building = Building(self._ctx.state.position + 1, self._ctx.now_ms)
        return building

    def _seal(self) -> None:
        """Closes the growing batch: the session windows it changed, the header, the hash."""
        building = self._building
        assert building is not None
        self._building = None
        ctx = self._ctx
        batch: Batch | None = None
        windows = self._receipts.seal(ctx)
        if windows:
            building.entries.append(self._own_entry(building, windows))
        if building.entries:
            fence = self._term.fence
            header = Header(FORMAT, fence.incarnation, fence.epoch, fence.holder, building.first, building.time_ms)
            blob = encode_blob(header, building.entries)
            hashed = chain_hash(self._chain, blob)
            batch = Batch(building.first, ctx.state.position, self._chain, hashed, blob)
            self._chain = hashed
        self._ready.append(Sealed(batch, building))
        self._commit_wake.set()

    def _own_entry(self, building: Building, effects: list[Effect]) -> bytes:
        images = [(effect.key, effect.raw) for effect in effects]
        for effect in effects:
            self._ctx.state.place(effect)
        building.recs += effects
        building.images += images
        return codec.encode(Entry(NO_COMMAND, tuple(images)))

    async def commit_own(self, effects: list[Effect]) -> None:
        """Makes effects of the authority's own durable before anything else: the epoch-start batch. Retries until it is."""
        while True:
            building = self._start()
            building.entries.append(self._own_entry(building, effects))
            self._seal()
            sealed = self._ready.popleft()
            assert sealed.batch is not None
            await self._commit(sealed, sealed.batch)
            if self._ctx.state.durable >= building.first:
                return
            await self._clock.sleep(0.5)

    async def wait_idle(self) -> bool:
        """Until everything that was sent has its answer. False: the lease has run out meanwhile, so the store is away, and what
        is still under way is in doubt however long one waits."""
        while self._again or len(self._lanes) or self._building or self._ready or self._sending:
            if not self._term.valid(self._clock.monotonic()):
                return False
            await self._clock.sleep(0.01)
        await self._clock.sleep(0)  # what landed last is told in the turn after it
        return True

    # --- committing --------------------------------------------------------------------------------------------------

    async def commit_loop(self) -> None:
        while True:
            if not self._ready:
                if self._building is None:
                    self._commit_wake.clear()
                    await self._commit_wake.wait()
                    continue
                self._seal()
            sealed = self._sending = self._ready.popleft()
            self._judge_wake.set()
            if sealed.batch is None:
                await self._term.confirm(self._store)
                sealed.building.answer()
            else:
                await self._commit(sealed, sealed.batch)
            self._sending = None

    def _commit_on_the_spot(self, sealed: Sealed) -> None:
        """A small batch that nothing waits behind: where the store can write it within this very step, handing it over and
        waiting to be woken would cost more than the write. Any answer but a plain yes is the commit loop's to deal with."""
        batch, building = sealed.batch, sealed.building
        if batch is None or len(self._lanes) or self._again or not self._pace.suits(building.commands, building.size):
            return
        sent = self._clock.monotonic()
        result = self._store.commit_on_the_spot(self._term.fence, batch)
        if isinstance(result, Committed):
            self._ready.popleft()
            self._pace.here(self._landed(batch, building, sent, sent))
        elif result is not None:
            self._ready[0] = Sealed(batch, building, sent, result)

    def _landed(self, batch: Batch, building: Building, sent: float, trusted_from: float) -> float:
        """Tells how long the store took."""
        took = self._clock.monotonic() - sent
        self._term.renewed(trusted_from)
        self._meters.committed(batch, building.commands, took)
        self._ctx.state.confirm(batch.last)
        self._term.chain = batch.hash
        # Other planes and agents first. What the loop writes to sockets leaves at the end of a turn: everybody else's answers are
        # made in the next one, so that no frame waits for them. All see all of it published: nobody runs before this returns.
        self._published(batch, building)
        next_turn(building.tell, self._wake_watchers)
        return took

    async def _commit(self, sealed: Sealed, batch: Batch) -> None:
        tries = 0
        result = sealed.first_result
        first_sent = sent = sealed.first_sent if result is not None else self._clock.monotonic()
        while True:
            if result is None:
                sent = self._clock.monotonic()
                result = await self._store.commit(self._term.fence, batch)
            match result:
                case Committed() | AlreadyThere():
                    # One that was there already landed at some moment since it was first sent; trust counts from then.
                    took = self._landed(batch, sealed.building, sent, sent if isinstance(result, Committed) else first_sent)
                    self._pace.handed_over(took)
                    return
                case Unavailable() if tries == 0:
                    self._take_back(sealed, result)
                    return
                case OutcomeUnknown() | Unavailable():
                    # Once an attempt is in doubt, not even a refusal settles it: the first one may still land.
                    self._meters.commit_unknown_total += tries == 0
                    await self._clock.sleep(RESUBMIT_S[min(tries, len(RESUBMIT_S) - 1)])
                    tries, result = tries + 1, None
                case Fenced() | Superseded():
                    detail = f"{type(result).__name__}: epoch {result.head.epoch} leads, held by {result.head.holder}"
                    raise Deposed(detail, lost_history=isinstance(result, Superseded))

    def _take_back(self, sealed: Sealed, why: Unavailable) -> None:
        """Certainly not written: undo it and everything judged on top of it; those are judged again (P3)."""
        follow = [pair for later in self._ready for pair in later.building.answers]
        if self._building is not None:
            follow.extend(self._building.answers)
        self._ready.clear()
        self._building = None
        before = sealed.building.first - 1
        self._ctx.state.undo_to(before)
        self._receipts.undone(self._ctx, before)
        self._undone.note(self._lanes.history, before)
        self._lanes.history = self._ctx.taken_back = self._lanes.history + 1
        self._early.end("a batch was taken back before it was durable; list again")
        self._chain = self._term.chain
        # Those were judged before what waits there.
        self._again.extendleft([(call, index) for call, index, _ in reversed(follow)])
        self._meters.unavailable_total += 1
        answer: Outcome = Refused("StoreUnavailable", f"{why.reason}: {why.detail}", {}, (), why.retry_after_s)
        if not self._term.valid(self._clock.monotonic()):
            # A definite no needs the lease like any other: a newer leader may yet accept a copy of the command.
            answer = Unknown("the store is out of reach and this server's lease has run out; send the same id again")
        sealed.building.answer_all_with(answer)
        self._judge_wake.set()

    def close(self) -> None:
        """The term is over. What was under way is in doubt; what never left this process certainly did not happen."""
        doubt = Unknown("leadership was lost while this was under way; ask for its receipt or send the same id again")
        if self._sending is not None:
            self._sending.building.answer_all_with(doubt)
        no = Refused("NotLeader", "this server lost leadership before it could commit", retry_after_s=1.0)
        for building in [sealed.building for sealed in self._ready] + ([self._building] if self._building else []):
            building.answer_all_with(no)
        for call, index in self._again:
            call.answer(index, no)
        for call in self._lanes.drain():
            for index in range(call.next, len(call.commands)):
                call.answer(index, no)
