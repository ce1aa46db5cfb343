"""Work that waits beside a node with room is found, and work that no node may take is not."""

from __future__ import annotations

from typing import Any

from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodePool, NodePoolSpec, NodeSpec, NodeStatus
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.waiting import BOUND_S, WaitingChecker

ROOM = Resources(4000, 1 << 32)


def region(pool: NodePoolSpec) -> dict[str, dict[tuple[str, str], Any]]:
    """One node of that pool, and a slot of `risk` that waits."""
    spec = SchedulingRequestSpec(slot=SlotRef(workload="api", uid="u", index=0), ask=Ask(requests=Resources(1000, 1 << 30)))
    node = NodeSpec(region="here", zone="a", pool="p", allocatable=ROOM, max_slots=9)
    ready = NodeStatus(schedulable=True, health="Ready")
    return {
        "grants": {
            ("risk", "here"): Grant(Metadata(name="here", namespace="risk"), GrantSpec("here", 1, during=ROOM, after=ROOM))
        },
        "nodes": {("", "n"): Node(Metadata(name="n"), node, ready)},
        "nodepools": {("", "p"): NodePool(metadata=Metadata(name="p"), spec=pool)},
        "schedulingrequests": {("risk", "api-0"): SchedulingRequest(Metadata(name="api-0", namespace="risk"), spec)},
    }


def found(pool: NodePoolSpec) -> list[str]:
    checker, objects = WaitingChecker(), region(pool)
    assert checker.look(0.0, "here", objects, 1, 0) == []
    return checker.look(BOUND_S + 1, "here", objects, 1, 0)


def test_what_waits_beside_a_node_with_room_is_found() -> None:
    told = ["risk/api-0 in here has waited 31 s, and n has room for it"]
    assert found(NodePoolSpec()) == told
    assert found(NodePoolSpec(allowed_tenants=("search", "risk"), allowed_classes=("standard",))) == told


def test_a_node_of_a_pool_for_others_is_no_room() -> None:
    assert found(NodePoolSpec(allowed_tenants=("search",))) == []
    assert found(NodePoolSpec(allowed_classes=("critical",))) == []
