"""What tenants, quotas, regions, grants, budgets, nodes and pools must keep. Called through RULES in this package."""

from __future__ import annotations

from typing import Final

from fairlead.decide.admission.workload import TOTAL_BITS, check_requests
from fairlead.model.kinds.capacity import Grant, Node, NodePool, NodeSpec, RecoveryBudget
from fairlead.model.kinds.intent import Quota, Region, Tenant
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.report import COUNT_MAX, SECONDS_MAX, SUBDOMAIN_MAX, Report, shown
from fairlead.model.resources import NOTHING, Resources

SLOTS_MAX: Final = 10_000  # on one node; Kubernetes stops at a few hundred
NODES_MAX: Final = 1_000_000
WEIGHT_MAX: Final = 1_000
TEXT_MAX: Final = 256
_NODE_NAME_MORE: Final = 63 + 1 + 1 + 10  # a region, two dashes, a number: what the name of a pool's node has beside the pool's


def check_tenant(report: Report, new: Tenant, old: Tenant | None) -> None:
    report.within("spec.weight", new.spec.weight, 1, WEIGHT_MAX)
    report.within("spec.maxPending", new.spec.max_pending, 0, COUNT_MAX)
    _check_text(report, "spec.displayName", new.spec.display_name)


def check_quota(report: Report, new: Quota, old: Quota | None) -> None:
    report.amounts("spec.limits", new.spec.limits)
    total = NOTHING
    for region, amounts in new.spec.protected.items():
        report.label(f"spec.protected.{region[:80]}", region)
        report.amounts(f"spec.protected.{region[:80]}", amounts)
        total = total + amounts
    for name, asked, limit in total.exceeding(new.spec.limits):
        report.add("spec.protected", f"together protects more {name} than spec.limits has: {asked} of {limit} units")


def check_region(report: Report, new: Region, old: Region | None) -> None:
    report.labels("spec.areas", new.spec.areas)
    report.labels("spec.zones", new.spec.zones)
    _check_text(report, "spec.endpoint", new.spec.endpoint)


def check_grant(report: Report, new: Grant, old: Grant | None) -> None:
    spec = new.spec
    report.label("spec.region", spec.region)
    report.within("spec.version", spec.version, 1, 1 << 53)
    report.amounts("spec.during", spec.during)
    report.amounts("spec.after", spec.after)
    for name, after, during in spec.after.exceeding(spec.during):
        message = f"may be at most what `during` has of it, {during} units, got {after}"
        report.add(f"spec.after.{name[:80]}", message)
    report.amounts("spec.emergency", spec.emergency)
    report.within("spec.leaseSeconds", spec.lease_seconds, 0, 86_400)
    for index, offer in enumerate(spec.offers):
        report.within(f"spec.offers[{index}].version", offer.version, 1, spec.version - 1)
    if old is None:
        return
    report.unchanged("spec.region", spec.region, old.spec.region)
    # Offers are told apart by version (P13): one version with two contents could be accepted as the one and used as the other.
    if spec != old.spec and spec.version <= old.spec.version:
        report.add("spec.version", f"must grow with every change, above {old.spec.version}, got {spec.version}")


def check_grant_term(report: Report, new: GrantTerm, old: GrantTerm | None) -> None:
    spec = new.spec
    report.label("spec.region", spec.region)
    report.within("spec.leaseSeconds", spec.lease_seconds, 0, 86_400)
    if old is not None:
        report.unchanged("spec.region", spec.region, old.spec.region)


def check_recovery_budget(report: Report, new: RecoveryBudget, old: RecoveryBudget | None) -> None:
    report.labels("spec.regions", new.spec.regions)
    for index, shape in enumerate(new.spec.shapes):
        path = f"spec.shapes[{index}]"
        check_requests(report, f"{path}.requests", shape.requests)
        report.within(f"{path}.count", shape.count, 1, 10_000)
        for name, amount in shape.requests.amounts().items():
            if shape.count * amount >= 1 << TOTAL_BITS:
                report.add(f"{path}.count", f"times {name[:80]} is too large; the sum must stay below 2^62")


def check_node(report: Report, new: Node, old: Node | None) -> None:
    spec = new.spec
    for field, name in (("region", spec.region), ("zone", spec.zone)):
        if name:
            report.label(f"spec.{field}", name)
    if spec.pool:
        report.subdomain("spec.pool", spec.pool)
    report.amounts("spec.allocatable", spec.allocatable)
    report.need(_is_offer(spec.allocatable), "spec.allocatable", "must offer cpu or memory; to keep work away, set unschedulable")
    report.within("spec.maxSlots", spec.max_slots, 1, SLOTS_MAX)
    report.within("spec.hourlyCostMillis", spec.hourly_cost_millis, 0, 1 << 53)
    _check_text(report, "spec.address", spec.address)
    _check_devices(report, spec)
    _check_taints(report, spec)
    if spec.drain is not None:
        report.need(bool(spec.drain.reason.strip()), "spec.drain.reason", "is required: say why, for whoever is moved")
        report.need(spec.unschedulable, "spec.drain", "needs unschedulable: true, else what leaves could come back")
        _check_text(report, "spec.drain.reason", spec.drain.reason)
    # A node that moves would take its bindings out of the region they were placed in (residency, S6).
    if old is not None and old.spec.region:
        report.unchanged("spec.region", spec.region, old.spec.region)


def _check_devices(report: Report, spec: NodeSpec) -> None:
    report.unique("spec.devices", [device.id for device in spec.devices], "id")
    for index, device in enumerate(spec.devices):
        path = f"spec.devices[{index}]"
        report.need(bool(device.id), f"{path}.id", "is required, is empty")
        report.label_key(f"{path}.resource", device.resource)
        _check_text(report, f"{path}.id", device.id)
        _check_text(report, f"{path}.model", device.model)
        if any(name == device.resource for name, _ in spec.allocatable.scalars):
            report.add(
                f"{path}.resource", f"{shown(device.resource)} is also in allocatable; it may be counted in one place only"
            )


def _check_taints(report: Report, spec: NodeSpec) -> None:
    report.unique("spec.taints", [(taint.key, taint.effect) for taint in spec.taints])
    for index, taint in enumerate(spec.taints):
        report.label_key(f"spec.taints[{index}].key", taint.key)
        report.label_value(f"spec.taints[{index}].value", taint.value)


def check_node_pool(report: Report, new: NodePool, old: NodePool | None) -> None:
    spec = new.spec
    report.labels("spec.allowedTenants", spec.allowed_tenants)
    report.labels("spec.allowedClasses", spec.allowed_classes)
    report.within("spec.minNodes", spec.min_nodes, 0, NODES_MAX)
    report.within("spec.maxNodes", spec.max_nodes, 0, NODES_MAX)
    if spec.min_nodes > spec.max_nodes:
        report.add("spec.minNodes", f"may be at most maxNodes, which is {spec.max_nodes}, got {spec.min_nodes}")
    report.amounts("spec.node", spec.node)
    report.within("spec.maxSlots", spec.max_slots, 1, SLOTS_MAX)
    for field, seconds in (("start", spec.start_seconds), ("upWait", spec.up_wait_seconds), ("idle", spec.idle_seconds)):
        report.within(f"spec.{field}Seconds", seconds, 1, SECONDS_MAX)
    if spec.provider:
        report.label("spec.provider", spec.provider)
        # Its nodes are admitted by check_node: whatever that refuses would be ordered for ever and never come.
        report.need(_is_offer(spec.node), "spec.node", "must have cpu or memory: what a node of this provider gives")
        room = SUBDOMAIN_MAX - _NODE_NAME_MORE
        if (old is None or not old.spec.provider) and len(new.metadata.name) > room:
            report.add("metadata.name", f"may have {room} characters, has {len(new.metadata.name)}: its nodes are named after it")


def _is_offer(amounts: Resources) -> bool:
    return amounts.cpu > 0 or amounts.memory > 0


def _check_text(report: Report, path: str, text: str) -> None:
    if len(text) > TEXT_MAX:
        report.add(path, f"may have {TEXT_MAX} characters, has {len(text)}")
