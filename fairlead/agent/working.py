"""Carries out what is decided about instances: starts, stops, probes and clears them away, and takes in how they end.

Owns which slots are to be looked at and when. Decides nothing itself. Called by fairlead/agent/host.py; runs in its task group.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, assert_never

from fairlead.agent.drivers.contract import Adopted, Driver, Exit, InstanceId, Started
from fairlead.agent.launching import Launcher, Never, NotYet, decode_template
from fairlead.agent.node import Node
from fairlead.agent.probes import Target, Verdict, watch
from fairlead.agent.region import Region
from fairlead.agent.settings import AgentSettings
from fairlead.agent.slot import Slot
from fairlead.decide.instances import Forget, Phase, Start, Stop, Wait
from fairlead.model.lifecycle import SlotState
from fairlead.ports import Clock, Signal, Tasks, wait_signal

log = logging.getLogger(__name__)

NOT_YET_S: Final = 1.0  # between two looks for something that is not there yet
TICK_S: Final = 0.5  # the loop's clock stands still while a machine sleeps, the one that leases are counted on does not
SLICE: Final = 200  # slots between two yields to the loop


class Works:
    def __init__(
        self, nodes: Mapping[str, Node], drivers: Mapping[str, Driver], launcher: Launcher, region: Region, clock: Clock,
        settings: AgentSettings, tasks: Tasks, changed: Callable[[Slot], None],
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self._drivers = drivers
        self._launcher = launcher
        self._region = region
        self._clock = clock
        self._settings = settings
        self._tasks = tasks
        self._changed = changed  # there is something to report
        self._dirty: dict[InstanceId, Slot] = {}
        self._by_id: dict[InstanceId, Slot] = {}
        self._early: dict[InstanceId, tuple[int, Exit]] = {}  # ends that were told while a start was under way
        self._timers: list[tuple[float, int, Slot]] = []
        self._serials = itertools.count()
        self._signal = Signal()
        self._starts = asyncio.Semaphore(settings.starts_max)
        self._waiting: dict[str, dict[InstanceId, Slot]] = {}  # node -> slots that wait for others to end
        self.grace_max_s = float("inf")
        self.starts_total = 0

    # --- what is to be looked at ------------------------------------------------------------------------------------------

    def look_at(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._by_id[slot.id] = slot
            self._dirty[slot.id] = slot
        self._signal.set()

    def look_at_node(self, node: Node) -> None:
        self.look_at(node.slots.values())

    def look_at_waiting(self, node: Node) -> None:
        """Those that wait for others, or for contact, in case a wake-up was missed."""
        waiting = self._waiting.get(node.name)
        if waiting:
            self.look_at(list(waiting.values()))

    def look_later(self, slot: Slot, when: float) -> None:
        if when >= slot.timer_at:
            return  # an earlier look comes first, and will ask again
        slot.timer_at = when
        heapq.heappush(self._timers, (when, next(self._serials), slot))
        self._signal.set()

    async def adopt(self, node: Node) -> None:
        """What an earlier agent left. With several nodes in one process, drivers say themselves what belongs to whom: nothing."""
        now = self._clock.monotonic()
        for name, driver in self._drivers.items():
            for found in await driver.adopt(self.ended):
                slot = self._by_id[found.id] = Slot(found.id, node.name)
                slot.driver, slot.lasts, slot.told_lasts = name, found.lasts, found.lasts
                node.add(slot)
                node.remembered.see(found.id.tenant, found.id.name, found.id.token)
                self._adopt(slot, found, now)

    def _adopt(self, slot: Slot, found: Adopted, now: float) -> None:
        template = decode_template(found.template)
        slot.adopt(found.run, found.ports, template, now)
        slot.exclusive = found.exclusive
        self._launcher.hold(slot)
        if found.exit is not None:
            # Its shim went with the machine, or while no agent looked: that is no failure of what it ran. Under the eyes of an
            # agent it counts as one, or a program that kills its own shim would be started again without end.
            slot.end(found.exit, now, excused=found.exit.cause == "lost")
            self._launcher.release(slot)
        elif template is not None:
            log.info("%s is adopted", slot.id.text, extra=slot.id.about)

    async def run(self) -> None:
        while True:
            await self._wait()
            dirty, self._dirty = self._dirty, {}
            for number, slot in enumerate(dirty.values()):
                if number % SLICE == SLICE - 1:
                    await self._clock.sleep(0)
                await self._act(slot)

    async def _wait(self) -> None:
        """Until a slot is to be looked at."""
        while not self._dirty:
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                when, _, slot = heapq.heappop(self._timers)
                if when == slot.timer_at:
                    slot.timer_at = float("inf")
                    self._dirty[slot.id] = slot
            if self._dirty:
                return
            self._signal.clear()
            left = min(self._timers[0][0] - now, TICK_S) if self._timers else None
            await wait_signal(self._signal, left)

    # --- what is done -----------------------------------------------------------------------------------------------------

    async def _act(self, slot: Slot) -> None:
        node = self._nodes[slot.node]
        if node.slots.get(slot.id) is not slot:
            return
        now = self._clock.monotonic()
        action = node.decide(slot, now)
        match action:
            case Start():
                self._waiting.get(slot.node, {}).pop(slot.id, None)
                if node.remembered.save():  # before anything runs under this token
                    slot.phase, slot.message = "launching", ""
                    self._tasks.start(self._launch(node, slot), f"start {slot.id.text}")
                else:
                    node.confirmed = False  # the handshake tells the region, and tries again
                    slot.message = f"waits for room on its node's disk: {node.remembered.unsaved}"
                    self.look_later(slot, now + NOT_YET_S)
            case Stop():
                await self._stop(slot, action, now)
            case Forget():
                await self._forget(node, slot, now)
            case Wait():
                self._note_wait(node, slot, action.reason, now)
            case _:
                assert_never(action)
        if slot.phase == "running" and slot.told_lasts != slot.lasts:  # while it was being started, or by its binding
            await self._say_lasts(slot)
        self._keep_time(node, slot, now)
        self._changed(slot)

    def _note_wait(self, node: Node, slot: Slot, reason: str, now: float) -> None:
        waiting = self._waiting.setdefault(slot.node, {})
        if reason.startswith("waits"):
            waiting[slot.id] = slot
            if slot.phase == "absent":
                slot.message = reason
        else:
            waiting.pop(slot.id, None)
        if not slot.there and slot.doubtful and now < node.sole_at < float("inf"):
            self.look_later(slot, node.sole_at)
        if slot.phase == "ended" and slot.verdict == "again" and now < slot.due_at:
            self.look_later(slot, slot.due_at)

    def _keep_time(self, node: Node, slot: Slot, now: float) -> None:
        """What ends with a lease is looked at again when that is over; the shim does the same by itself."""
        if slot.phase == "running" and now < node.ends_at(slot) < math.inf:
            self.look_later(slot, node.ends_at(slot))

    async def prolong(self, slots: Iterable[Slot]) -> None:
        """How long they last was said anew."""
        for slot in slots:
            if slot.there and slot.driver and slot.phase != "launching":
                await self._say_lasts(slot)
            self.look_at([slot])

    async def _say_lasts(self, slot: Slot) -> None:
        slot.told_lasts = slot.lasts
        await self._drivers[slot.driver].prolong(slot.id, slot.lasts)

    async def _stop(self, slot: Slot, stop: Stop, now: float) -> None:
        driver = self._drivers[slot.driver]
        grace_s = slot.template.stop_grace_seconds if slot.template is not None else 0.0
        binding = slot.binding
        if binding is not None and binding.status.drain_deadline_time is not None:
            left_s = binding.status.drain_deadline_time.timestamp() - self._region.plane_ms() / 1000
            grace_s = min(grace_s, max(0.0, left_s))
        grace_s = min(grace_s, self.grace_max_s)
        slot.message = stop.reason
        self._end_probing(slot)
        if stop.at_once:
            slot.phase, slot.stop_cause = "stopping", "fenced"
            await driver.kill(slot.id, "fenced")
        else:
            slot.phase, slot.stop_cause = "stopping", "ordered"
            await driver.stop(slot.id, grace_s)

    async def _forget(self, node: Node, slot: Slot, now: float) -> None:
        self._launcher.release(slot)  # of one that was prepared, or was to start again, and did not: only output is kept
        keep_until = slot.ended_at + self._settings.keep_ended_s
        if slot.phase == "ended" and now < keep_until:
            self.look_later(slot, keep_until)
            return
        if slot.driver:
            await self._drivers[slot.driver].forget(slot.id)
        self._waiting.get(slot.node, {}).pop(slot.id, None)
        node.remove(slot)
        self._by_id.pop(slot.id, None)

    async def _launch(self, node: Node, slot: Slot) -> None:
        before: Phase = "ended" if slot.run else "absent"
        async with self._starts:
            try:
                launch = await self._launcher.prepare(slot, node.declared)
            except NotYet as error:
                slot.phase, slot.message = before, str(error)
                slot.due_at = self._clock.monotonic() + NOT_YET_S
                self.look_later(slot, slot.due_at)
                self._changed(slot)
                return
            except Never as error:
                slot.phase, slot.verdict, slot.message = "ended", "failed", str(error)
                self.look_at([slot])
                return
            if isinstance(node.decide_before_start(slot, self._clock.monotonic(), before), Start):
                await self._start(node, slot, launch.run, await self._drivers[slot.driver].start(launch))
            else:
                slot.phase = before
        self.look_at([slot])

    async def _start(self, node: Node, slot: Slot, run: int, got: Started | Exit) -> None:
        now = self._clock.monotonic()
        slot.run = run
        self.starts_total += 1
        if isinstance(got, Exit):
            slot.started_at = now
            self._over(slot, got)
            if got.cause == "fenced":  # it came too late, which is no failure: else it would be tried again without a pause
                slot.due_at = now + NOT_YET_S
            return
        slot.begin(now, self._region.plane_ms())
        ended_run, exit = self._early.pop(slot.id, (0, None))
        if exit is not None and ended_run == run:
            self._over(slot, exit)
        else:
            self._probe(node, slot, started=False)

    # --- probes and ends ---------------------------------------------------------------------------------------------------

    def probe_adopted(self, node: Node, slot: Slot) -> None:
        if slot.phase == "running" and slot.probing is None:
            self._probe(node, slot, started=slot.startup_passed)

    def _probe(self, node: Node, slot: Slot, started: bool) -> None:
        probes = slot.template.probes if slot.template is not None else None
        if probes is None or not (probes.startup or probes.readiness or probes.liveness):
            return
        ports = {**slot.ports, **{str(port): port for port in slot.ports.values()}}
        target = Target(slot.id, node.declared.address, ports)
        driver = self._drivers[slot.driver]
        work = watch(probes, target, driver, self._clock, lambda verdict: self._probed(slot, verdict), started)
        slot.probing = self._tasks.start(work, f"probe {slot.id.text}")

    def _probed(self, slot: Slot, verdict: Verdict) -> None:
        if slot.phase != "running":
            return
        if slot.probed(verdict.kind, verdict.passing, verdict.detail, self._region.plane_ms()):
            slot.phase, slot.stop_cause = "stopping", "unhealthy"
            grace_s = slot.template.stop_grace_seconds if slot.template is not None else 0.0
            self._tasks.start(self._drivers[slot.driver].stop(slot.id, grace_s), f"stop {slot.id.text}")
        self.look_at([slot])

    def _end_probing(self, slot: Slot) -> None:
        if slot.probing is not None:
            slot.probing.cancel()
            slot.probing = None

    def ended(self, id: InstanceId, run: int, exit: Exit) -> None:
        """A driver says that a run is over, with everything of it."""
        slot = self._by_id.get(id)
        if slot is not None and slot.phase == "launching":
            self._early[id] = (run, exit)  # perhaps of the run that is being started: its start has not returned yet
            return
        if slot is None or slot.run != run:
            return
        self._over(slot, exit)
        self.look_at([slot])

    def _over(self, slot: Slot, exit: Exit) -> None:
        self._end_probing(slot)
        slot.end(exit, self._clock.monotonic())
        node = self._nodes[slot.node]
        bound = node.current(slot)
        if slot.verdict != "again" or bound is None or bound.state in (SlotState.DRAINING, SlotState.RELEASED):
            self._launcher.release(slot)
            if slot.driver:
                self._tasks.start(self._drivers[slot.driver].tidy(slot.id), f"tidy {slot.id.text}")
        self.look_at(node.lives_of(slot.key))  # an earlier life is said to be gone when no later one is there
        self.look_at_waiting(node)
