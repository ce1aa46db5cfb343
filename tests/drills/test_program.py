"""On which platform a drill is run: the one that runs, or one that is started for it alone and goes with it. Processes are fakes
here; a real one is in tests/platform/test_drills.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.compose.layout import VERSION, Layout
from fairlead.drills import program
from fairlead.drills.evidence import kept
from fairlead.drills.program import Drills
from fairlead.main import archived_batches
from fairlead.ports import SystemClock, SystemIds

NAME = "watch-loss"


class World:
    """Where platforms run, and what was started, stopped and drilled; the drill ends as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, running: Path | None = None, end: BaseException | None = None) -> None:
        self.running, self.end = {running}, end
        self.started: list[Path] = []
        self.stopped: list[Path] = []
        self.drilled: list[tuple[Path, bool]] = []  # where, and whether it had been written and was running
        monkeypatch.setattr(program, "Local", self._local)
        monkeypatch.setattr(program, "Running", self._drilling)

    def _local(self, layout: Layout, clock: object) -> Any:
        async def start() -> None:
            self.started.append(layout.state)
            self.running.add(layout.state)

        async def stop_all() -> None:
            self.stopped.append(layout.state)
            self.running.discard(layout.state)

        processes = SimpleNamespace(running=lambda: ["global"] if layout.state in self.running else [], stop_all=stop_all)
        return SimpleNamespace(processes=processes, start=start)

    def _drilling(self, layout: Layout, *_: object) -> Any:
        async def run(drill: object) -> dict[str, Any]:
            self.drilled.append((layout.state, layout.is_ready and layout.state in self.running))
            if self.end is not None:
                raise self.end
            return {"passed": True}

        return SimpleNamespace(run=run)


async def drilled(state: Path) -> dict[str, Any]:
    return await Drills(SystemClock(), SystemIds(), archived_batches).run(NAME, str(state), lambda text: None)


def there(state: Path) -> Path:
    """A platform that was started here once."""
    state.mkdir()
    (state / "ready").write_bytes(VERSION)
    return state.resolve()


@pytest.mark.parametrize("made", [False, True], ids=["there never was one", "one that does not run"])
async def test_where_no_platform_runs_one_is_started_for_the_drill_alone_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    state = there(tmp_path / "state") if made else tmp_path / "state"
    world = World(monkeypatch)
    result = await drilled(state)
    assert result["params"] == {"drill": NAME, "platform": "throwaway"}
    ((where, ran),) = world.drilled
    assert ran, "it was written and started before"
    assert world.started == world.stopped == [where]
    assert where != state
    assert not where.parent.exists(), "nothing is left of it"
    assert [run["params"]["platform"] for run in kept(state, NAME)] == ["throwaway"], "the result is"


@pytest.mark.parametrize("end", [RuntimeError("it broke"), ValueError("not well"), asyncio.CancelledError()])
async def test_a_platform_that_was_started_for_a_drill_goes_however_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    world = World(monkeypatch, end=end)
    with pytest.raises(type(end)):
        await drilled(tmp_path / "state")
    ((where, _),) = world.drilled
    assert world.stopped == [where]
    assert not where.parent.exists()
    assert kept(tmp_path / "state", NAME) == []


async def test_a_platform_that_runs_is_drilled_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = there(tmp_path / "state")
    world = World(monkeypatch, running=state)
    assert (await drilled(state))["params"]["platform"] == "running"
    assert world.drilled == [(state, True)]
    assert (world.started, world.stopped) == ([], [])
