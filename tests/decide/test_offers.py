"""Which superseded offers a grant still carries: those that a region may stand on and that are not covered by the newest one."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide import escrow
from fairlead.decide.escrow import Account, Offer
from fairlead.decide.granting import account_of, offer_spec
from fairlead.decide.slots import instant
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.quota import GrantOffer
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

LEASE_S, UNTIL_MS = 600, 1_700_000_600_000


def offer(version: int, during: int, after: int, until_ms: int | None = UNTIL_MS) -> GrantOffer:
    return GrantOffer(version, Resources(during), Resources(after), instant(until_ms) if until_ms is not None else None)


def offered(grant: Grant, during: int, after: int) -> Grant:
    """The grant with one offer more, as the quota controller writes it."""
    account: Account = account_of(grant, 1)
    newest = Offer(account.newest.version + 1, {"cpu": during}, {"cpu": after}, 1 << 62)
    made = replace(account, offers=(*account.offers, newest))
    return replace(grant, spec=offer_spec(grant, made, LEASE_S, UNTIL_MS))


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
