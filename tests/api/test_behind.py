"""A server whose memory is behind its leader: what it was told is done, it must not tell as refused."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.authority.local import LocalPlane
from tests.api.doors import GROUP, call, open_door, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"


async def test_what_was_made_and_is_not_seen_here_yet_is_answered_as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by `fairlead sim run --profile leaders`: a create that was accepted was answered with 409 (S13)."""

    async def unseen(self: LocalPlane, plural: str, tenant: str, name: str, revision: int = 0) -> Any:
        return None

    async with open_door() as door:
        monkeypatch.setattr(LocalPlane, "get", unseen)
        got = await call(door, "POST", WORKLOADS, workload("api"))
        monkeypatch.undo()
        assert got.status == 201
        assert got.json["metadata"]["name"] == "api"
        there = await call(door, "GET", f"{WORKLOADS}/api")
        assert there.json["metadata"]["uid"] == got.json["metadata"]["uid"]
