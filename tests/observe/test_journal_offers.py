"""S5 in the journal of a global plane: no offer beyond the quota, also when that was lowered."""

from __future__ import annotations

from fairlead.model.commands import Caller, Delete
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.lifecycle import Role
from fairlead.model.resources import Resources
from tests.observe.forging import Effect, Forged, by, lease, named

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
