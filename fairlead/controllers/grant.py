"""A region's side of its grants: asks the global plane for their leases to go on, takes offers that what runs is within, says
what is used and what waits.

One question for all tenants (GrantTerm), asked anew when a fifth of the lease is over. The authority judges every word of it on
its ledger (fairlead/authority/judge/granting.py): this controller only proposes. What it says of usage goes up with mirror-up, at
most once a second a tenant. Runs in a region's plane; never speaks with the global one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.client.plane import Plane
from fairlead.controllers.cache import Indexes, Item, Name, workload_in_spec
from fairlead.controllers.contract import Result, View
from fairlead.controllers.demand import demand_of, kept
from fairlead.controllers.touch import Touch
from fairlead.decide.admission.policy import CHANNEL_NAME
from fairlead.decide.apart import is_unreported, looked
from fairlead.decide.granting import answered, ended_early, ends_sooner, next_question, outrun, take
from fairlead.decide.grants import limits_of
from fairlead.decide.leasing import Versions, installed, said, taken
from fairlead.decide.merging import Local, merged, words
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Body, Put, PutStatus
from fairlead.model.hot import DECODERS
from fairlead.model.ids import revision, split_revision
from fairlead.model.kinds.access import SYSTEM_TENANT
from fairlead.model.kinds.capacity import Grant, GrantStatus
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources
from fairlead.ports import Clock

TERM: Final[Name] = ("", "term")
SAY_MS: Final = 1000  # at most so often a tenant
ASK_AGAIN_MS: Final = 5000  # while nothing was ever answered
TAKE_AGAIN_MS: Final = 30_000  # an offer on the same state: it may have been the store that refused it, and not what is used


def _tenant(item: Item) -> str:
    return item.tenant


class GrantController:
    name = "grant"
    follows = ("grants", "grantterms", "assignments", "revisions", "holdings", "policychannels", "regions")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {"assignments": {"workload": workload_in_spec}, "holdings": {"tenant": _tenant}}
    indexes_other: Indexes = {}
    hears = False
    sweep_s = 2.0

    def __init__(self, region: str, touch: Touch | None = None) -> None:
        self._region = region
        self._touch = touch  # with the global plane; None: nobody knows of any
        self._began: float | None = None  # when it first looked at that
        self._said: dict[str, tuple[int, object]] = {}  # tenant -> when, and the estimate it was said on
        # Tenant -> which offer it tried to take, on which state of the grant; and when.
        self._took: dict[str, tuple[tuple[int, int], int]] = {}

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "grantterms":
                if item.name != self._region:
                    return ()
                return (TERM, *((each.tenant, self._region) for each in view.cache.all("grants")))
            case "revisions":
                return ()
            case "policychannels" | "regions":
                return (TERM,)
            case _:
                return ((item.tenant, self._region),)

    def resync(self, view: View) -> Iterable[Name]:
        return [TERM, *((each.tenant, self._region) for each in view.cache.all("grants"))]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        item = view.cache.item("grantterms", "", self._region)
        if key == TERM:
            return self._ask(view, item, now_ms) if item is not None else Result()
        found = view.cache.item("grants", *key)
        if found is None or not found.object.spec.lease_seconds:
            return Result()
        return self._stand(view, found, item.object if item is not None else None, now_ms)

    async def sweep(self, plane: Plane, clock: Clock) -> list[Body]:
        """Writes down when a cut begins. After it: what was decided apart, from a list of everything bound; again until that is
        written, whoever leads."""
        found = await plane.get("grantterms", "", self._region)
        if found is None or found.raw is None:
            return []
        term: GrantTerm = found.hot
        seen = replace(term, status=self._looked(term, plane, clock))
        if not is_unreported(seen.status):
            return [PutStatus("GrantTerm", "", self._region, seen.status)] if seen.status != term.status else []
        return await self._report(plane, seen, found.position)

    def _looked(self, term: GrantTerm, plane: Plane, clock: Clock) -> GrantTermStatus:
        if self._touch is None:
            return term.status
        now, now_ms = clock.monotonic(), plane.plane_ms()
        self._began = now if self._began is None else self._began
        return looked(term, self._touch.contact(self._began, now, now_ms), now_ms)

    async def _report(self, plane: Plane, term: GrantTerm, position: int) -> list[Body]:
        """On the term as it was read before the rest: where a binding is removed meanwhile, and counted there, it is refused, and
        made anew at the next sweep."""
        incarnation = split_revision(plane.revision())[0]
        cut_ms, healed_ms = millis(term.status.cut_time), millis(term.status.healed_time)
        grants = [each.hot for each in await plane.list("grants")]
        bindings = [DECODERS["bindings"].decode(each.raw) for each in await plane.list("bindings") if each.raw is not None]
        overrides = [each.hot for each in await plane.list("overrides")]
        requests = [each.hot for each in await plane.list("schedulingrequests")] if overrides else []
        zones = {each.name: each.hot.spec.zone for each in await plane.list("nodes")} if overrides else {}
        local = Local(overrides, requests, zones)
        report = merged(cut_ms, healed_ms, bindings, grants, term, incarnation, local)
        name = f"{self._region}.merge.{cut_ms:x}"
        event = EventSpec(f"grantterms//{self._region}", "Merged", words(report), "Warning" if report.over else "Normal", "grant")
        event = replace(event, first_time=report.cut_time, last_time=report.healed_time)
        status = replace(term.status, merge=report)
        return [
            PutStatus("GrantTerm", "", self._region, status, expected_revision=revision(incarnation, position)),
            Put("Event", Event(Metadata(name=name, namespace=SYSTEM_TENANT), event)),
        ]

    # --- the leases of all tenants -----------------------------------------------------------------------------------------

    def _ask(self, view: View, item: Item, now_ms: int) -> Result:
        term: GrantTerm = item.object
        if answered(term, view.incarnation):
            early = self._outrun(view, term) or self._sooner(view, term)
            if early:
                return Result(early, now_ms + 50)
            new = taken(term, self._installed(view), view.incarnation, now_ms)
            return Result([_term_status(view, item, new)], now_ms + 50)
        status = said(term.status, self._installed(view))
        if status != term.status:  # the global plane waits to hear that a newer policy is judged by
            return Result([_term_status(view, item, status)], now_ms + 50)
        lease_ms = term.spec.lease_seconds * 1000
        after_ms = lease_ms // 5 if lease_ms else ASK_AGAIN_MS
        news = status.taken == status.asked and status.knows == term.spec.incarnation and not term.spec.lease_seconds
        due_ms = 0 if news or status.incarnation != view.incarnation else millis(status.asked_time) + after_ms
        if now_ms < due_ms:
            return Result((), due_ms)
        return Result([_term_status(view, item, next_question(term, view.incarnation, instant(now_ms)))])

    def _installed(self, view: View) -> Versions:
        found = (view.cache.item("policychannels", "", CHANNEL_NAME), view.cache.item("regions", "", self._region))
        return installed(*(item.object.metadata if item is not None else None for item in found))

    def _outrun(self, view: View, term: GrantTerm) -> list[Body]:
        out: list[Body] = []
        for tenant in term.spec.floors:
            item = view.cache.item("grants", tenant, self._region)
            if item is not None and outrun(item.object, term, view.incarnation):
                out.append(_grant_status(view, item, ended_early(item.object, term)))
        return out

    def _sooner(self, view: View, term: GrantTerm) -> list[Body]:
        """Before the leases go on: what is over sooner than was known here is not placed on any longer."""
        grants = [item for item in view.cache.all("grants") if item.key[1] == self._region]
        ends = [(item, ends_sooner(item.object, term)) for item in grants if item.hot.status.emergency_end_time is not None]
        return [_grant_status(view, item, status) for item, status in ends if status is not None]

    # --- one tenant ----------------------------------------------------------------------------------------------------------

    def _stand(self, view: View, item: Item, term: GrantTerm | None, now_ms: int) -> Result:
        grant: Grant = item.object
        tenant = item.tenant
        demand = demand_of(view.cache).of(tenant)
        waiting = demand.waiting + _rooms(view, tenant) + kept(demand.unplaced, grant.spec.during, grant.status.used)
        estimate = (demand.slots, demand.used, waiting)
        said_ms, told = self._said.get(tenant, (0, None))
        heard = term.spec.incarnation if term is not None else 0
        status = replace(grant.status, heard=heard, waiting=waiting, observed_generation=grant.metadata.generation)
        offer = take(grant, term, view.incarnation, limits_of(grant.status.used))
        tried = (grant.spec.version, item.position)
        took, at_ms = self._took.get(tenant, (None, 0))
        if not isinstance(offer, str) and took == tried and now_ms < at_ms + TAKE_AGAIN_MS:
            # The same was refused: more is used by now than was said last. Said alone, it says how much.
            if now_ms < said_ms + SAY_MS:
                return Result((), said_ms + SAY_MS)
        elif not isinstance(offer, str):
            self._took[tenant] = tried, now_ms
            status = replace(offer, heard=heard, waiting=waiting, observed_generation=grant.metadata.generation)
        elif status == grant.status and told == estimate:
            return Result()
        elif status.heard == grant.status.heard and now_ms < said_ms + SAY_MS:
            return Result((), said_ms + SAY_MS)
        self._said[tenant] = (now_ms, estimate)
        return Result([_grant_status(view, item, status)], now_ms + SAY_MS)


def _term_status(view: View, item: Item, status: object) -> Body:
    return PutStatus("GrantTerm", "", item.name, status, expected_revision=view.revision(item))


def _grant_status(view: View, item: Item, status: GrantStatus) -> Body:
    return PutStatus("Grant", item.tenant, item.name, status, expected_revision=view.revision(item))


def _rooms(view: View, tenant: str) -> Resources:
    """What recovery budgets want to hold here and do not yet: they carry quota as well as capacity."""
    total = NOTHING
    for item in view.cache.by("holdings", "tenant", tenant):
        for shape in item.object.status.shapes:
            total += shape.requests.times(shape.waiting)
    return total
