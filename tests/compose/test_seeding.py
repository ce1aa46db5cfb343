"""What a plane is born with: made once, waited for while the plane takes nothing, and refused where it stays wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.authority.local import LocalPlane
from fairlead.compose import seeding
from fairlead.compose.config import PlaneConfig
from fairlead.compose.plane import PlaneServer
from fairlead.compose.seeding import BadSeed, SeedPutOff, seed
from fairlead.model.commands import Command, Outcome, Refused, Unknown
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore

BINDING = """apiVersion: fairlead.dev/v1alpha1
kind: AccessBinding
metadata: {name: admin}
spec: {role: admin, subjects: [{name: admin}], tenants: ['*']}
"""
FULL = Refused("StoreUnavailable", "StoreLimit: it holds as much as it may", retry_after_s=60.0)


class Answering:
    """A plane that answers everything alike."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        return [self._outcome for _ in commands]


def folder_with(folder: Path) -> Path:
    folder.mkdir()
    (folder / "10.yaml").write_text(BINDING)
    return folder


@pytest.mark.parametrize(
    ("outcome", "wait_s"),
    [
        (Refused("NotLeader", "another leads"), 1.0),
        (Refused("Overloaded", "much waits", retry_after_s=3.0), 3.0),
        (Refused("StoreUnavailable", "no answer"), 1.0),
        (FULL, 30.0),
        (Refused("BeingDeleted", "wait"), 1.0),
        (Unknown("nobody can say"), 1.0),
    ],
)
async def test_what_passes_is_put_off_for_as_long_as_the_plane_says_within_bounds(
    outcome: Outcome, wait_s: float, tmp_path: Path
) -> None:
    plane: Any = Answering(outcome)
    with pytest.raises(SeedPutOff, match="AccessBinding admin") as raised:
        await seed(plane, folder_with(tmp_path / "seed"), "global")
    assert raised.value.retry_after_s == wait_s


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden", "TooLarge", "NotFound", "JudgeFailed"])
async def test_what_stays_wrong_is_told_with_its_place(reason: str, tmp_path: Path) -> None:
    plane: Any = Answering(Refused(reason, "so it is"))
    with pytest.raises(BadSeed, match=r"10\.yaml: AccessBinding admin: so it is"):
        await seed(plane, folder_with(tmp_path / "seed"), "global")


async def led(tmp_path: Path, answer: Callable[[], Outcome | None], script: Callable[[PlaneServer], Awaitable[None]]) -> None:
    """A server whose seed is answered so; None: as its authority would."""
    config = PlaneConfig(plane="global", store="memory:", data=str(tmp_path / "d"), seed=str(folder_with(tmp_path / "seed")))
    server = PlaneServer(config, MemoryStore(MemoryDisk()), SystemClock(), SystemIds(), random.Random(1))
    submit = server.authority.submit

    async def submitted(commands: list[Command]) -> list[Outcome]:
        outcome = answer() if any(command.caller == seeding.SEEDER for command in commands) else None
        return await submit(commands) if outcome is None else [outcome for _ in commands]

    server.authority.submit = submitted  # type: ignore[method-assign]
    async with Tasks() as tasks, asyncio.timeout(60):
        running = tasks.start(server.run(), "server")
        await script(server)
        server.stop()
        await running


def seed_check(server: PlaneServer) -> bool:
    return next(passed for name, passed, _ in server.readiness() if name == "seed")


async def test_a_leader_whose_store_takes_nothing_for_a_moment_goes_on_and_seeds_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding, "RETRY_MAX_S", 0.05)
    answers: list[Outcome] = [FULL, Unknown("in flight"), Refused("NotLeader", "not yet"), FULL]
    may_go_on = asyncio.Event()

    def answer() -> Outcome | None:
        if len(answers) > 1:
            return answers.pop(0)
        return None if may_go_on.is_set() else answers[0]

    async def script(server: PlaneServer) -> None:
        while len(answers) > 1:
            await asyncio.sleep(0.01)
        assert server.components, "parts work meanwhile: it is they who make room in a full store"
        assert not seed_check(server)
        may_go_on.set()
        while not seed_check(server):
            await asyncio.sleep(0.01)
        assert await LocalPlane(server.authority, SystemClock()).get("accessbindings", "", "admin") is not None

    await led(tmp_path, answer, script)


async def test_a_seed_that_stays_wrong_ends_its_server(tmp_path: Path) -> None:
    async def script(server: PlaneServer) -> None:
        await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as raised:
        await led(tmp_path, lambda: Refused("Invalid", "so it is"), script)
    assert raised.group_contains(BadSeed)


async def test_who_is_about_to_lead_is_not_ready_before_it_has_seeded(tmp_path: Path) -> None:
    """Its first batch names it as the leader before it takes questions: nobody else will seed."""
    may_go_on = asyncio.Event()

    async def script(server: PlaneServer) -> None:
        await server.authority.wait_leading()
        server.authority._leading.clear()
        assert server.authority.leader_address == server.address
        assert not seed_check(server)
        server.authority._leading.set()
        may_go_on.set()

    await led(tmp_path, lambda: None if may_go_on.is_set() else FULL, script)
