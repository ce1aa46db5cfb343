"""Owns the simulated store: a MemoryDisk behind a process of its own, over the simulated network, with an engine's faults.

The engine's guards are fairlead/store/memory.py's, so what is trusted here is what the contract suite and the differential test
hold against SQLite, PostgreSQL and etcd. Never breaks by itself: `StoreFaults` says how often, and chaos.py stops its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

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
    OutcomeUnknown,
    StoreUnreachable,
    Superseded,
    Unavailable,
)
from fairlead.store.memory import MemoryDisk, MemoryStore

RPC_S: Final = 2.0
SYNC_S: Final = (0.0005, 0.003)

T = TypeVar("T")


class StoreFaults(msgspec.Struct):
    """Chances per call. Changed by chaos.py; all zero when healed."""

    unavailable: float = 0.0  # refused for sure
    lost: float = 0.0  # the request never arrives
    unheard: float = 0.0  # it takes effect, and its answer is lost (F10)
    late: float = 0.0  # it arrives after its sender has given up
    stale: float = 0.0  # a tail does not show the newest batches (F12)
    full: bool = False  # no room on its disk (F13)


class RecordedDisk(MemoryDisk):
    """Tells every batch that became durable, in order, and when a tail of them was lost."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: Callable[[Batch], None] = lambda batch: None
        self.tail_lost: Callable[[int], None] = lambda position: None

    def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        result = super().commit(fence, batch)
        if isinstance(result, Committed):
            self.committed(batch)
        return result

    def lose_tail(self, count: int, *, fence_too: bool = False) -> int:
        lost = super().lose_tail(count, fence_too=fence_too)
        if lost:
            self.tail_lost(self.head.position)
        return lost


class StoreService:
    """The engine's side: a program whose process must run for anything to land."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.network = network
        self.disk = RecordedDisk()
        self.faults = StoreFaults()
        self.draws: Draws = network.loop.stream(f"store {name}")
        self.program: Program | None = None
        self.holds: list[asyncio.Future[None]] = []
        self.refused: Callable[[str], None] = lambda name: None  # told what its guards turned down
        self.in_doubt: dict[bytes, tuple[float, Running]] = {}  # commits nobody knows the outcome of: since when, whose


class _NoAnswer(Exception):
    pass


class SimStore(MemoryStore):
    """One process's connection to it."""

    def __init__(self, service: StoreService, process: Running) -> None:
        super().__init__(service.disk)
        self._service = service
        self._process = process
        self.calls = 0

    async def tail(self, after: int, limit_bytes: int = 4 << 20) -> Any:
        draws = self._service.draws
        chance, hidden = draws.random(), draws.randrange(1, 4)
        if chance >= self._service.faults.stale:
            hidden = 0
        else:
            self._service.network.machines.counts["F12"] += 1
        return await self._read("tail", lambda: self._disk.tail(after, limit_bytes, hidden))

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
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
        except _NoAnswer:
            return OutcomeUnknown(f"{call}: no answer in {RPC_S} s")

    async def _read(self, call: str, effect: Callable[[], T]) -> T:
        try:
            result = await self._call(call, effect, writes=False)
        except _NoAnswer:
            raise StoreUnreachable(f"{call}: no answer in {RPC_S} s", 0.2) from None
        if isinstance(result, Unavailable):
            raise StoreUnreachable(f"{call}: {result.detail}", result.retry_after_s)
        return result

    async def _call(self, call: str, effect: Callable[[], T], writes: bool) -> T | Unavailable:
        """Every value is drawn before anything is decided, so that one fault does not move the draws behind it."""
        service, network = self._service, self._service.network
        self.calls += 1
        draws, faults, counts = service.draws, service.faults, network.machines.counts
        refused, lost, unheard, late = draws.random(), draws.random(), draws.random(), draws.random()
        sync_s, late_s = draws.uniform(*SYNC_S), draws.uniform(RPC_S, 3 * RPC_S)
        answer: asyncio.Future[T | Unavailable] = network.loop.create_future()
        program = service.program
        assert program is not None
        ours, theirs = self._process.machine, program.machine

        def back(result: T | Unavailable) -> None:
            if not answer.done():
                answer.set_result(result)

        def expire() -> None:
            if not answer.done():
                answer.set_exception(_NoAnswer())

        def serve() -> None:
            result: T | Unavailable
            if writes and (faults.full or refused < faults.unavailable):
                counts["F13" if faults.full else "unavailable"] += 1
                result = Unavailable("DiskFull" if faults.full else "Refused", f"{call} was refused", 0.5)
            else:
                result = effect()
                if isinstance(result, Fenced | Superseded | Contended):
                    service.refused(f"Store{type(result).__name__}")
            if unheard < faults.unheard:
                counts["F10"] += writes
            else:
                network.carry(theirs, ours, lambda: back(result))

        def land() -> None:
            running = program.running
            if running is None or running.dead:
                if theirs.up:
                    network.carry(theirs, ours, lambda: back(Unavailable("NotReached", "nobody listens", 0.5)))
                return
            network.loop.later(running, sync_s, serve)

        if lost < faults.lost:
            counts["F1"] += 1
        elif late < faults.late:
            counts["F4"] += 1
            network.loop.after(late_s, network.carry, ours, theirs, land)
        else:
            network.carry(ours, theirs, land)
        expiry = network.loop.call_later(RPC_S, expire)
        try:
            return await answer
        finally:
            expiry.cancel()
