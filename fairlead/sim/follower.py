"""Owns a program that only looks: it follows a plane from afar, whoever leads, and hands what it was told to a checker (S15).

When a feed ends it goes on where that one was, as a watch does that is resumed. Lists nothing and writes nothing. Started by
world.py, one for each plane.
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


class _Greeted(CountedPlane):
    """Hands on what each server that it connects to says of how far it is: a client itself keeps the newest it ever heard."""

    def __init__(self, greeted: Callable[[int], None], *rest: Any) -> None:
        super().__init__(*rest)
        self._greeted = greeted

    def _note(self, revision: int, plane_ms: int) -> None:
        self._greeted(revision)
        super()._note(revision, plane_ms)


def follower(platform: Platform, plane: Plane, checker: FeedChecker) -> Callable[[Running], Awaitable[Any]]:
    async def main(running: Running) -> None:
        who = Identity(name="auditor", kind="component", roles=(FRONT_DOOR,))
        dialling = SimDialling(platform.network, running, who, platform.names)
        random = platform.loop.stream(f"random {running.name}")
        remote = _Greeted(
            checker.begins,
            platform.machines.counts,
            plane.addresses,
            dialling.dial,
            platform.machines.clock(running),
            random,
            "auditor",
        )
        async with Tasks() as tasks:
            tasks.start(remote.run(), "plane")
            last = 0
            while True:
                await remote.wait_connected()
                last = await _follow(remote, checker, last)
                await sleep(0.5)

    return main


async def _follow(remote: RemotePlane, checker: FeedChecker, last: int) -> int:
    """On from `last`, or from where the plane is; nought: it cannot go on from there. Where the next one can go on."""
    now = remote.revision()
    feed = remote.follow(checker.plurals, begins_at(last, now))
    last = 0
    try:
        while True:
            await feed.wait()
            before = feed.revision
            changes = feed.take_nowait()
            after = feed.revision
            if split_revision(after)[0] != split_revision(before)[0]:
                return 0  # another history: positions of the two do not compare
            checker.told(before, changes, after)
            last = after
    except Expired:
        return last  # of one that ended at once it is nought: what it wanted is not remembered any more
    finally:
        feed.close()


def begins_at(last: int, now: int) -> int:
    """Within one history a follower goes on where it was."""
    return last if last and split_revision(last)[0] == split_revision(now)[0] else now
