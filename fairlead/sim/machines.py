"""Owns simulated machines, what lasts on them, and the programs that run there: started, paused, killed, started again.

A program that is started again finds what its machine's files hold and nothing else. Never decides when anything breaks: that is
chaos.py's. Called by the platform that is built of them (platform.py).
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fairlead.sim.loop import Draws, SimLoop, sleep
from fairlead.sim.process import HostClock, Process

RATE_ERROR = 0.009  # within the 1 % that the protocols allow for
EPOCH_S = 1_700_000_000.0  # what wall clocks show when a world begins, within a minute
TIMELINE_MAX = 20_000
TAPE_MAX = 2_000  # of a run that goes another way it is the first difference that tells


class Machine:
    """A host by name: one clock, some files, an operating system that may be up."""

    def __init__(self, name: str, clock: HostClock, counts: Counter[str] | None = None) -> None:
        self.name = name
        self.clock = clock
        self.up = True
        self.broken = False  # it does not come up again
        self.disk_full = self.disk_broken = False
        self._counts = counts if counts is not None else Counter[str]()
        self._durable: dict[str, bytes] = {}
        self._files: dict[str, bytes] = {}
        self._refused: set[str] = set()  # files that took nothing when they were written last

    def file(self, name: str) -> SimFile:
        return SimFile(self, name)

    def lose_power(self, draws: Draws | None = None) -> None:
        """What was not made durable is as it was before; with `draws` it may also be there all the same, or be torn."""
        left = dict(self._durable)
        for name, data in self._files.items():
            if draws is None or self._durable.get(name) == data:
                continue
            chance, part = draws.random(), draws.random()
            if chance < 0.4:
                left[name] = data
            elif chance < 0.6:
                left[name] = data[: int(part * len(data))]
                self._counts["F13"] += 1
        self._files, self._durable = dict(left), left

    def copy_files(self, other: Machine) -> None:
        self._files, self._durable = dict(other._files), dict(other._durable)

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def write(self, name: str, data: bytes, durable: bool) -> None:
        if self.disk_full or self.disk_broken:
            self._counts["F13"] += name not in self._refused  # not each attempt: a server tries with every batch
            self._refused.add(name)
            if self.disk_full:
                raise OSError(errno.ENOSPC, "no space left on the simulated disk", name)
            raise OSError(errno.EIO, "the simulated disk does not take it", name)
        self._refused.discard(name)
        self._files[name] = data
        if durable:
            self._durable[name] = data


class SimFile:
    """fairlead.ports.Kept on a simulated machine."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name

    def read(self) -> bytes | None:
        return self._machine.read(self._name)

    def write(self, data: bytes, *, durable: bool) -> None:
        self._machine.write(self._name, data, durable)


class SimClock:
    """fairlead.ports.Clock of one machine."""

    def __init__(self, loop: SimLoop, machine: Machine) -> None:
        self._loop = loop
        self._clock = machine.clock

    def monotonic(self) -> float:
        clock = self._clock  # as its `local` reckons: this is asked more often than anything else
        return clock._local + (self._loop.now - clock._at) * clock.rate

    def wall(self) -> float:
        return self._clock.local(self._loop.now) + self._clock.wall_s

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return sleep(seconds)


class SimIds:
    """fairlead.ports.Ids from a stream of draws."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def token(self) -> str:
        return f"{self._draws.getrandbits(64):016x}"


class Running(Process):
    """One life of a program."""

    __slots__ = ("is_earlier", "machine", "program")

    def __init__(self, name: str, machine: Machine, program: Program) -> None:
        super().__init__(name, machine.clock)
        self.machine = machine
        self.program = program
        self.is_earlier = False  # of the version before (versions.py)


class Program:
    """What a supervisor keeps running on a machine: how to start it, and its present life, if it has one."""

    def __init__(self, machines: Machines, name: str, machine: Machine, main: Callable[[Running], Awaitable[Any]]) -> None:
        self.name = name
        self.machine = machine
        self.main = main
        self.lives = 0
        self.running: Running | None = None
        self.wanted = True
        self._machines = machines

    @property
    def alive(self) -> bool:
        return self.running is not None and not self.running.dead

    def start(self) -> None:
        assert not self.alive, f"{self.name} runs already"
        self.lives += 1
        self.running = Running(f"{self.name}.{self.lives}", self.machine, self)
        self._machines.loop.spawn(self.running, self._main(self.running), self.running.name)

    async def _main(self, running: Running) -> None:
        try:
            await self.main(running)
            self._machines.ended(running, None)
        except Exception as error:
            self._machines.ended(running, error)

    def kill(self, *, silent: bool = False) -> None:
        """SIGKILL, or with `silent` the machine's own end: then not even its kernel says anything to anybody."""
        running = self.running
        if running is None or running.dead:
            return
        for told in self._machines.on_death:
            told(running, silent)
        self._machines.loop.kill(running)

    def pause(self) -> None:
        if self.alive and self.running is not None and not self.running.paused:
            for told in self._machines.on_pause:
                told(self.running)
            self._machines.loop.pause(self.running)

    def resume(self) -> None:
        if self.running is not None and self.running.paused:
            self._machines.loop.resume(self.running)


class Machines:
    """All of them, the timeline of what happened, and the counters of what was done to them."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.all: dict[str, Machine] = {}
        self.programs: dict[str, Program] = {}
        self.counts: Counter[str] = Counter()
        self.timeline: list[tuple[float, str, str]] = []
        self.tape: list[tuple[float, str]] = []  # what was done to it, and when: each strike, and what chaos and people said
        self.exits: list[tuple[str, str]] = []  # programs that ended by themselves, and why: each is a fault of ours
        self.on_death: list[Callable[[Running, bool], None]] = []
        self.on_pause: list[Callable[[Running], None]] = []
        self._draws = loop.stream("machines")

    def machine(self, name: str) -> Machine:
        draws = self._draws
        local_s, rate, wall_s = draws.uniform(10.0, 1e6), draws.uniform(1 - RATE_ERROR, 1 + RATE_ERROR), draws.uniform(-60, 60)
        # Wall clocks agree to a minute; monotonic ones on nothing at all.
        made = Machine(name, HostClock(local_s, rate, EPOCH_S + wall_s - local_s), self.counts)
        self.all[name] = made
        return made

    def program(self, name: str, machine: Machine, main: Callable[[Running], Awaitable[Any]]) -> Program:
        made = self.programs[name] = Program(self, name, machine, main)
        return made

    def clock(self, running: Running) -> SimClock:
        return SimClock(self.loop, running.machine)

    def tell(self, who: str, what: str) -> None:
        """One line of the timeline; part of the trace too."""
        self.loop.note(what)
        if who in ("chaos", "people"):
            self.struck(f"{who}: {what}")
        if len(self.timeline) < TIMELINE_MAX:
            self.timeline.append((self.loop.now, who, what))

    def struck(self, what: str) -> None:
        if len(self.tape) < TAPE_MAX:
            self.tape.append((round(self.loop.now, 3), what))

    def ended(self, running: Running, error: BaseException | None) -> None:
        """A program returned or failed by itself: its supervisor starts it again after a second."""
        program = running.program
        if running.dead or program.running is not running:
            return
        if error is None:
            program.wanted = False  # it had done what it was started for
        else:
            self.exits.append((running.name, described(error)))
            self.tell(running.name, f"ended by itself: {described(error)}")
        program.kill()
        self.loop.after(1.0, self._start_again, program, running)

    def _start_again(self, program: Program, ended: Running) -> None:
        if program.wanted and program.running is ended and program.machine.up:
            program.start()


def described(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    where = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f" in {code.co_qualname}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{where}"


async def for_ever() -> None:
    """Until its process dies."""
    await asyncio.get_running_loop().create_future()
