"""What all regions may place while an emergency quota is in force, and after it (S5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.escrow import EscrowChecker, RegionNow

BORN = datetime(2026, 1, 1, tzinfo=UTC)
TTL_S = 60


def at(seconds: float) -> datetime:
    return BORN + timedelta(seconds=seconds)


def ms(seconds: float) -> int:
    return round(at(seconds).timestamp() * 1000)


def above(approver: str = "bob", tenant: str = "risk") -> dict[str, Any]:
    """A quota of 1000, and an emergency quota of 500 more for a minute."""
    spec = OverrideSpec("emergency-quota", "flood", TTL_S, "ada", approver, OverrideScope(tenants=(tenant,)), {"cpu": "500m"})
    flood = Override(Metadata(name="flood", namespace=tenant, uid=Uid("u"), creation_time=BORN), spec)
    quota = Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=Resources(1000)))
    return {"quotas": {("risk", "default"): quota}, "overrides": {(tenant, "flood"): flood}}


def region(now_s: float, emergency_s: float, used: int = 0) -> RegionNow:
    """It stands on an offer of all of it, whose emergency part ends then by its own clock, under a lease without an end."""
    status = GrantStatus(
        accepted_version=2, during=Resources(1500), after=Resources(1000), emergency=Resources(500), incarnation=1,
        emergency_end_time=at(emergency_s), lease_end_time=at(1e6),
    )  # fmt: skip
    grant = Grant(Metadata(name="east", namespace="risk"), GrantSpec("east", 2, lease_seconds=600), status)
    slot = SlotRef(workload="api", uid="u", index=0)
    spec = BindingSpec(slot=slot, node="n", token=Token(1, 1, 1), requests=Resources(used))
    runs = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(state=SlotState.SERVING))
    objects: Any = {"grants": {("risk", "east"): grant}, "bindings": {("risk", "api-0"): runs}}
    return RegionNow("east", objects, 1, ms(now_s))


def found(
    checker: EscrowChecker, *, plane_s: float, true_s: float, own_s: float, ends_s: float = TTL_S, **more: Any
) -> list[str]:
    """Seconds since the emergency was asked for: by the global plane's clock, truly, and by the region's own."""
    used = more.pop("used", 0)
    return checker.look(above(**more), [region(own_s, ends_s, used)], ms(plane_s), ms(true_s))


def test_what_an_emergency_quota_adds_may_be_placed_on_until_it_ends_and_not_longer() -> None:
    checker = EscrowChecker()
    assert found(checker, plane_s=1, true_s=1, own_s=1) == []
    assert found(checker, plane_s=59, true_s=59, own_s=59) == []
    assert found(checker, plane_s=64, true_s=64, own_s=64) == [], "the region ended it on its own clock"
    lost = "tenant risk could place 1500 cpu of 1000: {'east': Resources(cpu=1500)}"
    assert [text[: len(lost) - 10] for text in found(checker, plane_s=65, true_s=65, own_s=30)] == [lost[:-10]]


def test_it_is_over_when_it_is_truly_over_or_later_where_plane_time_stood_still() -> None:
    """The global plane's time may leap, or stand while all its servers are down: regions count on their own clocks."""
    checker = EscrowChecker()
    assert found(checker, plane_s=1, true_s=1, own_s=1) == []
    assert found(checker, plane_s=5_000, true_s=30, own_s=30) == [], "it leapt"
    assert found(checker, plane_s=40, true_s=90, own_s=30) == [], "it stood still"
    assert found(checker, plane_s=61, true_s=90, own_s=30) != []


def test_one_that_nobody_agreed_to_or_for_somebody_else_adds_nothing() -> None:
    assert found(EscrowChecker(), plane_s=1, true_s=1, own_s=1, approver="") != []
    assert found(EscrowChecker(), plane_s=1, true_s=1, own_s=1, tenant="search") != []


def test_what_is_used_of_it_is_counted_while_it_lasts_and_has_five_minutes_to_go() -> None:
    checker = EscrowChecker()
    assert found(checker, plane_s=1, true_s=1, own_s=1, used=1000) == []
    assert checker.above == 0, "that much there is without it"
    assert found(checker, plane_s=50, true_s=50, own_s=50, used=1400) == []
    assert found(checker, plane_s=370, true_s=370, own_s=370, used=1400) == []
    assert checker.above == 1, "it has ended by then"
    assert "uses or could use 1400 cpu of 1000" in found(checker, plane_s=384, true_s=384, own_s=381, used=1400)[0]
