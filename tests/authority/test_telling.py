"""Searches through a plane's history: one at a time, however long the one who asked is willing to wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.authority import telling
from fairlead.authority.telling import Telling
from fairlead.client.resources import Unreachable
from fairlead.ports import Tasks
from fairlead.store import export
from tests.authority.planes import running_plane


class Slow:
    """In the place of a search: each waits until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._go = threading.Semaphore(0)

    def __call__(self, *_: Any) -> list[Any]:
        with self._lock:
            self.begun += 1
            self._now += 1
            self.most = max(self.most, self._now)
        self._go.acquire(timeout=30)
        with self._lock:
            self._now -= 1
        return []

    def let_go(self, count: int = 1) -> None:
        self._go.release(count)

    async def wait_begun(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.begun < count:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def telling_of(tmp_path: Path) -> AsyncIterator[tuple[Telling, Tasks]]:
    async with running_plane(archive=tmp_path / "history") as plane, Tasks() as tasks:
        yield plane.authority.telling, tasks


async def given_up(work: Any) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await work


async def test_a_search_that_nobody_waits_for_any_more_still_keeps_the_next_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    monkeypatch.setattr(Telling, "_steps", slow)
    async with telling_of(tmp_path) as (told, tasks):
        await given_up(told.steps("risk", "api", 0))
        second = tasks.start(told.steps("risk", "api", 0), "second")
        await asyncio.sleep(0.05)
        assert slow.begun == 1
        slow.let_go(2)
        assert await second == []
        assert (slow.begun, slow.most) == (2, 1)


async def test_who_would_wait_behind_many_is_told_so_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(Telling, "_steps", slow)
    async with telling_of(tmp_path) as (told, tasks):
        asked = [tasks.start(told.steps("risk", "api", 0), f"{n}") for n in range(telling.WAITING_MAX + 1)]
        await slow.wait_begun(1)
        with pytest.raises(Unreachable):
            await told.steps("risk", "api", 0)
        slow.let_go(len(asked))
        for one in asked:
            await one
        assert slow.most == 1
        slow.let_go()
        assert await told.steps("risk", "api", 0) == []


async def test_a_file_that_nobody_waits_for_any_more_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    real = export.write_export

    def late(plane: Any, since_ms: int, path: Path, build: str) -> Any:
        slow()
        return real(plane, since_ms, path, build)

    monkeypatch.setattr(telling, "write_export", late)
    async with telling_of(tmp_path) as (told, _):
        await given_up(told.exported(0, "", 0))
        await slow.wait_begun(1)
        slow.let_go(2)
        _, size, piece = await told.exported(0, "", 0)  # begins when the first has ended
        assert len(piece) == size
        assert list(tmp_path.glob("export-*")) == []
