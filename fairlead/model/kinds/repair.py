"""What was found out of order, whose it is to mend, until when, and what became of it. Written by the repair controllers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.meta import Condition, Metadata, Record

Problem = Literal[
    "LeakedReservation", "StaleFinalizer", "OrphanedBinding", "OrphanedInstance", "StuckSlot", "ExpiredOverride", "ExpiredGrant",
    "OverGrant", "OverQuota", "DriftedLedger",
]  # fmt: skip


class RepairSpec(Record, frozen=True):
    """Written before anything is done about it, so that the evidence outlives whoever acts on it."""

    problem: Problem
    regarding: str  # the key of the object concerned: PLURAL/TENANT/NAME
    uid: str = ""  # of that object
    owner: str = ""  # the role that mends it
    deadline_time: datetime | None = None  # from then on it is overdue, and people are called
    evidence: str = ""


class RepairStatus(Record, frozen=True):
    """Condition Mended: gone, or why not yet. Condition Overdue: True from the deadline on, as long as it is not mended."""

    observed_generation: int = 0
    attempts: int = 0
    last_attempt_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Repair(Record, frozen=True):
    """Something that is out of order and is being mended: what, by whom, until when, and how far it is."""

    metadata: Metadata
    spec: RepairSpec
    status: RepairStatus = RepairStatus()
