"""A scheduler: observes its plane, decides in cycles, proposes in batches, learns from refusals. The effects around a cycle.

It acts under a lease of its own, so several run on one plane: by partition, each with its share of the workloads, or freely,
where whoever commits first wins. While one batch of proposals is under way the next is decided on what the first assumes. It
never decides for the authority: what is refused is taken back from the picture and goes again with the facts that came along.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairlead.client.decisions import DecisionSink
from fairlead.client.leased import Health, Leased, Lost, Terms
from fairlead.client.plane import Feed, Plane
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.model.commands import Bind, BindGang, BindMany, Command, Outcome, Refused, Unknown
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Evidence
from fairlead.ports import Clock, Random, Tasks
from fairlead.scheduler.cycle import Cycle, Placement, Run
from fairlead.scheduler.floors import Floors
from fairlead.scheduler.homes import Homes
from fairlead.scheduler.levelling import Levelling
from fairlead.scheduler.meters import Meters
from fairlead.scheduler.observer import FOLLOWED, Observer
from fairlead.scheduler.partition import Partition, Parts
from fairlead.scheduler.points import Points
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.records import Recorder
from fairlead.scheduler.reporting import Reporter
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.snapshot import Snapshot

_AGAIN: Final = frozenset(
    {"NoFit", "OnHold", "AlreadyBound", "NotFound", "NotPending", "StaleEpoch", "StaleGeneration", "StalePolicy", "StaleGrant",
     "VictimNotAllowed", "StandingGone", "GangRefused", "GangIncomplete", "BeingDeleted", "StaleEvidence", "Overloaded",
     "StoreUnavailable"}
)  # fmt: skip


_SLICE_S: Final = 0.004  # of deciding, before the loop is given back
_GATHER_S: Final = 0.002  # between two cycles at least: what arrives meanwhile is decided together
_STREAM_SLOTS: Final = 64  # ready already: no need to wait for more
_CLAIM_WEIGHT: Final = 7  # binds that one claim weighs beyond its own: its victims are judged too


class SchedulerSettings(msgspec.Struct, frozen=True):
    name: str = "scheduler-0"
    region: str = "local"
    lease_ttl_s: float = 10.0
    renew_s: float = 3.0
    of_term: bool = False  # its lease is the leader's, in whose process it is
    cycle_slots: int = 512  # slots decided in one cycle: few milliseconds, so that the loop is given back
    command_slots: int = 128  # binds in one command
    in_flight: int = 3  # batches under way before deciding pauses
    hear_s: float = 1.0  # how often soft observations are read
    max_age_s: float = 30.0
    partition: Partition = Partition()


class Scheduler(Leased):
    forgives = (Exception,)  # it starts over from a list, later each time, and its lease says why; the plane goes on

    def __init__(
        self, plane: Plane, clock: Clock, random: Random, settings: SchedulerSettings, *, registry: Registry = BUILT_INS,
        decisions: DecisionSink | None = None,
    ) -> None:  # fmt: skip
        terms = Terms(settings.name, settings.name, Role.SCHEDULER, settings.lease_ttl_s, settings.renew_s, settings.of_term)
        super().__init__(plane, clock, random, terms, FOLLOWED)
        self._settings = settings
        self._registry = registry
        self._sink = decisions
        self.meters = Meters()
        self._reset()

    def _reset(self) -> None:
        self.snapshot = Snapshot()
        self.queue = Queue(self._random)
        self.policies = Policies(self._registry, self._settings.region)
        partition = self._settings.partition
        homes = Homes(partition, self.snapshot.names) if partition.of > 1 else None
        self._shapes = ShapeBook(self.snapshot, self.policies, homes)
        self._preempting = Preempting(self.snapshot)
        self._floors = Floors(self.snapshot, self._preempting)
        self._cycle = Cycle(self.snapshot, self._shapes, self.policies, self._preempting, self._random)
        self._points = Points(self._cycle)
        self._levelling = Levelling(self.snapshot, self._shapes, self.policies)
        settings = self._settings
        self._observer = Observer(
            self.snapshot, self.queue, self.policies, settings.region, Parts(settings.partition), self._preempting.seen,
            self._shapes.ended,
        )  # fmt: skip
        self._recorder = Recorder(settings.name, self.snapshot, self._sink)
        self._reporter = Reporter(self.queue)
        self._under_way = 0
        self._cycled_at = 0.0

    # --- the life of a scheduler -----------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether everything it proposed has been answered."""
        return self._under_way == 0

    def _restarted(self, error: BaseException) -> None:
        self.meters.restarted(error)

    def health(self) -> Health:
        return self.meters.health(self._plane.plane_ms(), self._under_way > 0 or self.queue.has_ready)

    async def _prepare(self, at: int) -> None:
        self.snapshot.now_ms = self._plane.plane_ms()
        for plural in FOLLOWED:
            self._observer.observe(await self._plane.list(plural))
        self.snapshot.heard(await self._plane.heard(0), 0)

    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        tasks.start(self._hear_loop(), "hear")
        await self._loop(feed, tasks)

    async def _hear_loop(self) -> None:
        since_ms = 0
        while True:
            told = await self._plane.heard(since_ms)
            now_ms = self.snapshot.now_ms = self._plane.plane_ms()
            # Nobody is heard in the future: whoever says so would make this deaf to everybody until then.
            heard = [(name, when_ms if when_ms < now_ms else now_ms) for name, when_ms in told]
            self.snapshot.forget_failures()
            opened = self.snapshot.heard(heard, int(self._settings.max_age_s * 1000))
            if opened and self._feed is not None:
                self._observer.heard_again(opened)
                self._feed.poke()
            since_ms = max((when for _, when in heard), default=since_ms)
            self.meters.observed(self.queue.meters(self.snapshot.now_ms))
            await self._report()
            await self._clock.sleep(self._settings.hear_s)

    async def _report(self) -> None:
        """The reasons of what waits, written where they changed, and the moves that would restore a spread."""
        reasons, moves = self._reporter.commands(self._caller, self.snapshot.now_ms), self._levelling.commands(self._caller)
        if reasons or moves:
            outcomes = await self._plane.submit([*reasons, *moves])
            self._reporter.heard(reasons, outcomes[: len(reasons)])

    # --- the loop --------------------------------------------------------------------------------------------------------

    async def _loop(self, feed: Feed, tasks: Tasks) -> None:
        queue, snapshot = self.queue, self.snapshot
        while not self._stopping:
            changes = feed.take_nowait()
            snapshot.now_ms = self._plane.plane_ms()
            if not (self._under_way or queue.has_ready):
                self.meters.rested_ms = snapshot.now_ms
            if changes:
                self._observer.observe(changes)
            snapshot.reached(feed.revision)
            self._observer.holding.ended(snapshot.now_ms)
            self._floors.ended(snapshot.now_ms)
            due_ms = queue.next_due_ms()
            if due_ms is not None and due_ms <= snapshot.now_ms:
                queue.due(snapshot.now_ms)
            if self._points.waits_until_ms is not None:
                self._send(self._points.permitted_now(snapshot), tasks)
            if queue.has_ready and self._under_way < self._settings.in_flight:
                await self._gather()
                await self._decide(tasks)
                await self._clock.sleep(0)
                continue
            ends_ms = self._observer.holding.next_end_ms
            times_ms = [ms for ms in (queue.next_due_ms(), self._points.waits_until_ms, ends_ms) if ms is not None]
            await self._wait(feed, min(times_ms, default=None), snapshot.now_ms)

    async def _gather(self) -> None:
        """A lone slot is decided at once; in a stream of them a little patience halves what each costs."""
        left_s = self._cycled_at + _GATHER_S - self._clock.monotonic()
        if left_s > 0 and self.queue.ready_slots < _STREAM_SLOTS:
            await self._clock.sleep(left_s)
            feed = self._feed
            if feed is not None:
                self._observer.observe(feed.take_nowait())
                self.snapshot.reached(feed.revision)  # evidence says how far it looked, no less
        self._cycled_at = self._clock.monotonic()

    async def _decide(self, tasks: Tasks) -> None:
        """One cycle: what is found goes out as one batch, what is not waits with its reason. The loop is given back between runs:
        slots that all differ cost a pass over the nodes each (P17)."""
        items = self.queue.take(self._settings.cycle_slots, self.snapshot.now_ms)
        if not items:
            return
        began = self._clock.monotonic()
        runs = self._cycle.group(items)
        until = began + _SLICE_S
        for run in runs:
            while not self._cycle.prepare(run):
                await self._clock.sleep(0)
            self._cycle.decide_run(run)
            if self._clock.monotonic() > until:
                await self._clock.sleep(0)
                until = self._clock.monotonic() + _SLICE_S
        self.snapshot.trim_changes()
        decided = self._clock.monotonic()
        runs = self._points.admit(runs, self.snapshot)
        self.meters.took(decided - began, self._clock.monotonic() - decided)
        self._send(runs, tasks, began)

    def _send(self, runs: list[Run], tasks: Tasks, began: float | None = None) -> None:
        now_ms = self.snapshot.now_ms
        for run in runs:
            for failure in run.failures:
                self.queue.failed(failure.item, failure.reason, failure.gates, failure.detail, now_ms)
        decided = self._recorder.decided(runs, now_ms)
        commands, parts = self._commands(runs, decided)
        self.meters.decided(runs, now_ms)
        if commands:
            self._under_way += 1
            began = began if began is not None else self._clock.monotonic()
            tasks.start(self._propose(commands, parts, runs, began), "propose")
        else:
            self._recorder.settle(runs, {})

    def _commands(self, runs: list[Run], decided: dict[int, str]) -> tuple[list[Command], list[list[Placement]]]:
        """Plain binds together, each gang by itself."""
        evidence = Evidence(observed_revision=self.snapshot.revision, age_seconds=0.0)
        commands: list[Command] = []
        parts: list[list[Placement]] = []
        plain: list[Placement] = []
        binds: list[Bind] = []
        for run in runs:
            own = self._points.commands_for(run)
            if own is not None:
                commands += [Command(self._caller, body, None, evidence) for body in own]
                parts += [[placement] for placement in run.placements] if len(own) == len(run.placements) else [run.placements]
                continue
            made = [self._bind(placement, decided.get(id(run), "")) for placement in run.placements]
            if run.gang and made:
                commands.append(Command(self._caller, BindGang(tuple(made)), None, evidence))
                parts.append(run.placements)
            else:
                binds += made
                plain += run.placements
        start, weight = 0, 0
        for at, bind in enumerate(binds):
            weight += 1 + _CLAIM_WEIGHT * bool(bind.victims)
            if weight >= self._settings.command_slots or at == len(binds) - 1:
                commands.append(Command(self._caller, BindMany(tuple(binds[start : at + 1])), None, evidence))
                parts.append(plain[start : at + 1])
                start, weight = at + 1, 0
        return commands, parts

    def _bind(self, placement: Placement, decision: str) -> Bind:
        item = placement.item
        spec = item.request.spec
        return Bind(
            item.tenant, item.name, spec.epoch, spec.generation, placement.node, placement.shape.policy.revision,
            placement.grant_version, placement.victims, 0.0, decision, tuple([hold.id for hold in placement.devices]),
            placement.claims,
        )  # fmt: skip

    async def _propose(self, commands: list[Command], parts: list[list[Placement]], runs: list[Run], began: float) -> None:
        sent = self._clock.monotonic()
        outcomes = await self._plane.submit(commands)
        self._under_way -= 1
        self.meters.answered(sent - began, self._clock.monotonic() - sent, sum(map(len, parts)), self._plane.plane_ms())
        results: dict[int, Outcome] = {}
        for placements, outcome in zip(parts, outcomes, strict=True):
            self._hear(placements, outcome, results)
        self._recorder.settle(runs, results)
        for run in runs:
            lost = [p for p in run.placements if isinstance(results.get(id(p)), Refused)]
            self._points.settled(run, results, lost)
        if self._feed is not None:
            self._feed.poke()

    # --- answers ---------------------------------------------------------------------------------------------------------

    def _hear(self, placements: list[Placement], outcome: Outcome, results: dict[int, Outcome]) -> None:
        if isinstance(outcome, Unknown):
            self.meters.unknown_total += len(placements)
            raise Lost(f"the plane's leader changed with proposals under way: {outcome.detail}")
        if isinstance(outcome, Refused):
            for placement in placements:
                self._refused(placement, outcome, 0, results)
            return
        refused = dict(outcome.refused)
        for index, placement in enumerate(placements):
            no = refused.get(index)
            if no is not None:
                self._refused(placement, no, outcome.revision, results)
                continue
            results[id(placement)] = outcome
            self.queue.placed(placement.item)
            if placement.victims:
                self._preempting.done(placement.item)
        self.meters.bound_total += len(placements) - len(refused)

    def _refused(self, placement: Placement, refused: Refused, revision: int, results: dict[int, Outcome]) -> None:
        """Taken back from the picture; goes again at once, or waits where going again could not help."""
        item, snapshot = placement.item, self.snapshot
        results[id(placement)] = refused
        self.meters.refused(refused.reason)
        if refused.reason in ("FencedOut", "NotLeader"):
            raise Lost(refused.detail)
        self._cycle.take_back(placement)
        if refused.reason == "NoFit" and "cpuFree" in refused.facts:
            snapshot.correct(placement.node, refused.facts, revision or self._plane.revision())
        if "minServing" in refused.facts:
            self._floors.heard(refused)
        if refused.reason in ("AlreadyBound", "NotFound") and not item.gang:
            self.queue.gone(item, snapshot.now_ms)
            return
        if refused.reason == "FenceNotPassed":
            self.queue.put_off(item, int((refused.retry_after_s or 0.0) * 1000), refused.detail, snapshot.now_ms)
            return
        if refused.reason in _AGAIN:
            self.queue.give_back(item, snapshot.now_ms)
            return
        reason = "WaitingForQuota" if refused.reason in ("GrantExceeded", "NoGrant") else "Misconfigured"
        if refused.reason in ("CutOff", "PolicyLeaseEnded"):
            reason = "PolicyAuthorityUnreachable"
        self.queue.failed(item, reason, {"quota"} if reason == "WaitingForQuota" else {}, refused.detail, snapshot.now_ms)
