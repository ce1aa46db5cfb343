"""Node classes: the few combinations of region, zone, pool, labels and taints that a fleet has, numbered as they appear.

Selectors, taints and tenancy are judged once per (ask, class) and kept as tables (P18), so that a gate is a look-up. Both
the authority and the scheduler use this module.
"""

from __future__ import annotations

import msgspec

from fairlead.model.kinds.capacity import Node, NodePool, Taint
from fairlead.model.kinds.intent import LabelExpression, Toleration
from fairlead.model.kinds.work import Ask


class NodeClass(msgspec.Struct, frozen=True, gc=False):
    region: str
    zone: str
    pool: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    allowed_tenants: tuple[str, ...]
    allowed_classes: tuple[str, ...]


class Verdicts(msgspec.Struct):
    """One byte per class and gate; grown when a class appears."""

    ask: Ask
    tenant: str
    allowed: bytearray
    labels: bytearray
    taints: bytearray
    zones: bytearray
    regions: bytearray
    tenancy: bytearray


class Classes:
    def __init__(self) -> None:
        self._numbers: dict[NodeClass, int] = {}
        self._all: list[NodeClass] = []
        self._verdicts: dict[tuple[Ask, str], Verdicts] = {}

    def number_of(self, node: Node, pool: NodePool | None) -> int:
        wanted = NodeClass(
            region=node.spec.region,
            zone=node.spec.zone,
            pool=node.spec.pool,
            labels=tuple(sorted(node.metadata.labels.items())),
            taints=node.spec.taints,
            allowed_tenants=pool.spec.allowed_tenants if pool else (),
            allowed_classes=pool.spec.allowed_classes if pool else (),
        )
        number = self._numbers.get(wanted)
        if number is None:
            number = self._numbers[wanted] = len(self._all)
            self._all.append(wanted)
            for verdicts in self._verdicts.values():
                _extend(verdicts, wanted)
        return number

    def verdicts(self, ask: Ask, tenant: str) -> Verdicts:
        found = self._verdicts.get((ask, tenant))
        if found is None:
            if len(self._verdicts) > 50_000:  # asks come and go with workloads; start again rather than grow for ever
                self._verdicts.clear()
            found = Verdicts(ask, tenant, *(bytearray() for _ in range(6)))
            for node_class in self._all:
                _extend(found, node_class)
            self._verdicts[ask, tenant] = found
        return found


def _extend(verdicts: Verdicts, node_class: NodeClass) -> None:
    ask, place = verdicts.ask, verdicts.ask.placement
    labels = dict(node_class.labels)
    verdicts.labels.append(all(matches(e, labels) for e in place.node_labels))
    verdicts.taints.append(all(_tolerated(t, place.tolerations) for t in node_class.taints))
    verdicts.zones.append(not place.zones or node_class.zone in place.zones)
    verdicts.regions.append(not place.regions.allowed or node_class.region in place.regions.allowed)
    tenants, classes = node_class.allowed_tenants, node_class.allowed_classes
    verdicts.tenancy.append((not tenants or verdicts.tenant in tenants) and (not classes or ask.workload_class in classes))
    tables = (verdicts.labels, verdicts.taints, verdicts.zones, verdicts.regions, verdicts.tenancy)
    verdicts.allowed.append(all(table[-1] for table in tables))


def matches(expression: LabelExpression, labels: dict[str, str]) -> bool:
    """Kubernetes' meaning of each operator; Gt and Lt compare integers and are false for anything else."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                have, bound = int(value or ""), int(expression.values[0])
            except (ValueError, IndexError):
                return False
            return have > bound if expression.operator == "Gt" else have < bound


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    if taint.effect == "PreferNoSchedule":
        return True
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
