"""A plane as a process of its own, for rigs that kill and stop processes: an Authority over one store, served on a unix socket.

`python -m tests.rigs.plane_server --store sqlite:PATH|postgresql://...|etcd://HOST:PORT,.../PREFIX --socket PATH [--ttl S]
[--channel PATH]`; the channel is another socket, on which it serves components (remote_plane.py). SIGTERM stops it gracefully.
It keeps the whole journal, because the rigs' verifiers read history and not only the end.
FAIRLEAD_RIG_MUTANT names a deliberate fault, by which the rigs show that they would see one. Test code, not a product API.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from fairlead.authority.authority import Authority
from fairlead.authority.building import Sealed
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings, placing
from fairlead.authority.pipeline import Pipeline
from fairlead.authority.receipts import Receipts
from fairlead.authority.service import PlaneService
from fairlead.authority.term import Term
from fairlead.authority.truncation import JournalKept
from fairlead.model.commands import Refused
from fairlead.model.ids import revision
from fairlead.model.registry import KINDS
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.contract import Batch, Store
from tests.rigs import remote_plane
from tests.rigs.frames import Answer, Status, answer_of, read_frame, unpack, write_frame

REGION = "local"
SESSION = 1  # of every node in a rig
WHOLE_JOURNAL = JournalKept(keep_s=86_400.0, keep_bytes=1 << 40)


def open_store(address: str) -> Store:
    """Engines are imported when asked for: a restart is part of what the rigs measure."""
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        from fairlead.store.sqlite import SqliteStore

        return SqliteStore(rest)
    if scheme == "postgresql":
        from fairlead.store.postgres import PostgresStore

        return PostgresStore(address)
    if scheme == "etcd":
        from fairlead.store.etcd import EtcdStore

        endpoints, _, prefix = rest.removeprefix("//").partition("/")
        return EtcdStore(endpoints.split(","), f"/{prefix}")
    raise SystemExit(f"{address}: a store is sqlite:PATH, postgresql://... or etcd://HOST:PORT,.../PREFIX")


class PlaneServer:
    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._ops: dict[str, Callable[..., Awaitable[Any]]] = {
            "submit": self._submit,
            "receipt": self._receipt,
            "heartbeat": self._heartbeat,
            "get": self._get,
            "status": self._status,
            "wait_leading": self._wait_leading,
            "wait_deposed": self._wait_deposed,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                op, args = await read_frame(reader)
                write_frame(writer, await self._ops[op](*args))
                await writer.drain()
        writer.transport.abort()

    async def _submit(self, commands: list[bytes]) -> list[Answer]:
        outcomes = await self._authority.submit([unpack(raw) for raw in commands])
        return [answer_of(outcome) for outcome in outcomes]

    async def _receipt(self, actor: str, key: str) -> Answer | None:
        outcome = self._authority.receipt(actor, key)
        return answer_of(outcome) if outcome is not None else None

    async def _heartbeat(self, nodes: list[str]) -> Answer:
        heard = self._authority.heartbeat([(name, SESSION) for name in nodes])
        return answer_of(heard) if isinstance(heard, Refused) else Answer("accepted", epoch=heard.epoch)

    async def _get(self, plural: str, tenant: str, name: str) -> tuple[int, bytes | None] | None:
        view = self._authority.view()
        rec = view.get(plural, tenant, name)
        return (revision(view.revision >> 44, rec.position), rec.raw) if rec is not None else None

    async def _status(self) -> Status:
        fence, state = self._authority.fence, self._authority._state
        counts = {plural: state.count(plural) for plural in KINDS}
        return Status(self._authority.leading, fence.epoch if fence else 0, self._authority.view().revision, counts)

    async def _wait_leading(self) -> bool:
        await self._authority.wait_leading()
        return True

    async def _wait_deposed(self) -> bool:
        """For the paused-leader rig: returns when this process no longer believes that it leads."""
        while self._authority.leading:
            await asyncio.sleep(0.01)
        return True


# --- deliberate faults


def answer_before_commit() -> None:
    """Acknowledges what is not durable yet. The pause stands for a slow disk: it makes the fault likely, not possible."""
    commit = Pipeline._commit

    async def early(self: Pipeline, sealed: Sealed, batch: Batch) -> None:
        sealed.building.answer()
        sealed.building.answers.clear()
        await asyncio.sleep(0.02)
        await commit(self, sealed, batch)

    Pipeline._commit = early  # type: ignore[method-assign]
    Pipeline._commit_on_the_spot = lambda self, sealed: None  # type: ignore[method-assign]


def forget_receipts() -> None:
    """Judges a repeated id anew."""
    find = Receipts.find

    def forgetful(*asked: Any) -> None:
        find(*asked)  # which makes a client known

    Receipts.find = forgetful  # type: ignore[method-assign,assignment]


def trust_for_ever() -> None:
    """Leads on its own word, however long its lease has run out."""
    Term.valid = lambda *_: True  # type: ignore[method-assign]


def sell_twice() -> None:
    """Believes the scheduler: places without looking at the node again."""
    placing.feasible = lambda *_: True  # type: ignore[attr-defined]


MUTANTS = {
    "sells-twice": sell_twice,
    "answers-before-commit": answer_before_commit,
    "forgets-receipts": forget_receipts,
    "trusts-itself-for-ever": trust_for_ever,
}


async def run(address: str, socket: Path, name: str, ttl_s: float, channel: Path | None = None) -> None:
    store = open_store(address)
    timing = Timing(lease_ttl_s=ttl_s, renew_s=ttl_s / 4, poll_s=0.05, journal=WHOLE_JOURNAL)
    authority = Authority(store, SystemClock(), SystemIds(), Settings(region=REGION), name=name, timing=timing)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, authority.stop)
    socket.unlink(missing_ok=True)  # a killed predecessor could not
    servers = [await asyncio.start_unix_server(PlaneServer(authority).serve, str(socket))]
    if channel is not None:
        servers.append(await remote_plane.serve(PlaneService(authority, SystemClock()), channel))
    try:
        async with Tasks() as tasks:
            tasks.start(authority.run(), "authority")
    finally:
        for server in servers:
            server.close()
        socket.unlink(missing_ok=True)
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--socket", required=True, type=Path)
    parser.add_argument("--channel", type=Path)
    parser.add_argument("--name", default="server")
    parser.add_argument("--ttl", type=float, default=10.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    sys.setswitchinterval(0.0005)  # as main.py does: a store thread that waits for the loop holds up every commit
    mutant = os.environ.get("FAIRLEAD_RIG_MUTANT")
    if mutant:
        MUTANTS[mutant]()
    uvloop.run(run(args.store, args.socket, args.name, args.ttl, args.channel))


if __name__ == "__main__":
    main()
