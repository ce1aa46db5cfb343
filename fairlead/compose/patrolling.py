"""Once a minute, the leader of a region has its present state looked over for broken promises (fairlead/observe/patrol.py).

Reads one revision of the plane in slices, writes nothing, mends nothing: a breach is a bug of ours or damage, and people must
know. It is logged with its names, and counted without them. Started by plane.py.

The authority's ledger is counted again at the same time, by the authority itself (fairlead/authority/recount.py). What drifted is
told to the repair controller, which writes it down and then has the ledger built anew: the only thing that is mended here, and
seldom, because a ledger that drifts again at once is a bug that building anew does not cure.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from fairlead.authority.authority import Authority
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Change, Expired
from fairlead.client.resources import Unreachable
from fairlead.compose.config import PlaneConfig
from fairlead.controllers.leftovers import LeftoversController
from fairlead.decide.leftovers import Drift
from fairlead.observe.patrol import Breach, Patrol, Seen
from fairlead.ports import Clock

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
REBUILD_EVERY_S: Final = 600.0


class LedgerPatrol:
    """What the authority's ledger has wrong, as last counted. Outlives terms, as the patrol does."""

    def __init__(self, authority: Authority, clock: Clock) -> None:
        self._authority = authority
        self._figures = authority.figures()
        self._clock = clock
        self._found: Sequence[Drift] | None = None
        self._rebuilt_s = -REBUILD_EVERY_S
        self.drifts_total = 0
        self.rebuilds_total = 0

    def begin(self) -> None:
        self._found = None

    async def look(self) -> Sequence[Drift]:
        found = await self._figures.drifts()
        known = {each.regarding for each in self._found or ()}
        for drift in found:
            if drift.regarding not in known:
                self.drifts_total += 1
                log.critical("the ledger has drifted: %s: %s", drift.regarding, drift.detail)
        self._found = found
        return found

    def drifts(self) -> Sequence[Drift] | None:
        return self._found

    def rebuild(self, why: str) -> bool:
        now_s = self._clock.monotonic()
        if now_s - self._rebuilt_s < REBUILD_EVERY_S:
            return False
        self._rebuilt_s = now_s
        self.rebuilds_total += 1
        self._found = None
        log.critical("this server reads its plane anew: %s", why)
        self._authority.hand_over()
        return True


def leftovers_of(config: PlaneConfig, ledger: LedgerPatrol) -> LeftoversController:
    """The controller of what nobody looks after any more, in this plane."""
    if config.plane == "global":
        return LeftoversController("repair-global", period_s=config.repair_period_s)
    return LeftoversController("repair-leftovers", config.region, ledger, config.repair_period_s)


class Patrolling:
    """A part of a region's server while it leads. The patrol outlives it: what was told once is not told by every new leader."""

    def __init__(self, plane: LocalPlane, clock: Clock, patrol: Patrol, ledger: LedgerPatrol) -> None:
        self._plane = plane
        self._clock = clock
        self._patrol = patrol
        self._ledger = ledger
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        self._patrol.begin()
        self._ledger.begin()
        while not self._stopping:
            try:
                await self.round()
                await self._ledger.look()
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
