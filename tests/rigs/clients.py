"""The kill rig's client process: many connections, each a client that sends, logs and, after a break, finds out what happened.

`python -m tests.rigs.clients --socket PATH --folder PATH --clients N --seed S`; ends when its standard input is closed. A broken
connection leaves every command of the call unknown. An unknown one is settled by its receipt, by sending the same id again, or is
left for the verifier to look up, as a client that died would leave it. Tells the rig how far it is through a few mapped bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import random
import struct
import sys
from pathlib import Path

import uvloop

from fairlead.ports import Tasks
from tests.rigs.frames import Answer, Broken, Connection, pack
from tests.rigs.stories import ClientLog, How, Line, now_ns
from tests.rigs.traffic import NODES, Planned, Slots, Traffic, furniture

BULK_MAX = 6  # commands in one call
HEARTBEAT_S = 3.0
PAUSE_S = 0.05  # after a refusal that says "not now"
NOT_NOW = frozenset({"NotLeader", "Overloaded", "StoreUnavailable"})  # nothing happened now; an earlier sending may have


class Progress:
    """Accepted commands, and commands in flight, as the rig sees them from outside."""

    SIZE = 16

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self.SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.SIZE)

    def read(self) -> tuple[int, int]:
        accepted, in_flight = struct.unpack("QQ", self._map[:])
        return accepted, in_flight

    def add(self, accepted: int, in_flight: int) -> None:
        before = self.read()
        self._map[:] = struct.pack("QQ", before[0] + accepted, before[1] + in_flight)


class Client:
    def __init__(self, number: int, socket: str, folder: Path, slots: Slots, seed: int, progress: Progress) -> None:
        self._socket = socket
        self._log = ClientLog(folder / f"client-{number}.log")
        self._traffic = Traffic(number, slots, random.Random(f"traffic {seed} {number}"))
        self._rng = random.Random(f"resolve {seed} {number}")
        self._progress = progress
        self._connection: Connection | None = None
        self._heard = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._perform(self._traffic.plan(1 + self._rng.randrange(BULK_MAX)))
        self._log.close()
        if self._connection is not None:
            self._connection.close()

    async def _connected(self) -> Connection:
        """To a server that leads and has heard of all nodes."""
        loop = asyncio.get_running_loop()
        while self._connection is None or loop.time() - self._heard > HEARTBEAT_S:
            if self._connection is None:
                self._connection = await Connection.open_leader(self._socket)
            try:
                heard = await self._connection.heartbeat(NODES)
                if heard.kind == "accepted":
                    self._heard = loop.time()
                else:
                    await self._not_now()
            except Broken:
                self._drop()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _not_now(self) -> None:
        await asyncio.sleep(PAUSE_S)
        if self._connection is not None:
            try:
                await self._connection.wait_leading()
            except Broken:
                self._drop()

    async def _perform(self, bulk: list[Planned]) -> None:
        connection = await self._connected()
        for planned in bulk:
            sent = Line(planned.id, "sent", now_ns(), planned.what, planned.expects, planned.actor, planned.key)
            self._log.write(sent)
        self._progress.add(0, len(bulk))
        try:
            answers = await connection.submit([planned.raw for planned in bulk])
        except Broken:
            self._drop()
            answers = [Answer("unknown") for _ in bulk]
        self._progress.add(0, -len(bulk))
        unknown = []
        for planned, answer in zip(bulk, answers, strict=True):
            if answer.kind == "unknown":
                self._log.write(Line(planned.id, "unknown", now_ns()))
                unknown.append(planned)
            else:
                self._settle(planned, answer, "answer")
        for planned in unknown:
            await self._resolve(planned)
        if any(answer.reason in NOT_NOW for answer in answers):
            await self._not_now()

    def _settle(self, planned: Planned, answer: Answer, how: How) -> None:
        if answer.kind == "accepted":
            line = Line(
                planned.id, "accepted", now_ns(), how=how, revision=answer.revision, uid=answer.uid, replayed=answer.replayed
            )
            self._progress.add(1, 0)
        else:
            line = Line(planned.id, "refused", now_ns(), how=how, reason=answer.reason)
        self._log.write(line)
        planned.done(answer)

    async def _resolve(self, planned: Planned) -> None:
        way = self._rng.choice(("receipt", "resend", "leave"))
        if planned.key and way == "leave":
            self._log.write(Line(planned.id, "left", now_ns()))
            planned.done(None)
            return
        while True:
            connection = await self._connected()
            try:
                if planned.key and way == "receipt":
                    found = await connection.receipt(planned.actor, planned.key)
                    if found is not None:
                        self._settle(planned, found, "receipt")
                        return
                # No receipt is no proof of absence: the server asked may not lead any more. Its verdict on the same id is.
                (answer,) = await connection.submit([planned.raw])
            except Broken:
                self._drop()
                continue
            if answer.kind != "unknown" and answer.reason not in NOT_NOW:
                self._settle(planned, answer, "resend")
                return
            await self._not_now()


async def furnish(socket: str, folder: Path, tenants: list[str]) -> None:
    log = ClientLog(folder / "client-setup.log")
    connection = await Connection.open_leader(socket)
    for name, command in furniture(tenants):
        log.write(Line(name, "sent", now_ns(), "setup", "accepted"))
        (answer,) = await connection.submit([pack(command)])
        assert answer.kind == "accepted", answer
        log.write(Line(name, "accepted", now_ns(), revision=answer.revision, uid=answer.uid))
    log.close()
    connection.close()


async def run(socket: str, folder: Path, clients: int, seed: int) -> None:
    slots = [Slots(f"t{n}") for n in range((clients + 1) // 2)]
    progress = Progress(folder / "progress")
    await furnish(socket, folder, [each.tenant for each in slots])
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    async with Tasks() as tasks:
        for number in range(clients):
            client = Client(number, socket, folder, slots[number // 2], seed, progress)
            tasks.start(client.run(stop), f"client-{number}")
    loop.remove_reader(sys.stdin.fileno())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    uvloop.run(run(args.socket, args.folder, args.clients, args.seed))


if __name__ == "__main__":
    main()
