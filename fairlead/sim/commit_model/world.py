"""Owns one seed's world: a store, three servers, clients, and the one who breaks them. Ends healed; keeps the history.

Never checks anything (checker.py does). Called by `run_seed`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from fairlead.sim import loop as sim
from fairlead.sim.commit_model.checker import Violation, check, tally
from fairlead.sim.commit_model.history import GaveUp, History, Sent, Told
from fairlead.sim.commit_model.host import Host
from fairlead.sim.commit_model.records import (
    RHO,
    TTL_S,
    Accepted,
    Answer,
    Command,
    Mutant,
    NotLeader,
    ReadResult,
    Refused,
    Request,
    Unknown,
)
from fairlead.sim.commit_model.server import Server
from fairlead.sim.commit_model.store import ModelStore, StoreFaults
from fairlead.sim.loop import Draws, SimLoop, sleep

SERVERS = 3
CLIENTS = 4
SLOTS = ("a", "b", "c")  # Few, so that commands meet.
ROUGH_S = 12.0  # How long faults last.
CALM_S = 8.0  # How long the healed world has to acknowledge something: several leases.
CLIENT_LIMIT_S = 0.6
ATTEMPTS_MAX = 6


Profile = Literal["general", "leases", "strays"]


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong in one seed, and how often."""

    store: StoreFaults
    request_lost: float
    request_late: float
    request_duplicated: float
    pause_every_s: float
    kill_share: float


def draw_faults(swarm: Draws, profile: Profile) -> Faults:
    """Each seed has its own mix, some faults off: one that is always on hides what another would show."""

    def rate(most: float) -> float:
        share, on = swarm.random(), swarm.random()
        return share * most if on < 0.7 else 0.0

    store = StoreFaults(rate(0.05), rate(0.25), rate(0.15), rate(0.2), rate(0.7), rate(0.3))
    faults = Faults(store, rate(0.05), rate(0.2), rate(0.2), swarm.uniform(0.5, 4.0), rate(0.5))
    if profile == "leases":
        # Leaders live and commit while their renewals get lost, so that the only question is who may still answer.
        leases = StoreFaults(0.0, rate(0.1), 0.0, 0.0, swarm.uniform(0.6, 0.9), 0.9)
        return Faults(leases, 0.0, 0.0, 0.0, 1000.0, 0.0)
    if profile == "strays":
        # The same with commits refused and requests astray: a late copy finds the new leader after the old one said no.
        strays = StoreFaults(0.0, 0.0, 0.0, swarm.uniform(0.4, 0.7), swarm.uniform(0.8, 0.95), 0.0)
        return Faults(strays, 0.0, swarm.uniform(0.4, 0.7), 0.0, 1000.0, 0.0)
    return faults


class World:
    def __init__(self, loop: SimLoop, mutant: Mutant | None, group: asyncio.TaskGroup, profile: Profile) -> None:
        self._faults = draw_faults(loop.stream("swarm"), profile)
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.store = ModelStore(loop, self._faults.store, mutant, self.history.events.append)
        self._loop = loop
        self._group = group
        self._mutant = mutant
        self._network = loop.stream("network")
        self._chaos = loop.stream("chaos")
        self._lives = 0
        self._healed = False
        self._background: list[asyncio.Task[None]] = []
        self.servers = [self._start_server(index) for index in range(SERVERS)]

    def _start_server(self, index: int) -> Server:
        self._lives += 1
        host = Host(self._loop, self._chaos.uniform(1 - RHO, 1 + RHO))
        server = Server(f"s{index}.{self._lives}", host, self.store, self._mutant, self.counts)
        self._background.append(self._group.create_task(server.run(), name=server.name))
        return server

    # Breaking things.

    async def break_things(self) -> None:
        while True:
            await sleep(self._chaos.expovariate(1 / self._faults.pause_every_s))
            at_leader, index, fate = self._chaos.random(), self._chaos.randrange(SERVERS), self._chaos.random()
            down_s = self._chaos.uniform(0.2, 3.0) * TTL_S
            leading = [i for i, server in enumerate(self.servers) if server.term is not None]
            if leading and at_leader < 0.7:
                index = leading[0]
            if fate < self._faults.kill_share:
                self.counts["kills"] += 1
                self.servers[index].host.kill()
                await sleep(down_s / 3)
                self.servers[index] = self._start_server(index)
            else:
                self.counts["pauses"] += 1
                host = self.servers[index].host
                host.pause()
                self._loop.call_later(down_s, host.resume)

    def heal(self) -> None:
        self._healed = True
        self.store.healthy = True
        for server in self.servers:
            server.host.resume()

    # Clients, and the network between them and the servers.

    async def client(self, name: str) -> None:
        """Sends one command after the other until the faults stop; then one that must be acknowledged."""
        draws = self._loop.stream(f"client {name}")
        number = 0
        while not self._healed:
            number += 1
            kind, slot, think_s = draws.random(), draws.choice(SLOTS), draws.uniform(0.0, 0.1)
            command = Command(f"{name}-{number}", _kind(kind), slot)
            await self._settle(command)
            await sleep(think_s)

    async def _settle(self, command: Command, attempts: int = ATTEMPTS_MAX) -> Answer:
        """Asks with one id until a definite answer comes, at whichever server seems to lead."""
        self._note(Sent(command))
        index, epoch = self._network.randrange(SERVERS), 0
        for _ in range(attempts):
            answer = await self._ask(index, Request(command, epoch))
            match answer:
                case Accepted() | Refused() | ReadResult():
                    self._note(Told(command, answer))
                    return answer
                case NotLeader(int() as there):
                    epoch = there
                    continue
                case NotLeader() | Unknown():
                    index = (index + self._network.randrange(1, SERVERS)) % SERVERS
            await sleep(self._network.uniform(0.01, 0.3))
        self._note(GaveUp(command))
        return Unknown()

    async def _ask(self, index: int, request: Request) -> Answer:
        reply: asyncio.Future[Answer] = self._loop.create_future()
        lost, late, twice = self._network.random(), self._network.random(), self._network.random()
        quick, slow, second = (self._network.uniform(*span) for span in ((0.001, 0.01), (0.1, 2.0), (0.001, 2.0)))
        faults = self._faults
        if self._healed or lost >= faults.request_lost:
            delay_s = slow if late < faults.request_late and not self._healed else quick
            self._loop.call_later(delay_s, self._arrive, index, request, reply)
        if twice < faults.request_duplicated and not self._healed:
            self.counts["duplicated"] += 1
            self._loop.call_later(second, self._arrive, index, request, reply)
        try:
            async with asyncio.timeout(CLIENT_LIMIT_S):
                return await reply
        except TimeoutError:
            return Unknown()

    def _arrive(self, index: int, request: Request, reply: asyncio.Future[Answer]) -> None:
        self._background.append(self._group.create_task(self._serve(self.servers[index], request, reply)))

    async def _serve(self, server: Server, request: Request, reply: asyncio.Future[Answer]) -> None:
        answer = await server.ask(request)
        await sleep(0.002)
        if not reply.done():
            reply.set_result(answer)

    def _note(self, event: Sent | Told | GaveUp) -> None:
        self.history.events.append(event)
        self._loop.note(repr(event))

    # The whole of one run.

    async def live(self) -> None:
        chaos = self._group.create_task(self.break_things(), name="chaos")
        clients = [self._group.create_task(self.client(f"c{number}"), name=f"c{number}") for number in range(CLIENTS)]
        await sleep(ROUGH_S)
        chaos.cancel()
        self.heal()
        await asyncio.gather(*clients)
        self.history.healed = await self._last_command()
        self.history.journal = list(self.store.journal)
        for task in self._background:
            task.cancel()

    async def _last_command(self) -> bool:
        deadline_s = self._loop.time() + CALM_S
        number = 0
        while self._loop.time() < deadline_s:
            number += 1
            answer = await self._settle(Command(f"last-{number}", "claim", f"last-{number}"))
            if isinstance(answer, Accepted):
                return True
        return False


def _kind(draw: float) -> Literal["claim", "release", "read"]:
    return "claim" if draw < 0.45 else "release" if draw < 0.8 else "read"


@dataclass(frozen=True, slots=True)
class SeedResult:
    seed: int
    violations: tuple[Violation, ...]
    counts: Counter[str]
    steps: int
    simulated_s: float
    trace: str


def run_seed(seed: int, mutant: Mutant | None = None, profile: Profile = "general") -> SeedResult:
    """One world from its seed to its verdict."""

    async def main(loop: SimLoop) -> World:
        async with asyncio.TaskGroup() as group:
            world = World(loop, mutant, group, profile)
            await world.live()
        return world

    outcome = sim.run(main, seed)
    world = outcome.value
    history = world.history
    counts = world.counts + world.store.counts + tally(history)
    hashes = {batch.hash for batch in history.journal}
    counts["batches"] = len(history.journal)
    counts["unknown_batches_committed"] = len(world.store.unknown & hashes)
    counts["unknown_batches_absent"] = len(world.store.unknown - hashes)
    violations = tuple(check(history))
    return SeedResult(seed, violations, counts, outcome.steps, outcome.simulated_s, outcome.trace)
