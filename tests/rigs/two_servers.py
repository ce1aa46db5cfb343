"""Two servers on one store, and writers that talk to one of them: what the paused-leader tests are made of.

Owns the server processes and stops, resumes and kills them; keeps each writer's story as the kill rig's clients do, so that the
same verifier judges both. Nothing here is random. Called by test_paused_leader.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import apsw

from fairlead.model.commands import Caller, Command, IdempotencyKey, Put
from fairlead.model.lifecycle import Role
from tests.rigs.clients import NOT_NOW
from tests.rigs.frames import Answer, Broken, Connection, pack
from tests.rigs.kill_rig import python
from tests.rigs.stories import How, Line, Story, fold, now_ns
from tests.rigs.traffic import workload

TTL_S = 2.0
POLL_S = 0.05  # how often a standby looks, in plane_server.py
WAIT_S = 60.0  # nothing here takes this long; on a machine with two busy cores some of it takes seconds


class Server:
    """One server process."""

    def __init__(self, name: str, address: str, folder: Path, mutant: str) -> None:
        self.name = name
        self.socket = str(folder / f"{name}.sock")
        self.log = folder / f"{name}.txt"
        words = ("--store", address, "--socket", self.socket, "--name", name, "--ttl", str(TTL_S))
        self._process: subprocess.Popen[bytes] = python("tests.rigs.plane_server", *words, mutant=mutant, log=self.log)

    async def connect(self) -> Connection:
        """Whether it leads or not."""
        async with asyncio.timeout(WAIT_S):
            while True:
                assert self._process.poll() is None, self.log.read_text()[-2000:]
                try:
                    return await Connection.open(self.socket)
                except OSError:
                    await asyncio.sleep(0.02)

    async def wait_leading(self) -> float:
        """Returns the moment, on the monotonic clock."""
        connection = await self.connect()
        async with asyncio.timeout(WAIT_S):
            await connection.wait_leading()
        connection.close()
        return time.monotonic()

    def pause(self) -> float:
        """SIGSTOP, and back only when every thread stands still: one inside an fsync goes on until that returns."""
        stopped = time.monotonic()
        os.kill(self._process.pid, signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        while any(_state(task) != "T" for task in tasks.iterdir()):
            time.sleep(0.001)
        return stopped

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    async def pause_where(self, stands_right: Callable[[], bool]) -> float:
        """Stops it again and again until it stands where the test wants it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                stopped = self.pause()
                if stands_right():
                    return stopped
                self.resume()
                await asyncio.sleep(0.003)

    def kill(self) -> float:
        self._process.kill()
        self._process.wait()
        return time.monotonic()

    async def terminate(self) -> None:
        """Gracefully: it hands leadership over."""
        self._process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self._process.wait, WAIT_S) == 0, self.log.read_text()[-2000:]

    def close(self) -> None:
        self.kill()  # also a stopped one
        assert self._process.stdin is not None
        self._process.stdin.close()


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def write_lock_is_free(path: Path) -> bool:
    """Is nobody inside a transaction of this SQLite file?"""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(0)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


class Servers:
    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.engine = address.partition(":")[0]
        self._folder = folder
        self._started: list[Server] = []

    def start(self, name: str, mutant: str = "") -> Server:
        server = Server(name, self.address, self._folder, mutant)
        self._started.append(server)
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._started:
            server.close()


class Writer:
    """Creates workloads through one connection, one a call, until told to stop or told no."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.lines: list[Line] = []
        self.accepted_names: list[str] = []
        self.progress = asyncio.Event()
        self.unsettled: list[tuple[str, bytes]] = []
        self.last: Answer | None = None
        self._connection = connection
        self._stop = False

    async def run(self) -> None:
        count = 0
        while not self._stop and (self.last is None or self.last.kind == "accepted"):
            count += 1
            await self.write(f"{self.name}-{count}")
        self._connection.close()

    async def write(self, name: str) -> None:
        actor = f"user-{self.name}"
        body = Put("Workload", workload("t0", name, 1), "create")
        raw = pack(Command(Caller(actor, Role.USER), body, IdempotencyKey(name), correlation=name))
        self.lines.append(Line(name, "sent", now_ns(), "create", "accepted", actor, name))
        try:
            (answer,) = await self._connection.submit([raw])
        except Broken:
            answer = Answer("unknown")
        self.last = answer
        if answer.kind == "unknown":
            self.lines.append(Line(name, "unknown", now_ns()))
            self.unsettled.append((name, raw))
        else:
            self._settle(name, answer, again=False)
        self.progress.set()

    def _settle(self, name: str, answer: Answer, again: bool) -> None:
        how: How = "resend" if again else "answer"
        if answer.kind == "accepted":
            self.accepted_names.append(name)
            told = (answer.revision, answer.uid, answer.replayed)
            self.lines.append(Line(name, "accepted", now_ns(), "", "", "", "", how, *told))
        else:
            self.lines.append(Line(name, "refused", now_ns(), how=how, reason=answer.reason))

    async def settle_at(self, leader: Connection) -> None:
        """Sends what is unknown again, under the same id, to whoever leads now."""
        for name, raw in self.unsettled:
            (answer,) = await leader.submit([raw])
            assert answer.kind != "unknown"
            assert answer.reason not in NOT_NOW, answer
            self._settle(name, answer, again=True)
        self.unsettled.clear()

    async def wait_accepted(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.accepted_names) < count:
                self.progress.clear()
                await self.progress.wait()

    def stop(self) -> None:
        self._stop = True


@asynccontextmanager
async def writing(server: Server, count: int, prefix: str) -> AsyncIterator[list[Writer]]:
    """Writers at work on one server; leaving the block waits until each has its last answer."""
    writers = [Writer(f"{prefix}{n}", await server.connect()) for n in range(count)]
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run())
        try:
            yield writers
        finally:
            for writer in writers:
                writer.stop()


def stories_of(*groups: list[Writer]) -> dict[str, Story]:
    return fold(line for writers in groups for writer in writers for line in writer.lines)
