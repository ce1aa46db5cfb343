"""Owns one run: a platform, its people, its chaos and the checkers that watch, from a seed to a verdict.

Two phases. While faults strike, nothing unsafe may happen (S). Then everything is healed at once, in some seeds but for a small
part, and the platform must come to rest, as desired, within its bounds (L). Called by campaign.py; what it found is in `Verdict`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from fairlead.compose.plane import PlaneServer
from fairlead.controllers.node_pool import CLOSED
from fairlead.model.commands import Command, Outcome
from fairlead.model.hot import forget_shared
from fairlead.model.registry import GLOBAL
from fairlead.observe.agreement import differences, nowhere, without_waiting
from fairlead.observe.answers import AnswerChecker
from fairlead.observe.differing import Difference, Objects
from fairlead.observe.escrow import EscrowChecker, RegionNow
from fairlead.observe.explained import ExplainedChecker
from fairlead.observe.intervals import overlaps, overtook, ran_again, went_back
from fairlead.observe.leased import EffectiveChecker, RegionLeases
from fairlead.observe.losses import Losses
from fairlead.observe.orphans import OrphanChecker
from fairlead.observe.reads import ReadChecker
from fairlead.observe.resting import at_rest, writes
from fairlead.observe.returned import ReturnChecker
from fairlead.observe.starved import StarvedChecker
from fairlead.observe.waiting import WaitingChecker, room_for
from fairlead.sim import loop as sim
from fairlead.sim.born import Birth
from fairlead.sim.chaos import Chaos
from fairlead.sim.follower import follower
from fairlead.sim.hearing import hearing, quiet
from fairlead.sim.hints import misled
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.mutants import planted
from fairlead.sim.people import People
from fairlead.sim.platform import Plane, Platform
from fairlead.sim.probe import sifting
from fairlead.sim.readers import readers
from fairlead.sim.remainder import Remainder
from fairlead.sim.scenario import Scenario, steps_max_of
from fairlead.sim.strays import Strays
from fairlead.sim.verdict import Finding as Finding
from fairlead.sim.verdict import Verdict as Verdict
from fairlead.sim.verdict import broken_off, told_of
from fairlead.sim.walls import unheard, walls
from fairlead.sim.watched import PlaneWatch

LEADER_S: Final = 15.0  # L2
RESOLVED_S: Final = 10.0  # L7
JOBS_S: Final = 1800.0  # in which all jobs are over: they take seconds each, and may have to wait for each other's room
ECHO_S: Final = 5  # within which a write has gone through both planes
ORPHANS_S: Final = 5.0  # between two looks for what nobody wants (L6)
LAST_S: Final = 12.0  # within which the last step is told everywhere: outlooks of regions are made every five seconds
FOUND_MAX: Final = 20


class World:
    def __init__(self, loop: SimLoop, scenario: Scenario, birth: Birth | None = None) -> None:
        self.loop = loop
        self.scenario = scenario
        self.findings: list[Finding] = []
        self.platform = Platform(loop, scenario, birth)
        self.answers = AnswerChecker(lambda invariant, detail: self.found(invariant, GLOBAL, detail))
        planes = self.platform.planes
        self.watches = {name: PlaneWatch(loop, self.found, plane, self.answers) for name, plane in planes.items()}
        self.chaos = Chaos(self.platform, Strays(self.platform, lambda plane: self.watches[plane].objects))
        self.remainder = Remainder(self.platform, self.chaos.power_off, lambda r: self.watches[r].objects.get("nodes", {}))
        self.platform.made_server = self._made_server
        self.losses = Losses(
            lambda plane: self.watches[plane or GLOBAL].objects, self.platform.regions, self.platform.machines.counts,
            self._room_for, lambda: self.platform.barren,
        )  # fmt: skip
        self.chaos.on_loss = lambda region, gone: self.losses.struck(region, loop.now) if gone else self.losses.ended(region)
        self.people = People(self.platform, self.answers)
        self._office = self.platform.machines.program("people", self.platform.office, self.people.main)
        for name, plane in self.platform.planes.items():
            main = follower(self.platform, plane, self.watches[name].feeds)
            self.platform.machines.program(f"auditor {name}", self.platform.office, main)
        self.reads = ReadChecker(lambda invariant, detail: self.found(invariant, GLOBAL, detail))
        if scenario.work.readers:
            self.platform.machines.program("readers", self.platform.office, readers(self.platform, self.reads))
        self.waiting, self.explained, self.returned = WaitingChecker(), ExplainedChecker(), ReturnChecker()
        self.orphans, self._orphans_s = OrphanChecker(), 0.0  # when they were looked for last
        self.starved, self._regions_now = StarvedChecker(), list[RegionNow]()
        self._away: dict[str, list[Difference]] = {}  # by region: nodes that are there, and not called so
        self.agreed_s: float | None = None
        self.escrow, self.effective = EscrowChecker(), EffectiveChecker()
        self._healed_s = self._righted_s = 0.0

    def _made_server(self, plane: Plane, server: PlaneServer) -> None:
        """Before it runs: what it is asked may be spoilt, and what it answers is written down."""
        authority, promises = server.authority, self.watches[plane.name].promises
        submit = authority.submit

        async def heard(commands: list[Command]) -> list[Outcome]:
            outcomes = await submit(commands)
            for command, outcome in zip(commands, outcomes, strict=True):
                promises.told(command, outcome)
                self.platform.tally.answered(command.body, outcome)
            return outcomes

        setattr(authority, "submit", heard)  # noqa: B010  of this one server's authority alone
        self.chaos.strays.spoil(plane, server)

    def found(self, invariant: str, plane: str, detail: str) -> None:
        known = any((one.invariant, one.plane, one.detail) == (invariant, plane, detail) for one in self.findings)
        if len(self.findings) < FOUND_MAX and not known:  # what is asked of the whole is asked twice
            self.findings.append(Finding(invariant, plane, round(self.loop.now, 3), detail))
            self.platform.machines.tell("checker", f"{invariant} in {plane}: {detail}")

    # --- the run -----------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        scenario, machines = self.scenario, self.platform.machines
        self.platform.start()
        async with asyncio.TaskGroup() as group:
            await self.chaos.run(group)
            while self.loop.now < scenario.rough_s and not self.findings:
                await self._second()
            self.remainder.freeze()
            self.chaos.heal()
            if self.platform.gone:
                self.losses.struck(self.platform.gone, self.loop.now)
        self._safe()
        if not self.findings:
            await self._heal(self.loop.spawn(None, self.people.put_right(), "put right"))
        if not self.findings:
            await self._rest()
        self._safe()
        for name, error in machines.exits:
            self.found("X1", name, f"ended by itself: {error}")

    async def _second(self, seconds: float = 1.0) -> None:
        """Lets time pass, then asks what is asked of several planes at one moment: while faults strike and after it."""
        await sleep(seconds)
        self.look_at_quota()
        alone = self.scenario.profile in ("failback", "hushed") and not (self.chaos.healed and self.scenario.remains)
        for invariant, detail in self.losses.findings(self.loop.now, strict=alone):
            self.found(invariant, "", detail)

    async def _pass(self, seconds: float) -> None:
        """So much time, or until something is found."""
        end_s = self.loop.now + seconds
        while self.loop.now < end_s and not self.findings:
            await self._watched(min(1.0, end_s - self.loop.now))

    def look_at_quota(self) -> None:
        """S5, and what of S6 is between planes, at this true moment."""
        regions, leases = [], []
        for name, plane in self.platform.planes.items():
            if name != GLOBAL:
                # Whoever led before a tail was lost continues what is gone: the store takes nothing from it.
                watch = self.watches[name]
                leaders = [] if watch.behind else plane.leaders()
                now_ms = min((server.authority.plane_ms() for server in leaders), default=None)
                checker, runs = watch.checker, self.platform.runs
                regions.append(RegionNow(name, watch.objects, checker.incarnation, now_ms, runs, watch.behind))
                leases.append(RegionLeases(name, checker.leases, checker.incarnation, now_ms))
        for detail in self.effective.look(self.watches[GLOBAL].objects, leases):
            self.found("S6", "", detail)
        above_ms = max((server.authority.plane_ms() for server in self.platform.planes[GLOBAL].leaders()), default=0)
        for detail in self.escrow.look(self.watches[GLOBAL].objects, regions, above_ms, int(self.loop.now * 1000)):
            self.found("S5", "", detail)
        self._regions_now = regions

    def _safe(self) -> None:
        """What is asked of the whole, not of each batch."""
        self.look_at_quota()
        for detail in (*overlaps(self.platform.intervals), *self._too_many()):
            self.found("S12", "", detail)
        for detail in went_back(self.platform.intervals):
            self.found("S9", "", detail)
        for watch in self.watches.values():
            for detail in overtook(self.platform.intervals, watch.checker.claims):
                self.found("S2", watch.name, detail)
            watch.promises.finish()
            watch.objects_have_history()
        self.answers.finish()

    def _too_many(self) -> list[str]:
        """Not where somebody queues slots that no order names, in a controller's name: nobody is to know better."""
        faults = self.scenario.faults
        asked = not faults.meddle and not faults.misplace
        return self.watches[GLOBAL].copies.too_many(self.platform.intervals) if asked else []

    async def _heal(self, righted: asyncio.Task[None]) -> None:
        self._healed_s = self.loop.now
        planes = [plane for name, plane in self.platform.planes.items() if name != self.platform.gone]
        while not all(plane.vouched() for plane in planes) and self.loop.now < self._leaders_by_s():
            await self._second(0.5)
        for plane in planes:
            if not plane.vouched():
                self.found("L2", plane.name, f"nobody leads {LEADER_S} s after healing")
        await self._put_right(righted)
        await self._agree()

    async def _put_right(self, righted: asyncio.Task[None]) -> None:
        """What operators did wrong is a fault as well: what is promised after healing counts from when it is undone."""
        calm_s = self.scenario.calm_s
        while not righted.done() and self.loop.now < self._healed_s + calm_s and not self.findings:
            await self._watched()
        if righted.done():
            righted.result()
            if wrong := self._wrong():
                self.found("L4", "", f"people could not undo what operators did: {', '.join(wrong)}")
        elif not self.findings:
            self.found("L4", "", f"{calm_s} s after healing people have not undone what operators did")
        self._righted_s = self.loop.now

    def _wrong(self) -> list[str]:
        """Nodes that are closed still, but those that a pool lets go, and the policy that should not be in force."""
        there = [watch.objects.get("nodes", {}) for name, watch in self.watches.items() if name != self.platform.gone]
        shut = [node for nodes in there for node in nodes.values() if node.spec.unschedulable]
        closed = [f"{node.metadata.name} is closed" for node in shut if CLOSED not in node.metadata.annotations]
        channels = self.watches[GLOBAL].objects.get("policychannels", {}).values()
        return closed + [f"policy r{one.spec.current} is current" for one in channels if one.spec.current != 1]

    async def _agree(self) -> None:
        righted_s, calm_s = self._righted_s, self.scenario.calm_s
        different: list[str] = []
        while self.loop.now < righted_s + calm_s and not self.findings:
            await self._watched()
            different = self._different()
            if not different:
                self.agreed_s = round(self.loop.now - righted_s, 1)
                self.platform.machines.tell("checker", f"actual is desired {self.agreed_s} s after healing")
                break
        if different and self.loop.now >= righted_s + calm_s:
            self.found("L4", "", f"{calm_s} s after healing: {'; '.join(different[:5])} ({len(different)} in all)")
        elif self.agreed_s is not None and self.agreed_s > self.scenario.agreed_s:
            self.found("L4", "", f"actual was desired only {self.agreed_s} s after healing")

    def _leaders_by_s(self) -> float:
        """A batch of a leader that died may land after that, and is then its last sign of life."""
        last = [self.watches[name].landed_s for name, plane in self.platform.planes.items() if not plane.vouched()]
        return max([self._healed_s, *last]) + LEADER_S

    async def _watched(self, seconds: float = 1.0) -> None:
        """A second after healing, with what is bounded from then on: also when all was as desired once, and at rest."""
        await self._second(seconds)
        self._bounds()

    def _bounds(self) -> None:
        """L1, L6, L7 and L12, and which nodes came back. Of a region that stays lost nothing is asked."""
        now = self.loop.now
        if not self.platform.gone:
            for detail in self.starved.look(now, self.watches[GLOBAL].objects, self._regions_now):
                self.found("L1", "", detail)
            self._orphans(now)
        for name, plane in self.platform.planes.items():
            watch, leaders = self.watches[name], plane.leaders()
            if leaders and name != GLOBAL:
                self._away[name] = self.returned.look(now, name, watch.objects, self.platform.there(name))
                plane_ms = leaders[0].authority.plane_ms()
                for detail in self.waiting.look(now, name, watch.objects, watch.checker.incarnation, plane_ms):
                    self.found("L1", name, detail)
                for detail in self.explained.look(now, name, watch.objects, plane_ms):
                    self.found("L12", name, detail)
            leading = [server.config.name for server in leaders]
            for since_s, running in plane.store.in_doubt.values():
                age_s = now - max(since_s, self._healed_s)
                if age_s > RESOLVED_S and not running.dead and running.program.name in leading:
                    self.found("L7", name, f"{running.name} has not resolved a commit for {age_s:.0f} s")

    def _orphans(self, now_s: float) -> None:
        """Asked from when people have put things right, as L4 is."""
        if self._righted_s and now_s >= self._orphans_s + ORPHANS_S:
            self._orphans_s = now_s
            for detail in self.orphans.look(now_s, self._differences()):
                self.found("L6", "", detail)

    def _room_for(self, region: str, request: Any, objects: Objects) -> str:
        leaders = self.platform.planes[region].leaders()
        plane_ms = max((server.authority.plane_ms() for server in leaders), default=0)
        return room_for(request, objects, self.watches[region].checker.incarnation, plane_ms)

    def _no_room(self, one: Difference) -> bool:
        """A slot that waits, and is proven to have no place to go."""
        return not self._room_for(one.region, one.request, self.watches[one.region].objects)

    def _differences(self) -> list[Difference]:
        regions = {name: watch.objects for name, watch in self.watches.items() if name != GLOBAL}
        running = [run for run in self.platform.intervals if run.end is None]
        top = self.watches[GLOBAL].objects
        return differences(top, regions, running, self.platform.succeeded, self.platform.gone) if regions else nowhere(top)

    def _different(self) -> list[str]:
        found = self._differences()
        left = without_waiting(found, self._no_room)
        if len(left) < len(found):
            self.platform.machines.counts["proven_no_room"] += 1
        return [one.detail for one in (*left, *(one for away in self._away.values() for one in away))]

    async def _settle(self) -> None:
        """Until jobs have come to their ends, and for a while after it: each end is followed by writes."""
        while self.losses.open and not self.findings:  # L5 bounds it
            await self._watched()
        calm_s, began_s = self._righted_s, self.loop.now
        while self.loop.now < max(began_s + LAST_S, calm_s + self.scenario.settle_s) and not self.findings:
            await self._watched()
            calm_s = self.loop.now if self.platform.jobs_run() else calm_s
            if self.loop.now > began_s + JOBS_S:
                self.found("L4", "", f"{JOBS_S:.0f} s after everything was as desired jobs run still")
        for _ in range(ECHO_S):  # what was written in the last of these seconds may be passed on in the next
            marks = self._marks()
            await self._watched()
            if not any(at_rest(watch.batches[marks[name] :]) for name, watch in self.watches.items()):
                return

    def _marks(self) -> dict[str, int]:
        return {name: len(watch.batches) for name, watch in self.watches.items()}

    async def _rest(self) -> None:
        """L4's second half: nobody writes anything any more but leases."""
        await self._settle()
        marks = self._marks()
        await self._pass(self.scenario.quiet_s)
        for name, watch in self.watches.items():
            if written := at_rest(watch.batches[marks[name] :]):
                self.found("L4", name, f"{self.scenario.quiet_s} s at rest, and yet: {dict(written.most_common(5))}")
        if (different := self._different()) and not self.findings:
            self.found("L4", "", f"was as desired, and is not any more: {'; '.join(different[:5])}")


def run_scenario(scenario: Scenario, *, timeline: bool = False, last: bool = False) -> Verdict:
    """A run that breaks off, by whatever, is a finding like any other: X0. `last`: of its process, which ends with it."""
    worlds: list[World] = []

    async def main(loop: SimLoop) -> None:
        loop.seeded = scenario.seeded or loop.seeded
        world = World(loop, scenario)
        worlds.append(world)
        rough_s, calls_s = scenario.rough_s, scenario.rough_s + scenario.settle_s / 2
        with hearing(loop, world.found), sifting(loop, scenario.sieve, calls_s) as probe, misled(loop, scenario.hints, rough_s):
            try:
                await world.live()
            finally:
                world.platform.forget_dead()
        if probe is not None:
            world.platform.machines.counts.update(probe.counted())

    forget_shared()  # what an earlier run of this process left would show in this one's bytes
    with quiet(), unheard(last), planted(scenario.mutant), walls():
        try:
            outcome = sim.run(main, scenario.seed, steps_max_of(scenario), last=last)
        except (Exception, asyncio.CancelledError) as error:
            if not worlds:
                return broken_off(scenario.seed, scenario.profile, told_of(error))
            world = worlds[0]
            world.findings[FOUND_MAX - 1 :] = []  # there is room for this one
            world.found("X0", "", told_of(error))
            outcome = sim.Outcome(None, world.loop.steps, world.loop.now, world.loop.trace_hash())
        return _verdict(scenario, worlds[0], outcome, timeline)


def _verdict(scenario: Scenario, world: World, outcome: sim.Outcome[None], timeline: bool) -> Verdict:
    machines = world.platform.machines
    if world.escrow.above:
        machines.counts["emergency/used"] = world.escrow.above
    refusals = world.platform.tally.total()
    checked: Counter[str] = Counter()
    for watch in world.watches.values():
        checked += watch.checked
    checked["S5/planes"] += world.escrow.checked
    checked["S6/effective"] += world.effective.checked
    checked["S13"] += world.answers.checked
    checked["S15"] += sum(watch.feeds.checked for watch in world.watches.values())
    checked["S17"] += world.reads.checked
    checked["L1"] += world.waiting.checked
    checked["L1/quota"] += world.starved.checked
    checked["L4/returned"] += world.returned.checked
    checked["L6"] += world.orphans.checked
    checked["L12"] += world.explained.checked
    checked["S12"] = ran_again(world.platform.intervals)  # what agents said is asked of histories, where nobody knows better
    return Verdict(
        scenario.seed, scenario.profile, world.findings, machines.exits, outcome.steps, round(outcome.simulated_s, 3),
        outcome.trace, sum(len(watch.batches) for watch in world.watches.values()), dict(sorted(machines.counts.items())),
        dict(sorted(refusals.items())), dict(sorted(checked.items())), world.agreed_s, _timeline(world) if timeline else [],
        world.chaos.strikes, world.losses.recovered_s, machines.tape if timeline or world.findings else [],
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
