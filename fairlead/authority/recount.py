"""The ledger counted again from the objects, to find it wrong: what each node and tenant is charged, summed up afresh.

The ledger is kept by steps, each told of one change; a step that was wrong once is wrong ever after, and every later refusal and
acceptance is judged by it (S2, S4). Counts first in slices, while the plane goes on, and again at one instant what seemed to
differ: what differs then has drifted. Changes nothing; `Authority.rebuild` does. Called through figures.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from fairlead.authority.ledger import FIRM, HELD, LENT, Ledger, NodeAccount, TenantAccount, device_charge
from fairlead.authority.state import State
from fairlead.decide.leftovers import Drift
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Node
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.ports import Clock

SLICE: Final = 1_000  # bindings between two yields to the loop: some two milliseconds
TOLD_MAX: Final = 20  # names in one answer: more are one fault
_SUMS: Final = (
    "cpu_free",
    "memory_free",
    "cpu_unlent",
    "memory_unlent",
    "slots_free",
    "scalars_free",
    "scalars_unlent",
    "device_used",
)


class _Count:
    """A second ledger, of what it is shown. `nodes` and `tenants`: of these alone; None: of all."""

    def __init__(self, ledger: Ledger, nodes: Collection[str] | None = None, tenants: Collection[str] | None = None) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._tenants = tenants
        self.nodes: dict[str, NodeAccount] = {}
        self.tenants: dict[str, TenantAccount] = {}

    def run(self, state: State) -> Iterator[None]:
        for rec in state.live("nodes"):
            self._capacity(rec.hot)
        for at, rec in enumerate(state.live("bindings")):
            hot = rec.hot
            if hot.state in HOLDS_CAPACITY:
                self._add(rec.tenant, hot.node, hot.requests, hot.devices, LENT if hot.borrowed else FIRM)
            if at % SLICE == SLICE - 1:
                yield
        for rec in state.live("reservations"):
            spec = rec.hot.spec
            self._add(rec.tenant, spec.node, spec.requests, spec.devices, HELD if spec.budget else FIRM)

    def _capacity(self, node: Node) -> None:
        name = node.metadata.name
        if self._nodes is None or name in self._nodes:
            account = self.nodes.setdefault(name, NodeAccount(name))
            Ledger.give(account, node, 1)

    def _add(self, tenant: str, name: str, requests: object, devices: object, how: int) -> None:
        if self._nodes is None or name in self._nodes:
            self.nodes.setdefault(name, NodeAccount(name)).add(requests, devices, how, 1)  # type: ignore[arg-type]
        if self._tenants is None or tenant in self._tenants:
            there = self._ledger.nodes.get(name)
            charged = device_charge(there, devices) if devices and there is not None else None  # type: ignore[arg-type]
            self.tenants.setdefault(tenant, TenantAccount()).add(requests, charged, 1)  # type: ignore[arg-type]

    def differing(self) -> tuple[dict[str, str], dict[str, str]]:
        """Nodes and tenants of which the ledger says something else, with the first difference in words."""
        ledger = self._ledger
        names = set(self.nodes) | {n for n in ledger.nodes if self._nodes is None or n in self._nodes}
        tenants = set(self.tenants) | {t for t in ledger.tenants if self._tenants is None or t in self._tenants}
        nodes = {name: why for name in sorted(names) if (why := _node(ledger.nodes.get(name), self.nodes.get(name)))}
        used = {name: why for name in sorted(tenants) if (why := _tenant(ledger.tenants.get(name), self.tenants.get(name)))}
        return nodes, used


def _node(kept: NodeAccount | None, counted: NodeAccount | None) -> str:
    kept, counted = kept or NodeAccount(""), counted or NodeAccount("")
    for field in _SUMS:
        one, other = getattr(kept, field), getattr(counted, field)
        if isinstance(one, dict):
            one, other = {n: v for n, v in one.items() if v}, {n: v for n, v in other.items() if v}
        if one != other:
            return f"{field} is {one} in the ledger and {other} by its objects"
    return ""


def _tenant(kept: TenantAccount | None, counted: TenantAccount | None) -> str:
    one, other = ({n: v for n, v in each.used.items() if v} if each is not None else {} for each in (kept, counted))
    return f"use is {one} in the ledger and {other} by its objects" if one != other else ""


async def drifts(state: State, ledger: Ledger, clock: Clock) -> list[Drift]:
    """What the ledger has wrong. The state may go on meanwhile."""
    first = _Count(ledger)
    for _ in first.run(state):
        await clock.sleep(0)
    nodes, tenants = first.differing()
    if not nodes and not tenants:
        return []
    again = _Count(ledger, sorted(nodes)[:TOLD_MAX], sorted(tenants)[:TOLD_MAX])
    for _ in again.run(state):  # without a pause: nothing changes in between
        pass
    nodes, tenants = again.differing()
    found = [Drift(key("nodes", "", name), why) for name, why in sorted(nodes.items())]
    return found + [Drift(key("tenants", "", name), why) for name, why in sorted(tenants.items())]
