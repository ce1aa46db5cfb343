"""Whatever one part of a server raises ends neither the server nor the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.compose.plane import PlaneServer
from fairlead.scheduler.cycle import Cycle, Run
from tests.authority.planes import FakeClock
from tests.scheduler.running import rig


async def test_a_part_that_fails_begins_again_later_each_time_until_it_ends() -> None:
    began, pauses = 0, list[float]()

    class Clock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    class Failing:
        async def run(self) -> None:
            nonlocal began
            began += 1
            if began < 5:
                raise ZeroDivisionError(f"attempt {began}")

        def stop(self) -> None: ...

    server: Any = SimpleNamespace(_clock=Clock(), config=SimpleNamespace(name="server-0"))
    await PlaneServer._keep(server, Failing())
    assert (began, len(pauses)) == (5, 4)
    assert pauses == sorted(pauses)
    assert pauses[0] > 0


async def test_a_scheduler_that_raises_starts_over_and_its_lease_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        scheduler = await r.schedule()
        real = Cycle.decide_run
        raised: list[Run] = []

        def decide_run(self: Cycle, run: Run) -> None:
            if not raised:
                raised.append(run)
                raise ZeroDivisionError("a planted mistake")
            real(self, run)

        monkeypatch.setattr(Cycle, "decide_run", decide_run)
        await r.bound(await r.ask("api"))
        assert scheduler.meters.restarts_total == 1
        assert "a planted mistake" in scheduler.health().last_error
