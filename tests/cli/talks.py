"""Runs the command line against a server with a clock that nobody waits for. Called by the tests beside it."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlead.cli.frame import World
from fairlead.ports import SystemClock
from tests.cli.runs import Ran, fairlead, world


class Quick(SystemClock):
    """Time passes at once when somebody waits for it."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_s

    def wall(self) -> float:
        return 1_800_000_000.0 + self.passed_s

    async def sleep(self, seconds: float) -> None:
        self.passed_s += seconds
        await asyncio.sleep(0)


def quick() -> World:
    return world()._replace(clock=Quick)


def talk(*arguments: object) -> Ran:
    return fairlead(*arguments, within=quick())


def talk_until(said: str, *arguments: object) -> Ran:
    """With a short --timeout; where a busy machine has not said that much within it, again with a longer one."""
    for limit in ("0.2s", "5s", "60s"):
        ran = talk(*arguments, "--timeout", limit)
        if said in ran.out + ran.err:
            break
    return ran


def workload(count: int = 3, **status: Any) -> dict[str, Any]:
    return {"spec": {"replicas": count, "workloadClass": "critical"}, "status": status or {"replicas": {"desired": count}}}
