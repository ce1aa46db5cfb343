"""A region's side of its slot lease: asks the global plane for it while the region has slots that are exclusive everywhere, and
says how long it lasts to whoever answers the region's agents (P11).

One lease a region, renewed beside the others; never a call a slot. What it lasts is counted from when it was asked for, and kept
in memory only: a new leader asks for itself. A lease that is new to this server, or had run out, counts for nothing before the
region has caught up with its assignments as they stand in the global plane: what was superseded meanwhile is not to be started
again. Decides nothing itself (fairlead/decide/slot_lease.py). Started by compose/plane.py with the other parts of a leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from fairlead.client.leased import until_next
from fairlead.client.plane import Expired, Plane
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.controllers.gathering import is_true
from fairlead.controllers.mirror import GENERATION, UID
from fairlead.decide.slot_lease import Copy, caught_up, held_until, lease_of
from fairlead.model.commands import Accepted, Body, Caller, Command, LeaseAcquire, LeaseRenew, Outcome, Refused
from fairlead.model.kinds.work import Assignment, AssignmentSpec
from fairlead.model.lifecycle import Role
from fairlead.ports import Clock

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # while it has no lease, or has not caught up
RENEW_S: Final = 6.0
_ASK_S: Final = 10.0  # an answer that takes longer is asked for again


class Above(Protocol):
    """The global plane."""

    async def submit(self, commands: list[Command]) -> list[Outcome]: ...

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage: ...


class SlotLease:
    def __init__(
        self, region: str, own: Plane, above: Above, clock: Clock, holder: str, ttl_s: float, lasts: Callable[[float], None]
    ) -> None:  # fmt: skip
        """`lasts` is told until when, on this clock, the region's globally exclusive slots may run."""
        self._region = region
        self._own = own
        self._above = above
        self._clock = clock
        self._ttl_s = ttl_s
        self._lasts = lasts
        self._caller = Caller(holder, Role.MIRROR)
        self._stopping = False
        self._epoch = 0  # of the lease it holds; 0: none
        self._since = 0  # the global plane's revision when it was given
        self._caught_up = False
        self._until = 0.0

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(_ASK_S):
                    await self._look()
            except (TimeoutError, Expired, Unreachable) as error:
                log.debug("the slot lease of %s: %s", self._region, error)
            well = self._epoch and self._caught_up
            await self._clock.sleep(until_next(self._clock.monotonic(), RENEW_S if well else LOOK_S))

    async def _look(self) -> None:
        if not self._own.vouches:  # its agents are answered nothing either; what it cannot write down others may stand in for
            return
        if not any(True for _ in _alone(await self._own.list("assignments"), self._region)):
            self._epoch = 0
            return
        if self._caught_up and self._clock.monotonic() >= self._until:
            log.warning("the slot lease of %s has run out: what is exclusive everywhere stops", self._region)
            self._epoch = 0  # perhaps it was taken, and given back: what is assigned here is to be looked at anew
        sent = self._clock.monotonic()
        if not await (self._renew() if self._epoch else self._acquire()):
            return
        if not self._caught_up:
            self._caught_up = await self._has_caught_up()
        if self._caught_up:
            self._until = max(self._until, held_until(sent, self._ttl_s))
            self._lasts(self._until)

    async def _acquire(self) -> bool:
        self._caught_up = False
        got = await self._ask(LeaseAcquire(lease_of(self._region), Role.MIRROR, self._ttl_s))
        if isinstance(got, Accepted):
            self._epoch, self._since = got.epoch, got.revision
        return isinstance(got, Accepted)

    async def _renew(self) -> bool:
        got = await self._ask(LeaseRenew(lease_of(self._region), self._epoch))
        if isinstance(got, Refused) and got.reason in ("FencedOut", "NotFound"):
            self._epoch = 0
        return isinstance(got, Accepted)

    async def _ask(self, body: Body) -> Outcome:
        (got,) = await self._above.submit([Command(self._caller, body)])
        return got

    async def _has_caught_up(self) -> bool:
        """What is wanted is read after the lease was given, what there is here after that."""
        above: dict[str, tuple[str, int]] = {}
        specs: dict[str, AssignmentSpec] = {}
        after = ("", "")
        while True:
            page = await self._above.page("assignments", after=after)
            if page.revision < self._since:
                return False  # from a server that does not know yet
            for key, wanted in _alone(page.items, self._region):
                if wanted.metadata.deletion_time is None:
                    above[key] = (wanted.metadata.uid, wanted.metadata.generation)
                    specs[key] = wanted.spec
            after = (page.next_tenant, page.next_name)
            if not page.next_name:
                break
        here = _alone(await self._own.list("assignments"), self._region)
        return caught_up(above, {key: _copy(found, specs.get(key, found.spec)) for key, found in here})


def _alone(changes: Any, region: str) -> Iterator[tuple[str, Assignment]]:
    """Assignments of this region whose slots are exclusive everywhere."""
    for change in changes:
        found: Assignment = change.hot
        if found.spec.exclusive and found.spec.region == region:
            yield f"{change.tenant}/{change.name}", found


def _copy(found: Assignment, wanted: AssignmentSpec) -> Copy:
    """A generation says what is wanted within one history of the global plane only: restored, it numbers others the same."""
    meta, status = found.metadata, found.status
    return Copy(
        uid=meta.annotations.get(UID, ""),
        generation=int(meta.annotations.get(GENERATION, "0")),
        current=status.observed_generation == meta.generation and found.spec == wanted,
        unwanted=status.unwanted,
        released=meta.deletion_time is not None and is_true(status.conditions, "Released"),
    )
