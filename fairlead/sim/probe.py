"""Owns the three patterns that break real controllers, at one call of one controller: a crash in the middle of a look, a change
it never hears of, a picture of the past.

Puts itself between a controller (its runtime, or the narrator) and its plane while a world runs; both are unchanged. What comes
after is judged by the world's checkers; when something was missed, and when it was told after all, is written down here. `Sieve`
is part of a scenario, so that a point that fails is a file like any other. Called by world.py; sieve.py goes through the points.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fairlead.client.leased import Leased, Terms
from fairlead.client.plane import Change, Feed, Plane
from fairlead.controllers.runtime import Runtime
from fairlead.model.commands import Command, LeaseAcquire, LeaseRelease, LeaseRenew, Outcome
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Program, Running
from fairlead.sim.scenario import Sieve

HOLD_S: Final = 12.0  # a picture of the past lasts longer than any lease is renewed
DOWN_S: Final = 1.0
_OF_LEASES: Final = (LeaseAcquire, LeaseRenew, LeaseRelease)


class Probe:
    """Counts the calls at which the pattern could strike, and strikes at one of them."""

    def __init__(self, loop: SimLoop, sieve: Sieve, until_s: float = math.inf) -> None:
        """Nothing strikes after `until_s`: a server that is killed when all should be at rest is told of by others, rightly."""
        self.loop = loop
        self._until_s = until_s
        self.pattern = sieve.pattern
        self.calls = 0
        self.works = 0  # what it sent that is not about its own lease
        self.struck_s: float | None = None
        self.made_good_s: float | None = None  # when the last of what it missed was told after all
        self._missed: dict[tuple[str, str, str], int] = {}  # what it never heard of, and at which position that was
        self._at = sieve.at

    def strikes(self, pattern: str) -> bool:
        if pattern != self.pattern or self.loop.now > self._until_s:
            return False
        self.calls += 1
        if self.calls - 1 != self._at:
            return False
        self.struck_s = self.loop.now
        return True

    def counted(self) -> dict[str, int]:
        """For a verdict; times in milliseconds of true time."""
        out = {"sieve_calls": self.calls, "sieve_works": self.works}
        for name, when_s in (("sieve_struck_ms", self.struck_s), ("sieve_made_good_ms", self.made_good_s)):
            if when_s is not None:
                out[name] = round(1000 * when_s)
        return out

    def missed(self, changes: Sequence[Change]) -> None:
        self._missed |= {(change.plural, change.tenant, change.name): change.position for change in changes}

    def told(self, changes: Sequence[Change], listed: str = "") -> None:
        """What it hears later of the same object, or a list of that kind, makes good what it missed."""
        if not self._missed:
            return
        for change in changes:
            key = (change.plural, change.tenant, change.name)
            if self._missed.get(key, change.position + 1) <= change.position:
                del self._missed[key]
        self._missed = {key: at for key, at in self._missed.items() if key[0] != listed}
        if not self._missed:
            self.made_good_s = self.loop.now

    async def crash(self) -> None:
        """The process that the controller runs in is killed, and started again a little later."""
        running = self.loop.current
        assert isinstance(running, Running)
        program = running.program
        program.kill()
        self.loop.after(DOWN_S, self._start, program)
        await self.loop.create_future()  # nothing of this process runs again

    @staticmethod
    def _start(program: Program) -> None:
        """Where its machine has lost power meanwhile, whoever gives that back starts it."""
        if not program.alive and program.machine.up:
            program.start()


class SievedFeed:
    def __init__(self, feed: Feed, probe: Probe) -> None:
        self._feed = feed
        self._probe = probe
        self._held = False
        self._kept: Sequence[Change] = ()  # what was held back
        self._told = feed.revision
        self._signal = asyncio.Event()

    def take_nowait(self) -> Sequence[Change]:
        if self._held:
            return []
        changes = self._feed.take_nowait()
        kept, self._kept = self._kept, ()
        if changes and not kept and self._probe.strikes("stale"):
            self._held, self._kept = True, changes
            self._probe.loop.after(HOLD_S, self._release)
            return []
        self._told = self._feed.revision
        if changes and not kept and self._probe.strikes("missed"):
            self._probe.missed(changes)
            return []
        self._probe.told(changes)
        return [*kept, *changes]

    def _release(self) -> None:
        self._held = False
        self._signal.set()
        self._feed.poke()

    @property
    def revision(self) -> int:
        return self._told  # whoever sees the past does not say that it is the present

    async def wait(self) -> None:
        if not self._held:
            await self._feed.wait()
            return
        self._signal.clear()
        await self._signal.wait()

    def poke(self) -> None:
        self._signal.set()
        self._feed.poke()

    def close(self) -> None:
        self._feed.close()


class SievedPlane:
    """A plane as one controller sees it. What is not named here goes straight through."""

    def __init__(self, plane: Plane, probe: Probe) -> None:
        self._plane = plane
        self._probe = probe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        outcomes = await self._plane.submit(commands)
        self._probe.works += any(not isinstance(command.body, _OF_LEASES) for command in commands)
        renews = all(isinstance(command.body, LeaseRenew) for command in commands)  # which is no step of its work
        if not renews and self._probe.strikes("crash"):
            await self._probe.crash()  # it was done, and whoever asked for it never learns
        return outcomes

    async def list(self, plural: str) -> Sequence[Change]:
        listed = await self._plane.list(plural)
        await self._read()
        self._probe.told(listed, plural)
        return listed

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None:
        found = await self._plane.get(plural, tenant, name, revision)
        await self._read()
        return found

    async def heard(self, since_ms: int) -> Iterable[tuple[str, int]]:
        """It is asked every second and is no step of anybody's work, so no crash there is one of its own."""
        heard = await self._plane.heard(since_ms)
        if self._probe.strikes("stale"):
            await sleep(HOLD_S)
        return heard

    async def _read(self) -> None:
        if self._probe.strikes("crash"):
            await self._probe.crash()
        if self._probe.strikes("stale"):
            await sleep(HOLD_S)  # while the feed goes on: what was deleted meanwhile is in what was read

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> SievedFeed:
        return SievedFeed(self._plane.follow(plurals, after, nodes=nodes), self._probe)


@contextmanager
def sifting(loop: SimLoop, sieve: Sieve | None, until_s: float = math.inf) -> Iterator[Probe | None]:
    """While it lasts, runtimes of that controller are made with a probe in between."""
    if sieve is None:
        yield None
        return
    probe = Probe(loop, sieve, until_s)
    made, leased = Runtime.__init__, Leased.__init__

    def probed(self: Runtime, controller: Any, plane: Any, *rest: Any, other: Any = None, **more: Any) -> None:
        if controller.name == sieve.controller:
            plane, other = SievedPlane(plane, probe), SievedPlane(other, probe) if other is not None else None
            more |= {"picture": None, "other_picture": None}  # of its own: what befalls it befalls nobody else
        made(self, controller, plane, *rest, other=other, **more)

    def probed_alone(self: Leased, plane: Any, clock: Any, random: Any, terms: Terms, follows: Sequence[str]) -> None:
        if terms.name == sieve.controller and not isinstance(self, Runtime):
            plane = SievedPlane(plane, probe)
        leased(self, plane, clock, random, terms, follows)

    Runtime.__init__, Leased.__init__ = probed, probed_alone  # type: ignore[method-assign]
    try:
        yield probe
    finally:
        Runtime.__init__, Leased.__init__ = made, leased  # type: ignore[method-assign]
