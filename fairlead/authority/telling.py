"""What a plane's history tells from afar: the steps of one workload, and the whole of it as a file, read in pieces.

Reads the archive's files beside the one who writes them, on threads of its own; judges nothing. A file that was asked for lies
beside the archive until it was read to its end, or for ten minutes. Asked by the client interface and by the component channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fairlead.authority.history import History
from fairlead.authority.hub import Expired
from fairlead.authority.judge import Settings
from fairlead.client.resources import Unreachable
from fairlead.observe.build import build
from fairlead.observe.timeline import Step, Timeline
from fairlead.ports import Clock
from fairlead.store.archive import GENESIS, Archive
from fairlead.store.export import Plane, begin_of, write_export

STEPS_MAX: Final = 5_000  # of one answer; the newest
PIECE_BYTES: Final = 256 << 10
KEPT_S: Final = 600.0  # a file that nobody reads on
FILES_MAX: Final = 4  # at once: each may be as large as the history
WAITING_MAX: Final = 8  # for a search to end; whoever comes later is told at once that it would take long

T = TypeVar("T")


class _File(NamedTuple):
    path: Path
    size: int
    until: float


class Telling:
    def __init__(self, settings: Settings, history: History | None, clock: Clock) -> None:
        kept = str(history.directory) if history is not None else ""
        self._plane = Plane(settings.plane, settings.region, settings.node_lease_s, kept)
        self._clock = clock
        self._files: dict[str, _File] = {}
        self._number = 0
        self._waiting = 0
        self._one = asyncio.Lock()  # a search at a time: several must not take the server's CPU from its plane

    async def steps(self, tenant: str, workload: str, since_ms: int) -> list[Step]:
        """The newest last. Looks through everything since then, so a long while takes long."""
        self._check()
        return await self._alone(lambda: self._steps(tenant, workload, since_ms))

    async def _alone(self, work: Callable[[], T]) -> T:
        """On a thread, which nobody can stop: the next one waits until it has really ended, also where its caller has gone."""
        if self._waiting >= WAITING_MAX:
            raise Unreachable("others search this history, and more of them wait")
        self._waiting += 1
        try:
            await self._one.acquire()
        finally:
            self._waiting -= 1
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def _ended(self, running: asyncio.Future[T]) -> None:
        if not running.cancelled():
            running.exception()  # whoever would have asked for it may be gone
        self._one.release()

    def _steps(self, tenant: str, workload: str, since_ms: int) -> list[Step]:
        archive = Archive(Path(self._plane.history), writable=False)
        begin, name = begin_of(archive, since_ms), self._plane.region or self._plane.plane
        told = Timeline(tenant, workload)
        if begin != GENESIS:
            told.begin(name, archive.state_at(begin))
        told.feed(name, archive.batches(begin, archive.last()))
        return [step for step in told.steps() if step.time_ms >= since_ms][-STEPS_MAX:]

    async def exported(self, since_ms: int, token: str, offset: int) -> tuple[str, int, bytes]:
        """(token, size of the file, a piece of it from `offset`). Without a token the file is made first."""
        self._check()
        if not token:
            token = await self._make(since_ms)
        file = self._files.get(token)
        if file is None:
            raise Expired("this file is not kept any more: begin anew", 0)
        piece = await asyncio.to_thread(_piece, file.path, offset)
        if offset + len(piece) >= file.size:
            self._forget(token)
        return token, file.size, piece

    async def _make(self, since_ms: int) -> str:
        self._number += 1
        token = f"{int(self._clock.monotonic() * 1000)}-{self._number}"
        path = Path(self._plane.history).parent / f"export-{self._number}.history"
        wanted = True

        def write() -> None:
            write_export(self._plane, since_ms, path, build())
            if not wanted:
                path.unlink(missing_ok=True)

        try:
            await self._alone(write)
        except BaseException:
            wanted = False
            path.unlink(missing_ok=True)
            raise
        now = self._clock.monotonic()
        for old in [old for old, file in self._files.items() if file.until < now]:
            self._forget(old)
        while len(self._files) >= FILES_MAX:
            self._forget(next(iter(self._files)))
        self._files[token] = _File(path, path.stat().st_size, now + KEPT_S)
        return token

    def _forget(self, token: str) -> None:
        self._files.pop(token).path.unlink(missing_ok=True)

    def _check(self) -> None:
        if not self._plane.history:
            raise Expired("this server keeps no history", 0)


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, offset))
        return file.read(PIECE_BYTES)
