"""Once a minute, the leader of a region has its present state looked over for broken promises (fairlead/observe/patrol.py).

Reads one revision of the plane in slices, writes nothing, mends nothing: a breach is a bug of ours or damage, and people must
know. It is logged with its names, and counted without them. Started by plane.py.
"""

from __future__ import annotations

import logging
from typing import Final

from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Change, Expired
from fairlead.client.resources import Unreachable
from fairlead.observe.patrol import Breach, Patrol, Seen
from fairlead.ports import Clock

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0


class Patrolling:
    """A part of a region's server while it leads. The patrol outlives it: what was told once is not told by every new leader."""

    def __init__(self, plane: LocalPlane, clock: Clock, patrol: Patrol) -> None:
        self._plane = plane
        self._clock = clock
        self._patrol = patrol
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        self._patrol.begin()
        while not self._stopping:
            try:
                await self.round()
            except (Expired, Unreachable) as error:
                log.info("this round is left out: %s", error)
            await self._clock.sleep(EVERY_S)

    async def round(self) -> list[Breach]:
        revision = self._plane.revision()
        rows = [await self._all(plural, revision) for plural in Seen._fields]
        news: list[Breach] = []
        for found in self._patrol.look(Seen(*rows)):
            news += found
            await self._clock.sleep(0)
        for breach in news:
            log.critical("%s is broken at revision %d: %s: %s", breach.invariant, revision, breach.subject, breach.detail)
        return news

    async def _all(self, plural: str, revision: int) -> list[Change]:
        out: list[Change] = []
        after = ("", "")
        while True:
            page = await self._plane.page(plural, None, after=after, revision=revision)
            out += page.items
            if not page.next_name:
                return out
            after = (page.next_tenant, page.next_name)
