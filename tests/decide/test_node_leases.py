"""The longest lease that an agent may count on when a leader begins (P9)."""

from __future__ import annotations

import pytest

from fairlead.decide.node_leases import longest_lease_s
from fairlead.decide.slots import instant
from fairlead.model.kinds.ledger import PlaneSpec

BEGAN_MS = 1_000_000


def fence_of(lease_s: float) -> float:
    return lease_s + 2.0


def before(own_s: float, longest_s: float) -> PlaneSpec:
    return PlaneSpec(acquired_time=instant(BEGAN_MS), node_lease_seconds=own_s, longest_lease_seconds=longest_s)


@pytest.mark.parametrize(
    ("last", "passed_s", "longest_s"),
    [
        (None, 0.0, 10.0),
        (PlaneSpec(), 0.0, 10.0),  # of a leader that wrote nothing of it
        (before(30.0, 30.0), 3600.0, 30.0),  # it told agents thirty seconds until just now
        (before(10.0, 30.0), 31.9, 30.0),  # it told them ten, and the one before it thirty, which may not be over
        (before(10.0, 30.0), 32.0, 10.0),
        (before(5.0, 5.0), 0.0, 10.0),
    ],
)
def test_what_any_earlier_leader_told_counts_until_it_is_over(last: PlaneSpec | None, passed_s: float, longest_s: float) -> None:
    assert longest_lease_s(last, 10.0, fence_of, BEGAN_MS + int(passed_s * 1000)) == longest_s
