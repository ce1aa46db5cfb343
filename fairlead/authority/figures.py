"""Figures about a plane that are looked up when somebody asks, because keeping them up to date would cost every command.

Reads the state in slices and gives the loop back in between; what it tells is as good as a glance, and nothing is decided on it.
Called by fairlead/compose/metrics.py for each scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from operator import attrgetter
from typing import Any, Final

from fairlead.authority.ending import to_end
from fairlead.authority.ledger import Ledger
from fairlead.authority.recount import drifts
from fairlead.authority.state import Rec, State
from fairlead.decide.escrow import within
from fairlead.decide.granting import lease_end
from fairlead.decide.grants import limits_of
from fairlead.decide.leftovers import Drift
from fairlead.decide.overrides import ends_ms, is_in_force, stage_of
from fairlead.model.registry import FINALIZERS, KINDS
from fairlead.ports import Clock

SLICE: Final = 2_000  # objects between two yields to the loop
LEAKED_MS: Final = 90_000  # a reservation's deadline among the side effects (fairlead/model/registry.py)
# Kinds that a finalizer can hold. The rest are removed by commands of their own.
_HELD: Final = tuple(plural for plural, info in KINDS.items() if info.finalizers)

_HEALTH: Final[Callable[[Any], str]] = attrgetter("hot.status.health")
_OWES_NOTHING: Final = ("Suspended", "ScaledToZero")  # reasons of the condition Serving


class Figures:
    def __init__(
        self, state: Callable[[], State], ledger: Callable[[], Ledger], plane_ms: Callable[[], int], clock: Clock
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._plane_ms = plane_ms
        self._clock = clock
        self._leaked: set[str] = set()
        self.reservations_leaked_total = 0

    def objects(self) -> dict[str, int]:
        state = self._state()
        return {plural: state.count(plural) for plural in KINDS}

    def nodes(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for health, count in Counter(map(_HEALTH, self._state().live("nodes"))).items():
            out[health or "Unknown"] = out.get(health or "Unknown", 0) + count
        return out

    def partial(self) -> dict[str, bool]:
        """Of each region, whether something of it is missing though it is heard."""
        return {
            rec.name: any(c.type == "Partial" and c.status == "True" for c in rec.hot.status.conditions)
            for rec in self._state().live("regions")
        }

    def observation_ages_s(self) -> tuple[float, float] | None:
        """(median, oldest) over the nodes that count as healthy; None where there are none."""
        now_ms, accounts = self._plane_ms(), self._ledger().nodes.values()
        heard = [account.observed_ms for account in accounts if account.observed_ms and account.known and account.healthy]
        if not heard:  # one not heard in this term has no age yet
            return None
        heard.sort(reverse=True)
        median, oldest = (max(0, now_ms - ms) / 1000 for ms in (heard[len(heard) // 2], heard[-1]))
        return median, oldest

    def leases(self) -> tuple[float, int] | None:
        """For how long the leases of a region's grants still run, in seconds, and how many slots would be stopped if they ended
        now. None where nothing is leased."""
        state, ledger, now_ms = self._state(), self._ledger(), self._plane_ms()
        terms = {rec.name: rec.hot for rec in state.live("grantterms")}
        left: list[float] = []
        provisional = 0
        for rec in state.live("grants"):
            grant, term = rec.hot, terms.get(rec.name)
            if not grant.spec.lease_seconds or term is None or not grant.status.accepted_version:
                continue
            left.append(max(0, lease_end(grant, term, term.status.incarnation) - now_ms) / 1000)
            used, stays = ledger.tenant(rec.tenant).used, limits_of(grant.status.after)
            if not within(used, stays):
                provisional += len(to_end(state, ledger, rec.tenant, stays)[1])
        return (min(left), provisional) if left else None

    def overrides_s(self) -> dict[str, float]:
        """Of each kind of override that is in force, for how long the last of them still is."""
        now_ms, out = self._plane_ms(), dict[str, float]()
        for rec in self._state().live("overrides"):
            if is_in_force(rec.hot, now_ms):
                left_s = (ends_ms(rec.hot) - now_ms) / 1000
                out[rec.hot.spec.kind] = max(left_s, out.get(rec.hot.spec.kind, 0.0))
        return out

    def overrides(self) -> dict[tuple[str, str], int]:
        """By kind and by where they are on their way."""
        now_ms, out = self._plane_ms(), dict[tuple[str, str], int]()
        for rec in self._state().live("overrides"):
            stage = stage_of(rec.hot, now_ms)
            if stage:
                out[rec.hot.spec.kind, stage] = out.get((rec.hot.spec.kind, stage), 0) + 1
        return out

    async def drifts(self) -> list[Drift]:
        """Where the ledger says something else than the objects do; of a leader that is a fault of ours, or of its memory."""
        return await drifts(self._state(), self._ledger(), self._clock)

    def repairs(self) -> dict[tuple[str, str], int]:
        """What is found out of order and not mended, by problem and by whether its deadline has passed."""
        out: dict[tuple[str, str], int] = {}
        for rec in self._state().live("repairs"):
            said = {c.type: c.status for c in rec.hot.status.conditions}
            if said.get("Mended") != "True":
                found = (rec.hot.spec.problem, "overdue" if said.get("Overdue") == "True" else "open")
                out[found] = out.get(found, 0) + 1
        return out

    def outlooks(self) -> dict[str, tuple[bool, float]]:
        """If a region died now: whether every critical service would reach its minimum, and in how many seconds."""
        found = {rec.name: rec.hot.spec for rec in self._state().live("regionoutlooks")}
        return {region: (not spec.short, spec.seconds) for region, spec in found.items()}

    def rooms(self) -> dict[str, tuple[int, int]]:
        """By region: rooms of recovery budgets that could be claimed now, and how many there should be."""
        out: dict[str, tuple[int, int]] = {}
        for rec in self._state().live("holdings"):
            region = rec.hot.spec.region
            held, wanted = out.get(region, (0, 0))
            for shape in rec.hot.status.shapes:
                held += shape.held
                wanted += shape.held + shape.claimed + shape.waiting + shape.silent
            out[region] = (held, wanted)
        return out

    async def finalizers_s(self) -> dict[str, float]:
        """How long the longest waiting object waits, by finalizer; strangers' together."""
        out = dict.fromkeys(FINALIZERS, 0.0)
        now_ms = self._plane_ms()
        for plural in _HELD:
            async for rec in self._each(plural):
                metadata = rec.hot.metadata
                if metadata.deletion_time is None:
                    continue
                age_s = max(0.0, now_ms / 1000 - metadata.deletion_time.timestamp())
                for name in metadata.finalizers:
                    shown = name if name in FINALIZERS else "other"
                    out[shown] = max(out.get(shown, 0.0), age_s)
        return out

    async def below_min_serving(self) -> int:
        """Workloads that should serve and have fewer serving than they must; a paused or empty one owes nothing."""
        count = 0
        async for rec in self._each("workloads"):
            serving = next((one for one in rec.hot.status.conditions if one.type == "Serving"), None)
            count += serving is not None and serving.status == "False" and serving.reason not in _OWES_NOTHING
        return count

    async def look_for_leaks(self) -> None:
        """Reservations that ran out long ago and are still there, each counted once."""
        now_ms = self._plane_ms()
        found: set[str] = set()
        async for rec in self._each("reservations"):
            spec = rec.hot.spec
            if spec.expiry_time is not None and now_ms - spec.expiry_time.timestamp() * 1000 > LEAKED_MS:
                found.add(f"{rec.key} {rec.position}")
        self.reservations_leaked_total += len(found - self._leaked)
        self._leaked = found

    async def _each(self, plural: str) -> AsyncIterator[Rec]:
        for at, rec in enumerate(self._state().live(plural)):
            if at % SLICE == SLICE - 1:
                await self._clock.sleep(0)
            yield rec
