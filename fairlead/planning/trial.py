"""A change tried on copies of the planes: production controllers and schedulers work on them until nothing moves any more.

Owns the order in which they take their turns, and the trial's time, which jumps to whatever is due next. Never decides anything,
and never touches a plane. Everything is a generator, so that whoever runs a trial gives its loop back as often as it likes.
Called by planner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, cast

from fairlead.client.plane import Plane
from fairlead.client.planning import PlanRefused, Step
from fairlead.controllers.contract import Controller
from fairlead.model.commands import Refused
from fairlead.planning.copied import Copy
from fairlead.planning.placing import Placer
from fairlead.planning.pools import Pools
from fairlead.planning.pretending import Agents
from fairlead.planning.walking import Walker
from fairlead.ports import Clock, Random

Seat = tuple[Controller, Copy, Copy | None]  # a controller, the copy it writes, the second one it looks at
Roster = Callable[[Copy, Mapping[str, Copy]], Iterable[Seat]]

# What is observed of machines and regions stays as it is; what an autoscaler might add is never counted (docs/planning.md); what
# a change of a pool itself asks for is (pools.py).
ABSENT: Final = frozenset({"region", "node", "autoscaler", "node-autoscaler"})
QUIET_MS: Final = 90_000  # longer than any controller waits before it acts on what it sees (recovery: a minute)
TRIAL_MS: Final = 30 * 60_000  # three drains of the usual length, one after the other
GRAIN_MS: Final = 1_000  # time jumps by whole seconds: thousands of slots that wait are each due at a moment of their own
TURNS_MAX: Final = 200_000
# A change of these means that something still moves.
MOVING: Final = frozenset({"bindings", "assignments", "reservations", "evictionrequests", "recoveryorders", "holdings", "nodes"})
_SAID: Final = frozenset({"assignments", "holdings", "nodes", "evictionrequests"})  # their statuses are told again and again


class Trial:
    def __init__(self, copies: Mapping[str, Copy], roster: Roster, clock: Clock, random: Random) -> None:
        self.copies = copies
        self._roster, self._clock, self._random = roster, clock, random
        self._walkers: list[Walker] = []
        self.placers: dict[str, Placer] = {}
        self._agents: dict[str, Agents] = {}
        self._pools: dict[str, Pools] = {}
        self.now_ms = max(copy.now_ms for copy in copies.values())
        self.began_ms = self._moved_ms = self.now_ms
        self.evicted_by: dict[tuple[str, str], str] = {}  # TENANT, NAME of a victim -> whose claim it leaves for
        self.settled = True
        self._set_time(self.now_ms)

    @property
    def simulated_s(self) -> float:
        return (self.now_ms - self.began_ms) / 1000

    def open(self) -> Iterator[None]:
        """Everybody takes a seat and looks at what there is. Comes first."""
        for copy in self.copies.values():
            for controller, writes, other in self._roster(copy, self.copies):
                if controller.name not in ABSENT:
                    self._walkers.append(Walker(controller, writes, other, self._random))
                    yield
            if not copy.is_global:
                placer = self.placers[copy.name] = Placer(copy, cast(Plane, copy), self._clock, self._random)
                yield from placer.look_around()
                self._agents[copy.name] = Agents(copy)
                self._pools[copy.name] = Pools(copy)
                yield

    def apply(self, steps: Iterable[Step]) -> PlanRefused | None:
        """The change itself, as whoever would make it. None: all of it would be taken."""
        for index, step in enumerate(steps):
            copy = self.copies.get(step.plane)
            if copy is None:
                detail = f"{step.plane} cannot be reached, so nothing can be tried there"
                return PlanRefused(index, Refused("NotLeader", detail, retry_after_s=2.0))  # as if it had been sent there
            outcome = copy.submit(step.command)
            if isinstance(outcome, Refused):
                return PlanRefused(index, outcome)
            if step.plane in self._pools:
                self._pools[step.plane].told(step.command)
        return None

    # --- turns -------------------------------------------------------------------------------------------------------------

    def settle(self) -> Iterator[None]:
        """Until nothing has moved for a while of the trial's time."""
        self._moved_ms = self.now_ms
        until_ms = self.now_ms + TRIAL_MS
        for _ in range(TURNS_MAX):
            busy = self._tell()
            yield
            for walker in self._walkers:
                looked = False
                for _ in walker.look(self.now_ms):
                    looked = True
                    yield
                if looked:
                    busy = True
                    self._tell()
                    yield
            for name, placer in self.placers.items():
                for decided in placer.step():
                    busy |= decided > 0
                    yield
                busy |= self._tell()
                busy |= self._agents[name].act() + self._pools[name].act() > 0
            busy |= self._tell()
            if busy:
                continue
            due_ms = self._next_due_ms()
            if due_ms is None or due_ms > min(self._moved_ms + QUIET_MS, until_ms):
                self.settled &= due_ms is None or due_ms <= until_ms or self._moved_ms + QUIET_MS <= until_ms
                return
            self._set_time((max(due_ms, self.now_ms + 1) + GRAIN_MS - 1) // GRAIN_MS * GRAIN_MS)
        self.settled = False

    def _next_due_ms(self) -> int | None:
        times = [walker.queue.next_due_ms() for walker in self._walkers]
        times += [placer.next_due_ms() for placer in self.placers.values()]
        times += [pools.due_ms for pools in self._pools.values()]
        return min((ms for ms in times if ms is not None), default=None)

    def _set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for copy in self.copies.values():
            copy.set_time(now_ms)

    def _tell(self) -> bool:
        """Everybody of what has changed. Whether anything had."""
        any_news = False
        for name, copy in self.copies.items():
            while copy.fresh:
                any_news = True
                news = copy.news()
                placer, agents = self.placers.get(name), self._agents.get(name)
                for rec, old, new in news:
                    for walker in self._walkers:
                        walker.told(copy, old, new)
                    if agents is not None:
                        agents.told(rec)
                    if rec.plural in MOVING and not (
                        rec.plural in _SAID and old is not None and new is not None and old.object.spec == new.object.spec
                    ):
                        self._moved_ms = self.now_ms
                    if rec.plural == "bindings" and rec.raw is not None and rec.hot.start_after:
                        self.evicted_by |= {
                            (victim.partition("/")[0], victim.partition("/")[2]): f"{rec.tenant}/{rec.name}"
                            for victim in rec.hot.start_after
                        }
                if placer is not None:
                    placer.told([rec for rec, _, _ in news])
        return any_news
