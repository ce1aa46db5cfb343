"""`fairlead drill`, from a name to a result: on the platform that runs, or on one that is started for it and goes with it.

Owns the life of such a platform, Ctrl-C, and where the result is kept. Called by main.py for the command line.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fairlead.compose.layout import Layout
from fairlead.compose.local import Local
from fairlead.drills.catalogue import DRILLS
from fairlead.drills.evidence import keep, kept
from fairlead.drills.running import Archived, Running
from fairlead.drills.schedule import Last, due, read
from fairlead.observe.build import build
from fairlead.ports import Clock, Ids

NODE_LEASE_S: Final = 15.0  # as `fairlead up` has it

Say = Callable[[str], None]


class Drills:
    """All that the command line needs of drills."""

    def __init__(self, clock: Clock, ids: Ids, archived: Archived) -> None:
        self._clock = clock
        self._ids = ids
        self._archived = archived

    def known(self, state: str) -> list[dict[str, Any]]:
        """Every drill, with how its last run on this state went."""
        out = []
        for name, drill in DRILLS.items():
            runs = kept(Path(state), name)
            last = {"time": runs[-1].get("time", ""), "passed": runs[-1]["results"].get("passed")} if runs else None
            out.append({"name": name, "does": drill.does, "expects": list(drill.expects), "about_s": drill.about_s, "last": last})
        return out

    def due(self, schedule: str, state: str) -> list[str]:
        """Names of the drills that the schedule asks for now. Raises ValueError for a file that is no schedule."""
        every, last = read(Path(schedule)), dict[str, Last]()
        for name in every:
            runs = kept(Path(state), name)
            if runs:
                last[name] = Last(_time_s(runs[-1].get("time")), bool(runs[-1]["results"].get("passed")))
        return due(every, last, self._clock.wall())

    async def run(self, name: str, state: str, say: Say) -> dict[str, Any]:
        """One object for --json, kept under the state directory. Raises LookupError for a name that no drill has, ValueError
        where it cannot be run."""
        if name not in DRILLS:
            raise LookupError(f"there is no drill {name}; there are {', '.join(DRILLS)}")
        drill, began_s = DRILLS[name](), self._clock.wall()
        say(f"{name}: {drill.does}")
        with _put_back_on_signals(say):
            async with self._platform(Path(state), say) as (layout, throwaway):
                load = os.getloadavg()[0]
                results = await Running(layout, self._clock, self._ids, self._archived, say).run(drill)
        result = {
            "name": "drill",
            "params": {"drill": name, "platform": "throwaway" if throwaway else "running"},
            "environment": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "load": round(load, 2),
                "build": build(),
            },
            "results": results,
        }
        say(f"kept in {keep(Path(state), name, began_s, result)}")
        return result

    @asynccontextmanager
    async def _platform(self, state: Path, say: Say) -> AsyncIterator[tuple[Layout, bool]]:
        layout = Layout(state.resolve(), sys.executable)
        if layout.is_ready and Local(layout, self._clock).processes.running():
            yield layout, False
            return
        folder = Path(tempfile.mkdtemp(prefix="fairlead-drill-"))
        layout = Layout(folder / "state", sys.executable)
        local = Local(layout, self._clock)
        say("no platform runs here: starting one for this drill alone")
        try:
            layout.write(datetime.fromtimestamp(self._clock.wall(), tz=UTC), self._ids, {}, NODE_LEASE_S)
            await local.start()
            yield layout, True
        finally:
            await local.processes.stop_all()
            shutil.rmtree(folder, ignore_errors=True)


def _time_s(text: object) -> float:
    """0 where it cannot be read: long ago."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


class _put_back_on_signals:
    """The first Ctrl-C ends the drill, which then puts everything back; another changes nothing."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told = False

    def __enter__(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            self._say("interrupted: putting everything back")
            if not self._told:
                self._told = True
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
