"""How a trial stands at one moment: who is bound where, who waits and why, what recovery would give, what it all costs.

Owns the picture; telling.py compares two of them. Never changes a trial. Called by planner.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from fairlead.controllers.cache import Item
from fairlead.model import codec
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Holding, Node
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.recovery import RegionOutlookSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import HOLDS_CAPACITY, ON_NODE
from fairlead.model.resources import Resources
from fairlead.planning.copied import Copy
from fairlead.planning.trial import Trial

SlotKey = tuple[str, str, str]  # region, tenant, name

# What decisions look at, of each kind; its marks say whether the ground of a plan has moved.
GROUND: Final = (
    "workloads", "quotas", "tenants", "regions", "schedulerpolicies", "policychannels", "overrides", "recoverybudgets", "grants",
    "nodes", "nodepools", "reservations", "bindings", "schedulingrequests",
)  # fmt: skip


class Bound(NamedTuple):
    workload: str
    node: str
    token: Token


class Waits(NamedTuple):
    workload: str
    reason: str
    detail: str


class Drain(NamedTuple):
    region: str
    left: int
    message: str


class Money(NamedTuple):
    nodes: float
    used: float


class Look:
    """Filled by `take`, in pieces: there may be many slots."""

    def __init__(self) -> None:
        self.bound: dict[SlotKey, Bound] = {}
        self.waits: dict[SlotKey, Waits] = {}
        self.unassigned: dict[tuple[str, str], tuple[str, str, int]] = {}  # what no region was given: reason, detail, how many
        self.workloads: frozenset[tuple[str, str]] = frozenset()
        self.outlooks: dict[str, RegionOutlookSpec] = {}
        self.rooms: dict[tuple[str, str, str], tuple[int, int]] = {}  # tenant, budget, region -> held, waiting
        self.drains: dict[str, Drain] = {}
        self.money: dict[str, Money] = {}

    def take(self, trial: Trial) -> Iterator[None]:
        for name, copy in trial.copies.items():
            if copy.is_global:
                self.outlooks = {rec.name: rec.hot.spec for rec in copy.state.live("regionoutlooks")}
                self.workloads = frozenset((rec.tenant, rec.name) for rec in copy.state.live("workloads"))
                self.unassigned = _unassigned(copy)
                yield
                continue
            yield from self._take_region(copy)
            for one in trial.placers[name].waiting():
                request = copy.state.hot("schedulingrequests", one.tenant, one.name)
                if request is not None and not request.spec.standing:
                    self.waits[name, one.tenant, one.name] = Waits(request.spec.slot.workload, one.reason, one.detail)
                yield

    def _take_region(self, copy: Copy) -> Iterator[None]:
        name, used = copy.name, 0.0
        nodes = {rec.name: rec.hot for rec in copy.state.live("nodes")}
        yield
        drained = {node: 0 for node, found in nodes.items() if found.spec.drain is not None}
        for rec in copy.state.live("bindings"):
            hot: BindingHot = rec.hot
            if hot.node in drained and hot.state in ON_NODE:
                drained[hot.node] += 1
            if hot.state in HOLDS_CAPACITY:
                self.bound[name, rec.tenant, rec.name] = Bound(rec.name.rpartition("-")[0], hot.node, hot.token)
                used += _cost(hot.requests, nodes.get(hot.node))
            yield
        for node, left in drained.items():
            said = next((c for c in nodes[node].status.conditions if c.type == "Drained"), None)
            self.drains[node] = Drain(name, left, said.message if said is not None and left else "")
        for rec in copy.state.live("holdings"):
            holding: Holding = rec.hot
            shapes = holding.status.shapes
            self.rooms[rec.tenant, holding.spec.budget, name] = (sum(s.held for s in shapes), sum(s.waiting for s in shapes))
        whole = sum(node.spec.hourly_cost_millis for node in nodes.values())
        self.money[name] = Money(round(whole / 1000, 3), round(used / 1000, 3))
        yield


def _cost(asked: Resources, node: Node | None) -> float:
    """What a slot takes of its node's cost: of the dimension it uses most of, as `fairlead capacity` counts it."""
    if node is None or not node.spec.hourly_cost_millis:
        return 0.0
    whole = node.spec.allocatable
    shares = (asked.cpu / whole.cpu if whole.cpu else 0.0, asked.memory / whole.memory if whole.memory else 0.0)
    return node.spec.hourly_cost_millis * max(shares)


def _unassigned(above: Copy) -> dict[tuple[str, str], tuple[str, str, int]]:
    """What waits before any region has it: the workload controller's own reasons."""
    out = {}
    for rec in above.state.live("workloads"):
        workload: Workload = rec.hot
        given = sum(row.replicas.desired for row in workload.status.regions)
        missing = workload.status.replicas.desired - given
        pending = workload.status.pending
        if missing > 0 and pending and workload.metadata.deletion_time is None:
            out[rec.tenant, rec.name] = (pending[0].reason, pending[0].detail, missing)
    return out


# --- the ground of a plan --------------------------------------------------------------------------------------------------


def marks_of(copy: Copy) -> Iterator[tuple[str, str, str]]:
    """Kind, TENANT/NAME and what decisions look at of it, as a short hash. A generator: there may be many."""
    for plural in GROUND:
        for item in copy.objects.kind(plural).values():
            yield plural, f"{item.tenant}/{item.name}" if item.tenant else item.name, _mark(item)


def _mark(item: Item) -> str:
    hot: Any = item.hot
    match item.plural:
        case "bindings":
            seen: Any = (hot.node, hot.token, hot.state in HOLDS_CAPACITY)
        case "nodes":
            seen = (hot.spec, hot.status.health, hot.status.schedulable)
        case "grants":
            seen = (hot.spec.during, hot.spec.after)
        case "regions":
            seen = (hot.spec, hot.status.health)
        case "workloads":
            seen = (hot.spec, hot.metadata.deletion_time is not None)
        case _:
            seen = item.object.spec
    return f"{zlib.crc32(codec.encode(seen)):08x}"
