"""What a tenant may use over all regions at a moment, and what each region is wished to have of it. Pure; used by the quota
controller.

Limits are those of the tenant's Quotas, all of which hold, raised by emergency quotas in force: an override counts until its
expiry and not a moment longer, whoever cleans up and when; one that names regions gives them what it adds, and takes nothing from
the others for it. `after` follows what a region uses with some room above, so that
most of what is placed stays when a lease ends, and an offer is not made anew for each slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide import escrow
from fairlead.decide.escrow import Account, Amounts
from fairlead.decide.granting import account_of, first_version, resources
from fairlead.decide.overrides import EVERYONE, all_in_force, ends_ms, tenants_of
from fairlead.decide.rebalancing import Demand, Wish, wishes
from fairlead.decide.slots import instant
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.intent import Quota, Region
from fairlead.model.kinds.policy import Override
from fairlead.model.meta import Condition
from fairlead.model.quantity import BadQuantity
from fairlead.model.resources import NOTHING, Resources

KEEP_PERMILLE: Final = 250  # of `during`: so far above what is used may `after` be without being taken back
ROOM_PERMILLE: Final = 125  # of `during`: so far above it is put

EMERGENCY: Final = "emergency-quota"
GROWTH_HELD: Final = "GrowthHeld"  # a condition of a Quota
HOLDS_NOTHING: Final = "fairlead.dev/holds-nothing"  # on a Region: to which incarnation of the global plane an operator says so


class Emergency(NamedTuple):
    amounts: Amounts
    regions: frozenset[str]  # empty: wherever it is needed
    end: datetime


class QuotaNow(NamedTuple):
    limits: Amounts
    base: Amounts  # without emergency quotas
    protected: Mapping[str, Amounts]  # by region
    emergencies: tuple[Emergency, ...] = ()

    def emergency_end(self, region: str = "") -> datetime | None:
        """When the first of them ends, of those that concern a region; without one, of all."""
        return min((each.end for each in self.emergencies if not region or _reaches(each, region)), default=None)


class Wished(NamedTuple):
    during: Amounts
    after: Amounts
    normal: Amounts  # what `during` would be without emergency quotas
    shrinks: bool


def account_in(region: Region, grant: Grant | None, incarnation: int, floor_ms: int) -> Account:
    """What a region may use, as the global plane has it. Restored books may have forgotten what it was given, so it is waited for
    (ADR 0016), also where its Region was made since: whoever applies manifests again makes one for a region that is older. That
    it never was given anything is for an operator to say, and means nothing to the next incarnation, whoever repeats it. What
    the region tells itself counts for more."""
    if grant is None:
        return Account(reported=incarnation == 1)
    account = account_of(grant, incarnation, floor_ms)
    only_asked = grant.spec.version == first_version(incarnation) - 1 and grant.status.heard != incarnation
    nothing = region.metadata.annotations.get(HOLDS_NOTHING) == str(incarnation)
    return replace(account, reported=True) if nothing and only_asked else account


def limits_now(
    tenant: str, quotas: Sequence[Quota], overrides: Iterable[Override], regions: Iterable[str], now_ms: int
) -> QuotaNow:
    base: dict[str, int] = {}
    protected: dict[str, Amounts] = {}
    for number, quota in enumerate(sorted(quotas, key=lambda each: each.metadata.name)):
        amounts = quota.spec.limits.amounts()
        base = dict(amounts) if not number else escrow.smallest(base, amounts)
        for region, share in quota.spec.protected.items():
            protected[region] = escrow.largest((protected.get(region, {}), share.amounts()))
    limits, known = dict(base), frozenset(regions)
    found = []
    for override in all_in_force(overrides, EMERGENCY, now_ms):
        named = frozenset(override.spec.scope.regions)
        if {tenant, EVERYONE} & set(tenants_of(override)) and (not named or named & known):
            made = Emergency(emergency_of(override).amounts(), named & known, instant(ends_ms(override)))
            limits = escrow.added(limits, made.amounts)
            found.append(made)
    return QuotaNow(limits, base, protected, tuple(found))


def _reaches(emergency: Emergency, region: str) -> bool:
    return not emergency.regions or region in emergency.regions


def emergency_of(override: Override) -> Resources:
    """What an emergency quota adds: its parameters, as quantities."""
    try:
        return Resources.parse(override.spec.parameters)
    except BadQuantity:
        return NOTHING


def wished(now: QuotaNow, grants: Mapping[str, Grant], accounts: Mapping[str, Account]) -> dict[str, Wished]:
    demands = {region: _demand(now, region, grants.get(region), account) for region, account in accounts.items()}
    best, normal = _shared(now, demands, grants)
    out = {}
    for region, wish in best.items():
        newest, demand = accounts[region].newest, demands[region]
        after = {
            name: _after(amount, max(demand.used.get(name, 0), demand.protected.get(name, 0)), newest.after.get(name, 0))
            for name, amount in wish.during.items()
        }
        out[region] = Wished(wish.during, after, normal[region].during, not escrow.within(newest.during, wish.during))
    return out


def room_of(
    now: QuotaNow, accounts: Mapping[str, Account], lasting: Mapping[str, Account], region: str, now_ms: int
) -> dict[str, int]:
    """How much there is for a region: of all limits, and of those that reach it, beside what the others may be using. Where no
    emergency quota reaches both, what another one has of an emergency is none of this region's: what it has for good counts
    (`lasting`). Where one does, all of it counts, though part of it may come from an emergency of its own. A region that none
    reaches any more has no claim to what one gave it, which tells where all may keep what they have (`escrow.room_for`)."""
    own = accounts if now.emergency_end(region) is not None else {**accounts, region: lasting[region]}
    room = escrow.room_for(now.limits, own, region, now_ms)
    if not now.emergencies:
        return room
    mine = [each for each in now.emergencies if _reaches(each, region)]
    reach = now.base
    for each in mine:
        reach = escrow.added(reach, each.amounts)
    shared = {other for other in accounts if other == region or any(_reaches(each, other) for each in mine)}
    books = {other: account if other in shared else lasting[other] for other, account in accounts.items()}
    return escrow.smallest(room, escrow.room_for(reach, books, region, now_ms))


def emergency_part(
    now: QuotaNow, lasting: Mapping[str, Account], region: str, during: Amounts, normal: Amounts, now_ms: int
) -> dict[str, int]:
    """What of an offer ends with the emergency quotas: all that is more than the region would have without them, or more than
    there is without them beside what the others have for good (`lasting`): a silent one may have more than it would be given
    now."""
    if now.emergency_end(region) is None:
        return {}
    stays = escrow.smallest(normal, escrow.room_for(now.base, lasting, region, now_ms))
    return {name: max(0, amount - stays.get(name, 0)) for name, amount in during.items()}


def _shared(now: QuotaNow, demands: Mapping[str, Demand], grants: Mapping[str, Grant]) -> tuple[dict[str, Wish], dict[str, Wish]]:
    """With emergency quotas, and without. What was given for some regions alone counts as nobody's while the rest is shared: of
    what ends with the last offer no more than those give, because the rest of it follows from how the rest was shared."""
    scoped = [each for each in now.emergencies if each.regions]
    plain = dict(demands)
    for region in sorted({name for each in scoped for name in each.regions} & grants.keys() & demands.keys()):
        alone: Amounts = {}
        for each in scoped:
            alone = escrow.added(alone, each.amounts) if region in each.regions else alone
        plain[region] = _less(demands[region], escrow.smallest(alone, grants[region].spec.emergency.amounts()))
    limits = now.base
    for each in now.emergencies:
        limits = limits if each.regions else escrow.added(limits, each.amounts)
    normal = wishes(now.base, plain)
    best = wishes(limits, plain)
    for each in scoped:
        total: Amounts = each.amounts
        for region in each.regions & best.keys():
            total = escrow.added(total, best[region].during)
        best |= wishes(total, {region: demands[region] for region in sorted(each.regions & best.keys())})
    return best, normal


def _less(demand: Demand, given: Amounts) -> Demand:
    used, has = ({n: max(0, v - given.get(n, 0)) for n, v in amounts.items()} for amounts in (demand.used, demand.has))
    return demand._replace(used=used, has=has)


def _demand(now: QuotaNow, region: str, grant: Grant | None, account: Account) -> Demand:
    used = grant.status.used.amounts() if grant is not None else {}
    waits = grant.status.waiting.amounts() if grant is not None else {}
    return Demand(used, waits, now.protected.get(region, {}), account.newest.during)


def _after(during: int, needed: int, before: int) -> int:
    """Kept while it is above what is needed, and not too far above; else put a little above."""
    needed = min(needed, during)
    if (needed < before or needed == before == during) and before <= min(during, needed + during * KEEP_PERMILLE // 1000):
        return before
    return min(during, needed + during * ROOM_PERMILLE // 1000)


def held_condition(quota: Quota, accounts: Mapping[str, Account], incarnation: int, now_ms: int) -> Condition | None:
    """Whether a restored plane waits for regions before any grant grows. None: it never did."""
    silent = sorted(region for region, account in accounts.items() if not account.reported)
    if not silent and all(each.type != GROWTH_HELD for each in quota.status.conditions):
        return None
    generation, time = quota.metadata.generation, instant(now_ms)
    if not silent:
        return Condition(GROWTH_HELD, "False", generation, time, "RegionsHeard", "")
    text = f"no grant grows before this restored plane has heard what these hold: {', '.join(silent)}; a Region that never was"
    text += f' given anything may say so ({HOLDS_NOTHING}: "{incarnation}")'
    return Condition(GROWTH_HELD, "True", generation, time, "RegionsUnheard", text)


def condition_of(now: QuotaNow, used: Amounts, generation: int, now_ms: int) -> Condition:
    over = {name: amount - now.limits.get(name, 0) for name, amount in used.items() if amount > now.limits.get(name, 0)}
    time = instant(now_ms)
    if not over:
        return Condition("OverQuota", "False", generation, time, "WithinLimits", "")
    text = ", ".join(f"{name} {amount}" for name, amount in resources(over).as_quantities().items())
    return Condition("OverQuota", "True", generation, time, "LimitsWereLowered", f"in use above the limits: {text}")
