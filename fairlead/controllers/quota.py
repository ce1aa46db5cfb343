"""Owns the grants of tenants that have a Quota: shares it out to regions by demand (fairlead/decide/rebalancing.py) as far as
escrow allows (fairlead/decide/escrow.py), and answers regions that ask for their leases to go on.

Two sorts of keys: a tenant, whose grants are decided together, and a region, whose question is answered for all tenants at once.
What it has sent and not seen come back is remembered, so that no answer leases an offer that was just superseded, and no offer
is made on a lease that was just prolonged. Grants made by hand, of tenants without a Quota, are left alone. Runs in the global
plane; never looks at what single slots do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.policies import versions_for
from fairlead.decide import escrow
from fairlead.decide.answering import answer_spec, floor_of, is_asked, longest_s
from fairlead.decide.escrow import Account
from fairlead.decide.granting import (
    LEASE_S,
    ends_otherwise,
    first_version,
    honoured_ms,
    is_left_behind,
    lasting_account,
    lasting_use,
    offer_spec,
    resources,
    told_spec,
)
from fairlead.decide.leasing import leasing
from fairlead.decide.offering import ENDS, TOLD, UNKNOWN, why_offered, with_reason
from fairlead.decide.sharing import (
    QuotaNow,
    account_in,
    condition_of,
    emergency_part,
    held_condition,
    limits_now,
    room_of,
    wished,
)
from fairlead.decide.slots import millis
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import Quota, Region
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec
from fairlead.model.meta import Metadata, set_condition

_REGION: Final = "region/"  # and the name, in a key that is no tenant's
# An offer that its region has not taken is not taken back within this for what the region has: what it says until then is about
# that one, and who went by it would offer now this, now that, as fast as words travel.
ANSWER_MS: Final = 2_000


def _tenant(item: Item) -> str:
    return item.tenant


def _region(item: Item) -> str:
    return str(item.hot.spec.region)


class QuotaController:
    name = "quota"
    follows = ("quotas", "grants", "grantterms", "regions", "overrides", "policychannels")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {"quotas": {"tenant": _tenant}, "grants": {"tenant": _tenant, "region": _region}}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, lease_s: int = LEASE_S) -> None:
        self._lease_s = lease_s
        self._made: dict[Name, int] = {}  # (tenant, region) -> the newest version sent to be written
        self._offered_ms: dict[Name, int] = {}  # (tenant, region) -> when that was; soft
        self._until_ms: dict[str, int] = {}  # region -> when the last lease given to it certainly has ended

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "grantterms":
                return ((_REGION, item.name),)
            case "regions":
                return ((_REGION, item.name), *self._tenants(view))
            case "overrides":
                return self._tenants(view) if item.hot.spec.kind == "emergency-quota" else ()
            case "policychannels":
                return ()  # what is leased of it is looked up when a region asks
            case _:
                return ((item.tenant, ""),)

    def resync(self, view: View) -> Iterable[Name]:
        return [*self._tenants(view), *((_REGION, item.name) for item in view.cache.all("regions"))]

    @staticmethod
    def _tenants(view: View) -> list[Name]:
        return [(str(tenant), "") for tenant in view.cache.values("quotas", "tenant")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        if key[0] == _REGION:
            return Result(self._answer(key[1], view, now_ms))
        if not view.cache.any("quotas", "tenant", key[0]):
            return Result()
        return self._share(key[0], view, now_ms)

    # --- a region asks ---------------------------------------------------------------------------------------------------

    def _answer(self, region: str, view: View, now_ms: int) -> list[Body]:
        term: GrantTerm | None = view.cache.get("grantterms", "", region)
        known = view.cache.item("regions", "", region) is not None
        if term is None:
            return [_created_term(region)] if known else []
        if not known:
            return [Delete("GrantTerm", "", region)]
        if not is_asked(term, view.incarnation):
            return []
        floors = {}
        for item in view.cache.each("grants", "region", region):
            if item.hot.spec.lease_seconds:
                floor = floor_of(item.hot, view.incarnation, term.status.incarnation, self._made.get((item.tenant, region), 0))
                if floor:
                    floors[item.tenant] = floor
        spec = leasing(answer_spec(term, view.incarnation, floors, self._lease_s, now_ms), term.spec, versions_for(view, region))
        self._until_ms[region] = max(self._until_ms.get(region, 0), millis(spec.until_time))
        return [Put("GrantTerm", replace(term, spec=spec))]

    # --- a tenant's quota --------------------------------------------------------------------------------------------------

    def _share(self, tenant: str, view: View, now_ms: int) -> Result:
        quotas: list[Quota] = [item.object for item in view.cache.by("quotas", "tenant", tenant)]
        overrides = [item.object for item in view.cache.all("overrides")]
        here = sorted(view.cache.all("regions"), key=lambda item: item.name)
        regions: dict[str, Region] = {item.name: item.object for item in here if item.object.metadata.deletion_time is None}
        now = limits_now(tenant, quotas, overrides, regions, now_ms)
        grants: dict[str, Grant] = {}
        bodies: list[Body] = []
        for item in view.cache.by("grants", "tenant", tenant):
            if item.name in regions:
                grants[item.name] = item.object
            elif item.object.spec.lease_seconds:  # an operator wrote its region off
                bodies.append(Delete("Grant", tenant, item.name, uid=item.object.metadata.uid))
        accounts = {
            name: account_in(found, grants.get(name), view.incarnation, view.since_ms + self._watched_ms(view, name))
            for name, found in regions.items()
        }
        made = self._offers(tenant, view, now, grants, accounts, now_ms)
        for region in regions:
            self._made.pop((tenant, region), None)  # everything this key wrote before is in the picture by now
        for region, (spec, why) in made.items():
            self._made[tenant, region] = spec.version
            self._offered_ms[tenant, region] = now_ms
            before = grants.get(region)
            metadata = before.metadata if before is not None else Metadata(name=region, namespace=tenant)
            metadata = replace(metadata, annotations=with_reason(metadata, why))
            bodies.append(Put("Grant", Grant(metadata, spec), mode="upsert" if before is not None else "create"))
        bodies += _statuses(view, quotas, now, grants, accounts, now_ms)
        untaken_ms = [self._untaken_ms(grant, now_ms) for grant in grants.values()]
        return Result(bodies, _wake(now, accounts, untaken_ms, now_ms))

    def _offers(
        self, tenant: str, view: View, now: QuotaNow, grants: dict[str, Grant], accounts: dict[str, Account], now_ms: int
    ) -> dict[str, tuple[GrantSpec, str]]:
        """The new offers, and why. Who is to have less comes first: what it has not been offered yet is free at once."""
        made: dict[str, tuple[GrantSpec, str]] = {}
        for region, account in accounts.items():
            grant = grants.get(region)
            if grant is None and not account.reported:  # perhaps the books have forgotten it
                made[region] = GrantSpec(region, first_version(view.incarnation) - 1, lease_seconds=self._lease_s), UNKNOWN
            elif grant is not None and not account.reported and grant.status.heard == view.incarnation:
                made[region] = told_spec(grant, view.incarnation, self._lease_s), TOLD
        if made:
            return made
        wishes = wished(now, grants, accounts)
        exposed, complete = _exposed(accounts, now_ms), all(account.reported for account in accounts.values())
        lasting = {
            region: lasting_account(account, grants[region].spec.emergency, grants[region].status.firm)
            if region in grants
            else account
            for region, account in accounts.items()
        }
        for region in sorted(wishes, key=lambda name: (not wishes[name].shrinks, name)):
            wish, before = wishes[region], accounts[region]
            grant = grants.get(region)
            if grant is not None and resources(wish.during) == grant.status.during and self._untaken_ms(grant, now_ms):
                continue
            used = lasting_use(grant) if grant is not None else {}
            room = room_of(now, accounts, lasting, region, now_ms)
            after = escrow.answer(before, wish.during, wish.after, room, 1 << 62, used)
            same, ends = after.newest.version == before.newest.version, now.emergency_end(region)
            again = same and complete and grant is not None and ends_otherwise(grant.spec, ends)
            behind = grant is not None and is_left_behind(grant)
            if same and not again and not behind and grant is not None and grant.spec.lease_seconds == self._lease_s:
                continue
            if same:  # made by hand, leased for another time, or it ends at another, or in part: the same, offered anew
                newest = replace(after.newest, version=before.newest.version + 1)
                after = replace(after, offers=(*after.offers, newest))
            accounts[region] = after
            given = grant or Grant(Metadata(name=region, namespace=tenant), GrantSpec(region, 0))
            part = emergency_part(now, lasting, region, after.newest.during, wish.normal, now_ms)
            # What stays of the one before is in the books of the others already.
            emergency = resources(escrow.smallest(part, given.spec.emergency.amounts()) if again else part)
            lasting[region] = lasting_account(before if again else after, emergency, given.status.firm)
            spec = offer_spec(given, after, self._lease_s, self._leased_ms(view, region), emergency, ends)
            made[region] = spec, ENDS if again else why_offered(grant, before.newest, after.newest, now.limits, exposed)
        return made

    def _untaken_ms(self, grant: Grant, now_ms: int) -> int:
        """Until when its region is given the time to take the newest offer; 0: it has taken it, or had that time."""
        until_ms = self._offered_ms.get((grant.metadata.namespace, grant.spec.region), 0) + ANSWER_MS
        return until_ms if grant.status.accepted_version < grant.spec.version and now_ms < until_ms else 0

    def _watched_ms(self, view: View, region: str) -> int:
        """For so long a clock must have been watched before it tells that a lease has ended."""
        return honoured_ms(longest_s(view.cache.get("grantterms", "", region), self._lease_s))

    def _leased_ms(self, view: View, region: str) -> int:
        """When the last lease that the region was given certainly has ended."""
        term: GrantTerm | None = view.cache.get("grantterms", "", region)
        return max(self._until_ms.get(region, 0), millis(term.spec.until_time) if term is not None else 0)


def _created_term(region: str) -> Body:
    return Put("GrantTerm", GrantTerm(Metadata(name=region), GrantTermSpec(region)), mode="create")


def _exposed(accounts: dict[str, Account], now_ms: int) -> dict[str, int]:
    exposed: dict[str, int] = {}
    for account in accounts.values():
        exposed = escrow.added(exposed, escrow.exposure(account, now_ms))
    return exposed


def _statuses(
    view: View, quotas: list[Quota], now: QuotaNow, grants: dict[str, Grant], accounts: dict[str, Account], now_ms: int
) -> list[Body]:
    exposed = _exposed(accounts, now_ms)
    used: dict[str, int] = {}
    for grant in grants.values():
        used = escrow.added(used, grant.status.used.amounts())
    bodies: list[Body] = []
    for quota in quotas:
        conditions = set_condition(quota.status.conditions, condition_of(now, used, quota.metadata.generation, now_ms))
        held = held_condition(quota, accounts, view.incarnation, now_ms)
        status: Any = replace(
            quota.status, observed_generation=quota.metadata.generation, exposed=resources(exposed), used=resources(used),
            conditions=set_condition(conditions, held) if held is not None else conditions,
        )  # fmt: skip
        if status != quota.status:
            meta = quota.metadata
            bodies.append(PutStatus("Quota", meta.namespace, meta.name, status, uid=meta.uid))
    return bodies


def _wake(now: QuotaNow, accounts: dict[str, Account], untaken_ms: list[int], now_ms: int) -> int | None:
    """When something changes by time alone: a superseded lease ends, an emergency quota does, an offer was not taken in time."""
    times = untaken_ms + [offer.until_ms for account in accounts.values() for offer in account.offers]
    times += [millis(each.end) for each in now.emergencies]
    later = [ms for ms in times if now_ms < ms < 1 << 60]
    return min(later) if later else None
