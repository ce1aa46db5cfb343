"""What `get regions -o wide` prints of a region that has lost something."""

from __future__ import annotations

from typing import Any

from fairlead.api.columns import COLUMNS
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.model.meta import Condition, Metadata


def cells(status: RegionStatus) -> dict[str, Any]:
    region = Region(metadata=Metadata(name="us-west"), status=status)
    return {column.name: column.cell(region) for column in COLUMNS["regions"] if column.wide}


def test_nodes_that_are_heard_and_what_is_missing_are_shown() -> None:
    zones = (ZoneNodes(zone="a", nodes=2, ready=0), ZoneNodes(zone="b", nodes=3, ready=1))
    lost = Condition(type="Partial", status="True", reason="NodesLost")
    assert cells(RegionStatus(zones=zones, conditions=(lost,))) == {"Nodes": "1/5", "Partial": "NodesLost"}
    whole = Condition(type="Partial", status="False", reason="Whole")
    assert cells(RegionStatus(conditions=(whole,))) == {"Nodes": "", "Partial": "<none>"}
