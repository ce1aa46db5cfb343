"""Owns a whole simulated platform: machines, stores, the production servers and agents on them, and who reaches whom.

Builds what fairlead/compose builds in production, from the same parts, each program a simulated process. Decides nothing about
faults or work; hands every committed batch and every run to the checkers. Called by world.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fairlead.agent.drivers.contract import Launch
from fairlead.agent.host import Host
from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.authority.candidate import Timing
from fairlead.authority.meters import Meters
from fairlead.authority.truncation import JournalKept
from fairlead.client.plane import Expired
from fairlead.client.remote import RemotePlane
from fairlead.client.remote_feed import RemoteFeed
from fairlead.compose.config import Peer, PlaneConfig
from fairlead.compose.plane import PlaneServer
from fairlead.decide.access import Identity
from fairlead.decide.access_roles import FRONT_DOOR, PLANE_SERVER
from fairlead.model.lifecycle import Role
from fairlead.model.registry import GLOBAL
from fairlead.observe.intervals import Interval
from fairlead.ports import Tasks
from fairlead.sim import born
from fairlead.sim.asking import Asking
from fairlead.sim.driver import FENCE_FILE, Instances, SimDriver, is_job
from fairlead.sim.loop import SimLoop
from fairlead.sim.machines import EPOCH_S, Machine, Machines, Program, Running, SimIds, for_ever
from fairlead.sim.measuring import measuring
from fairlead.sim.network import Network
from fairlead.sim.outside import SimDialling, SimHttp, SimOutside
from fairlead.sim.providing import SimNodes, Stillborn
from fairlead.sim.scenario import Scenario
from fairlead.sim.store import SimStore, StoreService
from fairlead.sim.tally import Tally
from fairlead.sim.versions import EarlierMemory, Versions
from fairlead.sim.viewers import approver, viewers

OFFICE: Final = "office/people"
STANDBY_LOOK_S: Final = 0.4  # four times as often, as in production, is a fourth of all steps, nearly all to see nothing new


# How feeds end, by what they say of it. All are F11; connections break so often that the others would not show in that.
ENDS: Final = (
    ("connection broke", "F11/connection"),
    ("stopped leading", "F11/server"),
    ("lies ahead of this server", "F11/server"),
    ("of incarnation", "F11/server"),
    ("fell too far behind", "F11/server"),  # it has dropped its memory: none is so slow here
    ("older than the oldest", "F11/gap"),
    ("is no longer in memory", "F11/gap"),
)
NO_FEED: Final = "there is no kind"  # it was refused, by a server that has not read yet who may ask for what


def kinds_of(error: Expired) -> list[str]:
    if NO_FEED in str(error):
        return []
    return ["F11", *dict.fromkeys(name for words, name in ENDS if words in str(error))]


class CountedPlane(RemotePlane):
    """Counts the feeds that end under whoever follows them (F11): the connection broke, the server stopped leading, memory or the
    journal did not reach back. What is asked for without a connection was no feed."""

    def __init__(self, counts: Counter[str], *rest: Any) -> None:
        super().__init__(*rest)
        self._counts = counts

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> RemoteFeed:
        feed = super().follow(plurals, after, nodes=nodes)
        end = feed.end

        def ended(error: Expired) -> None:
            self._counts.update(kinds_of(error))
            end(error)

        setattr(feed, "end", ended)  # noqa: B010  of this one feed alone
        return feed


def _refused_here(meters: Meters) -> dict[str, int]:
    return {**meters.refusals, "Repeated": meters.replays_total, "HeartbeatFenced": meters.fenced_heartbeats_total}


def _refused_by(host: Host) -> dict[str, int]:
    nodes = host.nodes.values()
    tokens, leaders = sum(node.refused_tokens for node in nodes), sum(node.refused_leaders for node in nodes)
    return {"AgentToken": tokens, "AgentLeader": leaders}


class Plane:
    """One plane's servers and its store."""

    def __init__(self, name: str, store: StoreService) -> None:
        self.name = name  # GLOBAL or a region
        self.store = store
        self.servers: list[Program] = []
        self.addresses: list[str] = []
        self.made: dict[str, PlaneServer] = {}  # program -> the server of its present life

    def vouched(self) -> list[PlaneServer]:
        """Those that lead and may trust themselves: one that was deposed and has not heard of it only believes to lead."""
        return [server for server in self.leaders() if server.authority.vouches]

    def leaders(self) -> list[PlaneServer]:
        """Those that believe to lead; for the chaos that aims at leaders."""
        alive = [program for program in self.servers if program.alive and program.name in self.made]
        return [self.made[program.name] for program in alive if self.made[program.name].authority.leading]


class Agent:
    def __init__(self, program: Program, node: NodeDeclaration, instances: Instances) -> None:
        self.program = program
        self.node = node
        self.instances = instances


class Platform:
    def __init__(self, loop: SimLoop, scenario: Scenario, birth: born.Birth | None = None) -> None:
        self.loop = loop
        self.scenario = scenario
        birth = birth or born.usual(
            scenario.regions, tight=scenario.tight, critical=scenario.work.critical > 0, elastic=scenario.elastic,
            fragmented=scenario.fragmented, picky=scenario.work.picky > 0,
        )  # fmt: skip
        self.machines = Machines(loop)
        self.network = Network(self.machines)
        self.tally = Tally(self.machines)
        self.names: dict[str, Machine] = {}
        self._versions = Versions(scenario.earlier, loop.stream("versions"))
        self.regions = birth.regions
        self.gone = ""  # the region that stays away when all else is healed
        self.intervals: list[Interval] = []
        self.succeeded: set[tuple[str, str]] = set()  # of jobs: workload and slot, for each that has truly come to a good end
        self.planes: dict[str, Plane] = {}
        self.agents: dict[str, Agent] = {}
        self.elastic = scenario.elastic  # regions start machines for their node pools
        self.stillborn = Stillborn(scenario.faults.stillborn, loop.stream("stillborn"), self.machines.counts)
        self.made_server: Callable[[Plane, PlaneServer], None] = lambda plane, server: None  # before it runs
        self.hosts: dict[str, Host] = {}  # program -> the agent of its present life
        self._global_objects, self.token = born.global_objects(birth, SimIds(loop.stream("tokens")))
        people, self.reader_tokens = viewers(SimIds(loop.stream("reader tokens"))) if scenario.work.readers else ([], {})
        self._global_objects += people
        agrees, self.approver_token = approver(SimIds(loop.stream("approver token"))) if scenario.work.emergencies else ([], "")
        self._global_objects += agrees
        for name in (GLOBAL, *self.regions):
            self._add_plane(name)
        for region in self.regions:
            for number in range(scenario.nodes):
                self._add_agent(region, number)
        self.office = self.machines.machine(OFFICE)
        if scenario.elastic:
            addresses, until_s = self.planes[GLOBAL].addresses, scenario.rough_s
            meter = measuring(self.http, addresses, self.token, self.loop, until_s, self._global_s)
            self.machines.program("meter", self.office, meter)

    def start(self) -> None:
        for program in self.machines.programs.values():
            program.start()

    # --- planes ------------------------------------------------------------------------------------------------------------

    def _add_plane(self, name: str) -> None:
        service = StoreService(self.network, name)
        service.refused = self.tally.add
        machine = self.machines.machine(f"{name}/store")
        service.program = self.machines.program(f"store {name}", machine, lambda running: for_ever())
        plane = self.planes[name] = Plane(name, service)
        for number in range(self.scenario.servers):
            address = f"https://{name}-{number}"
            plane.addresses.append(address)
            self.names[address] = self.machines.machine(f"{name}/server-{number}")
        for number, address in enumerate(plane.addresses):
            main = self._server_main(plane, number)
            plane.servers.append(self.machines.program(f"{name}-{number}", self.names[address], main))

    def _config(self, plane: Plane, number: int) -> PlaneConfig:
        is_global = plane.name == GLOBAL
        others = self.regions if is_global else (GLOBAL,)
        return PlaneConfig(
            plane="global" if is_global else "region",
            region="" if is_global else plane.name,
            name=f"{plane.name}-{number}",
            store="simulated",
            data="simulated",
            address=plane.addresses[number],
            peers=tuple(Peer("" if o == GLOBAL else o, tuple(self.planes[o].addresses)) for o in others),
            schedulers=self.scenario.schedulers,
            lease_ttl_s=self.scenario.lease_s,
            node_lease_s=self.scenario.node_lease_s,
            grant_lease_s=self.scenario.grant_lease_s,
            slot_lease_s=self.scenario.slot_lease_s,
        )

    def _server_main(self, plane: Plane, number: int) -> Callable[[Running], Awaitable[Any]]:
        async def main(running: Running) -> None:
            running.is_earlier = self._versions.is_earlier()
            config = self._config(plane, number)
            loop, scenario = self.loop, self.scenario
            is_global = plane.name == GLOBAL
            role = FRONT_DOOR if is_global else Role.MIRROR.value
            who = Identity(name=config.name, kind="component", roles=(role, PLANE_SERVER), region=config.region)
            objects = self._global_objects if is_global else self._born_in(plane.name)
            outside = SimOutside(self.network, running, plane.addresses[number], who, self.names, objects)
            if self.elastic and not is_global:
                outside.provides = lambda near: SimNodes(self.agents, self._machine_of, plane.name, near, self.stillborn)
            timing = Timing(
                lease_ttl_s=scenario.lease_s, renew_s=scenario.lease_s * 0.3, poll_s=STANDBY_LOOK_S, ring_size=scenario.ring,
                journal=JournalKept(keep_s=scenario.journal_s),
            )  # fmt: skip
            server = PlaneServer(
                config, SimStore(plane.store, running), self.machines.clock(running), SimIds(loop.stream(f"ids {running.name}")),
                loop.stream(f"random {running.name}"), outside=outside, timing=timing,
            )  # fmt: skip
            plane.made[running.program.name] = server
            self.made_server(plane, server)
            self.tally.watch(running, lambda: _refused_here(server.authority.meters))
            await server.run()

        return main

    def _born_in(self, region: str) -> born.Born:
        nodes = [self._declared(region, number) for number in range(self.scenario.nodes)]
        return born.region_objects(region, nodes, self.scenario.elastic, self.scenario.tight, self.scenario.work.picky > 0)

    def _declared(self, region: str, number: int) -> NodeDeclaration:
        dedicated = self.scenario.dedicated and number == self.scenario.nodes - 1
        small = self.scenario.tight or self.scenario.fragmented
        plain, picky = self.scenario.fragmented, self.scenario.work.picky > 0
        return born.declared(region, number, small, dedicated, plain, picky)

    def runs(self, node: str, tenant: str, name: str) -> bool:
        """Whether anything of a slot truly runs on a node, under whichever agent."""
        return any(
            (id.tenant, id.name) == (tenant, name) and run.interval.end is None
            for agent in self.agents.values()
            if agent.node.name == node
            for id, run in agent.instances.runs.items()
        )

    def is_used(self, node: str) -> bool:
        """Whether anything truly runs there."""
        runs = [run for agent in self.agents.values() if agent.node.name == node for run in agent.instances.runs.values()]
        return any(run.interval.end is None for run in runs)

    # --- agents ------------------------------------------------------------------------------------------------------------

    def there(self, region: str) -> dict[str, str]:
        """Nodes that truly are, under a leader of their region that may trust itself: nothing is cut off, full or paused."""
        vouched, plane = self.planes[region].vouched(), self.planes[region]
        if not vouched:
            return {}
        led, servers = vouched[0], [program.machine.name for program in plane.servers]
        blocked = {ends for ends, link in self.network.links().items() if link.blocked or link.clogged}
        out = {}
        for name, agent in self.agents.items():
            running, machine = agent.program.running, agent.program.machine
            if name != agent.node.name or agent.node.region != region:  # a twin is nobody's
                continue
            well = machine.up and not (machine.disk_full or machine.disk_broken)
            if not well or running is None or running.dead or running.paused:
                continue
            if any((machine.name, server) in blocked or (server, machine.name) in blocked for server in servers):
                continue
            out[name] = f"{running.name} under {led.authority.fence}"
        return out

    def _add_agent(self, region: str, number: int) -> None:
        declared = self._declared(region, number)
        name = declared.name
        machine = self.machines.machine(f"{region}/{name}")
        self.add_agent_program(name, machine, declared)

    def _global_s(self) -> float:
        """What the global plane's clock shows, by the second hand of whoever leads it; while nobody does, what is true."""
        shown_ms = [server.authority.plane_ms() for server in self.planes[GLOBAL].leaders()]
        return max(shown_ms) / 1000 if shown_ms else EPOCH_S + self.loop.now

    def _machine_of(self, declared: NodeDeclaration) -> Agent:
        return self.add_agent_program(declared.name, self.machines.machine(f"{declared.region}/{declared.name}"), declared)

    def add_agent_program(self, program_name: str, machine: Machine, declared: NodeDeclaration) -> Agent:
        instances = Instances(self.loop, machine, self.intervals, self.loop.stream(f"instances {machine.name}"))
        instances.refused, instances.done = self.tally.add, self._job_ended
        program = self.machines.program(f"agent {program_name}", machine, self._agent_main(declared, instances))
        made = self.agents[program_name] = Agent(program, declared, instances)
        return made

    def forget_dead(self) -> None:
        """At the end: lives that are over and had none after them. Nothing holds them then, and they go with their tasks."""
        for program in self.machines.programs.values():
            if not program.alive:
                self.hosts.pop(program.name, None)
                for plane in self.planes.values():
                    plane.made.pop(program.name, None)

    def _job_ended(self, launch: Launch, code: int) -> None:
        self.machines.counts["jobs_failed" if code else "jobs_done"] += 1
        if not code:
            self.succeeded.add((launch.uid, launch.id.name))

    def jobs_run(self) -> bool:
        runs = [run for agent in self.agents.values() for run in agent.instances.runs.values()]
        return any(run.interval.end is None and is_job(run.launch) for run in runs)

    @property
    def barren(self) -> frozenset[str]:
        """Regions in which nothing that is started comes up."""
        return frozenset(agent.node.region for agent in self.agents.values() if agent.instances.barren)

    def _agent_main(self, declared: NodeDeclaration, instances: Instances) -> Callable[[Running], Awaitable[Any]]:
        async def main(running: Running) -> None:
            machine, clock = running.machine, self.machines.clock(running)
            running.is_earlier = self._versions.is_earlier()
            instances.owner = running
            who = Identity(name=declared.name, kind="agent", roles=("agent",), node=declared.name, region=declared.region)
            dialling = SimDialling(self.network, running, who, self.names)
            random = self.loop.stream(f"random {running.name}")
            addresses = self.planes[declared.region].addresses
            plane = CountedPlane(self.machines.counts, addresses, dialling.dial, clock, random, f"agent {declared.name}")
            lease_s, remembered = self.scenario.node_lease_s, machine.file("remembered")
            settings = AgentSettings(
                # Nobody has told it yet that its region's is another; where servers may not say it, it is configured alike.
                node_lease_s=lease_s if self.scenario.earlier else lease_s * 3,
                heartbeat_s=lease_s / 3,
                state_file=EarlierMemory(remembered) if running.is_earlier else remembered,
                fence_file=machine.file(FENCE_FILE),
            )
            host = Host([declared], PlaneRegion(plane), {"process": SimDriver(instances)}, clock, random, settings)
            self.hosts[running.program.name] = host
            self.tally.watch(running, lambda: _refused_by(host))
            async with Tasks() as tasks:
                tasks.start(plane.run(), "plane")
                tasks.start(host.run(), "host")

        return main

    # --- others ------------------------------------------------------------------------------------------------------------

    def asking(self, running: Running) -> Asking:
        ids = SimIds(self.loop.stream(f"ids {running.name}"))
        return Asking(self.network, running, self.names, self.token, self.machines.clock(running), ids)

    def http(self, running: Running) -> SimHttp:
        return SimHttp(self.network, running, self.names)
