"""What a server that does not lead does with what it is sent while nobody else leads either."""

from __future__ import annotations

import random

import pytest

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.client.channel import Channel
from fairlead.compose import forwarding
from fairlead.compose.forwarding import ForwardingPlane
from fairlead.model.commands import Command, Put
from fairlead.model.kinds.intent import Tenant
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, no, ok

WRITE = Command(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="risk"))))


def server() -> tuple[Authority, ForwardingPlane]:
    timing = Timing(lease_ttl_s=30.0, poll_s=0.02)
    authority = Authority(MemoryStore(MemoryDisk()), SystemClock(), SystemIds(), Settings(region="local"), timing=timing)

    async def nobody(address: str) -> Channel:
        raise ConnectionRefusedError(address)

    return authority, ForwardingPlane(authority, SystemClock(), nobody, random.Random(1), "https://here")


async def test_a_write_is_held_until_somebody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "LEADERLESS_S", 60.0 if forwarding.LEADERLESS_S else 0.0)
    authority, plane = server()
    async with Tasks() as tasks:
        writing = tasks.start(plane.submit([WRITE]), "write")  # before there is anybody who could take it
        running = tasks.start(authority.run(), "authority")
        ok((await writing)[0])
        authority.stop()
        await running


async def test_and_refused_with_a_time_to_come_again_when_nobody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "LEADERLESS_S", 0.1)
    _, plane = server()
    refused = no((await plane.submit([WRITE]))[0], "NotLeader")
    assert refused.retry_after_s
    assert await plane.submit([]) == []
