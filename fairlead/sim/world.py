"""Owns one run: a platform, its people, its chaos and the checkers that watch, from a seed to a verdict.

Two phases. While faults strike, nothing unsafe may happen (S). Then everything is healed at once and the platform must come to
rest, as desired, within its bounds (L). Called by campaign.py; what it found is in the `Verdict`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlead.compose.plane import PlaneServer
from fairlead.model.commands import Command, Outcome
from fairlead.model.hot import forget_shared
from fairlead.model.journal import decode_blob
from fairlead.model.registry import GLOBAL
from fairlead.observe.agreement import differences
from fairlead.observe.answers import AnswerChecker
from fairlead.observe.checkers import JournalChecker, Violation
from fairlead.observe.escrow import EscrowChecker, RegionNow
from fairlead.observe.explained import ExplainedChecker
from fairlead.observe.feeds import FeedChecker
from fairlead.observe.fights import FightChecker
from fairlead.observe.intervals import overlaps, went_back
from fairlead.observe.leased import EffectiveChecker, RegionLeases
from fairlead.observe.materialised import MaterialisedChecker
from fairlead.observe.promised import PromiseChecker
from fairlead.observe.reads import ReadChecker
from fairlead.observe.waiting import WaitingChecker, room_for
from fairlead.sim import loop as sim
from fairlead.sim.born import Birth
from fairlead.sim.chaos import Chaos
from fairlead.sim.follower import FOLLOWED, follower
from fairlead.sim.hearing import hearing, quiet
from fairlead.sim.hints import misled
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.losses import Losses
from fairlead.sim.mutants import planted
from fairlead.sim.people import People
from fairlead.sim.platform import Plane, Platform
from fairlead.sim.probe import sifting
from fairlead.sim.readers import readers
from fairlead.sim.resting import writes
from fairlead.sim.scenario import Scenario
from fairlead.sim.strays import Strays
from fairlead.sim.walls import unheard, walls
from fairlead.store.contract import Batch

LEADER_S: Final = 15.0  # L2
RESOLVED_S: Final = 10.0  # L7
FOUND_MAX: Final = 20


class Finding(msgspec.Struct, frozen=True):
    invariant: str
    plane: str
    at_s: float
    detail: str


class Verdict(msgspec.Struct):
    """What a seed came to. Two runs of one seed are equal in every field."""

    seed: int
    profile: str
    findings: list[Finding]
    exits: list[tuple[str, str]]
    steps: int
    simulated_s: float
    trace: str
    commits: int
    counts: dict[str, int]
    refusals: dict[str, int]
    checked: dict[str, int]
    agreed_s: float | None  # after healing; None: never
    timeline: list[tuple[float, str, str]] = []
    strikes: list[str] = []  # of the chaos, as `skips` of a scenario names them
    recovered_s: list[float] = []  # after the loss of a region, one for each critical service


class PlaneWatch:
    """The checkers of one plane, fed with every batch at the moment it becomes durable."""

    def __init__(self, world: World, plane: Plane) -> None:
        self._world = world
        self.name = plane.name
        self.batches: list[Batch] = []
        self.times: dict[bytes, float] = {}  # when each batch became durable, by its hash
        self.checker = JournalChecker()
        self.answers = AnswerChecker(lambda invariant, detail: world.found(invariant, plane.name, detail))
        self.feeds = FeedChecker(FOLLOWED, self._feed_found)
        self.promises = PromiseChecker(self._feed_found)
        self.materialised = MaterialisedChecker()
        self.fights = FightChecker(lambda detail: world.found("X3", plane.name, detail))
        self.lost_tail = False
        self.behind = False  # its store lost its tail, and nobody has begun to lead on what is left
        self.landed_s = 0.0  # when the last one did
        self._told = 0
        self._before: Counter[str] = Counter()
        self._disk = plane.store.disk
        plane.store.disk.committed = self.committed
        plane.store.disk.tail_lost = self._tail_lost

    def committed(self, batch: Batch) -> None:
        self.behind = False
        self._world.loop.note(batch.hash.hex())
        self.batches.append(batch)
        self.times[batch.hash] = self.landed_s = self._world.loop.now
        blob = decode_blob(batch.blob)
        self.checker.feed(batch, blob)
        self.fights.committed(blob)
        self.materialised.committed(blob, batch.first)
        if not self.lost_tail:
            self.feeds.committed(blob, batch.first)
            self.promises.committed(blob, batch.first)
            if self.name == GLOBAL:
                self.answers.committed(blob, batch.first)
        for violation in self.checker.violations[self._told :]:
            self._found(violation)
        self._told = len(self.checker.violations)

    def _feed_found(self, invariant: str, detail: str) -> None:
        if not self.lost_tail:  # what was told before may not be history any more
            self._world.found(invariant, self.name, detail)

    def _found(self, violation: Violation) -> None:
        self._world.found(violation.invariant, self.name, f"at {violation.position}: {violation.detail}")

    def _tail_lost(self, position: int) -> None:
        """What the store forgot is no longer history: the checkers go back to where it ends."""
        self.lost_tail = self.behind = True
        self._before += Counter(self.checker.checked)
        self.batches = [batch for batch in self.batches if batch.last <= position]
        self.checker, self.materialised = JournalChecker(), MaterialisedChecker()
        for batch in self.batches:
            blob = decode_blob(batch.blob)
            self.checker.feed(batch, blob)
            self.materialised.committed(blob, batch.first)
        self._before -= Counter(self.checker.checked)
        self._told = len(self.checker.violations)

    @property
    def checked(self) -> Counter[str]:
        return self._before + Counter(self.checker.checked)

    def objects_have_history(self) -> None:
        """S18: no object of the store is of a change that its journal has not got. S13: nor is one missing among them."""
        head = self._disk.head
        if head.materialised > head.position:
            self._world.found("S18", self.name, f"the store's objects are beyond its head: {head}")
        for detail in self.materialised.differences(self._disk.objects, head.materialised)[:1]:
            self._world.found("S13", self.name, f"among the store's objects {detail}")

    @property
    def objects(self) -> Mapping[str, Mapping[tuple[str, str], Any]]:
        return self.checker.objects


class World:
    def __init__(self, loop: SimLoop, scenario: Scenario, birth: Birth | None = None) -> None:
        self.loop = loop
        self.scenario = scenario
        self.findings: list[Finding] = []
        self.platform = Platform(loop, scenario, birth)
        self.watches = {name: PlaneWatch(self, plane) for name, plane in self.platform.planes.items()}
        self.chaos = Chaos(self.platform, Strays(self.platform, lambda plane: self.watches[plane].objects))
        self.platform.made_server = self._made_server
        self.losses = Losses(
            lambda plane: self.watches[plane or GLOBAL].objects, self.platform.regions, self.platform.machines.counts
        )
        self.chaos.on_loss = lambda region, gone: self.losses.struck(region, loop.now) if gone else self.losses.ended(region)
        self.people = People(self.platform, self.watches[GLOBAL].answers)
        self._office = self.platform.machines.program("people", self.platform.office, self.people.main)
        for name, plane in self.platform.planes.items():
            main = follower(self.platform, plane, self.watches[name].feeds)
            self.platform.machines.program(f"auditor {name}", self.platform.office, main)
        self.reads = ReadChecker(lambda invariant, detail: self.found(invariant, GLOBAL, detail))
        if scenario.work.readers:
            self.platform.machines.program("readers", self.platform.office, readers(self.platform, self.reads))
        self.waiting, self.explained = WaitingChecker(), ExplainedChecker()
        self.agreed_s: float | None = None
        self.escrow, self.effective = EscrowChecker(), EffectiveChecker()
        self._healed_s = 0.0

    def _made_server(self, plane: Plane, server: PlaneServer) -> None:
        """Before it runs: what it is asked may be spoilt, and what it answers is written down."""
        authority, promises = server.authority, self.watches[plane.name].promises
        submit = authority.submit

        async def heard(commands: list[Command]) -> list[Outcome]:
            outcomes = await submit(commands)
            for command, outcome in zip(commands, outcomes, strict=True):
                promises.told(command, outcome)
            return outcomes

        setattr(authority, "submit", heard)  # noqa: B010  of this one server's authority alone
        self.chaos.strays.spoil(plane, server)

    def found(self, invariant: str, plane: str, detail: str) -> None:
        if len(self.findings) < FOUND_MAX:
            self.findings.append(Finding(invariant, plane, round(self.loop.now, 3), detail))
            self.platform.machines.tell("checker", f"{invariant} in {plane}: {detail}")

    # --- the run -----------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        scenario, machines = self.scenario, self.platform.machines
        self.platform.start()
        async with asyncio.TaskGroup() as group:
            await self.chaos.run(group)
            while self.loop.now < scenario.rough_s and not self.findings:
                await sleep(1.0)
                self.look_at_quota()
                for invariant, detail in self.losses.findings(
                    self.loop.now, strict=self.scenario.profile in ("failback", "hushed")
                ):
                    self.found(invariant, "", detail)
            self.chaos.heal()
        self._safe()
        if not self.findings:
            group_work = self.loop.spawn(None, self.people.put_right(), "put right")
            await self._heal()
            await group_work
            if not self.findings:
                await self._rest()
        self._safe()
        for name, error in machines.exits:
            self.found("X1", name, f"ended by itself: {error}")

    def look_at_quota(self) -> None:
        """S5, and what of S6 is between planes, at this true moment."""
        regions, leases = [], []
        for name, plane in self.platform.planes.items():
            if name != GLOBAL:
                # Whoever led before a tail was lost continues what is gone: the store takes nothing from it.
                leaders = [] if self.watches[name].behind else plane.leaders()
                now_ms = min((server.authority.plane_ms() for server in leaders), default=None)
                checker = self.watches[name].checker
                regions.append(RegionNow(name, self.watches[name].objects, checker.incarnation, now_ms, self.platform.runs))
                leases.append(RegionLeases(name, checker.leases, checker.incarnation, now_ms))
        for detail in self.effective.look(self.watches[GLOBAL].objects, leases):
            self.found("S6", "", detail)
        above_ms = max((server.authority.plane_ms() for server in self.platform.planes[GLOBAL].leaders()), default=0)
        for detail in self.escrow.look(self.watches[GLOBAL].objects, regions, above_ms):
            self.found("S5", "", detail)

    def _safe(self) -> None:
        """What is asked of the whole, not of each batch."""
        self.look_at_quota()
        for detail in overlaps(self.platform.intervals):
            self.found("S12", "", detail)
        for detail in went_back(self.platform.intervals):
            self.found("S9", "", detail)
        for watch in self.watches.values():
            watch.promises.finish()
            watch.objects_have_history()
        watch = self.watches[GLOBAL]
        if not watch.lost_tail:
            watch.answers.finish()

    async def _heal(self) -> None:
        healed_s = self._healed_s = self.loop.now
        while not all(plane.leaders() for plane in self.platform.planes.values()) and self.loop.now < self._leaders_by_s():
            await sleep(0.5)
        for plane in self.platform.planes.values():
            if not plane.leaders():
                self.found("L2", plane.name, f"nobody leads {LEADER_S} s after healing")
        different: list[str] = []
        while self.loop.now < healed_s + self.scenario.calm_s and not self.findings:
            await sleep(1.0)
            self._bounds()
            different = self._different()
            if not different:
                self.agreed_s = round(self.loop.now - healed_s, 1)
                self.platform.machines.tell("checker", f"actual is desired {self.agreed_s} s after healing")
                break
        if different and self.loop.now >= healed_s + self.scenario.calm_s:
            self.found("L4", "", f"{self.scenario.calm_s} s after healing: {'; '.join(different[:5])} ({len(different)} in all)")
        elif self.agreed_s is not None and self.agreed_s > self.scenario.agreed_s:
            self.found("L4", "", f"actual was desired only {self.agreed_s} s after healing")

    def _leaders_by_s(self) -> float:
        """A batch of a leader that died may land after that, and is then its last sign of life."""
        last = [self.watches[name].landed_s for name, plane in self.platform.planes.items() if not plane.leaders()]
        return max([self._healed_s, *last]) + LEADER_S

    def _bounds(self) -> None:
        """L1, L7 and L12, while the platform comes to rest."""
        now = self.loop.now
        for name, plane in self.platform.planes.items():
            watch, leaders = self.watches[name], plane.leaders()
            if leaders and name != GLOBAL:
                plane_ms = leaders[0].authority.plane_ms()
                for detail in self.waiting.look(now, name, watch.objects, watch.checker.incarnation, plane_ms):
                    self.found("L1", name, detail)
                self._explained(name)
            leading = [server.config.name for server in leaders]
            for since_s, running in plane.store.in_doubt.values():
                age_s = now - max(since_s, self._healed_s)
                if age_s > RESOLVED_S and not running.dead and running.program.name in leading:
                    self.found("L7", name, f"{running.name} has not resolved a commit for {age_s:.0f} s")

    def _explained(self, region: str) -> None:
        for detail in self.explained.look(self.loop.now, region, self.watches[region].objects):
            self.found("L12", region, detail)

    def _no_room(self) -> bool:
        """Whatever waits is proven to have no place to go."""
        for name, plane in self.platform.planes.items():
            if name != GLOBAL:
                watch, plane_ms = self.watches[name], max((s.authority.plane_ms() for s in plane.leaders()), default=0)
                for request in watch.objects.get("schedulingrequests", {}).values():
                    if room_for(request, watch.objects, watch.checker.incarnation, plane_ms):
                        return False
        return True

    def _different(self) -> list[str]:
        regions = {name: watch.objects for name, watch in self.watches.items() if name != GLOBAL}
        running = [run for run in self.platform.intervals if run.end is None]
        found = differences(self.watches[GLOBAL].objects, regions, running)
        if any("waits: " in one for one in found) and self._no_room():
            self.platform.machines.counts["proven_no_room"] += 1
            return []
        return found

    async def _rest(self) -> None:
        """L4's second half: nobody writes anything any more but leases."""
        await sleep(max(5.0, self._healed_s + self.scenario.settle_s - self.loop.now))
        for region in self.platform.regions:
            self._explained(region)
        marks = {name: len(watch.batches) for name, watch in self.watches.items()}
        await sleep(self.scenario.quiet_s)
        for name, watch in self.watches.items():
            written: Counter[str] = Counter()
            for batch in watch.batches[marks[name] :]:
                written += writes(batch)
            if written:
                self.found("L4", name, f"{self.scenario.quiet_s} s at rest, and yet: {dict(written.most_common(5))}")
        if (different := self._different()) and not self.findings:
            self.found("L4", "", f"was as desired, and is not any more: {'; '.join(different[:5])}")


def run_scenario(scenario: Scenario, *, timeline: bool = False) -> Verdict:
    async def main(loop: SimLoop) -> World:
        loop.seeded = scenario.seeded or loop.seeded
        world = World(loop, scenario)
        rough_s, calls_s = scenario.rough_s, scenario.rough_s + scenario.settle_s / 2
        with hearing(loop, world.found), sifting(loop, scenario.sieve, calls_s) as probe, misled(loop, scenario.hints, rough_s):
            await world.live()
        if probe is not None:
            world.platform.machines.counts.update(probe.counted())
        return world

    forget_shared()  # what an earlier run of this process left would show in this one's bytes
    with quiet(), unheard(), planted(scenario.mutant), walls():
        return _verdict(scenario, sim.run(main, scenario.seed), timeline)


def _verdict(scenario: Scenario, outcome: sim.Outcome[World], timeline: bool) -> Verdict:
    world = outcome.value
    machines = world.platform.machines
    refusals = world.platform.tally.total()
    checked: Counter[str] = Counter()
    for watch in world.watches.values():
        checked += watch.checked
    checked["S5"] += world.escrow.checked
    checked["S6"] += world.effective.checked
    checked["S13"] += world.watches[GLOBAL].answers.checked
    checked["S15"] += sum(watch.feeds.checked for watch in world.watches.values())
    checked["S17"] += world.reads.checked
    checked["L1"] += world.waiting.checked
    checked["L12"] += world.explained.checked
    checked["S12"] += sum(1 for run in world.platform.intervals if run.exclusive)
    return Verdict(
        scenario.seed, scenario.profile, world.findings, machines.exits, outcome.steps, round(outcome.simulated_s, 3),
        outcome.trace, sum(len(watch.batches) for watch in world.watches.values()), dict(sorted(machines.counts.items())),
        dict(sorted(refusals.items())), dict(sorted(checked.items())), world.agreed_s, _timeline(world) if timeline else [],
        world.chaos.strikes, world.losses.recovered_s,
    )  # fmt: skip


def _timeline(world: World) -> list[tuple[float, str, str]]:
    """What was told, and every commit but renewals, in the order in which they happened."""
    told = list(world.platform.machines.timeline)
    for name, watch in world.watches.items():
        for batch in watch.batches:
            written = writes(batch, tidying=True)
            if written:
                told.append((watch.times[batch.hash], f"plane {name}", f"commits {batch.first}: {'; '.join(written)}"))
    return sorted(told, key=lambda line: line[0])
