"""What a gate looks at: the need of one slot, compiled, and the row of one node or of all.

Owns the shapes only. Compiled by fairlead/decide/compiling.py; rows are made by the authority's ledger (ints) and by the
scheduler's snapshot (int64 columns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from fairlead.decide.topology_need import TopologyNeed


class Need(msgspec.Struct, frozen=True, gc=False):
    """What one slot asks of a node, compiled: integers and tables only.

    `firm_*` is what must fit beside everything promised; it is zero for borrowers, who use what others hold (P12).
    """

    cpu: int
    memory: int
    slots: int
    firm_cpu: int
    firm_memory: int
    scalars: tuple[tuple[str, int], ...]
    devices: tuple[DeviceNeed, ...]
    max_age_ms: int  # the node must have been heard within this time
    classes: ClassVerdicts  # for each node class: labels, taints, zone, region, tenancy, residency
    borrows: bool = False
    charge: dict[str, int] = {}  # what the tenant will be charged by dimension, devices apart
    tenant: int = 0  # the tenant's number, from 1; rows name tenants by it
    exclusive: bool = False  # TenantExclusive: beside nobody else's slots
    topology: TopologyNeed | None = None  # rules about the neighbours; None, as for most, when none applies
    extra: tuple[ExtraGate, ...] = ()  # gates beyond the built-in ones, named by the policy
    wishes: Any = None  # what scores rank by (scores/wishes.py); never read by a gate


class ExtraGate(Protocol):
    """A gate that comes with the need. The built-in ones have the same shape (fairlead/decide/gates)."""

    @property
    def name(self) -> str: ...

    def check(self, need: Need, row: Row, view: View) -> Any: ...

    def why(self, need: Need, row: Row, view: View) -> str: ...


class DeviceNeed(msgspec.Struct, frozen=True, gc=False):
    resource: str
    models: tuple[str, ...]
    whole: int  # devices held alone
    share: int  # thousandths of one device; 0 when whole devices are asked for


class ClassVerdicts(Protocol):
    """One table per gate that depends only on the node's class; index by class number, 1 means allowed."""

    allowed: Any  # all of the following at once
    labels: Any
    taints: Any
    zones: Any
    regions: Any
    tenancy: Any
    residency: Any


class Row(Protocol):
    """One node (ints) or all nodes (columns)."""

    number: Any  # the node's own number, as the topology was told it
    cpu_free: Any  # allocatable - firm - held
    memory_free: Any
    cpu_unlent: Any  # allocatable - firm - lent
    memory_unlent: Any
    slots_free: Any
    node_class: Any
    schedulable: Any
    healthy: Any
    cordoned: Any
    observed_ms: Any
    exclusive_to: Any  # the tenant whose TenantExclusive slots are here; 0 nobody's, -1 several tenants'
    used_by: Any  # the one tenant whose slots are here; 0 none's, -1 several tenants'

    def scalar_free(self, name: str) -> Any: ...

    def scalar_unlent(self, name: str) -> Any: ...

    def devices_whole(self, resource: str, models: tuple[str, ...]) -> Any: ...

    def devices_share(self, resource: str, models: tuple[str, ...]) -> Any: ...


class View(Protocol):
    """What a gate may ask beside the node itself."""

    now_ms: int  # plane time
