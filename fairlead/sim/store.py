"""Owns the simulated store: a MemoryDisk behind a process of its own, over the simulated network, with an engine's faults.

The engine's guards are fairlead/store/memory.py's, so what is trusted here is what the contract suite and the differential test
hold against SQLite, PostgreSQL and etcd. Never breaks by itself: `StoreFaults` says how often, and chaos.py stops its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from fairlead.sim.loop import Draws
from fairlead.sim.machines import Program, Running
from fairlead.sim.network import Network
from fairlead.store.contract import (
    Batch,
    CommitResult,
    Committed,
    Contended,
    Fence,
    Fenced,
    Head,
    ObjectRow,
    OutcomeUnknown,
    StoreUnreachable,
    Superseded,
    Unavailable,
)
from fairlead.store.memory import MemoryDisk, MemoryStore

RPC_S: Final = 2.0
SYNC_S: Final = (0.0005, 0.003)
LATE_S: Final = (RPC_S, 3 * RPC_S)
AGAIN_S: Final = (0.001, 1.0)  # after which a copy of a request lands
STALE_MAX: Final = 4  # stale tails in a row: who is shown the past for longer takes the store for damaged, and is right

T = TypeVar("T")


class StoreFaults(msgspec.Struct):
    """Chances per call. Changed by chaos.py; all zero when healed."""

    unavailable: float = 0.0  # refused for sure
    lost: float = 0.0  # the request never arrives
    unheard: float = 0.0  # it takes effect, and its answer is lost (F10)
    late: float = 0.0  # it arrives after its sender has given up
    stale: float = 0.0  # a tail does not show the newest batches (F12)
    full: bool = False  # no room on its disk (F13)
    twice: float = 0.0  # it lands a second time, a little later (F2)
    broken: float = 0.0  # an I/O error: of a write nobody knows whether it is there (F13)


class Trap(msgspec.Struct):
    """A process that is to die at one of its next calls: before it was sent, or when it has taken effect (F9)."""

    left: int  # calls, with the one at which it dies
    after: bool
    spring: Callable[[], None]


class RecordedDisk(MemoryDisk):
    """Tells every batch that became durable, in order, and when a tail of them was lost."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: Callable[[Batch], None] = lambda batch: None
        self.tail_lost: Callable[[int, int], None] = lambda position, incarnation: None

    def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        result = super().commit(fence, batch)
        if isinstance(result, Committed):
            self.committed(batch)
        return result

    def lose_tail(self, count: int, *, fence_too: bool = False) -> int:
        incarnation = self.head.incarnation  # of what is lost: with its fence the head may forget that as well
        lost = super().lose_tail(count, fence_too=fence_too)
        if lost:
            self.tail_lost(self.head.position, incarnation)
        return lost

    def begin_again(self, head: Head, rows: Sequence[ObjectRow]) -> None:
        """Another store in its place, filled from a backup. What is still under way to the old one meets the new one's guards,
        which take nothing of another incarnation."""
        incarnation = self.head.incarnation
        self.empty()
        self.seed(head, {key: (position, raw) for key, position, raw in rows})
        self.tail_lost(head.position, incarnation)


class StoreService:
    """The engine's side: a program whose process must run for anything to land."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.network = network
        self.disk = RecordedDisk()
        self.faults = StoreFaults()
        self.draws: Draws = network.loop.stream(f"store {name}")
        self.program: Program | None = None
        self.traps: dict[str, Trap] = {}  # by the name of the program
        self.refused: Callable[[str], None] = lambda name: None  # told what its guards turned down
        self.sent: Callable[[Batch], None] = lambda batch: None  # told of every batch that is about to be sent to it
        self.in_doubt: dict[bytes, tuple[float, Running]] = {}  # commits nobody knows the outcome of: since when, whose

    def trap_of(self, process: Running) -> Trap | None:
        """Of a call that this process is about to make: the trap that it steps into, if it does."""
        trap = self.traps.get(process.program.name)
        if trap is None:
            return None
        trap.left -= 1
        return self.traps.pop(process.program.name) if trap.left <= 0 else None


class _NoAnswer(Exception):
    pass


class SimStore(MemoryStore):
    """One process's connection to it."""

    def __init__(self, service: StoreService, process: Running) -> None:
        super().__init__(service.disk)
        self._service = service
        self._process = process
        self._stale = 0  # tails in a row that were

    async def tail(self, after: int, limit_bytes: int = 4 << 20) -> Any:
        draws = self._service.draws
        chance, hidden = draws.random(), draws.randrange(1, 4)
        if chance >= self._service.faults.stale or self._stale >= STALE_MAX:
            hidden = 0

        def effect() -> Any:
            shown = self._disk.tail(after, limit_bytes, hidden)
            stale = bool(hidden) and shown != self._disk.tail(after, limit_bytes, 0)
            self._stale = self._stale + 1 if stale else 0
            if stale:
                self._service.network.machines.counts["F12"] += 1
            return shown

        return await self._read("tail", effect)

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        self._service.sent(batch)
        result = await super().commit(fence, batch)
        if isinstance(result, OutcomeUnknown):
            self._service.in_doubt.setdefault(batch.hash, (self._service.network.loop.now, self._process))
        elif not isinstance(result, Unavailable):
            self._service.in_doubt.pop(batch.hash, None)
        if isinstance(result, Committed):
            # Whoever builds on the head knows what became of all before it, in whichever term that was sent.
            doubts = self._service.in_doubt
            for known in [hashed for hashed, (_, process) in doubts.items() if process is self._process]:
                del doubts[known]
        return result

    async def _write(self, call: str, effect: Callable[[], T]) -> T | Unavailable | OutcomeUnknown:
        try:
            return await self._call(call, effect, writes=True)
        except _NoAnswer as why:
            return OutcomeUnknown(f"{call}: {why}")

    async def _read(self, call: str, effect: Callable[[], T]) -> T:
        try:
            result = await self._call(call, effect, writes=False)
        except _NoAnswer as why:
            raise StoreUnreachable(f"{call}: {why}", 0.2) from None
        if isinstance(result, Unavailable):
            raise StoreUnreachable(f"{call}: {result.detail}", result.retry_after_s)
        return result

    async def _call(self, call: str, effect: Callable[[], T], writes: bool) -> T | Unavailable:
        request = _Request(self._service, self._process, call, effect, writes)
        request.send()
        expiry = self._service.network.loop.call_later(RPC_S, request.fail, f"no answer in {RPC_S} s")
        try:
            return await request.answer
        finally:
            expiry.cancel()


class _Request(Generic[T]):
    """One call under way. Every value is drawn before anything is decided: one fault moves no draws behind it."""

    def __init__(self, service: StoreService, process: Running, call: str, effect: Callable[[], T], writes: bool) -> None:
        self._service, self._network = service, service.network
        self._counts = service.network.machines.counts
        self._call, self._effect, self._writes = call, effect, writes
        draws = service.draws
        self._refused, self._lost, self._unheard, self._late = draws.random(), draws.random(), draws.random(), draws.random()
        self._twice, self._broken, self._kept = draws.random(), draws.random(), draws.random() < 0.5
        self._sync_s, self._late_s, self._again_s = (draws.uniform(*range_s) for range_s in (SYNC_S, LATE_S, AGAIN_S))
        self._trap = service.trap_of(process)
        assert service.program is not None
        self._program = service.program
        self._ours, self._theirs = process.machine, service.program.machine
        self.answer: asyncio.Future[T | Unavailable] = service.network.loop.create_future()

    def send(self) -> None:
        faults, network = self._service.faults, self._network
        if self._trap is not None and not self._trap.after:
            network.loop.after(0.0, self._trap.spring)
        elif self._lost < faults.lost:
            self._counts["F1"] += 1
        elif self._late < faults.late:
            self._counts["F4"] += 1
            network.loop.after(self._late_s, network.carry, self._ours, self._theirs, self._land)
        else:
            network.carry(self._ours, self._theirs, self._land)

    def fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(_NoAnswer(why))

    def _back(self, result: T | Unavailable) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def _land(self) -> None:
        running = self._program.running
        if running is not None and not running.dead:
            self._network.loop.later(running, self._sync_s, self._serve)
        elif self._theirs.up:
            self._tell(lambda: self._back(Unavailable("NotReached", "nobody listens", 0.5)))

    def _tell(self, deliver: Callable[[], None]) -> None:
        self._network.carry(self._theirs, self._ours, deliver)

    def _serve(self) -> None:
        faults, counts = self._service.faults, self._counts
        result: T | Unavailable
        if self._writes and (faults.full or self._refused < faults.unavailable):
            counts["F13" if faults.full else "unavailable"] += 1
            result = Unavailable("DiskFull" if faults.full else "Refused", f"{self._call} was refused", 0.5)
        elif self._broken < faults.broken:
            counts["F13"] += 1
            if self._kept and self._writes:
                self._effect()  # what was not synced may be there all the same
            self._tell(lambda: self.fail("I/O error"))
            return
        else:
            result = self._effect()
            if isinstance(result, Fenced | Superseded | Contended):
                self._service.refused(f"Store{type(result).__name__}")
            if self._writes and self._twice < faults.twice:
                self._network.loop.after(self._again_s, self._again)
        if self._trap is not None:
            self._trap.spring()  # it was done, and whoever asked for it never learns
        elif self._unheard < faults.unheard:
            counts["F10"] += self._call == "commit" and isinstance(result, Committed)
        else:
            self._tell(lambda: self._back(result))

    def _again(self) -> None:
        """A copy of the request, whose answer nobody waits for."""
        if self._program.alive:
            self._counts["F2"] += 1
            self._effect()
