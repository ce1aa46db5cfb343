"""An agent: keeps its nodes' leases, takes them through the handshake, follows what is bound to them, and reports. One process
carries one real node, or thousands of simulated ones in the same way: one heartbeat frame, one feed, one batch for all of them.

Owns the loops and the order of things. Created by main.py and tests; runs until cancelled. Instances outlive it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

from fairlead.agent.drivers.contract import Chunk, Driver, InstanceId, Stream
from fairlead.agent.fence import read_fence, write_fence
from fairlead.agent.handshake import Handshake
from fairlead.agent.launching import Launcher
from fairlead.agent.node import Node
from fairlead.agent.port_range import PortRange
from fairlead.agent.region import Ack, Region
from fairlead.agent.remembered import Remembered
from fairlead.agent.reports import Said, answered, reports_of
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.agent.slot import Slot
from fairlead.agent.working import Works
from fairlead.client.plane import Change, Expired
from fairlead.ports import Clock, Random, Signal, Tasks, wait_signal

log = logging.getLogger(__name__)

REPORTS_MAX = 1_000  # commands in one batch
LEAVING_POLL_S = 0.05
BEATS = 3  # in a lease


class Host:
    def __init__(
        self, declared: Sequence[NodeDeclaration], region: Region, drivers: Mapping[str, Driver], clock: Clock, random: Random,
        settings: AgentSettings,
    ) -> None:  # fmt: skip
        assert len(declared) == 1 or settings.fence_file is None, "a fence file speaks for one node"
        self._region = region
        self._drivers = {name: driver for name, driver in drivers.items() if name in settings.drivers}
        self._clock = clock
        self._random = random
        self._settings = settings
        now = clock.monotonic()
        remembered = [Remembered(settings.state_file if len(declared) == 1 else None) for _ in declared]
        self.nodes = {node.name: Node(node, settings, memory, now) for node, memory in zip(declared, remembered, strict=True)}
        if settings.fence_file is not None:
            for node in self.nodes.values():
                node.inherit(read_fence(settings.fence_file, now, node.lease_s), now)
        self._launcher = Launcher(region, PortRange(*settings.ports, settings.port_begin), settings.drivers, clock)
        in_force = {f"{name} {key}": text for name, driver in drivers.items() for key, text in driver.in_force().items()}
        self._handshake = Handshake(region, in_force)
        self._holders: dict[tuple[str, str], str] = {}  # which of our nodes a slot was last bound to
        self._to_report: dict[InstanceId, Slot] = {}
        self._report_signal = Signal()
        self._shake_signal = Signal()
        self._shake_signal.set()
        self._beat_signal = Signal()
        self._revision = 0  # from where the feed may follow; 0: tell the inventory first
        self._feed_signal = Signal()
        self._works: Works | None = None
        self.acks_total = self.reports_total = self.handshakes_total = 0

    async def run(self) -> None:
        """Until cancelled; what it started lives on."""
        try:
            async with Tasks() as tasks:
                self._works = Works(
                    self.nodes, self._drivers, self._launcher, self._region, self._clock, self._settings, tasks, self._changed
                )
                for node in list(self.nodes.values())[:1]:  # an earlier agent's instances are of the one node it spoke for
                    await self._works.adopt(node)
                for name, work in (
                    ("work", self._works.run()), ("shake", self._shake_loop()), ("beat", self._beat_loop()),
                    ("feed", self._feed_loop()), ("report", self._report_loop()),
                ):  # fmt: skip
                    tasks.start(work, name)
        finally:
            for driver in self._drivers.values():
                await driver.close()

    @property
    def works(self) -> Works:
        assert self._works is not None, "the agent does not run yet"
        return self._works

    async def stop_instances(self, grace_max_s: float = float("inf")) -> None:
        """Returns when nothing runs on these nodes any more. They stay bound: an agent that comes later starts them again."""
        self.works.grace_max_s = grace_max_s
        for node in self.nodes.values():
            node.leaving = True
            self.works.look_at_node(node)
        while any(slot.there for node in self.nodes.values() for slot in node.slots.values()):
            await self._clock.sleep(LEAVING_POLL_S)

    def figures(self) -> dict[str, float]:
        """Counts of this process under the names of fairlead/observe/sums.py."""
        out: dict[str, float] = {
            "heartbeats": self.acks_total,
            "handshakes": self.handshakes_total,
            "reports": self.reports_total,
            "starts": self._works.starts_total if self._works is not None else 0,
        }
        for node in self.nodes.values():
            for slot in node.slots.values():
                condition = "ready" if slot.ready else slot.phase
                out[condition] = out.get(condition, 0) + 1
        return out

    async def logs(self, tenant: str, name: str, stream: Stream, offset: int, limit: int) -> Chunk:
        """Output of the newest life of a slot. Raises FileNotFoundError."""
        lives = [s for node in self.nodes.values() for s in node.lives_of((tenant, name)) if s.driver]
        if not lives:
            raise FileNotFoundError(f"nothing of {tenant}/{name} is kept here")
        newest = max(lives, key=lambda slot: slot.id.token)
        return await self._drivers[newest.driver].logs(newest.id, stream, offset, limit)

    # --- heartbeats --------------------------------------------------------------------------------------------------------

    async def _beat_loop(self) -> None:
        while True:
            heard = await self._beat()
            now = self._clock.monotonic()
            for node in self.nodes.values():
                if node.expire(now):
                    log.warning("node %s: the region was not heard of for %.1f s", node.name, now - node.heard_at)
                    self.works.look_at_node(node)
            if any(node.needs_handshake and not node.refused for node in self.nodes.values()):
                self._shake_signal.set()
            await self._pause(self._beat_signal, self._beat_s() if heard else self._jittered(self._settings.retry_s))

    def _beat_s(self) -> float:
        """Three in a lease, whatever the region takes for one."""
        return min(self._settings.heartbeat_s, *(node.lease_s / BEATS for node in self.nodes.values()))

    async def _beat(self) -> bool:
        """One frame for all nodes. False: nobody vouched for it."""
        speaking = [node for node in self.nodes.values() if node.registered or node.superseded]
        if not speaking:
            return False
        sent = self._clock.monotonic()
        ack: Ack | None = None
        with contextlib.suppress(TimeoutError, Expired):
            async with asyncio.timeout(self._settings.heartbeat_limit_s):
                ack = await self._region.heartbeat([(node.name, node.session) for node in speaking])
        if ack is None:
            return False
        self.acks_total += 1
        renewed = True
        for node in speaking:
            if node.superseded:
                if node.may_return(ack):
                    node.come_back()
                    self.works.look_at_node(node)
                continue
            now = self._clock.monotonic()
            was = node.superseded, node.leased
            if node.expire(now):
                self.works.look_at_node(node)
            if node.overdue(now):
                renewed = False  # a lease that ran out is not renewed under what should have ended with it
            elif node.heard(ack, sent, now):
                node.leased = now < node.lease_until
                if self._settings.fence_file is not None:
                    write_fence(self._settings.fence_file, node.lease_until, node.global_until)
                await self.works.prolong(node.settle(ack, sent))
                self.works.look_at_waiting(node)
            if (node.superseded, node.leased) != was:
                self.works.look_at_node(node)
        return renewed

    # --- handshake ---------------------------------------------------------------------------------------------------------

    async def _shake_loop(self) -> None:
        while True:
            await self._shake_signal.wait()
            self._shake_signal.clear()
            waiting = [node for node in self.nodes.values() if node.needs_handshake]
            if not waiting:
                continue
            done = False
            try:
                for start in range(0, len(waiting), self._settings.inventory_max):
                    await self._shake(waiting[start : start + self._settings.inventory_max])
                done = not any(node.needs_handshake for node in waiting)
            except Expired as error:
                log.info("the region cannot be reached: %s", error)
            if not done:
                hopeless = all(node.refused for node in waiting if node.needs_handshake)
                pause_s = self._settings.heartbeat_s if hopeless else self._settings.retry_s
                await self._pause(self._shake_signal, self._jittered(pause_s))
                self._shake_signal.set()

    async def _shake(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            node.refused = False
        fresh = [node for node in nodes if not node.registered]
        await self._handshake.register(fresh)
        if any(node.registered for node in fresh):
            # The lease begins with the first heartbeat of a session. One that was refused has none, and waits to ask again.
            self._beat_signal.set()
        untold = [node for node in nodes if not node.synced]
        before = [node.listed_in for node in untold]
        revision, touched = await self._handshake.tell(untold)
        if revision:
            self.handshakes_total += len(untold)
            if before != [node.listed_in for node in untold]:
                self._beat_signal.set()  # only now an acknowledgement renews a lease
            if not self._revision or revision < self._revision:
                self._revision = revision
                self._feed_signal.set()
            for slot in touched:
                self._holders[slot.key] = slot.node
                self.works.probe_adopted(self.nodes[slot.node], slot)
            self.works.look_at(touched)
        await self._handshake.confirm(nodes)

    # --- the feed ----------------------------------------------------------------------------------------------------------

    async def _feed_loop(self) -> None:
        names = list(self.nodes)
        while True:
            await self._feed_signal.wait()
            self._feed_signal.clear()
            if not self._revision:
                continue
            feed = self._region.follow(names, self._revision)
            try:
                while True:
                    await feed.wait()
                    for change in feed.take_nowait():
                        self._saw(change)
            except Expired as error:
                log.info("bindings are listed again: %s", error)
            finally:
                feed.close()
            self._revision = 0
            for node in self.nodes.values():
                node.synced = False
            self._shake_signal.set()

    def _saw(self, change: Change) -> None:
        if change.plural == "nodes":
            node = self.nodes.get(change.name)
            if node is not None:
                node.saw_object(change)
                if node.superseded:
                    self.works.look_at_node(node)
                elif node.needs_handshake:
                    self._shake_signal.set()
            return
        key = (change.tenant, change.name)
        name = change.hot.node if change.hot is not None else ""
        before = self._holders.pop(key, "")
        if name in self.nodes:
            self._holders[key] = name
        for node_name in dict.fromkeys((name, before)):
            if node_name in self.nodes:
                self.works.look_at(self.nodes[node_name].saw_binding(change))

    # --- reports -----------------------------------------------------------------------------------------------------------

    def _changed(self, slot: Slot) -> None:
        self._to_report[slot.id] = slot
        self._report_signal.set()

    async def _report_loop(self) -> None:
        while True:
            await self._report_signal.wait()
            await self._clock.sleep(self._settings.report_s)  # what comes within this time goes together
            self._report_signal.clear()
            if not await self._report():
                await self._clock.sleep(self._jittered(self._settings.retry_s))
                self._report_signal.set()

    async def _report(self) -> bool:
        """False: some of it must be said again."""
        slots, self._to_report = self._to_report, {}
        now = self._clock.monotonic()
        said: list[Said] = []
        for slot in slots.values():
            node = self.nodes[slot.node]
            if node.synced:  # else after the next inventory, which looks at every slot again
                said += reports_of(node, slot, now)
        again = False
        for start in range(0, len(said), REPORTS_MAX):
            part = said[start : start + REPORTS_MAX]
            outcomes = await self._region.submit([item.command for item in part])
            self.reports_total += len(part)
            for item, outcome in zip(part, outcomes, strict=True):
                if answered(item, outcome):
                    self._to_report[item.slot.id] = item.slot
                    again = True
                elif item.to is not None:
                    self.works.look_at([item.slot])
        return not again

    # --- waiting -----------------------------------------------------------------------------------------------------------

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.5 + self._random.random())

    async def _pause(self, signal: Signal, seconds: float) -> None:
        await wait_signal(signal, seconds)
        signal.clear()
