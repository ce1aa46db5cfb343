"""What would give a waiting slot a place: each change is tried by the production cycle and judges; only what works is told."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.client.planning import Unblocked
from fairlead.model import codec
from fairlead.model.commands import Accepted, Caller, Put, PutStatus
from fairlead.model.ids import Uid, revision
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus, Marks
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.planning.copied import Copy
from fairlead.planning.steady import Steady
from fairlead.planning.unblocking import Unblocking
from fairlead.ports import SystemClock
from tests.authority.planes import GI, request_of

OPERATOR = Caller("ada", Role.OPERATOR)
NOW_MS = 1_800_000_000_000


class Region:
    """A copy of a region that was never one: two nodes of 4 CPU in two zones."""

    def __init__(self, *, cpu_granted: int = 100_000, nodes: int = 2) -> None:
        self.copy = Copy("east", revision(1, 1000), NOW_MS)
        self.copy.ready()
        self.assignment = self.copy.lease("assignment", Role.ASSIGNMENT)
        limit = Resources(cpu_granted, 1000 * GI)
        self.put(
            "Grant", Grant(metadata=Metadata(name="east", namespace="risk"), spec=GrantSpec("east", 1, during=limit, after=limit))
        )
        for number in range(nodes):
            self.add_node(f"n{number}", zone="ab"[number % 2])

    def put(self, kind: str, record: Any, caller: Caller = OPERATOR) -> None:
        outcome = self.copy.send(caller, Put(kind, record))
        assert isinstance(outcome, Accepted), outcome

    def add_node(self, name: str, zone: str, **spec: Any) -> None:
        made = NodeSpec(region="east", zone=zone, allocatable=Resources(4000, 16 * GI), hourly_cost_millis=100, **spec)
        self.put("Node", Node(metadata=Metadata(name=name), spec=made))
        status = NodeStatus(schedulable=True, health="Ready", session=1)
        outcome = self.copy.send(Caller(name, Role.AGENT, node=name), PutStatus("Node", "", name, status))
        assert isinstance(outcome, Accepted), outcome

    def ask(self, workload: str = "api", index: int = 0, **spec: Any) -> None:
        self.put("SchedulingRequest", request_of("risk", workload, index, **spec), self.assignment)

    def bind(
        self, workload: str, node: str, cpu: int = 4000, state: SlotState = SlotState.SERVING, labels: Any = (),
        tenant: str = "risk", memory: int = GI,
    ) -> None:  # fmt: skip
        """Somebody is there already."""
        slot = SlotRef(workload=workload, uid=f"u-{workload}", index=0)
        spec = BindingSpec(
            slot=slot, node=node, token=Token(1, 1, 1), requests=Resources(cpu, memory), priority=1000, marks=Marks(labels=labels)
        )
        made = Binding(Metadata(name=slot.object_name, namespace=tenant, uid=Uid(f"b-{workload}")), spec, BindingStatus(state))
        self.copy.objects.apply(self.copy.state.apply("bindings", tenant, slot.object_name, codec.encode(made)))

    def unblock(self, slot: str = "api-0", limit: int = 3, hidden: frozenset[str] = frozenset()) -> list[Unblocked]:
        trying = Unblocking(self.copy, SystemClock(), Steady(), "risk", slot, hidden)
        at = self.copy.state.position
        for _ in trying.tries(limit):
            pass
        assert self.copy.state.position == at, "a try leaves nothing behind"
        return trying.found


def changes(found: list[Unblocked]) -> list[str]:
    return [one.change for one in found]


def test_whoever_has_a_place_as_things_are_needs_no_change() -> None:
    region = Region()
    region.ask()
    assert region.unblock() == []
    assert region.unblock("nobody-0") == []


def test_quota_is_offered_by_as_much_as_is_missing() -> None:
    region = Region(cpu_granted=1500)
    region.ask(cpu=3500)
    assert changes(region.unblock())[0] == "add 2 CPU of quota for tenant risk in east"
    assert region.unblock()[0].node in ("n0", "n1")
    assert not any("add one node" in change for change in changes(region.unblock())), "the quota alone is enough"


def test_a_cordoned_node_is_to_be_opened_and_it_is_said_which() -> None:
    region = Region()
    region.bind("big", "n0")
    region.add_node("n2", "a", unschedulable=True)
    region.bind("other", "n1")
    region.ask()
    first = region.unblock()[0]
    assert (first.change, first.command, first.node, first.about) == ("uncordon node n2", "fairlead uncordon n2", "n2", "nodes")


def test_anti_affinity_is_named_when_it_is_what_keeps_a_slot_out_and_not_otherwise() -> None:
    region = Region()
    rule = AffinityRule(topology_key="hostname", match=(LabelExpression(key="app", operator="In", values=("api",)),))
    region.ask(placement=Placement(anti_affinity=(rule,)))
    region.bind("near", "n0", cpu=100, labels=(("app", "api"),))
    assert region.unblock() == [], "there is another node"
    region.bind("too", "n1", cpu=100, labels=(("app", "api"),))
    assert changes(region.unblock())[0] == "remove the anti-affinity"
    region.bind("full", "n0", cpu=3900)
    region.bind("also", "n1", cpu=3900)
    assert "remove the anti-affinity" not in changes(region.unblock()), "that alone would not do any more"


def test_a_spread_that_cannot_be_kept_may_be_made_a_preference() -> None:
    region = Region()
    region.bind("full", "n1")
    region.ask(index=1, placement=Placement(max_per_node=0, zones=("b",)))
    assert changes(region.unblock("api-1"))[0] == "allow zones other than b"
    soft = Placement(spread=(SpreadRule(topology_key="zone", when_unsatisfiable="ScheduleAnyway"),), zones=("b",))
    region.ask(index=2, placement=soft)
    assert not any("spread" in change for change in changes(region.unblock("api-2"))), "a preference keeps nobody out"


def test_an_override_that_holds_is_to_be_ended() -> None:
    region = Region()
    scope = OverrideScope(tenants=("risk",))
    spec = OverrideSpec(kind="hold", reason="incident", ttl_seconds=3600, scope=scope)
    mirror = region.copy.lease("mirror", Role.MIRROR)
    region.put("Override", Override(metadata=Metadata(name="stop", namespace="risk"), spec=spec), mirror)
    region.ask()
    first = region.unblock()[0]
    assert (first.change, first.command) == ("end the override stop (hold)", "fairlead override revoke stop -n risk")


def test_what_is_leaving_is_waited_for_before_anything_is_changed() -> None:
    region = Region(nodes=1)
    region.bind("old", "n0", state=SlotState.DRAINING)
    region.ask(cpu=4000)
    assert changes(region.unblock(limit=1)) == ["wait for old-0, which is leaving"]


def test_the_name_of_what_leaves_is_its_own_tenants_to_hear() -> None:
    region = Region(nodes=1)
    region.bind("payroll", "n0", state=SlotState.DRAINING, tenant="billing")
    region.ask(cpu=4000)
    assert changes(region.unblock(limit=1)) == ["wait for a slot that is leaving"]


def test_what_the_asker_may_not_see_takes_no_place_in_the_answer() -> None:
    region = Region(nodes=1)
    region.add_node("n2", "a", unschedulable=True)
    region.bind("full", "n0", cpu=1000)
    region.ask(cpu=3500)
    assert changes(region.unblock(limit=1)) == ["uncordon node n2"]
    (found,) = region.unblock(limit=1, hidden=frozenset({"nodes", "overrides"}))
    assert found.change == "ask for 3 CPU, 1Gi memory instead of 3.5 CPU, 1Gi memory"


def test_a_smaller_ask_is_one_that_fits_as_it_is_told() -> None:
    region = Region(nodes=1)
    region.bind("big", "n0", cpu=100, memory=14 * GI + 1)  # leaves one byte less than 2 Gi
    region.ask(cpu=100, memory=3 * GI)
    (first, *_) = changes(region.unblock())
    assert first == "ask for 0.1 CPU, 2047Mi memory instead of 0.1 CPU, 3Gi memory"


def test_a_smaller_ask_and_one_more_node_are_offered_when_nothing_has_room() -> None:
    region = Region()
    region.bind("a", "n0", cpu=1000)
    region.bind("b", "n1", cpu=2000)
    region.ask(cpu=3500)
    found = changes(region.unblock())
    assert found[0] == "ask for 3 CPU, 1Gi memory instead of 3.5 CPU, 1Gi memory"
    assert found[1].startswith("add one node of 4 CPU, 16Gi memory in zone ")
    assert len(region.unblock(limit=1)) == 1


def test_a_node_that_would_be_too_small_too_is_not_offered() -> None:
    region = Region()
    region.ask(cpu=9000)
    assert not any("node" in change for change in changes(region.unblock()))


def test_quota_and_a_node_are_offered_together_where_neither_alone_is_enough() -> None:
    region = Region(cpu_granted=10_000, nodes=1)
    region.bind("full", "n0")
    region.bind("more", "n0", cpu=4000)
    region.ask(cpu=4000)
    found = changes(region.unblock())
    assert found
    assert all(change.startswith("add 2 CPU of quota for tenant risk in east, and add one node") for change in found)


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_are_told_than_were_asked_for(limit: int) -> None:
    region = Region(nodes=1)
    region.bind("full", "n0")
    region.ask(cpu=4000, placement=Placement(zones=("a",)))
    assert len(region.unblock(limit=limit)) <= limit
