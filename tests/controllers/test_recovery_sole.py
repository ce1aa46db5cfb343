"""A lost region's slots that run once in the world: stood in for after its slot lease has ended, and given back one by one."""

from __future__ import annotations

import pytest

from fairlead.decide import slot_lease
from fairlead.decide.slot_lease import lease_of
from fairlead.model.commands import Caller, LeaseAcquire
from fairlead.model.kinds.ledger import LeaseSpec
from fairlead.model.lifecycle import Role
from tests.authority.planes import REGION, no, ok
from tests.controllers.test_recovery import Recovering, two_regions

WEST = Caller("west-0", Role.MIRROR)
LEASE, TTL_S = lease_of("west"), 1.0


@pytest.fixture(autouse=True)
def _little_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_lease, "MARGIN_S", 0.1)


def lease(r: Recovering) -> LeaseSpec:
    found: LeaseSpec = r.w.top.get("leases", LEASE, "").spec
    return found


async def test_slots_that_run_once_in_the_world_move_when_the_lease_has_ended_and_home_waits_until_they_are_gone() -> None:
    async with two_regions(execution="Exclusive", exclusive="global") as r:
        w, top = r.w, r.w.top.plane
        began = top.clock.monotonic()
        held = ok(await top.send(WEST, LeaseAcquire(LEASE, Role.MIRROR, TTL_S)))
        await r.health("west", "Lost")
        await w.until(lambda: r.order() is not None)
        assert top.clock.monotonic() - began >= TTL_S, "it was lost at once, and could run them for as long as it had its lease"
        await w.until(lambda: len(w.low.serving()) == 4)
        assert (lease(r).role, lease(r).epoch) == (Role.RECOVERY.value, held.epoch + 1)
        no(await top.send(WEST, LeaseAcquire(LEASE, Role.MIRROR, TTL_S)), "LeaseHeld")
        home = w.top.get("assignments", "api.west").spec
        bound = [w.low.binding(f"api-{i}") for i in w.low.slots() if i >= 10_000]
        names = sorted(binding.spec.supersedes for binding in bound if binding is not None)
        away = [index for span in home.superseded for index in range(span.first, span.last + 1)]
        assert names == [f"west/api-{index}@{held.epoch + 1}" for index in away]
        assert (home.slots, len(away)) == ((), 2)

        await r.health("west", "Healthy")
        await w.until(lambda: lease(r).holder == "")
        ok(await top.send(WEST, LeaseAcquire(LEASE, Role.MIRROR, TTL_S)))
        await w.until(lambda: len(w.low.slots()) == 2)
        await w.until(lambda: r.order() is None)
        await w.until(lambda: w.top.get("assignments", "api.west").spec.slots != ())
        assert w.top.get("assignments", "api.west").spec.superseded == ()
        assert len(w.low.serving()) == 2


async def test_what_is_exclusive_within_a_region_is_never_stood_in_for_and_no_region_it_is_in_is_ready() -> None:
    async with two_regions(execution="Exclusive") as r:
        await r.w.until(lambda: (o := r.outlook("west")) is not None and (o.spec.ready, o.spec.short) == (0, 1))
        await r.health("west", "Lost")
        await r.w.until(lambda: (o := r.outlook(REGION)) is not None and (o.spec.ready, o.spec.short) == (0, 1))
        await r.w.low.quiet()
        assert r.order() is None
        assert r.w.top.get("leases", LEASE, "") is None
