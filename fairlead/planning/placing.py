"""The production scheduler over a copied region: the same picture, queue, cycle and proposals, judged at once.

Owns when it takes a round. Never decides: `Scheduler` does, and the copy's judges have the last word. Called by trial.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from fairlead.authority.state import Rec
from fairlead.client.plane import Plane
from fairlead.model.commands import Command, Outcome, Refused
from fairlead.model.lifecycle import Role
from fairlead.planning.copied import HEARD_MS, Copy
from fairlead.ports import Clock, Random
from fairlead.scheduler.observer import FOLLOWED
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from fairlead.scheduler.units import Item, Pending

_FOLLOWED: Final = frozenset(FOLLOWED)
_LOOK_OBJECTS: Final = 100  # looked at before the loop may be given back
_ROUND_SLOTS: Final = 128  # decided before the loop may be given back


class Placer(Scheduler):
    """A scheduler that nobody runs: it is stepped. What it submits is judged before the step ends."""

    def __init__(self, copy: Copy, plane: Plane, clock: Clock, random: Random) -> None:
        super().__init__(plane, clock, random, SchedulerSettings(name="plan", region=copy.name), registry=copy.plugins)
        self._copy = copy
        self._caller = copy.lease("plan", Role.SCHEDULER)
        self._set_now()

    def look_around(self) -> Iterator[None]:
        """At everything there is. Comes first."""
        for plural in FOLLOWED:
            found = list(self._copy.state.live(plural))
            for start in range(0, len(found), _LOOK_OBJECTS):
                self._observer.observe(found[start : start + _LOOK_OBJECTS])
                yield
        self._hear_all()
        yield

    def _set_now(self) -> None:
        self.snapshot.now_ms = self._copy.now_ms
        self.snapshot.reached(self._copy.ctx.revision(self._copy.state.position))

    def _hear_all(self) -> None:
        nodes = [rec.name for rec in self._copy.state.live("nodes") if rec.hot.status.health == "Ready"]
        self.snapshot.heard([(name, HEARD_MS) for name in nodes], 0)

    def told(self, changes: Sequence[Rec]) -> None:
        self._set_now()
        mine = [rec for rec in changes if rec.plural in _FOLLOWED]
        if not mine:
            return
        self._observer.observe(mine)
        heard = [rec.name for rec in mine if rec.plural == "nodes" and rec.raw is not None and rec.hot.status.health == "Ready"]
        if heard:
            self._observer.heard_again(self.snapshot.heard([(name, HEARD_MS) for name in heard], 0))

    def next_due_ms(self) -> int | None:
        times = (self.queue.next_due_ms(), self._points.waits_until_ms, self._observer.holding.next_end_ms)
        return min((ms for ms in times if ms is not None), default=None)

    def step(self) -> Iterator[int]:
        """One cycle, with a pause after each run; what it yields is how many slots were decided."""
        self._set_now()
        now_ms = self._copy.now_ms
        self._observer.holding.ended(now_ms)
        self.queue.due(now_ms)
        items = self.queue.take(_ROUND_SLOTS, now_ms)
        if items:
            runs = self._cycle.group(items)
            for run in runs:
                while not self._cycle.prepare(run):
                    yield 0
                self._cycle.decide_run(run)
                yield 0
            self.snapshot.trim_changes()
            runs = self._points.admit(runs, self.snapshot)
            for run in runs:
                for failure in run.failures:
                    self.queue.failed(failure.item, failure.reason, failure.gates, failure.detail, now_ms)
            commands, parts = self._commands(runs, {})
            results: dict[int, Outcome] = {}
            for command, placements in zip(commands, parts, strict=True):
                self._hear(placements, self._copy.submit(command), results)
                yield 0
            for run in runs:
                self._points.settled(run, results, [p for p in run.placements if isinstance(results.get(id(p)), Refused)])
            yield len(items)
        for command in self._reporter.commands(self._caller, now_ms) + self._levelling.commands(self._caller):
            self._copy.submit(command)
            yield 0

    def item_of(self, tenant: str, name: str) -> Item | None:
        found = self.queue._tenants.get(tenant)
        return found.items.get(name) if found is not None else None

    @contextlib.contextmanager
    def proposed(self, item: Item) -> Iterator[tuple[Command | None, dict[str, str]]]:
        """What it would send for this slot (of a gang: for all of it) and where each would go. Taken back afterwards."""
        self._set_now()
        members = [item]
        if item.gang:
            members = [each for each in self.queue._tenants[item.tenant].items.values() if each.gang == item.gang]
        runs = self._cycle.group(members)
        for run in runs:
            while not self._cycle.prepare(run):
                pass
            self._cycle.decide_run(run)
        placements = [placement for run in runs for placement in run.placements]
        commands, _ = self._commands(runs, {})
        try:
            yield (commands[0] if len(commands) == 1 else None), {placement.name: placement.node for placement in placements}
        finally:
            for placement in reversed(placements):
                self._cycle.take_back(placement)

    def waiting(self) -> Iterator[Pending]:
        return self.queue.pending()
