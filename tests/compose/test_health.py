"""What /readyz says of a plane that nobody can write to."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette

from fairlead.compose.health import health_routes, writing
from tests.api.doors import Door, call


class Checked:
    def __init__(self, *checks: tuple[str, bool, str]) -> None:
        self._checks = checks

    def readiness(self) -> Sequence[tuple[str, bool, str]]:
        return self._checks


async def told(*checks: tuple[str, bool, str]) -> tuple[int, str]:
    door = Door({}, {}, Starlette(routes=list(health_routes(Checked(*checks)))))
    got = await call(door, "GET", "/readyz?verbose")
    return got.status, got.body.decode()


async def test_a_plane_that_is_written_to_says_so() -> None:
    assert await told(writing(None, 0.0)) == (200, "[+]writes are taken\nready\n")


async def test_a_plane_that_nobody_can_write_to_says_since_when_and_a_silent_store_makes_its_server_unready() -> None:
    line = "[-]writes nobody can write since 2026-01-01T00:00:00Z: the store does not answer or takes nothing\n"
    check = writing(30.0, 1767225630.0)
    assert await told(check) == (200, f"{line}ready\n"), "it answers, and whoever reads is not sent away"
    assert await told(("store", False, "silent"), check) == (503, f"[-]store silent\n{line}not ready: store\n")
