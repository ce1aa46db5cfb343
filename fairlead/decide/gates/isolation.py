"""Tenant isolation: a TenantExclusive slot shares its node with nobody else's, and nobody else's slots join it there."""

from __future__ import annotations

from typing import Any

from fairlead.decide.gates import CAPACITY, Gate
from fairlead.decide.need import Need, Row, View
from fairlead.decide.tiers import Tier


def isolation(need: Need, row: Row, view: View) -> Any:
    welcome = (row.exclusive_to == 0) | (row.exclusive_to == need.tenant)
    alone = (row.used_by == 0) | (row.used_by == need.tenant) | (not need.exclusive)
    return welcome & alone


def _why(need: Need, row: Row, view: View) -> str:
    if row.exclusive_to not in (0, need.tenant):
        return "another tenant has it to itself"
    return "slots of another tenant are there"


ISOLATION = Gate("isolation", isolation, _why, Tier.INVARIANT, CAPACITY)
