"""Owns what breaks and when: one task for each kind of fault, at the rates of the scenario, each with a counter.

Every value is drawn before anything is looked at, so that a fault that finds nothing to break moves no draw behind it. `heal`
ends all of them and puts everything back; then nothing may be wrong for longer than L1 to L12 allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fairlead.sim.aimed import Aimed
from fairlead.sim.backups import Restoring
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.machines import Machine, Program
from fairlead.sim.network import SPREAD
from fairlead.sim.platform import Agent, Platform
from fairlead.sim.scenario import Faults
from fairlead.sim.spells import CALLS, CLOG_S, Hit, Spells, drawn_loops
from fairlead.sim.store import StoreFaults
from fairlead.sim.strays import Strays

DOWN_S: Final = (0.2, 12.0)
CUT_S: Final = (1.0, 40.0)
STORMS: Final = 0.12  # of the crashes, a share is a storm of them
CLOGS: Final = 0.5  # of what befalls links, a share holds everything for a while


class Chaos:
    def __init__(self, platform: Platform, strays: Strays) -> None:
        self._platform = platform
        self.strays = strays
        self._loop = platform.loop
        self._machines = platform.machines
        self._network = platform.network
        self._faults = platform.scenario.faults
        self.counts = platform.machines.counts
        self.healed = False
        self._twins: list[Agent] = []
        self._lost = ""  # the region that is dark or cut off
        self.on_loss: Callable[[str, bool], None] | None = None  # is told of the region, and whether it goes or comes back
        self._tasks: list[asyncio.Task[None]] = []
        self._striking = ""
        self._aimed = Aimed(
            platform, self._left_out, lambda: self.healed, self.power_off, self.power_on, self._start, strays.objects
        )
        self._restoring = Restoring(platform, self._left_out, lambda: self.healed, self._start, self._aimed.cut_off)
        self._spells = Spells(platform, self._left_out, lambda: self.healed, self._start)
        self._power_draws = platform.loop.stream("power")
        strays.left_out, strays.healed = self._left_out, lambda: self.healed
        platform.stillborn.left_out, platform.stillborn.healed = self._left_out, lambda: self.healed
        self.strikes: list[str] = []  # every one that was carried out, as `skips` of a scenario names it

    async def run(self, group: asyncio.TaskGroup) -> None:
        kinds: dict[str, Callable[[Draws], Awaitable[None]]] = {
            "crash": self._crash, "power": self._power, "pause": self._pause, "cut": self._cut, "slow": self._slow,
            "reset": self._reset, "clock": self._spells.clock, "store": self._store, "store_down": self._store_down,
            "lost_tail": self._lost_tail, "twin": self._twin, "instance": self._instance, "disk": self._spells.disk,
            "region": self._region, "stray": self.strays.strike, "stale_event": self.strays.tell_again,
            "misplace": self.strays.misplace, "meddle": self.strays.meddle, "linger": self._aimed.linger,
            "usurp": self._aimed.usurp, "freeze": self._aimed.freeze, "strand": self._aimed.strand, "hush": self._hush,
            "barren": self._barren,
            "relapse": self._aimed.relapse, "forget": self._aimed.forget, "behead": self._aimed.behead,
            "backup": self._restoring.strike, "zone": self._aimed.zone,
        }  # fmt: skip
        for name in Faults.__struct_fields__:
            rate = getattr(self._faults, name)
            if rate and name in kinds:
                self._tasks.append(group.create_task(self._repeat(name, rate, kinds[name]), name=f"chaos {name}"))
        self._network.lose(self._faults.loss)

    async def _repeat(self, name: str, per_minute: float, strike: Callable[[Draws], Awaitable[None]]) -> None:
        draws, number = self._loop.stream(f"chaos {name}"), 0
        while True:
            await sleep(draws.expovariate(per_minute / 60))
            if self.healed:
                return
            number += 1
            self._striking = f"{name}:{number}"
            await strike(draws)

    def _left_out(self, strike: str = "") -> bool:
        """Asked by each strike when it has drawn: one that shrinking found to be needless is drawn, and does nothing. What is
        no task of its own names itself."""
        strike = strike or self._striking
        if strike in self._platform.scenario.skips:
            return True
        self.strikes.append(strike)
        self._machines.struck(strike)
        return False

    def _tell(self, what: str) -> None:
        self._machines.tell("chaos", what)

    # --- processes and machines ----------------------------------------------------------------------------------------------

    def _program(self, draws: Draws) -> Program:
        """Leaders are aimed at more often than their number says: that is where protocols break."""
        leader, other, at_leader = draws.random(), draws.random(), draws.random()
        programs = self._programs()
        names = [server.config.name for plane in self._platform.planes.values() for server in plane.leaders()]
        leaders = [program for program in programs if program.name in names]
        if leaders and at_leader < 0.5:
            return leaders[int(leader * len(leaders))]
        return programs[int(other * len(programs))]

    def _programs(self) -> list[Program]:
        programs = [p for plane in self._platform.planes.values() for p in plane.servers]
        return programs + [agent.program for agent in self._platform.agents.values()]

    async def _crash(self, draws: Draws) -> None:
        program, down_s, storms = self._program(draws), draws.uniform(*DOWN_S), draws.random() < STORMS
        hit = Hit(down_s, draws.random(), draws.randrange(1, CALLS), draws.random() < 0.5)
        loops = drawn_loops(draws)
        if self._left_out():
            return
        if storms:
            self._spells.storm(self._programs(), loops)
        elif program.alive:
            self._spells.crash(program, hit)

    def _start(self, program: Program) -> None:
        if not program.alive and program.machine.up and program.wanted:
            program.start()

    async def _power(self, draws: Draws) -> None:
        """A node's machine, or a server's, goes without a word and comes back with what was durable."""
        at, down_s, of_server = draws.random(), draws.uniform(2.0, 60.0), draws.random() < 0.3
        if self._left_out():
            return
        programs = [agent.program for agent in self._platform.agents.values()]
        if of_server:
            programs = [program for plane in self._platform.planes.values() for program in plane.servers]
        program = programs[int(at * len(programs))]
        if not program.machine.up:
            return
        self.counts["F9"] += 1
        self._tell(f"{program.machine.name} loses power, for {down_s:.1f} s")
        self.power_off(program.machine)
        self._loop.after(down_s, self.power_on, program.machine)

    def power_off(self, machine: Machine) -> None:
        machine.up = False
        for program in self._machines.programs.values():
            if program.machine is machine:
                program.kill(silent=True)
        for agent in self._platform.agents.values():
            if agent.program.machine is machine:
                agent.instances.power_lost()
        machine.lose_power(self._power_draws)

    def power_on(self, machine: Machine) -> None:
        if machine.up or machine.broken:
            return
        machine.up = True
        for program in self._machines.programs.values():
            if program.machine is machine and program.wanted and not program.alive:
                program.start()

    async def _pause(self, draws: Draws) -> None:
        program, for_s = self._program(draws), draws.uniform(0.3, 3.0) * self._platform.scenario.lease_s
        if self._left_out():
            return
        if not program.alive or program.running is None or program.running.paused:
            return
        self.counts["F8"] += 1
        self._tell(f"{program.name} is paused, for {for_s:.1f} s")
        program.pause()
        self._loop.after(for_s, program.resume)

    async def _instance(self, draws: Draws) -> None:
        at, which = draws.random(), draws.random()
        if self._left_out():
            return
        agents = list(self._platform.agents.values())
        runs = [run for run in agents[int(at * len(agents))].instances.runs.values() if run.interval.end is None]
        if runs:
            run = runs[int(which * len(runs))]
            self.counts["instances_failed"] += 1
            self._tell(f"{run.launch.id.text} crashes on {run.interval.where}")
            agents[int(at * len(agents))].instances.crash(run)

    async def _twin(self, draws: Draws) -> None:
        """A second agent speaks for a node, restored from an image of its disk, or started by mistake (F16, where it was
        believed: one that reaches nobody is no second agent to anybody)."""
        at, for_s, copies = draws.random(), draws.uniform(5.0, 60.0), draws.random() < 0.5
        if self._left_out():
            return
        agents = [agent for agent in self._platform.agents.values() if agent not in self._twins]
        original = agents[int(at * len(agents))]
        name = f"{original.node.name}-twin-{len(self._twins)}"
        machine = self._machines.machine(f"{original.node.region}/{name}")
        if copies:
            machine.copy_files(original.program.machine)
        self._tell(f"{name} speaks for {original.node.name}, for {for_s:.1f} s")
        twin = self._platform.add_agent_program(name, machine, original.node)
        self._twins.append(twin)
        twin.program.start()
        self._loop.after(for_s, self._end_twin, twin)

    def _end_twin(self, twin: Agent) -> None:
        if twin.program.wanted and (host := self._platform.hosts.get(twin.program.name)) is not None:
            self.counts["F16"] += any(node.session for node in host.nodes.values())
        twin.program.wanted = False
        if twin.program.machine.up:
            self.power_off(twin.program.machine)

    # --- the network ---------------------------------------------------------------------------------------------------------

    async def _cut(self, draws: Draws) -> None:
        """One machine from another, one way or both, or one from all of them."""
        first, second, way, whole, for_s = draws.random(), draws.random(), draws.random(), draws.random(), draws.uniform(*CUT_S)
        if self._left_out():
            return
        every = list(self._machines.all.values())
        one = every[int(first * len(every))]
        others = [machine for machine in every if machine is not one]
        other = others[int(second * len(others))]
        others = others if whole < 0.3 else [other]
        self._tell(f"{one.name} is cut from {other.name if whole >= 0.3 else 'all'} ({way:.1f}), for {for_s:.1f} s")
        pairs = [(one, each) for each in others if way < 0.75] + [(each, one) for each in others if way > 0.25]
        self._loop.after(for_s, self._network.cut(pairs))

    async def _region(self, draws: Draws) -> None:
        """A whole region goes dark, or is cut off and goes on by itself. One at a time."""
        at, dark, for_s = draws.random(), draws.random() < 0.6, draws.uniform(*self._platform.scenario.region_s)
        if self._left_out() or self._lost:
            return
        region = self._platform.regions[int(at * len(self._platform.regions))]
        own = [machine for name, machine in self._machines.all.items() if name.startswith(f"{region}/")]
        self.counts["F_region"] += 1
        self._tell(f"{region} {'goes dark' if dark else 'is cut off'}, for {for_s:.1f} s")
        self._lost = region
        if self.on_loss is not None:
            self.on_loss(region, True)
        if dark:
            for machine in own:
                self.power_off(machine)
            self._loop.after(for_s, self._light, region, own)
            return
        others = [machine for machine in self._machines.all.values() if machine not in own]
        pairs = [pair for one in own for other in others for pair in ((one, other), (other, one))]
        for source, target in pairs:
            self._network.block(source, target)
        self._loop.after(for_s, self._join, region, pairs)

    async def _hush(self, draws: Draws) -> None:
        await self._aimed.hush(draws, self._lost)

    async def _barren(self, draws: Draws) -> None:
        await self._aimed.barren(draws, self._lost)

    def _light(self, region: str, machines: list[Machine]) -> None:
        for machine in machines:
            self.power_on(machine)
        self._back(region)

    def _join(self, region: str, pairs: list[tuple[Machine, Machine]]) -> None:
        self._rejoin(pairs)
        self._back(region)

    def _back(self, region: str) -> None:
        if region and self._lost == region:
            self._lost = ""
            if self.on_loss is not None:
                self.on_loss(region, False)

    def _rejoin(self, pairs: list[tuple[Machine, Machine]]) -> None:
        for source, target in pairs:
            self._network.unblock(source, target)

    async def _slow(self, draws: Draws) -> None:
        """A link is slow for a while; or some of one machine hold everything and are let go one by one."""
        at, by, for_s = draws.random(), draws.uniform(0.2, 4.0), draws.uniform(1.0, 30.0)
        clogs, ends, spans_s = (
            draws.random() < CLOGS,
            [draws.random() for _ in range(6)],
            [draws.uniform(*CLOG_S) for _ in range(6)],
        )
        if self._left_out():
            return
        if clogs:
            every = list(self._machines.all.values())
            one = every[int(at * len(every))]
            used = self._network.used()
            near = [machine for machine in every if (machine.name, one.name) in used] or every
            self._spells.clog(one, [near[int(end * len(near))] for end in ends], spans_s)
            return
        links = list(self._network.used().values())
        if links and (link := links[int(at * len(links))]).high_s <= 0.2:
            self._loop.after(for_s, self._network.slow([link], by))

    async def _reset(self, draws: Draws) -> None:
        at, herd = draws.random(), draws.random()
        if self._left_out():
            return
        ends = self._network.all_ends()
        if not ends:
            return
        one = ends[int(at * len(ends))]
        if herd < 0.1 and one.peer is not None:
            self.counts["F17"] += 1
            self._tell(f"all connections of {one.peer.process.name} break")
            for end in list(self._network.ends.get(one.peer.process, {})):
                self._network.reset(end)
            return
        self._network.reset(one)

    # --- stores --------------------------------------------------------------------------------------------------------------

    async def _store(self, draws: Draws) -> None:
        at, for_s = draws.random(), draws.uniform(2.0, 30.0)
        chances = [draws.random() * draws.choice((0.0, 0.1, 0.5)) for _ in range(6)]
        if self._left_out():
            return
        planes = list(self._platform.planes.values())
        store = planes[int(at * len(planes))].store
        self._tell(f"store {store.name} is faulty, for {for_s:.1f} s")
        faults = store.faults
        faults.unavailable, faults.lost, faults.unheard, faults.late, faults.twice, faults.stale = chances
        faults.stale, faults.unheard = max(faults.stale, self._faults.stale), max(faults.unheard, self._faults.unheard)
        self._loop.after(for_s, self._mend, faults)

    @staticmethod
    def _mend(faults: StoreFaults) -> None:
        faults.unavailable = faults.lost = faults.unheard = faults.late = faults.stale = faults.twice = 0.0

    async def _store_down(self, draws: Draws) -> None:
        at, for_s, paused = draws.random(), draws.uniform(0.5, 20.0), draws.random() < 0.5
        if self._left_out():
            return
        planes = list(self._platform.planes.values())
        program = planes[int(at * len(planes))].store.program
        assert program is not None
        if not program.alive or program.running is None or program.running.paused:
            return
        self.counts["F8" if paused else "F9"] += 1
        self._tell(f"{program.name} is {'paused' if paused else 'killed'}, for {for_s:.1f} s")
        if paused:
            program.pause()
            self._loop.after(for_s, program.resume)
        else:
            program.kill()
            self._loop.after(for_s, self._start, program)

    async def _lost_tail(self, draws: Draws) -> None:
        at, count, fence_too = draws.random(), draws.randrange(1, 6), draws.random() < 0.5
        if self._left_out():
            return
        planes = list(self._platform.planes.values())
        store = planes[int(at * len(planes))].store
        lost = store.disk.lose_tail(count, fence_too=fence_too)
        self.counts["F14"] += bool(lost)
        self._tell(f"store {store.name} fails over and loses {lost} batches")

    # --- the end of it -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything is put back at once, but what takes its time by itself: leases, backoffs, resyncs."""
        self.healed = True
        self._tell("everything is healed")
        self._back(self._lost)
        for task in self._tasks:
            task.cancel()
        self._network.lose(0.0)
        for plane in self._platform.planes.values():
            self._mend(plane.store.faults)
            plane.store.faults.full, plane.store.faults.broken = False, 0.0
            plane.store.traps.clear()
        for source, target in list(self._network.links()):
            self._network.unblock(self._machines.all[source], self._machines.all[target])
            self._network.unclog(self._machines.all[source], self._machines.all[target])
            link = self._network.link(self._machines.all[source], self._machines.all[target])
            link.high_s, link.slowed = min(link.high_s, link.low_s * SPREAD), None
        for agent in self._platform.agents.values():
            agent.instances.barren = False
        for twin in self._twins:
            self._end_twin(twin)
        for machine in self._machines.all.values():
            machine.disk_full = machine.disk_broken = False
            if not any(twin.program.machine is machine for twin in self._twins):
                self.power_on(machine)
        for program in self._machines.programs.values():
            program.resume()
            if program.wanted and not program.alive and program.machine.up:
                program.start()
