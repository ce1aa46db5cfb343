"""When what stands in for a region may go: it has been well for a while, and was heard just now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.controllers.contract import View
from fairlead.controllers.mirror import UP
from fairlead.controllers.regions_seen import regions_seen
from fairlead.decide.slots import instant
from fairlead.model.codec import encode
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.meta import Condition, Metadata

NOW_MS, FAILBACK_S = 1_000_000, 60.0


def row(plural: str, name: str, item: Any) -> Any:
    return SimpleNamespace(plural=plural, tenant="", name=name, position=1, raw=encode(item), hot=item)


@pytest.mark.parametrize(
    ("well_s", "heard_s", "settled"),
    [(60, 3, True), (59, 3, False), (600, 5, True), (600, 6, False)],  # of a lease of ten seconds, renewed every three
)
def test_a_region_that_is_late_with_its_sign_of_life_is_healthy_and_not_settled(well_s: int, heard_s: int, settled: bool) -> None:
    ready = Condition("Ready", "True", last_transition_time=instant(NOW_MS - well_s * 1000))
    region = Region(Metadata(name="us"), status=RegionStatus(health="Healthy", conditions=(ready,)))
    spec = LeaseSpec(holder="us-server", renewed_time=instant(NOW_MS - heard_s * 1000), ttl_seconds=10.0)
    view = View({}, {})
    view.cache.apply(row("regions", "us", region))
    view.cache.apply(row("leases", f"{UP}us", Lease(Metadata(name=f"{UP}us"), spec)))
    found = regions_seen(view.cache, FAILBACK_S, NOW_MS)
    assert found.healthy == {"us"}
    assert found.settled == ({"us"} if settled else frozenset())
