"""What the node's class decides alone: region, zone, residency, tenancy, labels, taints. Each is a look-up in a table that
fairlead/decide/classes.py keeps per ask (P18)."""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import NO_MATCH, RESIDENCY, Gate, always
from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier


def regions(need: Need, row: Row, view: View) -> Any:
    return need.classes.regions[row.node_class] == 1


def zones(need: Need, row: Row, view: View) -> Any:
    return need.classes.zones[row.node_class] == 1


def residency(need: Need, row: Row, view: View) -> Any:
    return need.classes.residency[row.node_class] == 1


def tenancy(need: Need, row: Row, view: View) -> Any:
    return need.classes.tenancy[row.node_class] == 1


def labels(need: Need, row: Row, view: View) -> Any:
    return need.classes.labels[row.node_class] == 1


def taints(need: Need, row: Row, view: View) -> Any:
    return need.classes.taints[row.node_class] == 1


REGIONS = Gate("regions", regions, always("its region is not allowed"), Tier.INVARIANT, NO_MATCH)
ZONES = Gate("zones", zones, always("its zone is not allowed"), Tier.INVARIANT, NO_MATCH)
RESIDENCE = Gate("residency", residency, always("its region is not known to lie in an allowed area"), Tier.INVARIANT, RESIDENCY)
TENANCY = Gate("tenancy", tenancy, always("its pool is not open to this tenant or class"), Tier.INVARIANT, NO_MATCH)
LABELS = Gate("labels", labels, always("its labels do not match"), Tier.INVARIANT, NO_MATCH)
TAINTS = Gate("taints", taints, always("it has a taint that is not tolerated"), Tier.INVARIANT, NO_MATCH)
