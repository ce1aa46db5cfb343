"""What `get` prints of each kind: the columns of Table answers, and the fields that may be selected by. Data, mostly.

Columns are as in Kubernetes: NAME first, AGE last, priority 1 only with `-o wide`. Cells are made from served objects. Called by
tables.py and the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from fairlead.api.selectors import FieldOf
from fairlead.api.summary import verdict_of


class Column(NamedTuple):
    name: str
    cell: Callable[[Any], Any]
    description: str = ""
    type: str = "string"
    wide: bool = False
    live: bool = False  # says how things stand at this moment: of a copy, nobody knows
    of_plane: bool = False  # in place of the cell: the plane it lies on


def age(since: datetime | None, now_ms: int) -> str:
    return "<unknown>" if since is None else age_of(now_ms / 1000 - since.timestamp())


def age_of(elapsed_s: float) -> str:
    """As kubectl words it: 12s, 5m3s, 3h12m, 4d."""
    seconds = max(0, int(elapsed_s))
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8 and minutes % 60:
        return f"{hours}h{minutes % 60}m"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _at(path: str) -> Callable[[Any], Any]:
    names = path.split(".")

    def cell(served: Any) -> Any:
        for name in names:
            served = getattr(served, name, None)
            if served is None:
                return ""
        return getattr(served, "value", served)

    return cell


def _rooms(budget: Any, which: str) -> int:
    return sum(getattr(shape, which) for row in budget.status.regions for shape in row.shapes)


def _heard_nodes(region: Any) -> str:
    zones = region.status.zones
    return f"{sum(zone.ready for zone in zones)}/{sum(zone.nodes for zone in zones)}" if zones else ""


def _partial(region: Any) -> str:
    said = [c for c in region.status.conditions if c.type == "Partial" and c.status != "False"]
    return said[0].reason if said else "<none>"


def _asked_by(outlook: Any) -> str:
    return ",".join(str(n) for n in sorted({one.policy_revision for one in outlook.spec.services})) or "<none>"


def _joined(path: str) -> Callable[[Any], str]:
    found = _at(path)
    return lambda o: ",".join(str(item) for item in found(o) or ()) or "<none>"


def _amounts(path: str) -> Callable[[Any], str]:
    found = _at(path)
    return lambda o: ",".join(f"{name}={n}" for name, n in found(o).as_quantities().items()) if found(o) else ""


def _condition(o: Any) -> str:
    """The condition that is not as it should be, else the last one that is."""
    conditions = o.status.conditions
    bad = next((c for c in conditions if c.status != "True"), None)
    shown = bad or (conditions[-1] if conditions else None)
    return shown.reason or shown.type if shown is not None else ""


def _active(o: Any) -> str:
    return next((c.reason for c in o.status.conditions if c.type == "Active"), "")


def _repair_state(o: Any) -> str:
    found = {c.type: c for c in o.status.conditions}
    if "Overdue" in found and found["Overdue"].status == "True":
        return "Overdue"
    return found["Mended"].reason if "Mended" in found else "Found"


def _workload_reason(o: Any) -> str:
    if o.metadata.deletion_time is not None:
        return "Deleting"
    ended = verdict_of(o)
    if ended is not None:
        return "Complete" if ended.type == "Complete" else f"Failed ({ended.reason})"
    return o.status.pending[0].reason if o.status.pending else _condition(o)


def _node_state(o: Any) -> str:
    words = [o.status.health or "Unknown"]
    if o.spec.unschedulable:
        words.append("SchedulingDisabled")
    elif not o.status.schedulable and o.status.health == "Ready":
        words.append("NotSchedulable")
    return ",".join(words)


def _nodes_ready(o: Any) -> str:
    return str(len(o.spec.endpoints))


def _count(name: str, field: str, what: str) -> Column:
    return Column(name, _at(f"status.replicas.{field}"), what, "integer")


_SLOT: Final = (Column("Slot", _at("spec.slot.index"), "Which replica of its workload.", "integer"),)

COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "workloads": (
        Column("Tenant", _at("metadata.namespace"), "Whose it is."),
        Column("Class", _at("spec.workload_class"), "Its workload class."),
        Column("Desired", lambda o: o.status.replicas.desired or o.spec.replicas, "Replicas asked for.", "integer"),
        _count("Bound", "bound", "Replicas that have a node."),
        _count("Ready", "ready", "Replicas whose probes pass."),
        _count("Serving", "serving", "Replicas that get requests."),
        Column("Reason", _workload_reason, "The most decisive reason why it is not all there."),
        Column("Regions", lambda o: ",".join(each.region for each in o.status.regions), "Where it is to run.", wide=True),
        Column("Policy", _at("status.policy_revision"), "The policy revision under which it was looked at.", "integer", True),
        Column("Gen", _at("metadata.generation"), "Counts changes of the spec.", "integer", True),
        Column("Observed", _at("status.observed_generation"), "The generation its status speaks of.", "integer", True),
        Column(
            "Queue-Age",
            lambda o: o.status.pending[0].since_time or "" if o.status.pending else "",
            "How long it waits.",
            wide=True,
        ),
        Column("Next-Owner", lambda o: o.status.pending[0].next_owner if o.status.pending else "", "Who acts next.", wide=True),
    ),
    "nodes": (
        Column("Status", _node_state, "Health, and whether it takes new work.", live=True),
        Column("Region", _at("spec.region"), "Where it is."),
        Column("Zone", _at("spec.zone"), "Where in the region."),
        Column("Pool", _at("spec.pool"), "The node pool."),
        Column("Allocatable", _amounts("spec.allocatable"), "What it can give.", wide=True),
        Column("Devices", lambda o: len(o.spec.devices), "How many devices it has.", "integer", True),
        Column("Address", _at("spec.address"), "Where it is reached.", wide=True),
    ),
    "nodepools": (
        Column("Provider", lambda o: o.spec.provider or "<none>", "Who starts its machines; none: people do."),
        Column("Min", _at("spec.min_nodes"), "Never fewer.", "integer"),
        Column("Max", _at("spec.max_nodes"), "Never more.", "integer"),
        Column("Ordered", lambda o: len(o.status.ordered), "Machines that its provider is to run.", "integer"),
        Column("Scaling", _condition, "What its autoscaler does."),
    ),
    "tenants": (Column("Weight", _at("spec.weight"), "Its share between tenants of one priority.", "integer"),),
    "autoscalers": (
        Column("Workload", _at("spec.workload"), "Whose replicas it sets."),
        Column("Min", _at("spec.min_replicas"), "Never fewer.", "integer"),
        Column("Max", _at("spec.max_replicas"), "Never more.", "integer"),
        Column("Replicas", _at("status.replicas"), "Ordered.", "integer"),
        Column("Wanted", _at("status.wanted"), "By the load alone.", "integer"),
    ),
    "quotas": (
        Column("Limits", _amounts("spec.limits"), "At most this, over all regions."),
        Column("Used", _amounts("status.used"), "In use."),
    ),
    "regions": (
        Column("Health", _at("status.health"), "As the global plane sees it."),
        Column("Areas", _joined("spec.areas"), "Residency areas it lies in."),
        Column("Zones", _joined("spec.zones"), "Its zones."),
        Column("Nodes", _heard_nodes, "Of its nodes that are to take work, how many are heard.", wide=True),
        Column("Partial", _partial, "What it has lost though it is heard.", wide=True),
    ),
    "recoverybudgets": (
        Column("Regions", _joined("spec.regions"), "Where room is held; none named: everywhere."),
        Column("Held", lambda o: _rooms(o, "held"), "Rooms that could be claimed now.", "integer"),
        Column("Lent", lambda o: _rooms(o, "lent"), "Of those, rooms that borrowers run in.", "integer"),
        Column("Claimed", lambda o: _rooms(o, "claimed"), "Rooms that slots have taken.", "integer"),
        Column(
            "Missing",
            lambda o: _rooms(o, "waiting") + _rooms(o, "silent"),
            "Rooms that are not placed, or not heard of.",
            "integer",
        ),
    ),
    "holdings": (
        Column("Budget", _at("spec.budget"), "Of which budget."),
        Column("Region", _at("spec.region"), "For which region."),
        Column("Held", lambda o: sum(shape.held for shape in o.status.shapes), "Rooms that could be claimed now.", "integer"),
        Column("Claimed", lambda o: sum(shape.claimed for shape in o.status.shapes), "Rooms that slots have taken.", "integer"),
    ),
    "recoveryorders": (
        Column("Lost", _joined("spec.lost"), "The regions it stands in for."),
        Column(
            "Slots", lambda o: ",".join(f"{r}={n}" for r, n in o.spec.regions.items()) or "<none>", "Recovery slots by region."
        ),
        Column("Missing", _at("spec.missing"), "Of the minimum, what nobody has room for.", "integer"),
        Column("Why", _at("spec.why"), "Something is missing.", wide=True),
        Column("Policy", _at("spec.policy_revision"), "The policy revision that decided it.", "integer", True),
    ),
    "regionoutlooks": (
        Column("Ready", _at("spec.ready"), "Services that would reach their minimum were it lost now.", "integer"),
        Column("Short", _at("spec.short"), "Services that would not.", "integer"),
        Column("Seconds", _at("spec.seconds"), "Until the last of the ready ones serves.", "number"),
        Column("Policy", _asked_by, "The policy revisions that it was asked by.", wide=True),
    ),
    "repairs": (
        Column("Problem", _at("spec.problem"), "What is out of order."),
        Column("Regarding", _at("spec.regarding"), "The object concerned."),
        Column("Owner", _at("spec.owner"), "Who mends it."),
        Column("State", _repair_state, "Mended, or why not yet; Overdue from its deadline on."),
        Column("Attempts", _at("status.attempts"), "How often repair tried.", "integer", wide=True),
        Column("Evidence", _at("spec.evidence"), "As it was found.", wide=True),
    ),
    "grants": (
        Column("Region", _at("spec.region"), "Where it holds."),
        Column("Version", _at("spec.version"), "Counts its changes.", "integer"),
        Column("During", _amounts("spec.during"), "Until its lease ends."),
        Column("Used", _amounts("status.used"), "In use."),
    ),
    "schedulerpolicies": (Column("Revision", _at("spec.revision"), "Which revision of the policy.", "integer"),),
    "policychannels": (Column("Current", _at("spec.current"), "The revision that decides.", "integer"),),
    "overrides": (
        Column("Kind", _at("spec.kind"), "What it orders."),
        Column("State", _active, "Whether it is in force."),
        Column("Requester", _at("spec.requester"), "Who asked."),
        Column("Approver", _at("spec.approver"), "Who agreed."),
        Column("Reason", _at("spec.reason"), "Why."),
    ),
    "assignments": (
        Column("Workload", _at("spec.workload"), "Of which workload."),
        Column("Region", _at("spec.region"), "For which region."),
        Column("Gen", _at("spec.generation"), "Of which generation.", "integer"),
        Column("Policy", _at("spec.policy_revision"), "The policy revision that it was decided by last.", "integer", True),
    ),
    "revisions": (
        Column("Workload", _at("spec.workload"), "Of which workload."),
        Column("Gen", _at("spec.generation"), "Which generation.", "integer"),
    ),
    "schedulingrequests": (
        Column("Workload", _at("spec.slot.workload"), "Of which workload."),
        *_SLOT,
        Column("State", _at("status.state"), "Where the slot stands.", live=True),
        Column("Reason", _at("status.reason"), "Why it still waits."),
        Column("Priority", _at("spec.priority"), "Its rank.", "integer"),
    ),
    "bindings": (
        Column("Workload", _at("spec.slot.workload"), "Of which workload."),
        *_SLOT,
        Column("Node", _at("spec.node"), "Where it was put."),
        Column("State", _at("status.state"), "Where the slot stands.", live=True),
        Column("Requests", _amounts("spec.requests"), "What it holds.", wide=True),
        Column("Priority", _at("spec.priority"), "Its rank.", "integer", True),
    ),
    "instances": (
        Column("Node", _at("spec.node"), "Where it runs."),
        Column("Ready", _at("status.ready"), "Whether its probes pass.", "boolean", live=True),
        Column("Restarts", _at("status.restarts"), "How often it was started again.", "integer"),
        Column("Message", _at("status.message"), "What its agent says.", wide=True),
    ),
    "reservations": (Column("Node", _at("spec.node"), "Where capacity is taken."),),
    "evictionrequests": (
        Column("Workload", _at("spec.slot.workload"), "Of which workload."),
        *_SLOT,
        Column("Reason", _at("spec.reason"), "Why it should go."),
    ),
    "endpoints": (
        Column("Region", _at("metadata.name"), "Where they are.", of_plane=True),
        Column("Endpoints", _nodes_ready, "How many there are.", "integer", live=True),
    ),
    "leases": (
        Column("Role", _at("spec.role"), "Who acts under it."),
        Column("Holder", _at("spec.holder"), "Which process has it."),
        Column("Epoch", _at("spec.epoch"), "Counts its holders.", "integer"),
    ),
    "planes": (
        Column("Plane", _at("spec.plane"), "global or region."),
        Column("Region", _at("spec.region"), "Which region."),
        Column("Epoch", _at("spec.epoch"), "Counts its leaders.", "integer"),
        Column("Address", _at("spec.address"), "Where its leader is reached."),
    ),
    "events": (
        Column("Last-Seen", _at("spec.last_time"), "Since it happened last."),
        Column("Type", _at("spec.type"), "Normal or Warning."),
        Column("Reason", _at("spec.reason"), "Why it was written."),
        Column("Object", _at("spec.regarding"), "What it is about."),
        Column("Message", _at("spec.note"), "What happened."),
        Column("Count", _at("spec.count"), "How often it happened.", "integer", True),
    ),
    "decisions": (
        Column("Slot", _at("spec.slot"), "What was to be placed."),
        Column("Outcome", _at("spec.outcome"), "What came of it."),
    ),
    "configs": (Column("Data", lambda o: len(o.spec.data), "How many keys.", "integer"),),
    "secrets": (Column("Data", lambda o: len(o.spec.data), "How many keys.", "integer"),),
}

_FIELDS: Final = {
    "workloads": ("spec.workloadClass", "spec.priorityClassName"),
    "nodes": ("spec.region", "spec.zone", "spec.pool", "status.health"),
    "bindings": ("spec.node", "spec.slot.workload", "status.state"),
    "instances": ("spec.node",),
    "schedulingrequests": ("spec.slot.workload", "status.state", "status.reason"),
    "reservations": ("spec.node",),
    "assignments": ("spec.workload", "spec.region"),
    "revisions": ("spec.workload",),
    "grants": ("spec.region",),
    "events": ("spec.regarding", "spec.reason", "spec.type"),
}


def _snake(path: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in path)


def _text(path: str) -> FieldOf:
    found = _at(_snake(path))
    return lambda o: str(found(o))


SELECTABLE: Final[dict[str, dict[str, FieldOf]]] = {
    plural: {path: _text(path) for path in paths} for plural, paths in _FIELDS.items()
}  # fmt: skip


def instant_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
