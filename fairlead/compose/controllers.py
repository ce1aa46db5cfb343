"""Which controllers a plane runs. One table; main.py's servers start what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from fairlead.client.plane import Plane
from fairlead.compose.config import PlaneConfig
from fairlead.controllers.above import Above
from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.autoscaler import AutoscalerController
from fairlead.controllers.contract import Controller
from fairlead.controllers.defragmenter import DefragmenterController
from fairlead.controllers.disruption import DisruptionController
from fairlead.controllers.garbage import GarbageController, GarbageGlobalController
from fairlead.controllers.grant import GrantController
from fairlead.controllers.job import JobController
from fairlead.controllers.mirror import MirrorDown, MirrorUp
from fairlead.controllers.node import NodeController
from fairlead.controllers.node_pool import NodePoolController
from fairlead.controllers.override import OverrideController
from fairlead.controllers.policy import PolicyController
from fairlead.controllers.quota import QuotaController
from fairlead.controllers.recovery import RecoveryController
from fairlead.controllers.region import RegionController
from fairlead.controllers.repair import RepairController
from fairlead.controllers.rollout import RolloutController
from fairlead.controllers.standing import StandingController
from fairlead.controllers.touch import Touch
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.loads import Loads
from fairlead.decide.nodes import NodeRules
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.model.registry import GLOBAL
from fairlead.planning.copied import Copy
from fairlead.planning.trial import Seat

P = TypeVar("P")  # a plane, or a copy of one
Placed = tuple[Controller, Plane, Plane | None]


def controllers_of(
    config: PlaneConfig, own: P, durable: P, peers: Mapping[str, P], loads: Loads | None = None, plugins: Registry = BUILT_INS
) -> list[tuple[Controller, P, P | None]]:
    """Each with the plane it writes and the second one it looks at. `own` may tell of what is not durable yet; `durable` is the
    same plane for who writes to another. `loads`: of services whose replicas say how busy they are.
    `plugins`: what policies may name."""
    if config.plane == "global":
        return [
            (OverrideController("override-global"), own, None),
            (PolicyController(config.grant_lease_s), own, None),
            (AutoscalerController(loads), own, None),
            (WorkloadController(plugins), own, None),
            (RegionController(), own, None),
            (RecoveryController(registry=plugins), own, None),
            (GarbageGlobalController(), own, None),
            (QuotaController(config.grant_lease_s), own, None),
        ]
    region, above = config.region, peers.get(GLOBAL)
    touch = Touch() if above is not None else None
    seen = Above(region)
    here: list[tuple[Controller, P, P | None]] = [
        (OverrideController(), own, None),
        (NodePoolController(region), own, None),
        (AssignmentController(region), own, None),
        (RolloutController(), own, None),
        (JobController(region), own, None),
        (NodeController(NodeRules(lease_s=config.node_lease_s)), own, None),
        (RepairController(region, seen), own, None),
        (DisruptionController(), own, None),
        (DefragmenterController(region), own, None),
        (StandingController(region), own, None),
        (GarbageController(), own, None),
        (GrantController(region, touch), own, None),
    ]
    if above is not None:
        here.append((MirrorDown(region, seen, config.slot_lease_s), own, above))
        here.append((MirrorUp(region, touch), above, durable))
    return here


def tried_on(copy: Copy, copies: Mapping[str, Copy]) -> Iterable[Seat]:
    """The same, for a trial: nobody starts these, they are stepped."""
    region = "" if copy.is_global else copy.name
    config = PlaneConfig(plane="global" if copy.is_global else "region", store="", data="", region=region)
    return controllers_of(config, copy, copy, copies, plugins=copy.plugins)
