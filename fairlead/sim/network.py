"""Owns the simulated network: links between machines, connections over them, and what a program learns when either fails.

A connection carries frames in order in each direction, as TCP does: what a link holds back arrives when it is open again, a reset
loses what was under way, and an end that is gone without a word is noticed by whoever pings. Implements the channel of
fairlead/client/channel.py; the production code above it is unchanged. Breaks nothing by itself: chaos.py says what and when.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fairlead.client.channel import Closed
from fairlead.sim.loop import SimLoop
from fairlead.sim.machines import Machine, Machines, Running

CONNECT_S: Final = 5.0  # fairlead/client/dial.py's
PING_S: Final = (10.0, 15.0)  # a dialler pings every ten seconds and gives up five seconds later
KEEPALIVE_S: Final = 60.0  # how long an acceptor believes in an end that says nothing
RETRANSMIT_S: Final = (0.2, 1.0)  # what a lost packet costs
SPREAD: Final = 2.0  # between what a link takes at least and at most, where it is well
UNCLOG_S: Final = 0.2  # at most between two connections, when a clogged link gives what it held

_FIN: Final = object()

Accept = Callable[["End", Any], Coroutine[Any, Any, None]]  # an end and what the dialler said of itself


class Strike:
    """What was done to some links or programs, counted once: when it first shows, as when anything is sent over one of them.
    Where nobody speaks nothing happens."""

    __slots__ = ("_counts", "_name")

    def __init__(self, counts: Counter[str], name: str) -> None:
        self._counts = counts
        self._name = name

    def shows(self) -> None:
        if self._name:
            self._counts[self._name] += 1
            self._name = ""


class Link:
    """One direction between two machines."""

    __slots__ = ("blocked", "blocks", "clogged", "cut", "held", "high_s", "loss", "low_s", "newest", "slowed", "used")

    def __init__(self, low_s: float, high_s: float) -> None:
        self.low_s = low_s
        self.high_s = high_s
        self.loss = 0.0
        self.blocked = False
        self.clogged = False  # holds everything for a while, too short for anybody to miss a ping
        self.blocks = 0  # how often it was blocked, so that a later check knows whether it is the same time
        self.held: list[tuple[Pipe, Any, int]] = []
        self.newest = 0  # number of the newest frame that arrived over it
        self.used = False  # something was sent over it
        self.cut: Strike | None = None  # that blocked it
        self.slowed: Strike | None = None  # that made it slow


class Pipe:
    """One direction of one connection: first in, first out."""

    __slots__ = ("_last", "_network", "end", "link")

    def __init__(self, network: Network, link: Link) -> None:
        self._network = network
        self.link = link
        self.end: End | None = None
        self._last = 0.0

    def send(self, item: Any, number: int = 0) -> None:
        network = self._network
        if not number:
            network.frames += 1
            number = network.frames
        self.link.used = True
        if self.link.blocked or self.link.clogged:
            if self.link.blocked and self.link.cut is not None:
                self.link.cut.shows()
            self.link.held.append((self, item, number))
            return
        loop = network.loop
        at = max(self._last, loop.now + network.delay(self.link))
        self._last = at
        loop.after(at - loop.now, self._arrive, item, number)

    def not_before(self, at: float) -> None:
        self._last = max(self._last, at)

    def _arrive(self, item: Any, number: int) -> None:
        if number < self.link.newest:
            self._network.machines.counts["F3"] += 1  # something that was sent later, on another connection, is there already
        self.link.newest = max(self.link.newest, number)
        assert self.end is not None
        self.end.arrive(item)


class End:
    """One end of a connection: a Channel."""

    __slots__ = ("_broken", "_inbox", "_network", "_out", "_waiter", "dialled", "peer", "process")

    def __init__(self, network: Network, process: Running, out: Pipe, dialled: bool) -> None:
        self._network = network
        self.process = process
        self._out = out
        self.dialled = dialled
        self.peer: End | None = None
        self._inbox: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._broken = ""
        network.ends.setdefault(process, {})[self] = None

    async def send(self, frame: Any) -> None:
        if self._broken:
            raise Closed(self._broken)
        self._out.send(frame)

    async def receive(self) -> Any:
        while not self._inbox:
            if self._broken:
                raise Closed(self._broken)
            self._waiter = self._network.loop.create_future()
            await self._waiter
        return self._inbox.popleft()

    async def close(self) -> None:
        self.hang_up("closed at this end")

    def hang_up(self, why: str) -> None:
        """Ends it here, and tells the other side what can be told over the link."""
        if not self._broken:
            self.broke(why)
            self._out.send(_FIN)

    def arrive(self, item: Any) -> None:
        if self.process.dead:
            if self.process.machine.up and item is not _FIN:
                self._out.send(_FIN)  # nobody here has this connection: a reset
            return
        if self._broken:
            return
        if item is _FIN:
            self.broke("closed by the other side")
            return
        self._inbox.append(item)
        self._wake()

    def broke(self, why: str, *, loses: bool = False) -> None:
        if loses:
            self._inbox.clear()
        self._broken = why
        self._network.ends.get(self.process, {}).pop(self, None)
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Network:
    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.loop: SimLoop = machines.loop
        self.frames = 0
        self.ends: dict[Running, dict[End, None]] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._loss = 0.0
        self._listeners: dict[tuple[str, str], tuple[Running, Accept]] = {}
        self._draws = self.loop.stream("network")
        machines.on_death.append(self._died)
        machines.on_pause.append(self._paused)

    # --- links -------------------------------------------------------------------------------------------------------------

    def link(self, source: Machine, target: Machine) -> Link:
        found = self._links.get((source.name, target.name))
        if found is None:
            # Within a machine next to nothing; within a region a fraction of a millisecond; between regions tens of them.
            near = source.name == target.name
            same = source.name.partition("/")[0] == target.name.partition("/")[0]
            low_s = 0.00002 if near else 0.0002 if same else 0.01 + 0.03 * self._draws.random()
            found = self._links[source.name, target.name] = Link(low_s, low_s * SPREAD)
            found.loss = 0.0 if near else self._loss
        return found

    def lose(self, chance: float) -> None:
        """From now on so many packets are lost between machines, also over links that are yet to be used."""
        self._loss = chance
        for (source, target), link in self._links.items():
            link.loss = chance if source != target else 0.0

    def used(self) -> dict[tuple[str, str], Link]:
        """Those between machines over which something was sent: a fault of any other shows nowhere."""
        return {ends: link for ends, link in self._links.items() if link.used and ends[0] != ends[1]}

    def links(self) -> dict[tuple[str, str], Link]:
        return self._links

    def delay(self, link: Link) -> float:
        spread, lost, again = self._draws.random(), self._draws.random(), self._draws.random()
        if link.slowed is not None:
            link.slowed.shows()
        delay_s = link.low_s + (link.high_s - link.low_s) * spread
        if lost < link.loss:
            self.machines.counts["F1"] += 1
            delay_s += RETRANSMIT_S[0] + (RETRANSMIT_S[1] - RETRANSMIT_S[0]) * again
        return delay_s

    def cut(self, pairs: Sequence[tuple[Machine, Machine]]) -> Callable[[], None]:
        """Until what is returned is called (F5, where anybody had something to say)."""
        strike = Strike(self.machines.counts, "F5")
        for source, target in pairs:
            self.block(source, target, strike)

        def rejoin() -> None:
            for source, target in pairs:
                self.unblock(source, target)

        return rejoin

    def slow(self, links: Sequence[Link], high_s: float) -> Callable[[], None]:
        """Until what is returned is called, they take up to so long (F4, where anything was sent)."""
        strike = Strike(self.machines.counts, "F4")
        for link in links:
            link.high_s, link.slowed = high_s, strike

        def quicken() -> None:
            for link in links:
                link.high_s, link.slowed = link.low_s * SPREAD, None

        return quicken

    def block(self, source: Machine, target: Machine, strike: Strike | None = None) -> None:
        link = self.link(source, target)
        if source.name == target.name or link.blocked:
            return
        link.blocked, link.cut = True, strike
        link.blocks += 1
        self.loop.after(self._draws.uniform(*PING_S), self._pings_lost, link, link.blocks)

    def unblock(self, source: Machine, target: Machine) -> None:
        link = self.link(source, target)
        if link.blocked:
            link.blocked, link.cut = False, None
            held, link.held = link.held, []  # where it is clogged still, they are held again
            for pipe, item, number in held:
                pipe.send(item, number)

    def clog(self, source: Machine, target: Machine) -> bool:
        link = self.link(source, target)
        if source.name == target.name or link.clogged or link.blocked:
            return False
        link.clogged = True
        return True

    def unclog(self, source: Machine, target: Machine) -> None:
        """Each connection gives what it held in its order; which of them is first is drawn (F6)."""
        link = self.link(source, target)
        if not link.clogged:
            return
        link.clogged = False
        if link.blocked:
            return  # cut meanwhile: that holds the rest
        held, link.held = link.held, []
        self.machines.counts["F6"] += bool(held)
        ranks = {pipe: self._draws.random() for pipe in {pipe: None for pipe, _, _ in held}}
        at = self.loop.now
        for pipe in sorted(ranks, key=lambda pipe: ranks[pipe]):
            at += UNCLOG_S * ranks[pipe]
            pipe.not_before(at)
        for pipe, item, number in held:
            pipe.send(item, number)

    def carry(self, source: Machine, target: Machine, deliver: Callable[[], None]) -> None:
        """One message outside any connection (a connection request, a call to a store)."""
        _Once(self, self.link(source, target), deliver).send(None)

    # --- connections -------------------------------------------------------------------------------------------------------

    def listen(self, process: Running, address: str, kind: str, accept: Accept) -> None:
        self._listeners[address, kind] = (process, accept)

    async def dial(self, process: Running, address: str, kind: str, hello: Any, target: Machine) -> End:
        """Raises ConnectionRefusedError, or Closed when nobody answers in time."""
        got: asyncio.Future[End] = self.loop.create_future()

        def asked() -> None:
            running, accept = self._listeners.get((address, kind), (None, None))
            if running is None or running.dead or accept is None:
                if target.up:
                    self.carry(target, process.machine, refused)
                return
            there, back = self._connect(process, running)
            self.loop.spawn(running, accept(back, hello), f"serve {kind} from {process.name}")
            self.carry(target, process.machine, lambda: answered(there))

        def refused() -> None:
            if not got.done():
                got.set_exception(ConnectionRefusedError(f"nobody listens at {address}"))

        def answered(end: End) -> None:
            if got.done() or process.dead:
                end.hang_up("its dialler had given up")
            else:
                got.set_result(end)

        self.carry(process.machine, target, asked)
        try:
            async with asyncio.timeout(CONNECT_S):
                return await got
        except TimeoutError as error:
            raise Closed(f"{address}: no answer in {CONNECT_S} s") from error

    def _connect(self, dialler: Running, acceptor: Running) -> tuple[End, End]:
        out = Pipe(self, self.link(dialler.machine, acceptor.machine))
        back = Pipe(self, self.link(acceptor.machine, dialler.machine))
        there, here = End(self, dialler, out, True), End(self, acceptor, back, False)
        there.peer, here.peer = here, there
        out.end, back.end = here, there
        return there, here

    def reset(self, end: End) -> None:
        """What was under way is lost, and both sides learn it."""
        self.machines.counts["F1"] += 1
        for one in (end, end.peer):
            if one is not None:
                one.broke("connection reset", loses=True)

    def all_ends(self) -> list[End]:
        return [end for ends in self.ends.values() for end in ends if end.dialled]

    # --- ends that are gone ------------------------------------------------------------------------------------------------

    def _died(self, process: Running, silent: bool) -> None:
        for end in list(self.ends.get(process, {})):
            peer = end.peer
            if silent:
                end.broke("its machine is gone")
                if peer is not None:
                    after_s = self._draws.uniform(*PING_S) if peer.dialled else KEEPALIVE_S
                    self.loop.after(after_s, peer.hang_up, "the other side says nothing")
            else:
                end.hang_up("its process is gone")
        self.ends.pop(process, None)
        self._listeners = {at: (who, accept) for at, (who, accept) in self._listeners.items() if who is not process}

    def _paused(self, process: Running) -> None:
        for end in list(self.ends.get(process, {})):
            if end.peer is not None and end.peer.dialled:
                self.loop.after(self._draws.uniform(*PING_S), self._unanswered, process, end.peer)

    @staticmethod
    def _unanswered(process: Running, end: End) -> None:
        if process.paused:
            end.hang_up("pings are not answered")

    def _pings_lost(self, link: Link, blocks: int) -> None:
        if not link.blocked or link.blocks != blocks:
            return
        for end in self.all_ends():
            if end.peer is not None and (end._out.link is link or end.peer._out.link is link):
                end.hang_up("pings are not answered")


class _Once(Pipe):
    """A pipe for one message."""

    __slots__ = ("_deliver",)

    def __init__(self, network: Network, link: Link, deliver: Callable[[], None]) -> None:
        super().__init__(network, link)
        self._deliver = deliver

    def _arrive(self, item: Any, number: int) -> None:
        self._deliver()
