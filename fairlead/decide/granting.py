"""Grants as leased escrow, on the objects that carry it: what a region may use now, which offers it takes, what the global plane
has promised to each region. The arithmetic is escrow.py's; here it meets Grant and GrantTerm. Pure.

A region asks once for all its tenants, and is answered once (GrantTerm). The answer leases every grant whose newest version the
region stands on; `floors` names those it does not. So a renewal costs one write a region, not one a tenant. In return the global
plane charges the newest offer of a region with all of `during` whether its lease runs or not: only what was superseded ends
with its lease. Used by the judge, the scheduler, both quota controllers and the checkers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide import escrow
from fairlead.decide.cut_off import is_cut_off, last_word_ms
from fairlead.decide.escrow import Account, Amounts, Offer, Standing
from fairlead.decide.grants import limits_of
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.quota import GrantOffer, GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.resources import NOTHING, SHARE_WHOLE, Resources

LEASE_S: Final = 600
FOREVER: Final = 1 << 62
STOP_MS: Final = 30_000  # before the end of a lease: what is above `after` is being stopped, and nothing is added to it
EMERGENCY_DRAIN_MS: Final = 300_000  # after its end: what an emergency quota had allowed is gone within so long, and the grace
OFFERS_MAX: Final = 16  # that a grant carries and its region may still stand on
_TOO_MUCH: Final = "more is used than it allows"
_VERSIONS: Final = 1 << 32  # a later incarnation's versions are above all of an earlier one's


class InForce(NamedTuple):
    """What a region may use of a grant, at one moment."""

    version: int
    limit: Resources
    after: Resources  # what stays when the lease ends
    end_ms: int  # by when what is above `after` must be gone; FOREVER: there is no lease


class Granted(NamedTuple):
    """What every placement of a tenant asks of its grant. It holds as long as grant, term and time stand still."""

    grant: Grant
    in_force: InForce
    limits: dict[str, int]  # of what is in force, by dimension
    leased: bool
    cut_off: bool  # leased, and the region has had no word for too long
    confirmed: bool = True  # taken in this history


def granted(grant: Grant, term: GrantTerm | None, incarnation: int, now_ms: int) -> Granted:
    allowed, leased = in_force(grant, term, incarnation, now_ms), bool(grant.spec.lease_seconds)
    cut_off = leased and is_cut_off(term, incarnation, now_ms)
    return Granted(grant, allowed, limits_of(allowed.limit), leased, cut_off, is_confirmed(grant, incarnation))


# --- the region's side ---------------------------------------------------------------------------------------------------


def in_force(grant: Grant, term: GrantTerm | None, incarnation: int, now_ms: int) -> InForce:
    spec, status = grant.spec, grant.status
    if not spec.lease_seconds:
        end = spec.lease_end_time
        ended = end is not None and now_ms >= millis(end)
        return InForce(spec.version, spec.after if ended else spec.during, spec.after if end else spec.during, FOREVER)
    if not status.accepted_version or not is_confirmed(grant, incarnation):
        return InForce(status.accepted_version, NOTHING, NOTHING, 0)
    end_ms = lease_end(grant, term, incarnation)
    over = status.emergency_end_time is not None and now_ms >= millis(status.emergency_end_time)
    during, after = _less(status.during, status.emergency) if over else status.during, staying(status)
    return InForce(status.accepted_version, during if now_ms < end_ms - stop_ms(spec) else after, after, end_ms)


def is_confirmed(grant: Grant, incarnation: int) -> bool:
    """False: the region stood on an offer in history that is lost, or was restored, and has taken none since. Which one it took
    last nobody here knows: nothing is placed on it. What runs without an end is within what that one leaves, and stays."""
    return not grant.spec.lease_seconds or not grant.status.accepted_version or grant.status.incarnation == incarnation


def staying(status: GrantStatus) -> Resources:
    """What stays when the lease of the offer that a region stands on ends. Nothing that an emergency quota gave does: it was
    added to `during`, and `after`, which follows what is used, may hold none of it or all."""
    if status.emergency_end_time is None:
        return status.after
    return resources(escrow.smallest(status.after.amounts(), _less(status.during, status.emergency).amounts()))


def version_of(grant: Grant) -> int:
    """Which version a proposal names that relies on this grant."""
    return grant.status.accepted_version if grant.spec.lease_seconds else grant.spec.version


def stop_ms(spec: GrantSpec) -> int:
    """How long before its lease ends a region begins to stop what is above `after`."""
    return margin_ms(spec.lease_seconds)


def margin_ms(lease_s: int) -> int:
    """What whoever gave a lease waits beyond it: a region that changes its leader at the end of one stops a little late."""
    return min(STOP_MS, lease_s * 100)


def must_end_ms(grant: Grant, allowed: InForce) -> int:
    """From when on what is above the limit in force is stopped: when a lease is about to end; and at the deadline of what an
    emergency quota had allowed."""
    status = grant.status
    if status.emergency_end_time is None:
        return allowed.end_ms - stop_ms(grant.spec)
    return min(allowed.end_ms - stop_ms(grant.spec), millis(status.emergency_end_time) + EMERGENCY_DRAIN_MS)


def lease_end(grant: Grant, term: GrantTerm | None, incarnation: int) -> int:
    """When the lease on the offer this region stands on ends, in the region's own time."""
    if grant.status.lease_end_time is not None:
        return millis(grant.status.lease_end_time)
    if term is None or term.status.incarnation != incarnation or term.status.end_time is None:
        return 0
    return millis(term.status.end_time)


def standing_of(grant: Grant, term: GrantTerm | None, incarnation: int) -> Standing:
    status = grant.status
    end_ms = lease_end(grant, term, incarnation)
    confirmed = status.incarnation == incarnation
    stays = escrow.largest((limits_of(staying(status)), limits_of(status.firm)))
    return Standing(status.accepted_version, limits_of(status.during), stays, end_ms, confirmed)


def take(grant: Grant, term: GrantTerm | None, incarnation: int, used: Amounts) -> GrantStatus | str:
    """The status of a grant whose offer is taken; or why it is not, yet. `used` is all that is charged to the tenant here."""
    spec, status = grant.spec, grant.status
    if not spec.lease_seconds:
        return "it has no lease, and needs no taking"
    if term is None or term.status.incarnation != incarnation or not term.status.taken:
        return "the global plane has not answered this region yet"
    if spec.version < max(first_version(term.spec.incarnation), term.spec.floors.get(grant.metadata.namespace, 0)):
        return "a newer offer was made"
    standing = standing_of(grant, term, incarnation)
    if spec.version == standing.version and standing.confirmed:
        return "it is taken"
    end_ms = millis(term.status.end_time) if term.status.end_time is not None else 0
    # What is above what stays is stopped when the lease ends: only the rest is without an end.
    firm = escrow.smallest(used, standing.after) if standing.confirmed and standing.version else used
    offer = Offer(spec.version, limits_of(spec.during), limits_of(spec.after))
    if escrow.taken(standing, offer, end_ms, firm, used) is None:
        return _TOO_MUCH
    ends = own_time(term, spec.emergency_end_time) if spec.emergency_end_time is not None else None
    if ends is None and spec.emergency_end_time is not None:
        return "when its emergency quota ends is not known here before the next answer"
    taken = replace(
        status, accepted_version=spec.version, during=spec.during, after=spec.after, emergency=spec.emergency,
        emergency_end_time=ends, lease_end_time=None, incarnation=incarnation, firm=resources(firm),
    )  # fmt: skip
    return replace(taken, firm=still_firm(taken, used))


def still_firm(status: GrantStatus, used: Amounts) -> Resources:
    """What agents may hold for firm of what is used, where that is more than stays: an offer with an emergency quota may leave
    less for good than runs without an end, and what is firm stays so until it goes."""
    firm = resources(escrow.smallest(status.firm.amounts(), resources(used).amounts()))
    return firm if firm.exceeding(staying(status)) else NOTHING


def is_taken_back(grant: Grant, term: GrantTerm | None, incarnation: int, used: Amounts, now_ms: int) -> bool:
    """The newest offer has nothing of the emergency quota that the region still places on, and cannot be taken because that is in
    use: the emergency is over from now on."""
    spec, status = grant.spec, grant.status
    ends = status.emergency_end_time
    if ends is None or now_ms >= millis(ends) or spec.emergency_end_time is not None or status.incarnation != incarnation:
        return False
    return take(grant, term, incarnation, used) == _TOO_MUCH


def own_time(term: GrantTerm, there: datetime) -> datetime | None:
    """A moment of the global plane's time in the region's own, and not after it: the question was asked before it was answered,
    and both know when. Clocks of two planes need not agree. None: the last question has no answer yet."""
    spec, status = term.spec, term.status
    if spec.answered != status.asked or status.asked_time is None or spec.until_time is None or not spec.lease_seconds:
        return None
    left_ms = millis(there) - _answered_ms(spec, spec.until_time)
    return instant(millis(status.asked_time) + (escrow.holder_ms(left_ms, escrow.RHO) if left_ms > 0 else left_ms))


def _answered_ms(spec: GrantTermSpec, until: datetime) -> int:
    """A server of the version before does not say it; its leases are of one length."""
    if spec.answered_time is not None:
        return millis(spec.answered_time)
    return millis(until) - honoured_ms(spec.lease_seconds)


def tell(grant: Grant, term: GrantTerm | None, incarnation: int, used: Amounts, now_ms: int) -> tuple[Resources, Resources]:
    """What a region can use, and what of it stays, for books that were restored: no offer of the incarnation before is taken
    from now on."""
    allowed = in_force(grant, term, incarnation, now_ms)
    known = allowed.version and is_confirmed(grant, incarnation)
    stays = escrow.largest((allowed.after.amounts(), grant.status.firm.amounts(), used if not known else {}))
    return resources(escrow.largest((allowed.limit.amounts(), stays, used))), resources(stays)


def answered(term: GrantTerm, incarnation: int) -> bool:
    """The copy of the global plane's answer is to the last question of this incarnation, and has not been taken yet."""
    spec, status = term.spec, term.status
    return (
        status.incarnation == incarnation == spec.asker
        and spec.answered == status.asked > status.taken
        and spec.incarnation >= status.knows
    )


def outrun(grant: Grant, term: GrantTerm, incarnation: int) -> bool:
    """The region stands on an older offer than the one this answer gives a lease to: its lease ends when it would have."""
    status = grant.status
    return (
        status.incarnation == incarnation
        and status.accepted_version > 0
        and status.lease_end_time is None
        and status.accepted_version < term.spec.floors.get(grant.metadata.namespace, 0)
    )


def ended_early(grant: Grant, term: GrantTerm) -> GrantStatus:
    return replace(grant.status, lease_end_time=term.status.end_time or instant(0))


def ends_sooner(grant: Grant, term: GrantTerm) -> GrantStatus | None:
    """The status of a grant whose emergency quota ends sooner than its region counts: after a cold start on a wall clock that
    was behind, by the time that nobody measured. None: it does not."""
    spec, status = grant.spec, grant.status
    if status.emergency_end_time is None or spec.emergency_end_time is None or status.accepted_version != spec.version:
        return None  # one that is taken from now on is counted anew
    ends = own_time(term, spec.emergency_end_time)
    return replace(status, emergency_end_time=ends) if ends is not None and ends < status.emergency_end_time else None


def taken_answer(term: GrantTerm) -> GrantTermStatus:
    """The leases run from when the question was asked, by a clock that may be slow."""
    spec, status = term.spec, term.status
    assert status.asked_time is not None
    end, word = status.end_time, status.word_time
    if spec.lease_seconds:
        mine = instant(millis(status.asked_time) + escrow.holder_ms(spec.lease_seconds * 1000, escrow.RHO))
        end, word = mine if end is None else max(end, mine), None
    return replace(status, taken=status.asked, knows=spec.incarnation, end_time=end, word_time=word)


def next_question(term: GrantTerm, incarnation: int, now: datetime) -> GrantTermStatus:
    """Asked anew: answers to earlier questions count for nothing from now on. In a new incarnation nothing is leased;
    what is known of a cut goes on, because the report of one in which the plane was restored is to be written, too."""
    status = term.status
    if status.incarnation != incarnation:
        word_ms = last_word_ms(term)
        kept = {name: getattr(status, name) for name in ("observed_generation", "merge", "cut_time", "healed_time", "ended")}
        word = instant(word_ms) if word_ms is not None else None
        status = GrantTermStatus(incarnation=incarnation, knows=term.spec.incarnation, word_time=word, **kept)
    return replace(status, asked=status.asked + 1, asked_time=now)


# --- the global plane's side ---------------------------------------------------------------------------------------------


def first_version(incarnation: int) -> int:
    """Versions of offers that a plane makes in this incarnation begin here."""
    return (incarnation - 1) * _VERSIONS


def is_reported(grant: Grant, incarnation: int) -> bool:
    """The books of this grant are this incarnation's: in restored ones nothing is known until the region has spoken."""
    return grant.spec.version >= first_version(incarnation)


def account_of(grant: Grant, incarnation: int, floor_ms: int = 0) -> Account:
    """`floor_ms`: no lease counts as ended before, because whoever judges has not watched the clock for long enough."""
    spec, status = grant.spec, grant.status
    older = tuple(
        Offer(
            o.version,
            o.during.amounts(),
            o.after.amounts(),
            FOREVER if o.until_time is None else max(millis(o.until_time), floor_ms),
        )
        for o in spec.offers
    )
    reported = is_reported(grant, incarnation)
    account = Account(0, (*older, Offer(spec.version, spec.during.amounts(), spec.after.amounts(), FOREVER)), reported)
    known = reported and spec.lease_seconds > 0 and status.accepted_version <= spec.version
    return escrow.stands_on(account, status.accepted_version) if known else account


def lasting_use(grant: Grant) -> Amounts:
    """What a region uses of its newest offer, without what an emergency quota gave it: that part ends."""
    spec = grant.spec
    return escrow.smallest(grant.status.used.amounts(), _less(spec.during, spec.emergency).amounts())


def lasting_account(account: Account, emergency: Resources, firm: Resources = NOTHING) -> Account:
    """What a region may still use when emergency quotas are over. Of older offers all counts: which part of them ends is not in
    the books. `firm` runs on where nobody is there to stop it."""
    if not account.offers:
        return account
    stays = _less(resources(account.newest.during), emergency).amounts()
    newest = replace(account.newest, during=escrow.largest((stays, firm.amounts())))
    return replace(account, offers=(*account.offers[:-1], newest))


def offer_spec(
    grant: Grant, account: Account, lease_s: int, until_ms: int, emergency: Resources = NOTHING, ends: datetime | None = None
) -> GrantSpec:
    """The grant with the newest offer of `account`, of which `emergency` ends at `ends`. The one before it, and older ones the
    region may still stand on, go along; its lease was last prolonged by the answer that runs until `until_ms`. Those that the
    newest one covers are left out: it ends no earlier than they do, so whoever stands on one of them may use no more than is
    charged for the newest, now or when emergencies are over. While a region is lost, offers to it would pile up without this."""
    spec, made = grant.spec, account.newest
    kept = {offer.version for offer in account.offers[:-1]}
    older = [(offer, offer.during) for offer in spec.offers if offer.version in kept]  # and what of it may be for good
    if spec.version in kept:
        until = instant(until_ms) if spec.lease_seconds else None
        older.append((GrantOffer(spec.version, spec.during, spec.after, until), _less(spec.during, spec.emergency)))
    during, after = resources(made.during), resources(made.after)
    lasting = _less(during, emergency)
    offers = [offer for offer, stays in older if stays.exceeding(lasting) or not _covered(offer, during, after)]
    return replace(
        spec, version=made.version, during=during, after=after, lease_seconds=lease_s, lease_end_time=None,
        offers=tuple(_few(offers)), emergency=emergency, emergency_end_time=ends if emergency.amounts() else None,
    )  # fmt: skip


def ends_otherwise(spec: GrantSpec, ends: datetime | None) -> bool:
    """Whether the emergency part of the newest offer ends at another time than the emergency quotas that are in force now
    (`ends`; None: there are none): another one took over, or its own was taken back. The region would stop at the old time."""
    return spec.lease_seconds > 0 and spec.emergency_end_time not in (None, ends)


def is_left_behind(grant: Grant) -> bool:
    """An answer named an offer for it that was then refused: the region stands on the newest there is, and takes its lease for
    one that ends."""
    return grant.status.accepted_version == grant.spec.version and grant.status.lease_end_time is not None


def _covered(offer: GrantOffer, during: Resources, after: Resources) -> bool:
    """One without an end is not."""
    return offer.until_time is not None and not offer.during.exceeding(during) and not offer.after.exceeding(after)


def _few(offers: list[GrantOffer]) -> list[GrantOffer]:
    """Of many, the oldest as one that allows what any of them did, and for as long."""
    if len(offers) <= OFFERS_MAX:
        return offers
    many, rest = offers[: 1 - OFFERS_MAX], offers[1 - OFFERS_MAX :]
    times = [offer.until_time for offer in many]
    until = None if None in times else max(time for time in times if time is not None)
    during, after = ([each.amounts() for each in column] for column in zip(*((o.during, o.after) for o in many), strict=True))
    return [GrantOffer(many[-1].version, resources(escrow.largest(during)), resources(escrow.largest(after)), until), *rest]


def told_spec(grant: Grant, incarnation: int, lease_s: int) -> GrantSpec:
    """A region has told a restored plane what it stands on and what it uses. That is all it can use."""
    status = grant.status
    return GrantSpec(grant.spec.region, first_version(incarnation), status.told, status.told_after, lease_seconds=lease_s)


def honoured_ms(lease_s: int) -> int:
    """How long after an answer a region may still act on it."""
    return escrow.giver_ms(lease_s * 1000, escrow.RHO) + margin_ms(lease_s)


# --- amounts -------------------------------------------------------------------------------------------------------------


def resources(amounts: Amounts) -> Resources:
    """Amounts as an object has them. Devices are charged in thousandths and granted whole."""
    out: dict[str, int] = {}
    for name, amount in amounts.items():
        whole = name.removeprefix("device:")
        out[whole] = max(out.get(whole, 0), amount if whole == name else -(-amount // SHARE_WHOLE))
    return Resources(out.pop("cpu", 0), out.pop("memory", 0), out.items())


def _less(one: Resources, other: Resources) -> Resources:
    left = one - other
    return Resources(max(0, left.cpu), max(0, left.memory), ((name, max(0, n)) for name, n in left.scalars))
