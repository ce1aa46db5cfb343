"""A server that does not lead: whom it sends what it is sent to, and what it does while nobody leads."""

from __future__ import annotations

import asyncio
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


async def test_it_turns_to_whoever_leads_next() -> None:
    disk, dialled = MemoryDisk(), asyncio.Queue[str]()

    def one(address: str, poll_s: float) -> Authority:
        settings, timing = Settings(region="local", address=address), Timing(lease_ttl_s=30.0, poll_s=poll_s)
        return Authority(MemoryStore(disk), SystemClock(), SystemIds(), settings, timing=timing)

    async def dial(address: str) -> Channel:
        dialled.put_nowait(address)
        raise ConnectionRefusedError(address)

    first, next_one = one("https://first", 0.01), one("https://next", 0.01)
    follower = one("https://here", 3600.0)  # which looks only when it is told to, and so never leads
    plane = ForwardingPlane(follower, SystemClock(), dial, random.Random(1), "https://here")

    async def turned_to(address: str) -> None:
        async with asyncio.timeout(30.0):
            while await dialled.get() != address:
                follower.hurry()

    async with Tasks() as tasks:
        leading = tasks.start(first.run(), "first")
        await first.wait_leading()
        tasks.start(follower.run(), "follower")
        tasks.start(plane.run(), "forwarding")
        await turned_to("https://first")
        tasks.start(next_one.run(), "next")
        first.stop()
        await leading
        await next_one.wait_leading()
        follower.hurry()
        await turned_to("https://next")
        tasks.cancel()
