"""Owns faults that go on for a while by themselves: crash loops, clogged links, clocks that jump to and fro, and a process that
dies at one of its next calls to its store.

Like those of chaos.py: every value is drawn before anything is looked at. Each ends by itself, and at once when `over` says that
everything is healed. Called by chaos.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fairlead.sim.loop import Draws
from fairlead.sim.machines import Machine, Program
from fairlead.sim.network import Strike
from fairlead.sim.platform import Platform
from fairlead.sim.store import StoreService, Trap

STORM: Final = 4  # programs at most, that crash again and again
CLOG_S: Final = (0.3, 8.0)  # shorter than anybody waits for a ping
RATES: Final = (0.991, 0.995, 1.0, 1.005, 1.009)
CALLS: Final = 25  # of a server to its store: one of so many is its last


class Loop(NamedTuple):
    """How one program fares in a storm."""

    at: float
    rounds: int
    down_s: float
    up_s: float


class Hit(NamedTuple):
    """What becomes of a program that is struck."""

    down_s: float
    how: float
    call: int
    after: bool


def drawn_loops(draws: Draws) -> list[Loop]:
    count = draws.randrange(2, STORM + 1)
    loops = [Loop(draws.random(), draws.randrange(3, 7), draws.uniform(0.1, 1.5), draws.uniform(0.2, 5.0)) for _ in range(STORM)]
    return loops[:count]


class Spells:
    def __init__(
        self, platform: Platform, left_out: Callable[[], bool], over: Callable[[], bool], start: Callable[[Program], None]
    ) -> None:
        self._platform = platform
        self._left_out = left_out
        self._loop = platform.loop
        self._network = platform.network
        self._counts = platform.machines.counts
        self._over = over
        self._start = start

    def _tell(self, what: str) -> None:
        self._platform.machines.tell("chaos", what)

    # --- processes -----------------------------------------------------------------------------------------------------------

    def storm(self, programs: Sequence[Program], loops: Sequence[Loop]) -> None:
        """Several of them are killed as soon as they have come back, a few times over (F15, where one came back and was)."""
        chosen = {programs[int(one.at * len(programs))].name: one for one in loops}
        again = Strike(self._counts, "F15")
        self._tell(f"{', '.join(chosen)} crash in loops")
        for program in programs:
            if program.name in chosen:
                self._round(program, chosen[program.name], again, 0)

    def _round(self, program: Program, loop: Loop, again: Strike, done: int) -> None:
        if self._over() or done >= loop.rounds:
            return
        if program.alive:
            self._counts["F9"] += 1
            if done:
                again.shows()
            program.kill()
        self._loop.after(loop.down_s, self._start, program)
        self._loop.after(loop.down_s + loop.up_s, self._round, program, loop, again, done + 1)

    def crash(self, program: Program, hit: Hit) -> None:
        """Killed now, at a call to its store that it makes soon, or both: the second time while it begins again (F9)."""
        store = self._store_of(program)
        if store is None or hit.how < 0.75:
            self._kill(program, hit.down_s, "")
        if store is not None and hit.how >= 0.5:
            when = f"{'after' if hit.after else 'before'} its call {hit.call} to its store"
            self._tell(f"{program.name} is to die {when}")
            store.traps[program.name] = Trap(hit.call, hit.after, lambda: self._sprung(program, hit, when))

    def _sprung(self, program: Program, hit: Hit, when: str) -> None:
        if program.alive and not self._over():
            killed = f"killed_{'after' if hit.after else 'before'}_store_call"
            self._counts.update((killed, f"{killed}/{hit.call}"))
            self._kill(program, hit.down_s, f" {when}")

    def _kill(self, program: Program, down_s: float, when: str) -> None:
        self._counts["F9"] += 1
        self._tell(f"{program.name} is killed{when}, for {down_s:.1f} s")
        program.kill()
        self._loop.after(down_s, self._start, program)

    def _store_of(self, program: Program) -> StoreService | None:
        return next((plane.store for plane in self._platform.planes.values() if program in plane.servers), None)

    # --- links ---------------------------------------------------------------------------------------------------------------

    def clog(self, one: Machine, others: Sequence[Machine], spans_s: Sequence[float]) -> None:
        """Links of one machine hold what is sent over them, and are let go each at its own time (F6, where one held anything)."""
        pairs = [(one, other) if number % 2 else (other, one) for number, other in enumerate(others)]
        for (source, target), for_s in zip(pairs, spans_s, strict=False):
            if self._network.clog(source, target):
                self._tell(f"what {source.name} sends to {target.name} is held, for {for_s:.1f} s")
                self._loop.after(for_s, self._network.unclog, source, target)

    # --- clocks and disks ----------------------------------------------------------------------------------------------------

    async def clock(self, draws: Draws) -> None:
        at, step_s, rate, how = draws.random(), draws.uniform(-3600, 3600), draws.choice(RATES), draws.random()
        every_s, times = draws.uniform(0.05, 1.0), 2 * draws.randrange(2, 20)
        if self._left_out():
            return
        every = list(self._platform.machines.all.values())
        machine = every[int(at * len(every))]
        self._counts["F7"] += how < 0.6 or rate != machine.clock.rate
        if how < 0.25:
            self._tell(f"the wall clock of {machine.name} jumps by {step_s:.0f} s and back, {times} times")
            self._strobe(machine, step_s, every_s, times)
        elif how < 0.6:
            self._tell(f"the wall clock of {machine.name} is stepped by {step_s:.0f} s")
            machine.clock.wall_s += step_s
        else:
            machine.clock.run_at(rate, self._loop.now)

    async def disk(self, draws: Draws) -> None:
        """Of a store, an agent or a server. Full, or broken: what is written is refused (counted as F13 where it is), or nobody
        knows whether it is there."""
        at, for_s, of_store = draws.random(), draws.uniform(1.0, 20.0), draws.random() < 0.5
        full, chance = draws.random() < 0.5, draws.uniform(0.1, 1.0)
        if self._left_out():
            return
        what = "full" if full else "broken"
        if of_store:
            planes = list(self._platform.planes.values())
            store = planes[int(at * len(planes))].store
            self._tell(f"the disk of store {store.name} is {what}, for {for_s:.1f} s")
            setattr(store.faults, what, True if full else chance)
            self._loop.after(for_s, setattr, store.faults, what, False if full else 0.0)
            return
        programs = [agent.program for agent in self._platform.agents.values()]
        programs += [program for plane in self._platform.planes.values() for program in plane.servers]
        machine = programs[int(at * len(programs))].machine
        self._tell(f"the disk of {machine.name} is {what}, for {for_s:.1f} s")
        setattr(machine, f"disk_{what}", True)
        self._loop.after(for_s, setattr, machine, f"disk_{what}", False)

    def _strobe(self, machine: Machine, step_s: float, every_s: float, times: int) -> None:
        """Its wall clock jumps there and back again (F7)."""
        if times <= 0 or self._over():
            return
        machine.clock.wall_s += step_s if times % 2 else -step_s
        self._loop.after(every_s, self._strobe, machine, step_s, every_s, times - 1)
