"""Looks, now and then, for what nobody looks after any more, writes it down as a Repair with owner and deadline, mends what may
be mended and calls for people when something is overdue.

Decides nothing itself: decide/leftovers.py says what is a leftover, decide/repairs.py what is done about it. Reads lists and
follows nothing but its own Repairs: leftovers are few, and what they are among is too much to follow. Starts no work. One runs in
the global plane, one in each region's; the slots' own repair is repair.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from fairlead.client.plane import Plane
from fairlead.controllers.contract import SweepsOnly
from fairlead.decide import leftovers
from fairlead.decide.leftovers import Drift, Slots
from fairlead.decide.regional import is_owed
from fairlead.decide.repairs import Finding, steps
from fairlead.model.commands import Body
from fairlead.model.ids import split_revision
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.repair import Problem
from fairlead.ports import Clock

log = logging.getLogger(__name__)

SWEEP_S: Final = 10.0
SLOTS_PERIODS: Final = 6  # slots are many
BARE_PERIODS: Final = 3  # a finalizer whose work is done is its owner's for so long
_SLICE: Final = 2_000


class LedgerWatch(Protocol):
    """Whoever compares the authority's ledger with its objects, in its own process."""

    def drifts(self) -> Sequence[Drift] | None:
        """As last looked at; None: nobody has looked since it was built."""

    def rebuild(self, why: str) -> bool:
        """Has the authority drop what it holds in memory and read it again; False: not now."""


class LeftoversController(SweepsOnly):
    follows = ("repairs",)
    sweep_s = SWEEP_S

    def __init__(self, name: str, region: str = "", ledger: LedgerWatch | None = None, period_s: float = SWEEP_S) -> None:
        self.name = name
        self.sweep_s = period_s
        self._bare_ms, self._slots_every_ms = int(BARE_PERIODS * period_s * 1000), int(SLOTS_PERIODS * period_s * 1000)
        self._region = region
        self._ledger = ledger
        self._slots: Slots | None = None  # as the last look over them found them
        self._of_slots: list[Finding] | None = None  # None: not yet looked at twice
        self._looked_ms = 0

    async def sweep(self, plane: Plane, clock: Clock) -> list[Body]:
        now_ms = plane.plane_ms()
        overrides = await _all(plane, "overrides")
        findings = leftovers.stale_finalizers("overrides", await self._unowed(plane, overrides), (), now_ms, self._bare_ms)
        findings += await (self._regional(plane, clock) if self._region else self._global(plane))
        drifts = self._ledger.drifts() if self._ledger is not None else ()
        findings += leftovers.drifted(drifts or ())
        # Not looked at yet: what was said of it before is neither confirmed nor over.
        unseen: set[Problem] = {"DriftedLedger"} if drifts is None else set()
        unseen |= leftovers.OF_SLOTS if self._of_slots is None else set()
        repairs = {each.metadata.name: each for each in await _all(plane, "repairs") if each.spec.problem not in unseen}
        found = steps(findings, repairs, overrides, self._region, now_ms)
        if found.untold:
            log.warning("%s: %d more findings than can be written down at once", self.name, found.untold)
        if found.rebuild and self._ledger is not None and self._ledger.rebuild(found.rebuild):
            return []  # this server leads no more
        return found.bodies

    async def _unowed(self, plane: Plane, overrides: Sequence[Override]) -> Sequence[Override]:
        """Without those of which the global plane is still to hear: their finalizer keeps them for that."""
        if not self._region or not await _all(plane, "grantterms"):
            return overrides
        return [each for each in overrides if not is_owed(each, plane.plane_ms())]

    async def _global(self, plane: Plane) -> list[Finding]:
        now_ms = plane.plane_ms()
        assignments = await _all(plane, "assignments")
        owned = {each.spec.workload_uid for each in assignments}
        return [
            *leftovers.stale_finalizers("workloads", await _all(plane, "workloads"), owned, now_ms, self._bare_ms),
            *leftovers.stale_finalizers("assignments", assignments, owned, now_ms, self._bare_ms),
            *leftovers.over_quotas(await _all(plane, "quotas"), now_ms),
        ]

    async def _regional(self, plane: Plane, clock: Clock) -> list[Finding]:
        now_ms = plane.plane_ms()
        holdings = {(each.metadata.namespace, each.spec.budget) for each in await _all(plane, "holdings")}
        assignments = await _all(plane, "assignments")
        terms = {each.metadata.name: each for each in await _all(plane, "grantterms")}
        incarnation = split_revision(plane.revision())[0]
        if now_ms - self._looked_ms >= self._slots_every_ms:
            self._looked_ms = now_ms
            slots = await self._look(plane, clock, {(each.metadata.namespace, each.spec.workload) for each in assignments})
            self._of_slots = leftovers.told_of_slots(slots, self._slots) if self._slots is not None else None
            self._slots = slots
        return [
            *(self._of_slots or ()),
            *leftovers.leaked_reservations(await _all(plane, "reservations"), holdings, now_ms),
            *leftovers.stale_finalizers("assignments", assignments, (), now_ms, self._bare_ms),
            *leftovers.over_grants(await _all(plane, "grants"), terms.get(self._region), incarnation, now_ms),
        ]

    async def _look(self, plane: Plane, clock: Clock, assigned: set[tuple[str, str]]) -> Slots:
        nodes = {each.metadata.name: each.status.health for each in await _all(plane, "nodes")}
        instances = [(row.tenant, row.name) for row in await plane.list("instances") if row.raw is not None]
        bound: set[tuple[str, str]] = set()
        found = Slots({}, {}, [])
        for at, row in enumerate(await plane.list("bindings")):
            if at % _SLICE == _SLICE - 1:
                await clock.sleep(0)
            if row.raw is None:
                continue
            bound.add((row.tenant, row.name))
            workload = row.name.rpartition("-")[0]
            for sums, why in zip((found.orphaned, found.stuck), leftovers.why_orphaned(row, assigned, nodes), strict=True):
                if why:
                    sums[row.tenant, workload, why] = sums.get((row.tenant, workload, why), 0) + 1
        # Instances were listed first: one whose binding came meanwhile has it by now.
        return found._replace(instances=[each for each in instances if each not in bound])


async def _all(plane: Plane, plural: str) -> list[Any]:
    return [row.hot for row in await plane.list(plural) if row.raw is not None]
