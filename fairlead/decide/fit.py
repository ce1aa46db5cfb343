"""Does this need fit this node, and if not, every reason. The only feasibility function: proposers and the authority call it.

A gate is one expression of operators (`<=`, `&`, `==`, table look-up; no if, and, or) over a row whose fields are Python ints in
the authority and int64 columns in the scheduler (P18), so one source answers for one node in a microsecond and for ten thousand
in a tenth of a millisecond. `tests/decide/test_fit.py` holds vector[i] == scalar(row i) for every gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from fairlead.model.quantity import format_quantity


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
    classes: ClassVerdicts  # for each node class: labels, taints, zone, region, tenancy
    borrows: bool = False
    charge: dict[str, int] = {}  # what the tenant will be charged by dimension, devices apart
    wishes: Any = None  # what scores rank by (scores/wishes.py); never read by a gate


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


class Row(Protocol):
    """One node (ints) or all nodes (columns)."""

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

    def scalar_free(self, name: str) -> Any: ...

    def scalar_unlent(self, name: str) -> Any: ...

    def devices_whole(self, resource: str, models: tuple[str, ...]) -> Any: ...

    def devices_share(self, resource: str, models: tuple[str, ...]) -> Any: ...


class View(Protocol):
    """What a gate may ask beside the node itself."""

    now_ms: int  # plane time


def cpu(need: Need, row: Row, view: View) -> Any:
    return (need.firm_cpu <= row.cpu_free) & (need.cpu <= row.cpu_unlent)


def memory(need: Need, row: Row, view: View) -> Any:
    return (need.firm_memory <= row.memory_free) & (need.memory <= row.memory_unlent)


def slots(need: Need, row: Row, view: View) -> Any:
    return need.slots <= row.slots_free


def scalars(need: Need, row: Row, view: View) -> Any:
    fits: Any = True
    for name, amount in need.scalars:  # over the need's own few names, never over nodes
        fits = fits & (amount * (1 - need.borrows) <= row.scalar_free(name)) & (amount <= row.scalar_unlent(name))
    return fits


def devices(need: Need, row: Row, view: View) -> Any:
    fits: Any = True
    for ask in need.devices:
        fits = fits & (ask.whole <= row.devices_whole(ask.resource, ask.models))
        fits = fits & (ask.share <= row.devices_share(ask.resource, ask.models))
    return fits


def labels(need: Need, row: Row, view: View) -> Any:
    return need.classes.labels[row.node_class] == 1


def taints(need: Need, row: Row, view: View) -> Any:
    return need.classes.taints[row.node_class] == 1


def zones(need: Need, row: Row, view: View) -> Any:
    return need.classes.zones[row.node_class] == 1


def regions(need: Need, row: Row, view: View) -> Any:
    return need.classes.regions[row.node_class] == 1


def tenancy(need: Need, row: Row, view: View) -> Any:
    return need.classes.tenancy[row.node_class] == 1


def handshake(need: Need, row: Row, view: View) -> Any:
    return row.schedulable == 1


def health(need: Need, row: Row, view: View) -> Any:
    return row.healthy == 1


def cordon(need: Need, row: Row, view: View) -> Any:
    return row.cordoned == 0


def observation(need: Need, row: Row, view: View) -> Any:
    return view.now_ms - need.max_age_ms <= row.observed_ms


class Gate(NamedTuple):
    name: str
    check: Callable[[Need, Row, View], Any]
    why: Callable[[Need, Row, View], str]  # of one node that failed it


def _short(name: str, ask: int, free: int, **form: Any) -> str:
    return f"needs {format_quantity(ask, **form)} {name}, {format_quantity(max(free, 0), **form)} free"


def _room(need: Need, free: int, unlent: int) -> int:
    """What this need could take. Borrowers use what is held, unless the node has promised more than it has."""
    return unlent if need.borrows and free >= 0 else min(free, unlent)


def _cpu_why(need: Need, row: Row, view: View) -> str:
    return _short("cpu", need.cpu, _room(need, row.cpu_free, row.cpu_unlent), unit_exponent=-3)


def _memory_why(need: Need, row: Row, view: View) -> str:
    return _short("memory", need.memory, _room(need, row.memory_free, row.memory_unlent), binary=True)


def _scalars_why(need: Need, row: Row, view: View) -> str:
    rooms = [(name, ask, _room(need, row.scalar_free(name), row.scalar_unlent(name))) for name, ask in need.scalars]
    return "; ".join(_short(name, ask, room) for name, ask, room in rooms if ask > room)


def _devices_why(need: Need, row: Row, view: View) -> str:
    out = []
    for ask in need.devices:
        of = f" of {'/'.join(ask.models)}" if ask.models else ""
        if ask.whole > row.devices_whole(ask.resource, ask.models):
            out.append(f"needs {ask.whole} whole {ask.resource}{of}, {row.devices_whole(ask.resource, ask.models)} free")
        if ask.share > row.devices_share(ask.resource, ask.models):
            out.append(
                f"needs {ask.share}/1000 of one {ask.resource}{of}, at most {row.devices_share(ask.resource, ask.models)} free"
            )
    return "; ".join(out)


def _always(text: str) -> Callable[[Need, Row, View], str]:
    return lambda need, row, view: text


# In the order in which reasons read best: what a person can least change first.
GATES: tuple[Gate, ...] = (
    Gate("regions", regions, _always("its region is not allowed")),
    Gate("zones", zones, _always("its zone is not allowed")),
    Gate("tenancy", tenancy, _always("its pool is not open to this tenant or class")),
    Gate("labels", labels, _always("its labels do not match")),
    Gate("taints", taints, _always("it has a taint that is not tolerated")),
    Gate("cordon", cordon, _always("it is cordoned")),
    Gate("health", health, _always("it is not ready")),
    Gate("handshake", handshake, _always("its inventory handshake is not done")),
    Gate("observation", observation, _always("it was not heard recently enough")),
    Gate("cpu", cpu, _cpu_why),
    Gate("memory", memory, _memory_why),
    Gate("slots", slots, _always("it has no slot left")),
    Gate("scalars", scalars, _scalars_why),
    Gate("devices", devices, _devices_why),
)


def allowed(need: Need, row: Row, view: View) -> Any:
    """Regions, zones, tenancy, labels and taints in one look-up."""
    return need.classes.allowed[row.node_class] == 1


def open_for_work(need: Need, row: Row, view: View) -> Any:
    """Health, handshake and cordon in one expression."""
    return (row.healthy & row.schedulable) > row.cordoned


# The same verdict as all of GATES, in fewer steps: what a person is told apart is asked together. A test holds both equal.
_VERDICT: tuple[Callable[[Need, Row, View], Any], ...] = (allowed, open_for_work, observation, cpu, memory, slots)


def feasible(need: Need, row: Row, view: View) -> Any:
    """True where the need fits. One bool for one node; a mask for columns."""
    fits: Any = True
    for check in _VERDICT:
        fits = fits & check(need, row, view)
    if need.scalars or need.devices:
        fits = fits & scalars(need, row, view) & devices(need, row, view)
    return fits


def reasons(need: Need, row: Row, view: View, gates: tuple[Gate, ...] = GATES) -> dict[str, str]:
    """Every gate one node fails, with the reason. Empty means it fits."""
    return {gate.name: gate.why(need, row, view) for gate in gates if not gate.check(need, row, view)}
