"""S5 in the journal of a global plane: no offer beyond the quota, also when that was lowered, and whatever later books say of
what was offered before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fairlead.model.commands import Caller, Delete
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.kinds.quota import GrantOffer, GrantTerm, GrantTermSpec
from fairlead.model.lifecycle import Role
from fairlead.model.resources import Resources
from tests.observe.forging import T0, Effect, Forged, by, lease, named

ADA = Caller("ada", Role.USER)
BODY = Delete("Quota", "risk", "x")  # what was asked is not looked at here


def quota(cpu: int) -> Effect:
    return "quotas/risk/default", Quota(named("default", "risk"), QuotaSpec(limits=Resources(cpu, 1 << 40)))


def offer(cpu: int, version: int, region: str = "r") -> Effect:
    limits = Resources(cpu, 1 << 30)
    spec = GrantSpec(region=region, version=version, during=limits, after=limits, lease_seconds=600)
    return f"grants/risk/{region}", Grant(named(region, "risk"), spec)


def lowered(*before: Effect) -> Forged:
    """From 1000 to 100, after these."""
    forged = Forged(lease(Role.QUOTA)).entry(ADA, BODY, quota(1000))
    for each in before:
        forged.entry(by(Role.QUOTA), BODY, each)
    return forged.entry(ADA, BODY, quota(100), at_s=10)


def test_an_offer_beyond_a_quota_that_was_lowered_is_found() -> None:
    assert lowered().entry(by(Role.QUOTA), BODY, offer(900, 1), at_s=7200).found == ["S5"]
    assert lowered().entry(by(Role.QUOTA), BODY, offer(100, 1), at_s=7200).found == []


def test_what_was_promised_before_it_was_lowered_may_be_written_again_and_not_be_added_to() -> None:
    promised = offer(900, 1)
    assert lowered(promised).entry(by(Role.QUOTA), BODY, offer(900, 2), at_s=7200).found == []
    assert lowered(promised).entry(by(Role.QUOTA), BODY, offer(50, 1, "s"), at_s=7200).found == ["S5"]


def test_an_offer_that_was_decided_a_moment_before_is_none_beyond_it() -> None:
    assert lowered().entry(by(Role.QUOTA), BODY, offer(900, 1), at_s=12).found == []


# --- what a region was told, and later books make less of ----------------------------------------------------------------------


def superseding(cpu: int, version: int, accepted: int, *older: tuple[int, int, float]) -> Effect:
    """An offer to `r`, with those it may still stand on: version, cpu, and until how many seconds after the beginning."""
    limits, none = Resources(cpu, 1 << 30), Resources(0, 1 << 30)
    offers = tuple(
        GrantOffer(number, Resources(had, 1 << 30), none, T0 + timedelta(seconds=until_s)) for number, had, until_s in older
    )
    spec = GrantSpec(region="r", version=version, during=limits, after=none, lease_seconds=600, offers=offers)
    return "grants/risk/r", Grant(named("r", "risk"), spec, GrantStatus(accepted_version=accepted))


def answer(until_s: float, floor: int) -> Effect:
    spec = GrantTermSpec("r", 1, 1, 1, 600, T0 + timedelta(seconds=until_s), {"risk": floor} if floor else {})
    return "grantterms//r", GrantTerm(named("r"), spec)


def journal(*steps: tuple[float, Effect]) -> list[str]:
    forged = Forged(lease(Role.QUOTA)).entry(ADA, BODY, quota(1000))
    for at_s, effect in steps:
        forged.entry(by(Role.QUOTA), BODY, effect, at_s=at_s)
    return forged.found


FIRST = ((0, superseding(800, 1, 0)), (1, answer(1000, 1)), (2, superseding(100, 2, 1, (1, 800, 1000))))


@pytest.mark.parametrize(
    "older",
    [
        pytest.param(((1, 800, 500),), id="its lease goes back"),
        pytest.param((), id="it is left out"),
        pytest.param(((1, 300, 1000),), id="it was less"),
    ],
)
def test_books_that_make_less_of_an_offer_free_nothing_before_its_lease_has_ended(
    older: tuple[tuple[int, int, float], ...],
) -> None:
    forged = (*FIRST, (3, superseding(50, 3, 1, *older, (2, 100, 1000))))
    assert journal(*forged, (600, offer(900, 1, "s"))) == ["S5"]
    assert journal(*forged, (600, offer(200, 1, "s"))) == [], "beside all that it was offered"
    assert journal(*forged, (1001, offer(900, 1, "s"))) == [], "its lease has certainly ended"


def test_books_that_never_said_how_long_an_offer_is_leased_are_held_to_the_answer_that_leased_it() -> None:
    told = (0, superseding(800, 1, 0)), (1, answer(1000, 1)), (2, superseding(100, 2, 1, (1, 800, 500)))
    assert journal(*told, (600, offer(900, 1, "s"))) == ["S5"]
    after = ((0, answer(1000, 1)), (1, superseding(800, 2, 1)), (2, superseding(100, 3, 1, (2, 800, 500))))
    assert journal(*after, (600, offer(900, 1, "s"))) == ["S5"], "a lease is on what is offered later, too"


def test_an_answer_prolongs_what_it_leases_and_nothing_older() -> None:
    assert journal(*FIRST, (3, answer(5000, 2)), (1001, offer(900, 1, "s"))) == []
    assert journal(*FIRST, (3, answer(5000, 1)), (1001, offer(900, 1, "s"))) == ["S5"]


def test_what_a_region_has_given_up_is_free_at_once() -> None:
    taken = (3, superseding(100, 2, 2, (1, 800, 1000)))
    assert journal(*FIRST, taken, (4, offer(900, 1, "s"))) == []
    assert journal(*FIRST, taken, (4, superseding(100, 2, 1)), (5, offer(900, 1, "s"))) == [], "a late word changes nothing"


def test_what_goes_along_with_an_offer_is_none_that_is_made_in_another_history() -> None:
    forged = Forged(lease(Role.QUOTA)).entry(ADA, BODY, quota(1000))
    for effect in (superseding(900, 1, 0), superseding(850, 2, 2, (1, 900, 5000)), offer(150, 1, "s")):
        forged.entry(by(Role.QUOTA), BODY, effect)
    forged.entry(by(Role.QUOTA), BODY, superseding(850, 2, 1, (1, 900, 5000)))  # its region was restored, and says less
    forged.incarnation = 2
    forged.entry(by(Role.QUOTA), BODY, superseding(800, 3, 1, (1, 900, 5000), (2, 850, 5000)))
    assert "S5" not in forged.found, "nobody was offered more by that"
    assert "S5" in forged.entry(by(Role.QUOTA), BODY, offer(160, 2, "s")).found
