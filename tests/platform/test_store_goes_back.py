"""A real server whose database is put back to an earlier copy while it is down, as by a failover to a replica that was behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import aiohttp
import pytest

from fairlead.model.ids import split_revision
from tests.platform.fleets import GROUP, Fleet, Pki, call, good

TENANTS = f"{GROUP}/tenants"


async def write(session: aiohttp.ClientSession, fleet: Fleet, name: str) -> tuple[int, int]:
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name}}
    made = good(await call(session, "POST", fleet.addresses["a"] + TENANTS, body))
    return split_revision(int(made["metadata"]["resourceVersion"]))


def put(database: Path, copy: Path) -> None:
    """With its log: a server that was killed has not written that back."""
    for ending in ("", "-wal", "-shm"):
        Path(f"{copy}{ending}").unlink(missing_ok=True)
        if Path(f"{database}{ending}").exists():
            shutil.copy(f"{database}{ending}", f"{copy}{ending}")


@pytest.mark.parametrize("remembers", [True, False], ids=["with what it remembers", "without"])
async def test_a_server_misses_what_its_database_lost_while_it_was_down(tmp_path: Path, remembers: bool) -> None:
    database, copy = tmp_path / "plane.db", tmp_path / "behind.db"
    fleet = Fleet(tmp_path / "global", Pki(tmp_path / "pki"), f"sqlite://{database}", names="a")
    server = fleet.servers["a"]
    try:
        async with fleet.pki.session() as session:
            await fleet.start(session)
            await write(session, fleet, "kept")
            server.kill()
            put(database, copy)
            await fleet.start(session)
            assert await write(session, fleet, "lost") > (1, 0)
            server.kill()
            put(copy, database)
            if not remembers:
                (tmp_path / "global" / "a" / "seen").unlink()
            await fleet.start(session)
            incarnation, _ = await write(session, fleet, "after")
            assert incarnation == (2 if remembers else 1), server.said()
            assert ("lost history while this server was down" in server.said()) == remembers
            found = good(await call(session, "GET", fleet.addresses["a"] + TENANTS))
            names = {each["metadata"]["name"] for each in found["items"]}
            assert {"kept", "after"} <= names
            assert "lost" not in names
    finally:
        fleet.end()
