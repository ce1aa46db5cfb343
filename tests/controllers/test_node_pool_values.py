"""Node pools looked at as a value: what follows from what is seen, without a plane."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.node_pool import CLOSED, Seen, scaled
from fairlead.decide.admission import OBJECT_BYTES_MAX, faults
from fairlead.decide.slots import instant, millis
from fairlead.model import codec
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import (
    DrainOrder,
    IdleSince,
    Node,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeSpec,
    NodeStatus,
)
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec, SchedulingRequestStatus
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from tests.authority.planes import (
    GI,
    REGION,
)
from tests.controllers.test_node_pool import SPEC

NOW = 1_700_000_000_000


def two_wait(*nodes: Node, spec: NodePoolSpec = SPEC, ordered: tuple[str, ...] = ()) -> list[Body]:
    """What follows where two slots, each of which needs a node, wait beside these."""
    names = ordered or tuple(node.metadata.name for node in nodes)
    pool = NodePool(Metadata(name="burst"), spec, NodePoolStatus(ordered=names, numbered=len(names)))
    return scaled(Seen([pool], nodes, requests_of(2), {}, []), REGION, NOW)


def requests_of(count: int, **spec: Any) -> list[SchedulingRequest]:
    return [
        SchedulingRequest(
            Metadata(name=f"api-{index}", namespace="risk"),
            SchedulingRequestSpec(
                slot=SlotRef(workload="api", uid="u", index=index), ask=Ask(requests=Resources(3000, GI)), **spec
            ),
            SchedulingRequestStatus(reason="WaitingForCapacity"),
        )
        for index in range(count)
    ]


def a_node(name: str, health: Any = "Ready", annotations: dict[str, str] | None = None, **spec: Any) -> Node:
    status = NodeStatus(schedulable=health == "Ready", health=health)
    made = NodeSpec(pool="burst", allocatable=SPEC.node, **spec)
    return Node(Metadata(name=name, annotations=annotations or {}), made, status)


def pool_after(bodies: list[Body]) -> NodePoolStatus:
    (status,) = [body.status for body in bodies if isinstance(body, PutStatus)]
    assert isinstance(status, NodePoolStatus)
    return status


@pytest.mark.parametrize(
    "useless",
    [
        {"unschedulable": True},
        {"unschedulable": True, "drain": DrainOrder(reason="x", requester="ada")},
        {"unschedulable": True, "drain": DrainOrder(reason="x", requester="ada"), "annotations": {CLOSED: "true"}},
        {"health": "Unknown"},
        {"health": "Lost"},
    ],
)
def test_nodes_that_take_no_work_are_not_on_their_way(useless: dict[str, Any]) -> None:
    bodies = two_wait(a_node("n1", **useless), a_node("n2", **useless))
    for body in bodies:
        assert not isinstance(body, Put) or not faults(BY_KIND["Node"], body.object, None)
    assert pool_after(bodies).ordered == ("n1", "n2", f"{REGION}-burst-3", f"{REGION}-burst-4")


@pytest.mark.parametrize(
    "useful",
    [
        {},
        {"health": ""},
        {"unschedulable": True, "annotations": {CLOSED: "true"}},
        {
            "unschedulable": True,
            "annotations": {CLOSED: "true"},
            "drain": DrainOrder(reason="x", requester="node-autoscaler"),
        },
    ],
)
def test_nodes_that_are_new_or_that_it_opens_again_are_on_their_way(useful: dict[str, Any]) -> None:
    after = pool_after(two_wait(a_node("n1", **useful), a_node("n2", **useful)))
    assert after.ordered == ("n1", "n2")
    assert after.conditions[0].message == "2 on their way"


@pytest.mark.parametrize(
    ("scope", "added", "let_go"),
    [
        ({"tenants": ("*",)}, 0, False),
        ({"tenants": ("*",), "regions": (REGION,)}, 0, False),
        ({"regions": (REGION,)}, 1, True),
        ({"tenants": ("risk",)}, 1, True),
        ({"workloads": ("api",)}, 1, True),
        ({"tenants": ("*",), "regions": ("elsewhere",)}, 3, True),
        ({"tenants": ("search",)}, 2, True),
        ({"workloads": ("web",)}, 3, True),
    ],
)
def test_a_pause_of_all_stills_the_pools_of_its_regions_and_one_of_some_adds_no_node_for_what_waits_of_them(
    scope: dict[str, Any], added: int, let_go: bool
) -> None:
    spec = OverrideSpec(kind="autoscaler-pause", reason="x", ttl_seconds=60, requester="a", scope=OverrideScope(**scope))
    paused = Override(Metadata(name="p", namespace="risk", creation_time=instant(NOW)), spec)
    other = [replace(each, metadata=replace(each.metadata, namespace="search")) for each in requests_of(1)]
    pool = NodePool(Metadata(name="burst"), SPEC)
    after = pool_after(scaled(Seen([pool], [], [*requests_of(2), *other], {}, [paused]), REGION, NOW))
    assert len(after.ordered) == added
    if added == 1:
        assert "none for 2 that wait under an autoscaler-pause" in after.conditions[0].message
    idle = NodePoolStatus(ordered=("n1",), idle=(IdleSince(node="n1", time=instant(NOW - 301_000)),))
    bodies = scaled(Seen([replace(pool, status=idle)], [a_node("n1")], [], {}, [paused]), REGION, NOW)
    assert any(isinstance(body, Put) for body in bodies) is let_go


def test_lost_and_empty_nodes_are_let_go_while_work_waits_so_that_others_may_come() -> None:
    full = replace(SPEC, max_nodes=2)
    lost = [a_node("n1", "Lost"), a_node("n2", "Lost")]
    bodies = two_wait(*lost, spec=full)
    closed = [body.object for body in bodies if isinstance(body, Put)]
    assert [CLOSED in node.metadata.annotations and node.spec.unschedulable for node in closed] == [True, True]
    assert pool_after(bodies).conditions[0].message == "no more than 2; 2 that are lost go"
    assert pool_after(two_wait(*closed, spec=full)).ordered == (), "closed at an earlier look, and still empty"
    deleted = two_wait(*closed, spec=full, ordered=("n9",))
    assert [body.name for body in deleted if isinstance(body, Delete)] == ["n1", "n2"]


def test_no_more_lost_nodes_are_let_go_than_what_waits_needs_and_none_that_somebody_keeps_closed() -> None:
    lost = [a_node("n0", "Lost", unschedulable=True), *(a_node(f"n{n}", "Lost") for n in range(1, 5))]
    closed = [body.object.metadata.name for body in two_wait(*lost) if isinstance(body, Put)]
    assert closed == ["n1", "n2"]


@pytest.mark.parametrize("region", ["eu", "r" * 63])
def test_a_pool_of_a_million_orders_as_many_as_its_status_can_name(region: str) -> None:
    spec = replace(SPEC, min_nodes=1_000_000, max_nodes=1_000_000)
    pool = NodePool(Metadata(name="eu-central-burst"), spec)
    status = pool_after(scaled(Seen([pool], [], [], {}, []), region, NOW))
    nodes = [replace(a_node(name), spec=NodeSpec(pool="eu-central-burst")) for name in status.ordered]
    pool = replace(pool, status=replace(status, numbered=99_999_000))
    full = pool_after(scaled(Seen([pool], nodes, [], {}, []), region, NOW + 1000))
    assert 1000 < len(full.ordered) == len(status.ordered)
    assert "can be ordered of one pool" in full.conditions[0].message
    assert 0 < len(full.idle) < len(full.ordered)
    assert len(codec.encode(full)) < OBJECT_BYTES_MAX - 40 * 1024


def test_of_more_empty_nodes_than_it_can_remember_the_longest_empty_are_remembered_and_go() -> None:
    names = [f"n{n:04d}" for n in range(3000)]
    long_ago = tuple(IdleSince(node=name, time=instant(NOW - 1_000_000)) for name in names[2990:])
    pool = NodePool(Metadata(name="burst"), replace(SPEC, max_nodes=5000), NodePoolStatus(ordered=tuple(names), idle=long_ago))
    bodies = scaled(Seen([pool], [a_node(name) for name in names], [], {}, []), REGION, NOW)
    assert [body.object.metadata.name for body in bodies if isinstance(body, Put)] == names[2990:]
    idle = {each.node: millis(each.time) for each in pool_after(bodies).idle}
    assert len(idle) < 3000
    assert [idle[name] for name in names[2990:]] == [NOW - 1_000_000] * 10
