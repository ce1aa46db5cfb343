"""How a tenant's quota is best shared between its regions: what the quota controller wishes each of them to have. Pure.

Wishes are not promises. What may really be offered is escrow's to say (escrow.py), because a region gives up before another gets.
For each dimension by itself, first what is used, then what is protected, then what waits, each shared so that the smallest
share is as large as it can be; what is left is spread evenly, because a region that has room places without asking anybody.

Stated: quota moves only when a region needs what it does not have, or has come close to its end; and then to where the rule
above puts it. Between that, work may come and go in every region without a single new offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

Amounts = Mapping[str, int]

LOW_PERMILLE: Final = 250  # of an even share of what is left over: with less than that to spare a region is close to its end


class Demand(NamedTuple):
    used: Amounts
    waits: Amounts  # asked for by work that waits for quota here
    protected: Amounts
    has: Amounts  # the limit during its lease, as last wished


class Wish(NamedTuple):
    during: dict[str, int]
    after: dict[str, int]


def wishes(limits: Amounts, regions: Mapping[str, Demand]) -> dict[str, Wish]:
    """The limit of each region during its lease and after it. What remains after the lease is what a region uses, and what is
    protected for it: work that runs is not stopped because the global plane is away."""
    during = {region: dict[str, int]() for region in regions}
    for name in sorted(limits):
        for region, amount in _share(limits[name], name, regions).items():
            during[region][name] = amount
    out = {}
    for region, demand in regions.items():
        after = {
            name: min(amount, max(demand.used.get(name, 0), demand.protected.get(name, 0)))
            for name, amount in during[region].items()
        }
        out[region] = Wish(during[region], after)
    return out


def _share(limit: int, name: str, regions: Mapping[str, Demand]) -> dict[str, int]:
    used = {region: demand.used.get(name, 0) for region, demand in regions.items()}
    protected = {region: max(0, demand.protected.get(name, 0) - used[region]) for region, demand in regions.items()}
    waits = {region: demand.waits.get(name, 0) for region, demand in regions.items()}
    has = {region: demand.has.get(name, 0) for region, demand in regions.items()}
    wanted = {region: used[region] + max(protected[region], waits[region]) for region in regions}
    slack = max(0, limit - sum(wanted.values())) // max(1, len(regions))
    low = slack * LOW_PERMILLE // 1000
    if sum(has.values()) <= limit and all(has[region] >= wanted[region] + low for region in regions):
        return has
    shares, left = level(limit, used)
    for more in (
        protected,
        {region: max(0, waits[region] - protected[region]) for region in regions},
        dict.fromkeys(regions, limit),
    ):
        given, left = level(left, more)
        shares = {region: shares[region] + given[region] for region in regions}
    return shares


def level(amount: int, wants: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Shares no larger than wanted, the smallest as large as can be; and what is left. The odd ones go in order of name."""
    shares = dict.fromkeys(wants, 0)
    open_ones = sorted((want, name) for name, want in wants.items() if want > 0)
    left = amount
    for index, (want, name) in enumerate(open_ones):
        even = left // (len(open_ones) - index)
        if want > even:
            break
        shares[name] = want
        left -= want
    still = sorted(name for want, name in open_ones if not shares[name])
    for index, name in enumerate(still):
        shares[name] = -(-left // (len(still) - index)) if left else 0
        left -= shares[name]
    return shares, left
