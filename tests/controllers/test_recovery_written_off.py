"""A lost region is deleted, which writes it off: what becomes of what it had. When that may be is asked in
tests/authority/test_writing_off.py."""

from __future__ import annotations

import pytest

from fairlead.authority.judge import regions
from fairlead.model.commands import Delete
from tests.authority.planes import OPERATOR, REGION, no, ok
from tests.controllers.test_recovery import two_regions


@pytest.fixture(autouse=True)
def _leases_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "may_be_written_off_ms", lambda silence, since_ms: 0)


async def test_a_lost_region_that_is_deleted_is_written_off_and_its_slots_are_placed_elsewhere() -> None:
    async with two_regions() as r:
        w, top = r.w, r.w.top
        no(await top.plane.send(OPERATOR, Delete("Region", "", "west")), "InUse")  # what runs there would go on unseen
        await r.health("west", "Lost")
        await w.until(lambda: len(w.low.serving()) == 4)
        ok(await top.plane.send(OPERATOR, Delete("Region", "", "west")))
        await w.until(lambda: r.order() is None and sorted(w.low.serving()) == [0, 1, 2, 3])
        await w.until(lambda: top.get("workloads", "api").status.replicas.serving == 4)
        status = top.get("workloads", "api").status
        assert [each.region for each in status.regions] == [REGION], "nothing that the dead region said last is counted"
        assert status.replicas.unknown == 0
        assert not top.get("assignments", "api.west").spec.slots
        ok(await top.plane.send(OPERATOR, Delete("Workload", "risk", "api")))
        await w.until(lambda: top.get("workloads", "api") is None)


async def test_what_is_exclusive_within_a_region_that_was_written_off_stays_ordered_there_until_it_is_applied_again() -> None:
    """Nobody has seen the old ones end: the region may only be cut off."""
    async with two_regions(execution="Exclusive") as r:
        w, top = r.w, r.w.top
        await r.health("west", "Lost")
        ok(await top.plane.send(OPERATOR, Delete("Region", "", "west")))
        await w.until(lambda: top.get("workloads", "api").status.replicas.unknown == 2)
        await w.low.quiet()
        assert sorted(w.low.serving()) == [0, 1]
        assert top.get("assignments", "api.west").spec.slots
        ok(await top.plane.send(OPERATOR, Delete("Workload", "risk", "api")))
        await w.until(lambda: top.get("workloads", "api") is None)
        await w.apply(replicas=4, execution="Exclusive")
        await w.until(lambda: len(w.low.serving()) == 4)
