"""The network of the local platform: a TCP relay for every link between its processes, so that a link can be cut or broken as a
real one is. Also holds the locks by which a SQLite store is stopped, renews certificates in time and empties long logs: it is the
one process that is there as long as the platform, whoever stands by.

A program of its own (`python -m fairlead.compose.links FILE [STATE]`); told what is wrong by a file and SIGHUP, says in another
what is in force. Never looks inside the bytes, loses none and makes none up. Started by local.py, told by chaos.py; nothing of it
runs in production.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from fairlead.ports import Tasks
from fairlead.security.files import write_private
from fairlead.wire import json_codec

CHUNK_BYTES: Final = 64 << 10
# Who holds this byte of a store's -shm file is its writer (sqlite.org/walformat.html, WAL_WRITE_LOCK).
WAL_WRITE_LOCK: Final = 120

T = TypeVar("T")
Direction = Literal["both", "forward", "back"]  # forward: from the process that dials to the plane


class Link(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str  # `us-east>global`: who dials, and whom
    listen: str
    target: str


class LinksConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    links: tuple[Link, ...]
    faults: str  # the file that says what is wrong
    in_force: str  # the file that says what of it is in force


class Faults(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    number: int = 0  # grows with every change
    cuts: dict[str, Direction] = {}  # by link
    breaks: dict[str, int] = {}  # by link: how often its connections were closed, in all
    locks: dict[str, str] = {}  # by plane: the file of its store


class InForce(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    number: int = -1
    cuts: dict[str, Direction] = {}
    locks: tuple[str, ...] = ()  # planes whose store is held
    closed: int = 0  # connections that the last change closed
    refused: str = ""  # why not all that was asked for is in force


class _Gate:
    """Bytes in one direction of one link pass while it is open."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def set(self, passes: bool) -> None:
        if passes:
            self._open.set()
        else:
            self._open.clear()

    async def wait(self) -> None:
        await self._open.wait()


class Relay:
    """One link. While a direction is cut its bytes wait where the sender put them, as those of TCP do when packets are lost; not
    even the end of a connection passes. Nothing is ever missing from the middle of a stream."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._gates = {"forward": _Gate(), "back": _Gate()}
        self._flows: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        host, _, port = self.link.listen.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host, int(port))

    def cut(self, direction: Direction | None) -> None:
        for name, gate in self._gates.items():
            gate.set(direction not in (name, "both"))

    def break_all(self) -> int:
        """Closes what is open now; how many that were."""
        flows = list(self._flows.items())
        for writer, task in flows:
            writer.transport.abort()
            if task is not None:
                task.cancel()
        return len(flows)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._flows[writer] = asyncio.current_task()
        there: asyncio.StreamWriter | None = None
        try:
            for gate in self._gates.values():  # a connection needs both directions to come about
                await gate.wait()
            host, _, port = self.link.target.rpartition(":")
            back, there = await asyncio.open_connection(host, int(port))
            async with Tasks() as tasks:
                tasks.start(self._pump(reader, there, "forward", writer), "forward")
                tasks.start(self._pump(back, writer, "back", there), "back")
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens there, and the dialler sees its connection end; or it was broken on purpose
        finally:
            self._flows.pop(writer, None)
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str, sender: asyncio.StreamWriter
    ) -> None:
        """What the sender says, to the writer. Whoever is gone, the other learns it only over a direction that is open."""
        try:
            while True:
                try:
                    data = await reader.read(CHUNK_BYTES)
                except OSError:
                    data = b""
                await self._gates[way].wait()  # what was read when the link was cut waits here, and so does the word of an end
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            await self._gates["back" if way == "forward" else "forward"].wait()
            sender.transport.abort()


class Locks:
    """Holds the write lock of SQLite stores: their planes can read and not commit. A lock ends with this process at last."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def set(self, wanted: dict[str, str]) -> str:
        """Takes and gives back; what went wrong, if anything did."""
        for plane in set(self._held) - set(wanted):
            os.close(self._held.pop(plane))
        wrong = []
        for plane, path in wanted.items():
            if plane not in self._held:
                try:
                    self._held[plane] = _lock(Path(f"{path}-shm"))
                except OSError as error:
                    wrong.append(f"the store of {plane} is not held: {error.strerror or error}")
        return "; ".join(wrong)

    @property
    def planes(self) -> tuple[str, ...]:
        return tuple(sorted(self._held))


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, WAL_WRITE_LOCK)  # waits for the commit that is under way
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Links:
    def __init__(self, config: LinksConfig) -> None:
        self._config = config
        self._relays = {link.name: Relay(link) for link in config.links}
        self._locks = Locks()
        self._breaks: dict[str, int] = {}

    async def listen(self) -> None:
        """Raises OSError where a port is taken."""
        for relay in self._relays.values():
            await relay.start()

    async def run(self, stop: asyncio.Event, changed: asyncio.Event) -> None:
        while not stop.is_set():
            self._apply()
            await changed.wait()
            changed.clear()

    def _apply(self) -> None:
        faults = read_faults(Path(self._config.faults))
        closed = 0
        for name, relay in self._relays.items():
            relay.cut(faults.cuts.get(name))
            if faults.breaks.get(name, 0) > self._breaks.get(name, 0):
                closed += relay.break_all()
        self._breaks = faults.breaks
        refused = self._locks.set(faults.locks)
        said = InForce(faults.number, faults.cuts, self._locks.planes, closed, refused)
        write_private(Path(self._config.in_force), json_codec.encode(said))


def read_faults(path: Path) -> Faults:
    return _read(path, Faults) or Faults()


def read_in_force(path: Path) -> InForce:
    return _read(path, InForce) or InForce()


def _read(path: Path, wanted: type[T]) -> T | None:
    try:
        found = json_codec.decode(path.read_bytes(), wanted)
    except FileNotFoundError:
        return None
    if isinstance(found, tuple):
        raise ValueError(f"{path}: {found[0].path}: {found[0].message}")
    return found


async def main(path: Path, state: Path | None) -> None:
    """`state`: where the platform is whose certificates are renewed and whose logs are emptied here."""
    config = _read(path, LinksConfig)
    assert config is not None, f"{path} is missing"
    stop, changed = asyncio.Event(), asyncio.Event()

    def end() -> None:
        stop.set()
        changed.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, changed.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    links = Links(config)
    await links.listen()
    async with Tasks() as tasks:
        if state is not None:
            _keep_house(state, tasks)
        await links.run(stop, changed)
        tasks.cancel()


def _keep_house(state: Path, tasks: Tasks) -> None:
    from fairlead.compose.layout import Layout  # Here, not above: it knows of links itself, and nobody waits for what this takes.
    from fairlead.compose.long_logs import LongLogs
    from fairlead.compose.renewing import Renewing
    from fairlead.ports import SystemClock

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    layout, clock = Layout(state, sys.executable), SystemClock()
    tasks.start(Renewing(layout, clock).run(say), "renewing")
    tasks.start(LongLogs(layout.path("logs"), clock).run(say), "long logs")


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
    except OSError as error:
        sys.exit(f"error: {error.strerror or error}")
