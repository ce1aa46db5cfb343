"""Faults made on purpose in the local platform: machines and regions killed, links cut, connections broken, a store held,
processes stopped; and all of it undone.

Acts on real processes and sockets. What is in force is asked of the operating system and of the relays, never remembered here.
Called by `fairlead chaos`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.compose.config import PlaneConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.links import Direction, Faults, InForce, read_faults, read_in_force
from fairlead.compose.local import Local, is_ready
from fairlead.compose.processes import AGENT, POLL_S
from fairlead.compose.wiring import ENDPOINTS, LINKS, PEOPLE, PLANES, REGIONS, link_name
from fairlead.ports import Clock
from fairlead.security.files import write_private
from fairlead.wire import json_codec

APPLY_S: Final = 5.0
HEAL_S: Final = 60.0
SQLITE: Final = "sqlite:"


class Unknown(LookupError):
    """There is nothing of that name."""


class NotPossible(ValueError):
    """It cannot be done to this platform; says what can."""


class Wrong(NamedTuple):
    """One thing that is in force."""

    fault: str
    what: str
    detail: str


class Radius(NamedTuple):
    """What goes when it is done: processes of the platform, and slots by the agent that runs them."""

    processes: list[str]
    slots: dict[str, list[str]]

    def lines(self) -> list[str]:
        out = [f"{name}: the process of the plane" for name in self.processes if not name.startswith(AGENT)]
        for agent, slots in sorted(self.slots.items()):
            out.append(f"{agent.removeprefix(AGENT)}: {', '.join(slots) if slots else 'runs nothing'}")
        return out


class Chaos:
    def __init__(self, layout: Layout, clock: Clock) -> None:
        if not layout.is_ready:
            raise NotPossible(f"there is no local platform in {layout.state}; `fairlead up` makes one")
        self._layout = layout
        self._clock = clock
        self._local = Local(layout, clock)
        self._processes = self._local.processes
        if not self._processes.running():
            raise NotPossible(f"the platform in {layout.state} does not run; `fairlead up` starts it")

    # --- names -----------------------------------------------------------------------------------------------------------

    def nodes(self, *, zone: str = "", region: str = "") -> list[str]:
        """The agents of a zone or a region. Raises Unknown."""
        configs = {name: self._processes.agent_config(name) for name in self._processes.agents()}
        found = [n for n, c in configs.items() if (not zone or c.zone == zone) and (not region or c.region == region)]
        if not found:
            known = sorted({c.zone if zone else c.region for c in configs.values()})
            raise Unknown(f"there is no {'zone' if zone else 'region'} {zone or region}; there are {', '.join(known)}")
        return found

    def process(self, name: str) -> str:
        """A process by its own name or by its node's. Raises Unknown."""
        known = self._processes.names()
        for wanted in (name, AGENT + name):
            if wanted in known:
                return wanted
        shown = ", ".join(one.removeprefix(AGENT) for one in known)
        raise Unknown(f"there is no process or node {name}; there are {shown}")

    def node(self, name: str) -> str:
        found = self.process(name)
        if not found.startswith(AGENT):
            raise Unknown(f"{name} is no node; there are {', '.join(a.removeprefix(AGENT) for a in self._processes.agents())}")
        return found

    def plane(self, name: str) -> str:
        if name not in PLANES:
            raise Unknown(f"there is no plane {name}; there are {', '.join(PLANES)}")
        return name

    # --- killing ---------------------------------------------------------------------------------------------------------

    def radius(self, names: Sequence[str]) -> Radius:
        agents = [name for name in names if name.startswith(AGENT)]
        slots = {agent: sorted(set(work.values())) for agent, work in self._processes.work_of(agents).items()}
        return Radius([name for name in names if self._processes.pid(name) is not None], slots)

    async def kill(self, names: Sequence[str]) -> int:
        """At once and without a word, as when power is lost: the processes, and everything their nodes run. How many."""
        running = [name for name in names if self._processes.pid(name) is not None]
        self._processes.kill(running)
        await self._processes.wait_gone(running, APPLY_S)
        return len(running) + self._processes.kill_work([name for name in names if name.startswith(AGENT)])

    def pause(self, name: str) -> None:
        """SIGSTOP: it is there, keeps its connections, and does nothing. What a node runs goes on."""
        if not self._processes.signal(name, signal.SIGSTOP):
            raise NotPossible(f"{name} does not run")

    def resume(self, name: str) -> None:
        """SIGCONT, of one process: it goes on with what it knew."""
        if not self._processes.signal(name, signal.SIGCONT):
            raise NotPossible(f"{name} does not run")

    # --- links -----------------------------------------------------------------------------------------------------------

    def links_between(self, one: str, other: str) -> dict[str, Direction]:
        """The links between two, and which way of each leads from `one` to `other`. Raises Unknown."""
        found: dict[str, Direction] = {}
        known = {link.name for link in self._local.links().links}
        for a in self._ends(one):
            for b in self._ends(other):
                for name, way in ((link_name(a, b), "forward"), (link_name(b, a), "back")):
                    if name in known:
                        found[name] = "forward" if way == "forward" else "back"
        if not found:
            raise Unknown(f"nothing leads between {one} and {other}: agents talk to their region, regions to global")
        return found

    def links_of(self, one: str) -> dict[str, Direction]:
        """Every link over which this process and the others reach each other; of a region, those that leave it."""
        if one in REGIONS:
            return self.links_between(one, "global") | {link_name(ENDPOINTS, one): "back"}
        ends = self._ends(one)
        found: dict[str, Direction] = {}
        for link in self._local.links().links:
            dialler, _, plane = link.name.partition(">")
            if dialler in ends or plane in ends:
                found[link.name] = "forward" if dialler in ends else "back"
        return found

    def _ends(self, name: str) -> list[str]:
        return [name] if name in (PEOPLE, ENDPOINTS) else [self.process(name)]

    async def cut(self, links: dict[str, Direction], *, one_way: bool) -> InForce:
        """One way: only what goes in the direction given."""
        faults = self._faults()
        cuts = {name: _joined(faults.cuts.get(name), way if one_way else "both") for name, way in links.items()}
        return await self._change(replace(faults, cuts=faults.cuts | cuts))

    async def drop_watches(self, plane: str) -> int:
        """Closes every connection to a plane, and so every feed and watch on it. How many."""
        faults = self._faults()
        links = [link.name for link in self._local.links().links if not plane or link.name.endswith(f">{plane}")]
        breaks = {name: faults.breaks.get(name, 0) + 1 for name in links}
        return (await self._change(replace(faults, breaks=faults.breaks | breaks))).closed

    async def stop_store(self, plane: str) -> None:
        """Takes the write lock of a SQLite store: its plane reads and cannot commit."""
        config: PlaneConfig = read_config(self._layout.config_of(plane), PlaneConfig)
        if not config.store.startswith(SQLITE):
            scheme = config.store.partition(":")[0]
            raise NotPossible(
                f"the store of {plane} is a {scheme} server that does not belong to this platform: stop it yourself, for "
                "instance by `kill -STOP` of its process, and `kill -CONT` afterwards"
            )
        faults = self._faults()
        said = await self._change(replace(faults, locks=faults.locks | {plane: config.store.removeprefix(SQLITE)}))
        if plane not in said.locks:
            raise NotPossible(said.refused or f"the store of {plane} is not held")

    def _faults(self) -> Faults:
        return read_faults(Path(self._local.links().faults))

    def _in_force(self) -> InForce:
        return read_in_force(Path(self._local.links().in_force))

    async def _change(self, faults: Faults) -> InForce:
        """Returns when the relays say that it is in force."""
        wanted = replace(faults, number=faults.number + 1)
        write_private(Path(self._local.links().faults), json_codec.encode(wanted))
        if not self._processes.signal(LINKS, signal.SIGHUP):
            raise NotPossible("the relays do not run; `fairlead chaos heal` starts them")
        until = self._clock.monotonic() + APPLY_S
        while (said := self._in_force()).number < wanted.number:
            if self._clock.monotonic() > until:
                raise NotPossible("the relays do not answer; `fairlead chaos heal` wakes them")
            await self._clock.sleep(POLL_S)
        return said

    # --- what is in force, and its end -----------------------------------------------------------------------------------

    def status(self) -> list[Wrong]:
        out = []
        for name in self._processes.names():
            match self._processes.state(name):
                case "gone":
                    out.append(Wrong("killed", name.removeprefix(AGENT), "its process is gone"))
                case "paused":
                    out.append(Wrong("paused", name.removeprefix(AGENT), f"pid {self._processes.pid(name)} is stopped"))
                case "running":
                    pass
        said = self._in_force() if self._processes.pid(LINKS) is not None else InForce()
        for link, way in sorted(said.cuts.items()):
            dialler, _, plane = link.removeprefix(AGENT).partition(">")
            ways = {"both": "nothing passes", "forward": f"nothing from {dialler}", "back": f"nothing from {plane}"}
            out.append(Wrong("cut", f"{dialler} - {plane}", ways[way]))
        out += [Wrong("store stopped", plane, "reads, cannot commit") for plane in said.locks]
        return out

    async def heal(self, say: Callable[[str], None]) -> None:
        """Undoes everything, then waits until every plane is ready and every process is there. Raises NotPossible."""
        for name in self._processes.names():
            if self._processes.state(name) == "paused":
                self._processes.signal(name, signal.SIGCONT)
                say(f"{name} goes on")
        before, clean = self._faults(), replace(self._faults(), cuts={}, locks={})
        if self._processes.pid(LINKS) is not None:
            await self._change(clean)
        else:  # what is started below finds nothing to hold back
            write_private(Path(self._local.links().faults), json_codec.encode(clean))
        for number, what in ((len(before.cuts), "link"), (len(before.locks), "store")):
            if number:
                say(f"{number} {what} works again" if number == 1 else f"{number} {what}s work again")
        gone = [name for name in self._processes.names() if self._processes.pid(name) is None]
        if gone:
            say(f"starting {', '.join(name.removeprefix(AGENT) for name in gone)}")
            await self._local.bring(gone)
        await self._wait_ready()

    async def _wait_ready(self) -> None:
        authority, until = self._layout.path("pki", "ca.pem"), self._clock.monotonic() + HEAL_S
        for plane in PLANES:
            while not await is_ready(self._layout.address_of(plane), authority):
                if self._clock.monotonic() > until:
                    raise NotPossible(f"{plane} is not ready after {HEAL_S:g} s; its log is {self._processes.log_of(plane)}")
                await self._clock.sleep(POLL_S)
        while late := await self._local.late_nodes():
            if self._clock.monotonic() > until:
                raise NotPossible(f"not ready after {HEAL_S:g} s: {', '.join(late)}")
            await self._clock.sleep(10 * POLL_S)


def _joined(before: Direction | None, way: Direction) -> Direction:
    return way if before in (None, way) else "both"
