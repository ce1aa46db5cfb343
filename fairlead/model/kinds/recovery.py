"""What is done about a lost region, and what would be: orders for recovery slots, and readiness. Global plane."""

from __future__ import annotations

from datetime import datetime

from fairlead.model.meta import Condition, Metadata, Record


class StandIn(Record, frozen=True):
    """One slot of a workload that is exclusive everywhere, and the one that stands in for it. Kept until that one is gone."""

    home: str  # the region whose own slot it is
    slot: int  # its index
    region: str  # where the other one is
    ordinal: int  # which of that region's recovery slots
    supersedes: tuple[str, ...]  # the nearest first: REGION/SLOT@EPOCH
    leaving: bool = False  # it is to go: its home waits until it is gone


class RecoveryOrderSpec(Record, frozen=True):
    """Slots a workload is given beyond its own while regions are lost. Named as the workload; gone once it is well without."""

    workload: str
    workload_uid: str
    regions: dict[str, int] = {}  # region -> recovery slots there
    lost: tuple[str, ...] = ()  # the regions they stand in for
    missing: int = 0  # of the minimum, what no budget has room for
    why: str = ""  # something is missing
    since_time: datetime | None = None
    stand_ins: tuple[StandIn, ...] = ()  # of a workload that is exclusive everywhere: who stands in for whom
    policy_revision: int = 0  # of the SchedulerPolicy whose residency and priorities decided it


class RecoveryOrderStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class RecoveryOrder(Record, frozen=True):
    """What is recovered of a workload at present: from which lost region, into which others."""

    metadata: Metadata
    spec: RecoveryOrderSpec
    status: RecoveryOrderStatus = RecoveryOrderStatus()


class ServiceOutlook(Record, frozen=True):
    """What would become of one service."""

    tenant: str
    workload: str
    region: str = ""  # where it would have its minimum; empty: nowhere
    new_slots: int = 0
    seconds: float = 0.0  # until they serve, as far as can be told
    missing: int = 0
    why: str = ""
    policy_revision: int = 0  # of the SchedulerPolicy of its tenant, whose residency and priorities it was asked by


class RegionOutlookSpec(Record, frozen=True):
    """If this region died now. Named as the region; written when the answer changes."""

    region: str
    services: tuple[ServiceOutlook, ...] = ()  # those that would fall short, then the slowest; at most a hundred are listed
    ready: int = 0  # services that would reach their minimum
    short: int = 0  # services that would not
    seconds: float = 0.0  # until the last of the ready ones has its minimum


class RegionOutlookStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class RegionOutlook(Record, frozen=True):
    """What would become of critical services if this region were lost now."""

    metadata: Metadata
    spec: RegionOutlookSpec
    status: RegionOutlookStatus = RegionOutlookStatus()
