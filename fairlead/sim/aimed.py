"""Owns faults that are aimed at one safeguard and would hardly ever come together by chance.

Like those of chaos.py: every value is drawn before anything is looked at, each counts itself and undoes itself. What they block
or hold is undone by `Chaos.heal` as well. Called by chaos.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlead.decide.escrow import within
from fairlead.decide.lasting import staying
from fairlead.model.lifecycle import ON_NODE
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import NOTHING, Resources
from fairlead.observe.losses import Objects
from fairlead.sim.loop import Draws
from fairlead.sim.machines import Machine, Program
from fairlead.sim.platform import Agent, Platform

ANSWER_S: Final = 1.95  # an agent waits two seconds for the answer to a heartbeat
BARREN_S: Final = (300.0, 400.0)  # longer than a service may lack its minimum (L5)
SILENT_S: Final = (10.0, 90.0)  # from just longer than a lease to long after the last of a zone was given up
YOUNG_S: Final = 1.5  # in which a busy region commits some forty batches

Switch = Callable[[Machine], None]


class Aimed:
    def __init__(
        self, platform: Platform, left_out: Callable[[], bool], healed: Callable[[], bool], power_off: Switch, power_on: Switch,
        start_again: Callable[[Program], None], objects: Callable[[str], Objects],
    ) -> None:  # fmt: skip
        self._platform = platform
        self._left_out = left_out
        self._healed = healed
        self._power_off, self._power_on, self._start_again = power_off, power_on, start_again
        self._objects = objects  # of a plane, as they are committed
        self._counts = platform.machines.counts
        self._stranded = self._hushed = self._silenced = False

    async def usurp(self, draws: Draws) -> None:
        """A leader loses its store and does not know; one node hears this leader only, and all others the next one."""
        at, node_at, for_s = draws.random(), draws.random(), draws.uniform(25.0, 45.0)
        planes = [p for p in self._platform.planes.values() if p.name != GLOBAL and len(p.servers) > 1 and p.leaders()]
        if self._left_out() or not planes:
            return
        plane = planes[int(at * len(planes))]
        name, machines = plane.leaders()[0].config.name, self._platform.machines
        agents = [agent for agent in self._platform.agents.values() if agent.node.region == plane.name]
        node = agents[int(node_at * len(agents))].program.machine
        leader = next(program.machine for program in plane.servers if program.name == name)
        others = [m for m in machines.all.values() if m not in (leader, node) and m.name.startswith(f"{plane.name}/")]
        machines.tell("chaos", f"{name} and {node.name} are cut from the rest of their region, for {for_s:.1f} s")
        self._platform.loop.after(for_s, self._cut_from([leader, node], others))

    async def freeze(self, draws: Draws) -> None:
        """An agent stands still for some leases of its node, and what it has started does not (F8)."""
        at, leases = draws.random(), draws.uniform(1.0, 6.0)
        agents = [agent.program for agent in self._platform.agents.values()]
        program, for_s = agents[int(at * len(agents))], 5.0 + leases * self._platform.scenario.node_lease_s
        if self._left_out() or not program.alive or program.running is None or program.running.paused:
            return
        self._counts["F8"] += 1
        self._platform.machines.tell("chaos", f"{program.name} stands still, for {for_s:.1f} s")
        program.pause()
        self._platform.loop.after(for_s, program.resume)

    async def linger(self, draws: Draws) -> None:
        """What is said to a node comes as late as it waits for an answer, and then nothing comes or goes any more (F4, F5)."""
        at, late_s, for_s = draws.random(), draws.uniform(4.0, 8.0), draws.uniform(15.0, 25.0)
        agents = [agent.program for agent in self._platform.agents.values()]
        program, machines, network = agents[int(at * len(agents))], self._platform.machines, self._platform.network
        node = program.machine
        others = [machine for machine in machines.all.values() if machine is not node]
        links = [network.link(other, node) for other in others]
        if self._left_out() or not program.alive or any(link.high_s > 1.0 for link in links):
            return
        machines.tell("chaos", f"{node.name} is answered late, and cut off after {late_s:.1f} s, for {for_s:.1f} s")
        quicken = network.slow(links, ANSWER_S)

        def cut() -> None:
            if not self._healed():
                self._platform.loop.after(for_s, self._cut_from([node], others))

        self._platform.loop.after(late_s, cut)
        self._platform.loop.after(late_s + for_s, quicken)

    async def relapse(self, draws: Draws) -> None:
        """All servers of a plane are down while its store fails over to a replica that was behind (F9, F14)."""
        at, count, fence_too, down_s = draws.random(), draws.randrange(1, 12), draws.random() < 0.5, draws.uniform(1.0, 8.0)
        planes = list(self._platform.planes.values())
        plane = planes[int(at * len(planes))]
        if self._left_out() or not all(server.alive for server in plane.servers):
            return
        for server in plane.servers:
            server.kill()
            self._platform.loop.after(down_s, self._start_again, server)
        lost = plane.store.disk.lose_tail(count, fence_too=fence_too)
        self._counts["F9"] += len(plane.servers)
        self._counts["F14"] += bool(lost)
        words = f"{plane.name} is down for {down_s:.1f} s, and its store loses {lost} batches meanwhile"
        self._platform.machines.tell("chaos", words)

    async def forget(self, draws: Draws) -> None:
        """A store loses that an Exclusive slot was bound, and the node that has just started it is heard by nobody (F5, F14)."""
        at, count, share = draws.random(), draws.randrange(5, 40), draws.uniform(0.3, 0.9)
        young = [agent for agent in self._platform.agents.values() if self._has_begun(agent)]
        if self._left_out() or not young:
            return
        agent, machines = young[int(at * len(young))], self._platform.machines
        node, for_s = agent.program.machine, share * self._platform.scenario.node_lease_s
        lost = self._platform.planes[agent.node.region].store.disk.lose_tail(count)
        self._counts["F14"] += bool(lost)
        machines.tell("chaos", f"{agent.node.region} forgets {lost} batches; {node.name} is cut off for {for_s:.1f} s")
        self._platform.loop.after(for_s, self._cut_from([node], [each for each in machines.all.values() if each is not node]))

    def _has_begun(self, agent: Agent) -> bool:
        """Something that runs once, so shortly before that its binding is among what a store may lose."""
        since = self._platform.loop.now - YOUNG_S
        runs = agent.instances.runs.values()
        return any(run.launch.exclusive and run.interval.end is None and run.interval.begin > since for run in runs)

    async def hush(self, draws: Draws, lost: str) -> None:
        """While one region is gone another is cut off, until the end of its lease and not until it is lost as well."""
        at, for_s = draws.random(), draws.uniform(8.0, 15.0)
        others = [region for region in self._platform.regions if region != lost]
        if self._left_out() or not lost or self._hushed:
            return
        region = others[int(at * len(others))]
        self._platform.machines.tell("chaos", f"{region} is not heard for {for_s:.1f} s")
        self._hushed = True
        self._platform.loop.after(for_s, self.cut_off(region))
        self._platform.loop.after(for_s, self._heard_again)

    async def barren(self, draws: Draws, lost: str) -> None:
        """While one region is gone nothing that is started in another comes up: what serves there goes on."""
        at, for_s = draws.random(), draws.uniform(*BARREN_S)
        others = [region for region in self._platform.regions if region != lost]
        if self._left_out() or not lost or self._platform.barren:
            return
        region = others[int(at * len(others))]
        self._counts["barren"] += 1
        self._platform.machines.tell("chaos", f"nothing comes up in {region} for {for_s:.1f} s")
        self._bear(region, barren=True)
        self._platform.loop.after(for_s, lambda: self._bear(region, barren=False))

    def _bear(self, region: str, *, barren: bool) -> None:
        for agent in self._platform.agents.values():
            if agent.node.region == region:
                agent.instances.barren = barren

    async def zone(self, draws: Draws) -> None:
        """The nodes of one zone, or all but one of them, lose power or are not heard by their region's servers (F5, F9). One zone
        at a time."""
        at, whole, dark, for_s = draws.random(), draws.random() < 0.5, draws.random() < 0.5, draws.uniform(*SILENT_S)
        zones = dict[str, list[Agent]]()
        for name, agent in self._platform.agents.items():
            if name == agent.node.name:  # a twin is nobody's
                zones.setdefault(agent.node.zone, []).append(agent)
        zone = list(zones)[int(at * len(zones))]
        up = [agent.program.machine for agent in zones[zone][not whole :] if agent.program.machine.up]
        if self._left_out() or self._silenced or not up:
            return
        self._silenced = True
        self._counts["F_zone"] += 1
        names = ", ".join(machine.name for machine in up)
        self._platform.machines.tell("chaos", f"{names} {'lose power' if dark else 'are not heard'}, for {for_s:.1f} s")
        if dark:
            self._counts["F9"] += len(up)
            for machine in up:
                self._power_off(machine)
                self._platform.loop.after(for_s, self._power_on, machine)
        else:
            servers = self._platform.planes[zones[zone][0].node.region].servers
            self._platform.loop.after(for_s, self._cut_from(up, [server.machine for server in servers]))
        self._platform.loop.after(for_s, setattr, self, "_silenced", False)

    def _heard_again(self) -> None:
        self._hushed = False

    def cut_off(self, region: str) -> Callable[[], None]:
        """From all others (F5); what is returned joins it to them again."""
        every = self._platform.machines.all.values()
        own = [machine for machine in every if machine.name.startswith(f"{region}/")]
        return self._cut_from(own, [machine for machine in every if machine not in own])

    def _cut_from(self, own: list[Machine], others: list[Machine]) -> Callable[[], None]:
        return self._platform.network.cut([pair for one in own for other in others for pair in ((one, other), (other, one))])

    async def strand(self, draws: Draws) -> None:
        """A region in which something runs that ends with the lease of its grant is cut off until that lease is long over. When
        it is, a node with such work loses power, so that places must be found for it."""
        at, node_at, for_s = draws.random(), draws.random(), draws.uniform(60.0, 75.0)
        found = {region: nodes for region in self._platform.regions if (nodes := self._provisional(region))}
        if self._left_out() or self._stranded or not found:
            return
        region = list(found)[int(at * len(found))]
        node = found[region][int(node_at * len(found[region]))]
        over_s = 1.1 * self._platform.scenario.grant_lease_s
        self._platform.machines.tell("chaos", f"{region} is cut off for {for_s:.1f} s, {node.name} goes in {over_s:.1f} s")

        rejoin = self.cut_off(region)

        def back() -> None:
            self._stranded = False
            rejoin()

        def goes() -> None:
            if not self._healed():
                self._power_off(node)

        self._stranded = True
        self._platform.loop.after(over_s, goes)
        self._platform.loop.after(for_s, self._power_on, node)
        self._platform.loop.after(for_s, back)

    async def behead(self, draws: Draws) -> None:
        """A region in which something runs that ends with the lease of its grant is cut off, and its servers are down, until that
        lease is long over and others have what it was given."""
        at, for_s = draws.random(), draws.uniform(60.0, 75.0)
        found = [region for region in self._platform.regions if self._above(region)]
        if self._left_out() or self._stranded or not found:
            return
        region = found[int(at * len(found))]
        self._platform.machines.tell("chaos", f"{region} is cut off without a server for {for_s:.1f} s")
        rejoin = self.cut_off(region)

        def back() -> None:
            self._stranded = False
            rejoin()

        self._stranded = True
        for server in self._platform.planes[region].servers:
            if server.alive:
                self._counts["F9"] += 1
                server.kill()
            self._platform.loop.after(for_s, self._start_again, server)
        self._platform.loop.after(for_s, back)

    def _above(self, region: str) -> bool:
        """Some tenant uses more there than the limit that stays: by what is committed, whatever agents make of it."""
        objects, used = self._objects(region), dict[str, Resources]()
        for (tenant, _), binding in objects.get("bindings", {}).items():
            if binding.status.state in ON_NODE:
                used[tenant] = used.get(tenant, NOTHING) + binding.spec.requests
        grants = {tenant: grant for (tenant, _), grant in objects.get("grants", {}).items() if grant.spec.lease_seconds}
        return any(
            not within(used[tenant].amounts(), staying(grant, grant.status.incarnation))
            for tenant, grant in grants.items()
            if tenant in used
        )

    def _provisional(self, region: str) -> list[Machine]:
        """Where something runs that ends with a lease."""
        agents = [(agent, self._platform.hosts.get(agent.program.name)) for agent in self._platform.agents.values()]
        return [
            agent.program.machine
            for agent, host in agents
            if agent.node.region == region and host is not None and any(node.provisional for node in host.nodes.values())
        ]
