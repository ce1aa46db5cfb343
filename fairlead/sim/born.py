"""Owns the objects a simulated platform is born with: regions, tenants, quotas, policies, pools, an administrator.

Records only, the same for every server of a plane; nothing is drawn here but the administrator's token. Called by platform.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairlead.agent.settings import NodeDeclaration
from fairlead.model.kinds.access import SYSTEM_TENANT, AccessBinding, AccessBindingSpec, Subject, Token, TokenSpec
from fairlead.model.kinds.capacity import (
    BudgetShape,
    Node,
    NodePool,
    NodePoolSpec,
    NodeSpec,
    RecoveryBudget,
    RecoveryBudgetSpec,
    Taint,
)
from fairlead.model.kinds.intent import Autoscaler, AutoscalerSpec, Quota, QuotaSpec, Region, RegionSpec, Tenant, TenantSpec
from fairlead.model.kinds.policy import (
    Defragmentation,
    PolicyChannel,
    PolicyChannelSpec,
    ResidencyRule,
    SchedulerPolicy,
    SchedulerPolicySpec,
)
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, Resources
from fairlead.ports import Ids
from fairlead.security import tokens

GI: Final = 1 << 30
TENANTS: Final = ("risk", "search")
REGIONS: Final = ("us-east", "us-west", "eu-central")
ZONES: Final = ("a", "b", "c")
AREAS: Final = {"us-east": "us", "us-west": "us", "eu-central": "eu"}
NODE_ROOM: Final = Resources(16_000, 64 * GI)
TIGHT_ROOM: Final = Resources(1_200, 5 * GI // 2)
GRANT: Final = Resources(24_000, 64 * GI, [("gpu", 4)])
TIGHT_GRANT: Final = Resources(1_800, 64 * GI, [("gpu", 4)])  # two tenants want less than three nodes have, and more than this
ELASTIC_GRANT: Final = Resources(2_400, 64 * GI, [("gpu", 4)])  # of two tenants: more than two nodes have

BUDGET: Final = "critical"
LARGEST: Final = Resources(400, GI >> 1)  # that a workload asks for
SCALED: Final = ("risk", "index")  # the service whose replicas follow its load, where there is one
BURST: Final = "burst"  # the pool that orders machines, where regions are elastic
BURST_MAX: Final = 3
MOVES: Final = Defragmentation(max_moves=2, per_hour=8)  # few an hour: all are over before a run must come to rest

LICENSE: Final = "license"  # a scalar of nodes, where work is picky
LICENSES: Final = 4  # of each of those nodes

Born = list[tuple[str, Any]]


class TenantBorn(NamedTuple):
    name: str
    quota: Resources
    rooms: int = 0  # that its recovery budget holds in each region
    room: Resources = LARGEST


class Birth(NamedTuple):
    """Which regions and tenants there are from the beginning."""

    regions: tuple[str, ...]
    tenants: tuple[TenantBorn, ...]
    elastic: bool = False
    fragmented: bool = False


def usual(
    regions: int, *, tight: bool, critical: bool, elastic: bool = False, fragmented: bool = False, picky: bool = False
) -> Birth:
    quota = (ELASTIC_GRANT if tight and elastic else TIGHT_GRANT if tight else GRANT).times(max(1, regions))
    quota = quota + Resources(scalars=[(LICENSE, 4 * LICENSES * regions)]) if picky else quota
    tenants = tuple(TenantBorn(name, quota, 12 if critical else 0) for name in TENANTS)
    return Birth(REGIONS[:regions], tenants, elastic, fragmented)


def pool_of(region: str) -> str:
    return f"{region}-general"


def dedicated_of(region: str) -> str:
    return f"{region}-dedicated"


def global_objects(birth: Birth, ids: Ids) -> tuple[Born, str]:
    """What the global plane is born with, and the administrator's token."""
    made: Born = [
        ("Region", Region(Metadata(name=r), RegionSpec((AREAS.get(r, r),), tuple(f"{r}-{z}" for z in ZONES))))
        for r in birth.regions
    ]
    for tenant in birth.tenants:
        name = tenant.name
        made.append(("Tenant", Tenant(Metadata(name=name), TenantSpec(display_name=name))))
        made.append(("Quota", Quota(Metadata(name="default", namespace=name), QuotaSpec(limits=tenant.quota))))
        if tenant.rooms:
            budget = RecoveryBudgetSpec(shapes=(BudgetShape(requests=tenant.room, count=tenant.rooms),))
            made.append(("RecoveryBudget", RecoveryBudget(Metadata(name=BUDGET, namespace=name), budget)))
    if birth.elastic:
        rule = AutoscalerSpec(SCALED[1], max_replicas=6, up_wait_seconds=10.0, down_window_seconds=20.0)
        made.append(("Autoscaler", Autoscaler(Metadata(name=SCALED[1], namespace=SCALED[0]), rule)))
    made += _policies(birth.fragmented)
    made.append(("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1))))
    minted = tokens.mint(ids, SYSTEM_TENANT)
    subject = Subject(name="ada")
    token = TokenSpec(hash=minted.hash, subject=subject, expiry_time=datetime(2100, 1, 1, tzinfo=UTC))
    made.append(("Token", Token(Metadata(name=minted.name, namespace=SYSTEM_TENANT), token)))
    binding = AccessBindingSpec(role="admin", subjects=(subject,), tenants=("*",))
    made.append(("AccessBinding", AccessBinding(Metadata(name="ada"), binding)))
    return made, minted.text.reveal_bytes().decode()


def _policies(fragmented: bool) -> Born:
    made: Born = []
    for revision, areas in ((1, ()), (2, ("us", "eu")), (3, ("eu",))):
        residency = (ResidencyRule(tenants=("risk",), areas=areas),) if areas else ()
        policy = SchedulerPolicySpec(revision=revision, spread="Zone", residency=residency)
        if fragmented:
            policy = replace(policy, spread="Node", packing="Balance", defragmentation=MOVES)
        made.append(("SchedulerPolicy", SchedulerPolicy(Metadata(name=f"r{revision}"), policy)))
    return made


def labels_of(number: int) -> dict[str, str]:
    """Of a node of a platform whose work is picky."""
    return {"disk": ("ssd", "hdd")[number % 2], "age": str(number)}


def taints_of(number: int) -> tuple[Taint, ...]:
    """Of the same: one of five."""
    return (Taint("dedicated", "batch"),) if number % 5 == 4 else ()


def region_objects(
    region: str, nodes: Sequence[NodeDeclaration], elastic: bool = False, tight: bool = False, picky: bool = False
) -> Born:
    """A region's pools, and its nodes as an operator approved them. Where there is little room, what is ordered is as small."""
    made: Born = [("NodePool", NodePool(Metadata(name=pool_of(region)), NodePoolSpec()))]
    if elastic:
        burst = NodePoolSpec(
            provider="simulated", min_nodes=0 if tight else 1, max_nodes=BURST_MAX, start_seconds=5.0,
            node=TIGHT_ROOM if tight else Resources(4_000, 16 * GI), up_wait_seconds=25.0 if tight else 5.0,
            idle_seconds=12.0 if tight else 5.0,
        )  # fmt: skip
        made.append(("NodePool", NodePool(Metadata(name=BURST), burst)))
    if any(node.pool != pool_of(region) for node in nodes):
        made.append(("NodePool", NodePool(Metadata(name=dedicated_of(region)), NodePoolSpec(allowed_tenants=TENANTS[-1:]))))
    for number, node in enumerate(nodes):
        spec = NodeSpec(
            region=region, zone=node.zone, pool=node.pool, allocatable=node.allocatable, max_slots=node.max_slots,
            devices=node.devices, address=node.address, taints=taints_of(number) if picky else (),
        )  # fmt: skip
        made.append(("Node", Node(Metadata(name=node.name, labels=node.labels), spec)))
    return made


def declared(
    region: str, number: int, tight: bool, dedicated: bool = False, plain: bool = False, picky: bool = False
) -> NodeDeclaration:
    """`plain`: without devices, as nodes are whose work may be moved for room."""
    room = TIGHT_ROOM if tight else NODE_ROOM
    return NodeDeclaration(
        name=f"{region}-n{number}",
        region=region,
        zone=f"{region}-{ZONES[number % len(ZONES)]}",
        pool=dedicated_of(region) if dedicated else pool_of(region),
        allocatable=room + Resources(scalars=[(LICENSE, LICENSES)]) if picky else room,
        labels=labels_of(number) if picky else {},
        devices=() if plain else (Device(id="gpu-0", model="sim"), Device(id="gpu-1", model="sim")),
        address=f"{region}-n{number}",
        max_slots=64,
    )
