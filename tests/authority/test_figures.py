"""Figures that are looked up when somebody asks."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.authority.figures import Figures
from fairlead.authority.hot import hot_of
from fairlead.authority.state import State
from fairlead.model import codec
from fairlead.model.kinds.intent import Region, RegionStatus, Workload, WorkloadStatus
from fairlead.model.meta import Condition, Metadata
from fairlead.ports import SystemClock


def workload(name: str, status: Any = "", reason: str = "") -> Workload:
    serving = (Condition(type="Serving", status=status, reason=reason),) if status else ()
    return Workload(metadata=Metadata(name=name, namespace="risk"), status=WorkloadStatus(conditions=serving))


@pytest.mark.parametrize(
    ("status", "reason", "counted"),
    [
        ("False", "BelowMinServing", 1),
        ("False", "ResidencyBlocked", 1),
        ("False", "Suspended", 0),
        ("False", "ScaledToZero", 0),
        ("True", "MinServingMet", 0),
        ("", "", 0),
    ],
)
async def test_a_workload_counts_as_below_its_minimum_only_where_it_owes_something(
    status: str, reason: str, counted: int
) -> None:
    state = State(hot_of)
    state.apply("workloads", "risk", "well", codec.encode(workload("well", "True", "MinServingMet")))
    state.apply("workloads", "risk", "api", codec.encode(workload("api", status, reason)))
    nothing: Any = None
    figures = Figures(lambda: state, nothing, nothing, SystemClock())
    assert await figures.below_min_serving() == counted


def test_a_region_is_counted_as_partial_while_its_condition_says_so() -> None:
    state = State(hot_of)
    for name, status in (("gone", "True"), ("whole", "False"), ("silent", "Unknown"), ("new", "")):
        said = (Condition(type="Partial", status=status, reason="NodesLost"),) if status else ()  # type: ignore[arg-type]
        region = Region(metadata=Metadata(name=name), status=RegionStatus(health="Healthy", conditions=said))
        state.apply("regions", "", name, codec.encode(region))
    nothing: Any = None
    assert Figures(lambda: state, nothing, nothing, SystemClock()).partial() == {
        "gone": True, "new": False, "silent": False, "whole": False
    }  # fmt: skip
