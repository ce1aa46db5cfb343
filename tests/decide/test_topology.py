"""The topology's counters against a naive recount, whatever happens in whatever order: slots come, go and are taken back, nodes
open, close, move and vanish, rules are asked for early or late, and all counters are forgotten in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.decide import topology as topology_module
from fairlead.decide.fit import GATES
from fairlead.decide.need import Need
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule
from fairlead.model.kinds.work import Ask
from tests.decide.fleets import NOW, Fleet, Slot

NODES = range(4)
WORKS = (0, 1)
TENANTS = ("risk", "search")
CLASSES: list[dict[str, Any]] = [
    {"region": "eu", "zone": "a", "labels": {"rack": "r1"}},
    {"region": "eu", "zone": "b", "labels": {"rack": "r1"}},
    {"region": "us", "zone": "b", "labels": {"rack": "r2"}},
    {"region": "us", "zone": "", "labels": {}},
]
API, CACHE = (LabelExpression(key="app", values=("api",)),), (LabelExpression(key="app", values=("cache",)),)
NOT_API = (LabelExpression(key="app", operator="NotIn", values=("api",)),)
A_API, A_CACHE = (("app", "api"),), (("app", "cache"), ("tier", "back"))


def _ask(labels: tuple[tuple[str, str], ...] = (), ports: tuple[int, ...] = (), isolation: Any = "Shared", **place: Any) -> Ask:
    return Ask(labels=labels, ports=ports, isolation=isolation, placement=Placement(**place))


ASKS: list[Ask] = [
    _ask(),
    _ask(A_API),
    _ask(A_CACHE, isolation="TenantExclusive"),
    _ask(ports=(80,)),
    _ask(A_API, ports=(80, 443), max_per_node=2),
    _ask(spread=(SpreadRule(topology_key="zone"),)),
    _ask(A_API, spread=(SpreadRule(topology_key="hostname", max_skew=1), SpreadRule(topology_key="region", max_skew=2))),
    _ask(zones=("a", "b"), spread=(SpreadRule(topology_key="hostname", max_skew=2), SpreadRule(topology_key="rack"))),
    _ask(A_API, anti_affinity=(AffinityRule(topology_key="hostname", match=API),)),
    _ask(A_CACHE, anti_affinity=(AffinityRule(topology_key="zone", match=API), AffinityRule(topology_key="rack", match=CACHE))),
    _ask(anti_affinity=(AffinityRule(topology_key="region", match=NOT_API),)),
    _ask(A_CACHE, affinity=(AffinityRule(topology_key="zone", match=API),)),
    _ask(A_API, affinity=(AffinityRule(topology_key="zone", match=API),)),
    _ask(affinity=(AffinityRule(topology_key="hostname", match=NOT_API),)),
]
GATES_OF_TOPOLOGY = ("spread", "affinity", "anti-affinity", "max-per-node", "ports")
ASKED = {gate.name: gate for gate in GATES if gate.name in GATES_OF_TOPOLOGY}


class TopologyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet([dict(spec) for spec in CLASSES])
        self.needs: dict[tuple[int, str, str], tuple[int, Need]] = {}
        self.done: list[tuple[Slot, int]] = []

    @initialize(classes=st.lists(st.integers(0, 3), min_size=4, max_size=4))
    def furnish(self, classes: list[int]) -> None:
        for number, node_class in zip(NODES, classes, strict=True):
            self.fleet.node(number, node_class)

    @rule(
        number=st.sampled_from(NODES),
        node_class=st.integers(0, 3),
        is_open=st.booleans(),
        known=st.sampled_from((True, True, True, False)),
    )
    def change_node(self, number: int, node_class: int, is_open: bool, known: bool) -> None:
        self.fleet.node(number, node_class, is_open=is_open, known=known)

    @rule(
        numbers=st.lists(st.sampled_from(NODES), min_size=1, max_size=4),
        tenant=st.sampled_from(TENANTS),
        work=st.sampled_from(WORKS),
        ask=st.sampled_from(ASKS),
    )
    def place(self, numbers: list[int], tenant: str, work: int, ask: Ask) -> None:
        for number in numbers:
            self.fleet.place(number, tenant, f"{tenant}-{work}", ask)
            self.done.append((self.fleet.slots[-1], 1))

    @precondition(lambda self: self.fleet.slots)
    @rule(draw=st.data())
    def remove(self, draw: st.DataObject) -> None:
        slot = draw.draw(st.sampled_from(self.fleet.slots))
        self.fleet.remove(slot)
        self.done.append((slot, -1))

    @precondition(lambda self: self.done)
    @rule(steps=st.integers(1, 8))
    def undo(self, steps: int) -> None:
        for slot, sign in reversed(self.done[-steps:]):
            if sign > 0:
                self.fleet.remove(slot)
            else:
                self.fleet.place(*slot)
        del self.done[-steps:]

    @rule(
        whiches=st.sets(st.integers(0, len(ASKS) - 1), min_size=1), tenant=st.sampled_from(TENANTS), work=st.sampled_from(WORKS)
    )
    def ask_for(self, whiches: set[int], tenant: str, work: int) -> None:
        for which in sorted(whiches):
            self._need(which, tenant, f"{tenant}-{work}")

    def _need(self, which: int, tenant: str, uid: str) -> Need:
        """As a caller keeps needs: compiled again only when the stamp grew."""
        stamp = self.fleet.topology.stamp()
        found = self.needs.get((which, tenant, uid))
        if found is None or found[0] != stamp:
            found = self.needs[which, tenant, uid] = (stamp, self.fleet.need(ASKS[which], tenant, uid))
            if self.fleet.topology.stamp() != stamp:  # compiling may forget; then once more
                found = (self.fleet.topology.stamp(), self.fleet.need(ASKS[which], tenant, uid))
                self.needs[which, tenant, uid] = found
        return found[1]

    @rule()
    def forget_all(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(topology_module, "COUNTS_MAX", 0)
            self.fleet.topology.make_room()

    @invariant()
    def every_need_compiled_so_far_gets_the_naive_answer(self) -> None:
        if not self.fleet.nodes:
            return
        columns: Any = self.fleet.columns()
        rows: list[Any] = [self.fleet.row(number) for number in NODES]
        for which, tenant, uid in list(self.needs):
            need, ask = self._need(which, tenant, uid), ASKS[which]
            answers = [self.fleet.verdict(need, ask, tenant, uid, number) for number in NODES]
            for name, gate in ASKED.items():
                naive = [answer[name] for answer in answers]
                assert [bool(gate.check(need, row, NOW)) for row in rows] == naive, (name, ask)
                assert np.broadcast_to(np.asarray(gate.check(need, columns, NOW)), len(rows)).tolist() == naive, (name, ask)
                assert all(gate.why(need, row, NOW) for row, fits in zip(rows, naive, strict=True) if not fits)

    @invariant()
    def every_node_knows_whose_it_is(self) -> None:
        for number in self.fleet.used_by:
            assert (self.fleet.used_by[number], self.fleet.exclusive_to[number]) == self.fleet.occupants(number)


TopologyMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_the_counters_agree_with_a_recount = TopologyMachine.TestCase
