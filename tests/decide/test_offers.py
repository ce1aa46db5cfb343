"""Which superseded offers a grant still carries: those that a region may stand on and that are not covered by the newest one."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide import escrow
from fairlead.decide.escrow import Account, Offer
from fairlead.decide.granting import OFFERS_MAX, account_of, offer_spec
from fairlead.decide.slots import instant
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.quota import GrantOffer
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

LEASE_S, UNTIL_MS = 600, 1_700_000_600_000


def offer(version: int, during: int, after: int, until_ms: int | None = UNTIL_MS) -> GrantOffer:
    return GrantOffer(version, Resources(during), Resources(after), instant(until_ms) if until_ms is not None else None)


def offered(grant: Grant, during: int, after: int, emergency: int = 0) -> Grant:
    """The grant with one offer more, as the quota controller writes it."""
    account: Account = account_of(grant, 1)
    newest = Offer(account.newest.version + 1, {"cpu": during}, {"cpu": after}, 1 << 62)
    made = replace(account, offers=(*account.offers, newest))
    return replace(grant, spec=offer_spec(grant, made, LEASE_S, UNTIL_MS, Resources(emergency), instant(UNTIL_MS)))


def test_an_offer_that_a_newer_one_covers_is_left_out_and_one_that_allows_more_of_anything_is_kept() -> None:
    older = (offer(1, 40, 10), offer(2, 90, 10), offer(3, 20, 40), offer(4, 10, 10, None))
    spec = GrantSpec("west", 5, Resources(50), Resources(20), lease_seconds=LEASE_S, offers=older)
    grant = Grant(Metadata(name="west", namespace="risk"), spec)
    made = offered(grant, 60, 30)
    assert [each.version for each in made.spec.offers] == [2, 3, 4], "1 and 5 allow nothing that 6 does not; 4 has no end"
    before, now = escrow.exposure(account_of(grant, 1), UNTIL_MS - 1), escrow.exposure(account_of(made, 1), UNTIL_MS - 1)
    assert (before, now) == ({"cpu": 90}, {"cpu": 90}), "what is charged does not become less"
    stands = replace(made, status=GrantStatus(accepted_version=5, incarnation=1))
    assert escrow.exposure(account_of(stands, 1), UNTIL_MS + 1) == {"cpu": 60}, "who stands on one that was left out is charged"


def test_offers_to_a_region_that_takes_none_do_not_pile_up() -> None:
    grant = Grant(
        Metadata(name="west", namespace="risk"), GrantSpec("west", 1, Resources(50), Resources(20), lease_seconds=LEASE_S)
    )
    for number in range(200):
        grant = offered(grant, 50 + number % 7, 20 + number % 5)
    assert grant.spec.version == 201
    assert len(grant.spec.offers) < 8


def test_an_offer_of_which_more_is_for_good_than_of_the_newest_is_kept() -> None:
    spec = GrantSpec("west", 5, Resources(50), Resources(20), lease_seconds=LEASE_S, emergency=Resources(10))
    grant = Grant(Metadata(name="west", namespace="risk"), spec)
    assert [each.version for each in offered(grant, 50, 20, 11).spec.offers] == [5], (
        "when emergencies are over, 5 allows one more"
    )
    assert [each.version for each in offered(grant, 50, 20, 10).spec.offers] == []
    again = offered(offered(grant, 50, 20, 11), 50, 20, 5)
    assert [each.version for each in again.spec.offers] == [5], "which part of it ends is not in the books any more"


def test_many_offers_that_a_region_may_stand_on_become_one_that_allows_what_any_of_them_did() -> None:
    grant = Grant(
        Metadata(name="west", namespace="risk"), GrantSpec("west", 1, Resources(300), Resources(20), lease_seconds=LEASE_S)
    )
    for number in range(40):
        grant = offered(grant, 200 - number, 20 + number, emergency=number)
    assert len(grant.spec.offers) == OFFERS_MAX
    first = grant.spec.offers[0]
    assert (first.during, first.after.cpu >= 40, first.until_time) == (Resources(300), True, instant(UNTIL_MS))
    for version in (1, 20, first.version, first.version + 1):
        stands = replace(grant, status=GrantStatus(accepted_version=version, incarnation=1))
        charged = escrow.exposure(account_of(stands, 1), UNTIL_MS - 1)["cpu"]
        assert charged == (300 if version <= first.version else 200 - version + 2), "what it may use is charged"
