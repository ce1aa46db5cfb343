"""Node classes: the few combinations of region, zone, pool, labels and taints that a fleet has, numbered as they appear.

Selectors, taints, tenancy and residency are judged once per (ask, class) and kept as tables (P18), so that a gate is a look-up.
Both the authority and the scheduler use this module.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from fairlead.model.kinds.capacity import Node, NodePool, Taint
from fairlead.model.kinds.intent import LabelExpression, Placement, Region, Toleration
from fairlead.model.kinds.work import Ask

_VERDICTS_MAX = 50_000  # asks come and go with workloads; start again rather than grow for ever


class NodeClass(msgspec.Struct, frozen=True, gc=False):
    region: str
    areas: tuple[str, ...] | None  # the region lies in; None: nobody has said, so nothing bound to an area may go there
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
    areas: frozenset[str] | None  # that the policy allows this tenant and these labels; None: it says nothing
    allowed: bytearray
    labels: bytearray
    taints: bytearray
    zones: bytearray
    regions: bytearray
    tenancy: bytearray
    residency: bytearray
    _wide: WideVerdicts | None = None

    def wide(self) -> WideVerdicts:
        """The same tables for columns of class numbers. Ask again when a class may have appeared: these do not grow."""
        if self._wide is None or len(self._wide.allowed) != len(self.allowed):
            self._wide = WideVerdicts(**{name: np.array(getattr(self, name)) for name in WideVerdicts.__struct_fields__})
        return self._wide


class WideVerdicts(msgspec.Struct, frozen=True):
    allowed: Any
    labels: Any
    taints: Any
    zones: Any
    regions: Any
    tenancy: Any
    residency: Any


class Classes:
    def __init__(self) -> None:
        self._numbers: dict[NodeClass, int] = {}
        self._all: list[NodeClass] = []
        # By what verdicts depend on: where an ask may go and of which class it is, not how much it asks for.
        self._verdicts: dict[tuple[Placement, str, str, frozenset[str] | None], Verdicts] = {}
        self.version = 0  # grows when verdicts handed out before are no longer kept up to date

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> NodeClass:
        return self._all[number]

    def number_of(self, node: Node, pool: NodePool | None, region: Region | None = None) -> int:
        wanted = NodeClass(
            region=node.spec.region,
            areas=region.spec.areas if region else None,
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

    def verdicts(self, ask: Ask, tenant: str, areas: frozenset[str] | None = None) -> Verdicts:
        """`areas` is what the policy in force allows this tenant and these labels."""
        key = (ask.placement, ask.workload_class, tenant, areas)
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= _VERDICTS_MAX:
                self._verdicts.clear()
                self.version += 1
            tables = {name: bytearray() for name in WideVerdicts.__struct_fields__}
            found = Verdicts(ask=ask, tenant=tenant, areas=areas, **tables)  # type: ignore[arg-type]  # not _wide
            for node_class in self._all:
                _extend(found, node_class)
            self._verdicts[key] = found
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
    verdicts.residency.append(_resides(node_class.areas, ask, verdicts.areas))
    tables = (
        verdicts.labels, verdicts.taints, verdicts.zones, verdicts.regions, verdicts.tenancy, verdicts.residency,
    )  # fmt: skip
    verdicts.allowed.append(all(table[-1] for table in tables))


def _resides(areas: tuple[str, ...] | None, ask: Ask, policy: frozenset[str] | None) -> bool:
    """Does a region in these areas satisfy the ask and the policy: a workload may narrow what its policy allows, never widen it.
    Where the region's areas are unknown, nothing bound to an area may go."""
    own = ask.placement.residency
    wanted = [frozenset(own.areas)] if own.areas and own.enforcement == "Required" else []
    if policy is not None:
        wanted.append(policy)
    return all(areas is not None and not allowed.isdisjoint(areas) for allowed in wanted)


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
