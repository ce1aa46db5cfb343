"""Faults for the in-memory store, switched by hand: what the next call of a kind shall meet."""

from __future__ import annotations

import asyncio

from fairlead.store.contract import Unavailable
from fairlead.store.memory import Fault, InFlight, LandLater, LoseAnswer, Refuse

DISK_FULL = Refuse(Unavailable("DiskFull", "the disk is full; free some space", 0.01))


class HandFaults:
    def __init__(self) -> None:
        self.next: dict[str, list[Fault]] = {}
        self.always: dict[str, Fault] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.held: list[InFlight] = []
        self.calls: dict[str, int] = {}
        self.waiting: dict[str, int] = {}

    def once(self, call: str, *faults: Fault) -> None:
        self.next.setdefault(call, []).extend(faults)

    def hold(self, call: str) -> asyncio.Event:
        """Calls of this kind wait until the event is set."""
        self.gates[call] = asyncio.Event()
        return self.gates[call]

    async def wait_held(self, call: str) -> None:
        while not self.waiting.get(call):
            await asyncio.sleep(0)

    async def before(self, call: str) -> Fault | None:
        self.calls[call] = self.calls.get(call, 0) + 1
        gate = self.gates.get(call)
        if gate is not None:
            self.waiting[call] = self.waiting.get(call, 0) + 1
            await gate.wait()
            self.waiting[call] -= 1
        queue = self.next.get(call)
        return queue.pop(0) if queue else self.always.get(call)

    async def after(self, call: str) -> None:
        return None

    def in_flight(self, write: InFlight) -> None:
        self.held.append(write)

    def batches_hidden(self) -> int:
        return 0


LOSE_ANSWER = LoseAnswer()
LAND_LATER = LandLater()
