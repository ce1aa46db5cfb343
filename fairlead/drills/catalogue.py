"""Every drill there is, by name. docs/failure-scenarios.md has a row for each; a test compares them."""

from __future__ import annotations

from typing import Final

from fairlead.drills.commits import CommitTimeout, StoreDown90s
from fairlead.drills.contract import Drill
from fairlead.drills.cuts import RegionCut
from fairlead.drills.losses import PartialRegion, ZoneLoss
from fairlead.drills.people import AutoscalerAmplification, OverrideExpiry, RepairDuringIncident
from fairlead.drills.policies import PolicyRollback
from fairlead.drills.regions import GlobalCut90s, RegionLoss, RegionLossDuringRecovery
from fairlead.drills.restarts import LeaderRestart, StaleCache, WatchLoss

_ALL: Final[tuple[type[Drill], ...]] = (
    RegionLoss,
    RegionLossDuringRecovery,
    RegionCut,
    ZoneLoss,
    PartialRegion,
    WatchLoss,
    StaleCache,
    CommitTimeout,
    LeaderRestart,
    PolicyRollback,
    AutoscalerAmplification,
    RepairDuringIncident,
    OverrideExpiry,
    GlobalCut90s,
    StoreDown90s,
)
DRILLS: Final[dict[str, type[Drill]]] = {drill.name: drill for drill in _ALL}
