"""Owns a program that only looks: it follows a plane from afar, whoever leads, and hands what it was told to a checker (S15).

Lists nothing and writes nothing. Started by world.py, one for each plane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fairlead.client.plane import Expired
from fairlead.client.remote import RemotePlane
from fairlead.decide.access import Identity
from fairlead.decide.access_roles import FRONT_DOOR
from fairlead.model.ids import split_revision
from fairlead.observe.feeds import FeedChecker
from fairlead.ports import Tasks
from fairlead.sim.loop import sleep
from fairlead.sim.machines import Running
from fairlead.sim.outside import SimDialling
from fairlead.sim.platform import CountedPlane, Plane, Platform

FOLLOWED: Final = ("bindings", "workloads", "assignments")


def follower(platform: Platform, plane: Plane, checker: FeedChecker) -> Callable[[Running], Awaitable[Any]]:
    async def main(running: Running) -> None:
        who = Identity(name="auditor", kind="component", roles=(FRONT_DOOR,))
        dialling = SimDialling(platform.network, running, who, platform.names)
        random = platform.loop.stream(f"random {running.name}")
        remote = CountedPlane(
            platform.machines.counts, plane.addresses, dialling.dial, platform.machines.clock(running), random, "auditor"
        )
        async with Tasks() as tasks:
            tasks.start(remote.run(), "plane")
            while True:
                await remote.wait_connected()
                await _follow(remote, checker)
                await sleep(0.5)

    return main


async def _follow(remote: RemotePlane, checker: FeedChecker) -> None:
    revision = remote.revision()
    feed = remote.follow(checker.plurals, revision)
    try:
        while True:
            await feed.wait()
            before = feed.revision
            changes = feed.take_nowait()
            incarnation, upto = split_revision(feed.revision)
            if incarnation != split_revision(before)[0]:
                return  # another history: positions of the two do not compare
            checker.told(split_revision(before)[1], changes, upto)
    except Expired:
        return
    finally:
        feed.close()
