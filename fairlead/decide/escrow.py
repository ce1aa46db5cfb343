"""Escrow (P13): how a tenant's quota is shared out to regions so that nothing is sold twice and nobody is asked at each use.

Owns the arithmetic of both sides and no clock: the global plane's account of what each region may still use, and the offer a
region stands on. A region may use `during` until its lease ends, then `after`. Whoever holds a lease counts it from when it
asked, shortened by what its clock may be slow; whoever gave it counts from when it answered, lengthened by what its clock may be
fast. The model in tests/decide/escrow_model.py drives these functions through lost, late and repeated messages, wrong clocks
and restores of either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

Amounts = Mapping[str, int]
NO_AMOUNTS: Final[Amounts] = {}
RHO: Final = 10  # per mille: the most a clock's rate may be wrong


class Offer(msgspec.Struct, frozen=True):
    """What global offered one region for one tenant. `until_ms` is on global's clock: from then on no region believes that a
    lease on this offer still runs."""

    version: int
    during: Amounts
    after: Amounts
    until_ms: int = 0


class Account(msgspec.Struct, frozen=True):
    """One region's part of one tenant's quota, as the global plane has it. `offers` are those not older than the one the region
    has said it stands on: any of them may be the one it uses. `reported` is false in books that were restored, until the region
    has said what it stands on: the books may not know its last offer (P6)."""

    accepted: int = 0
    offers: tuple[Offer, ...] = ()
    reported: bool = True

    @property
    def newest(self) -> Offer:
        return self.offers[-1] if self.offers else Offer(0, NO_AMOUNTS, NO_AMOUNTS)


class Standing(msgspec.Struct, frozen=True):
    """The offer a region stands on. `end_ms` is on the region's own clock. `confirmed` is false after a restore, until an offer
    made to this incarnation was taken: what an older copy of the books allowed may have been given to others since."""

    version: int = 0
    during: Amounts = NO_AMOUNTS
    after: Amounts = NO_AMOUNTS
    end_ms: int = 0
    confirmed: bool = True


# --- lease times


def holder_ms(lease_ms: int, rho_permille: int) -> int:
    """How long the one who asked may count on a lease, on a clock that may be slow by `rho`."""
    return lease_ms * (1000 - rho_permille) // 1000


def giver_ms(lease_ms: int, rho_permille: int) -> int:
    """How long the one who answered must honour it, on a clock that may be fast by `rho`."""
    return -(-lease_ms * (1000 + rho_permille) // 1000)


# --- the global plane's side


def exposure(account: Account, now_ms: int) -> dict[str, int]:
    """The most this region may be using, now or by itself later."""
    return largest(offer.during if now_ms < offer.until_ms else offer.after for offer in account.offers)


def stands_on(account: Account, version: int) -> Account:
    """The region has said which offer it stands on: older ones are history. It never goes back: a late word changes nothing."""
    if version <= account.accepted:
        return account
    kept = tuple(offer for offer in account.offers if offer.version >= version)
    return msgspec.structs.replace(account, accepted=version, offers=kept)


def answer(
    account: Account, during: Amounts, after: Amounts, room: Amounts, until_ms: int, used: Amounts = NO_AMOUNTS
) -> Account:
    """The account of a region that asks to go on, with the offer it is answered with as its newest. It gets what is wished for
    it, as far as there is room now (`room_for`); the lease goes with this offer alone, so older ones are not brought back to
    life by it. `until_ms` is when, on global's clock, the region has certainly stopped to believe in this answer. `used` is what
    it uses of its newest offer and may keep: where limits were lowered there may be no room, and an offer below that is not
    taken."""
    room = largest((room, smallest(used, account.newest.during)))
    during = smallest(during, room)
    after = smallest(after, during)
    newest = account.newest
    if account.offers and same(newest.during, during) and same(newest.after, after):
        renewed = msgspec.structs.replace(newest, until_ms=max(newest.until_ms, until_ms))
        return msgspec.structs.replace(account, offers=(*account.offers[:-1], renewed))
    made = Offer(newest.version + 1, during, after, until_ms)
    return msgspec.structs.replace(account, offers=(*account.offers, made))


def room_for(limits: Amounts, accounts: Mapping[str, Account], region: str, now_ms: int) -> dict[str, int]:
    """The most that may be offered to this region: the quota without what the others may be using. While a restored plane has not
    heard from all of them, nothing grows: what the silent ones use is not in its books."""
    if not all(account.reported for account in accounts.values()):
        return exposure(accounts[region], now_ms) if accounts[region].reported else {}
    left = dict(limits)
    for other, account in accounts.items():
        if other != region:
            for name, amount in exposure(account, now_ms).items():
                left[name] = left.get(name, 0) - amount
    return {name: max(0, amount) for name, amount in left.items()}


def excess(limits: Amounts, accounts: Mapping[str, Account], region: str, after: Account, now_ms: int) -> dict[str, int]:
    """Where all regions together could use more than the limits if the books of this one were `after`, and more than before: how
    much. What lowers, or leaves as it was, is nobody's loss, however far above the limits they are."""
    was, would = exposure(accounts[region], now_ms), exposure(after, now_ms)
    raised = {name: amount for name, amount in would.items() if amount > was.get(name, 0)}
    if not all(account.reported for account in accounts.values()):
        return raised
    room = room_for(limits, accounts, region, now_ms)
    return {
        name: limits.get(name, 0) - room.get(name, 0) + amount for name, amount in raised.items() if amount > room.get(name, 0)
    }


def forgotten(before: Account, after: Account, leased_ms: int | None) -> Offer | None:
    """An offer that a region may still stand on, and that its new books leave out. `leased_ms`: when the lease of the newest one
    certainly has ended; None: it has none."""
    for offer in before.offers:
        until_ms = leased_ms if leased_ms is not None and offer is before.newest else offer.until_ms
        if not any(
            kept.version >= offer.version
            and kept.until_ms >= until_ms
            and within(offer.during, kept.during)
            and within(offer.after, kept.after)
            for kept in after.offers
        ):
            return offer
    return None


def told(account: Account, during: Amounts, after: Amounts, until_ms: int) -> Account:
    """A region has told a restored plane what it may still use; that is everything it can use. It has lost nothing by it, and
    takes the offers of the new incarnation from now on."""
    version = account.newest.version
    return Account(version, (Offer(version, during, after, until_ms),))


# --- the region's side


def limit(standing: Standing, now_ms: int) -> Amounts:
    """What the region may use altogether, now."""
    if not standing.confirmed:
        return NO_AMOUNTS
    return standing.during if now_ms < standing.end_ms else standing.after


def taken(standing: Standing, offer: Offer, end_ms: int, firm: Amounts, used: Amounts) -> Standing | None:
    """The region stands on this offer from now on; None while it uses more than the offer allows. To take it earlier would tell
    global that the rest is free. `firm` is what runs without an end, `used` all that runs."""
    if offer.version < standing.version:
        return None
    if offer.version == standing.version and standing.confirmed:
        return msgspec.structs.replace(standing, end_ms=max(standing.end_ms, end_ms))
    if not within(firm, offer.after) or not within(used, offer.during):
        return None
    return Standing(offer.version, offer.during, offer.after, end_ms)


def lasting(standing: Standing, now_ms: int, firm: Amounts, used: Amounts, ask: Amounts) -> bool | None:
    """May this be placed, and for how long? True: it may stay when the lease ends. False: provisionally, to be stopped before
    the lease ends. None: there is no room."""
    if standing.confirmed and within(added(firm, ask), standing.after) and within(added(used, ask), limit(standing, now_ms)):
        return True
    if within(added(used, ask), limit(standing, now_ms)) and now_ms < standing.end_ms:
        return False
    return None


# --- arithmetic


def within(amounts: Amounts, bound: Amounts) -> bool:
    return all(amount <= bound.get(name, 0) for name, amount in amounts.items() if amount)


def added(one: Amounts, other: Amounts) -> dict[str, int]:
    out = dict(one)
    for name, amount in other.items():
        out[name] = out.get(name, 0) + amount
    return out


def smallest(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: min(amount, other.get(name, 0)) for name, amount in one.items()}


def same(one: Amounts, other: Amounts) -> bool:
    return within(one, other) and within(other, one)


def largest(many: Iterable[Amounts]) -> dict[str, int]:
    out: dict[str, int] = {}
    for amounts in many:
        for name, amount in amounts.items():
            if amount > out.get(name, 0):
                out[name] = amount
    return out
