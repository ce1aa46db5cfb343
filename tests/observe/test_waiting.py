"""Work that waits beside a node with room is found, and work that no node may take is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from msgspec.structs import replace

from fairlead.model.kinds.capacity import (
    Grant,
    GrantSpec,
    Node,
    NodePool,
    NodePoolSpec,
    NodeSpec,
    NodeStatus,
    Reservation,
    ReservationSpec,
)
from fairlead.model.kinds.ledger import Plane, PlaneSpec
from fairlead.model.kinds.policy import PriorityClass, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    Binding,
    BindingSpec,
    BindingStatus,
    SchedulingRequest,
    SchedulingRequestSpec,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.waiting import BOUND_S, WaitingChecker, room_for

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


def test_what_runs_once_waits_for_a_silent_node_where_history_was_lost_and_nothing_else_does() -> None:
    def told(execution: str, incarnation: int, health: Literal["Unknown", "Lost"]) -> list[str]:
        checker, objects = WaitingChecker(), region(NodePoolSpec())
        waits = objects["schedulingrequests"]["risk", "api-0"]
        objects["schedulingrequests"]["risk", "api-0"] = replace(waits, spec=replace(waits.spec, execution=execution))
        there = objects["nodes"]["", "n"]
        objects["nodes"]["", "m"] = replace(there, metadata=Metadata(name="m"), status=NodeStatus(health=health))
        checker.look(0.0, "here", objects, incarnation, 0)
        return checker.look(BOUND_S + 1, "here", objects, incarnation, 0)

    assert told("Exclusive", 2, "Unknown") == []
    assert told("Exclusive", 2, "Lost")
    assert told("Exclusive", 1, "Unknown")
    assert told("Replicated", 2, "Unknown")


def test_what_runs_once_waits_for_nodes_that_were_forgotten_with_lost_history_until_they_have_ended_it() -> None:
    def told(since_ms: int, execution: str = "Exclusive") -> list[str]:
        checker, objects = WaitingChecker(), region(NodePoolSpec())
        waits = objects["schedulingrequests"]["risk", "api-0"]
        objects["schedulingrequests"]["risk", "api-0"] = replace(waits, spec=replace(waits.spec, execution=execution))
        spec = PlaneSpec(incarnation=2, longest_lease_seconds=15.0, incarnation_time=datetime.fromtimestamp(0, tz=UTC))
        objects["planes"] = {("", "self"): Plane(Metadata(name="self"), spec)}
        checker.look(0.0, "here", objects, 2, since_ms)
        return checker.look(BOUND_S + 1, "here", objects, 2, since_ms)

    assert told(17_000) == []
    assert told(17_200)
    assert told(17_000, "Replicated")


def test_a_node_of_a_pool_for_others_is_no_room() -> None:
    assert found(NodePoolSpec(allowed_tenants=("search",))) == []
    assert found(NodePoolSpec(allowed_classes=("critical",))) == []


# --- who must leave, who may borrow, and gangs ---------------------------------------------------------------------------------

FULL = Resources(3500, 1 << 30)


def waits(*there: tuple[str, Any], gang_of: int = 0, **spec: Any) -> str:
    """The node that has room for a slot of a region whose only node has these on it."""
    objects = region(NodePoolSpec())
    (at, asked), = objects["schedulingrequests"].items()  # fmt: skip
    gang = {"gang": "api", "gang_size": gang_of} if gang_of else {}
    made = replace(asked, spec=replace(asked.spec, **spec, **gang))
    objects["schedulingrequests"] = {
        (at[0], f"api-{n}"): replace(made, metadata=replace(made.metadata, name=f"api-{n}")) for n in range(gang_of or 1)
    }
    for plural, one in there:
        objects.setdefault(plural, {})["risk", one.metadata.name] = one
    objects["grants"]["risk", "here"] = Grant(
        Metadata(name="here", namespace="risk"), GrantSpec("here", 1, during=PLENTY, after=PLENTY)
    )
    return room_for(made, objects, 1, 0)


def bound(state: SlotState = SlotState.SERVING, **spec: Any) -> tuple[str, Any]:
    made = BindingSpec(slot=SlotRef("low", "v", 0), node="n", token=Token(1, 1, 1), requests=FULL, **spec)
    return "bindings", Binding(Metadata(name="low-0", namespace="risk"), made, BindingStatus(state))


PLENTY = Resources(100_000, 1 << 40)
HELD = ("reservations", Reservation(Metadata(name="s", namespace="risk"), ReservationSpec(node="n", requests=FULL, budget="b")))


def test_a_node_full_of_those_who_must_leave_has_room() -> None:
    assert waits(bound(priority=0), priority=500) == "n"
    assert waits(bound(priority=500), priority=500) == "", "of its own rank"
    assert waits(bound(priority=300), priority=300) == ""
    assert waits(bound(priority=1000), priority=2000) == "", "of a class that nobody evicts"
    assert waits(bound(priority=0), priority=100) == "", "by a class that evicts nobody"
    assert waits(bound(SlotState.DRAINING, priority=0), priority=500) == "", "it leaves for somebody already"


def test_who_has_a_disruption_budget_is_not_counted_on_to_leave() -> None:
    assert waits(bound(priority=0, min_serving=1), priority=500) == ""
    spec = AssignmentSpec(workload="low", workload_uid="v", generation=1, region="here", min_serving=1)
    order = ("assignments", Assignment(Metadata(name="low.here", namespace="risk"), spec))
    assert waits(bound(priority=0), order, priority=500) == ""


def test_a_policy_that_is_there_and_does_not_allow_it_keeps_them() -> None:
    classes = (PriorityClass(name="high", value=500), PriorityClass(name="low", value=0))
    policy = SchedulerPolicy(Metadata(name="r2"), SchedulerPolicySpec(revision=2, priority_classes=classes))
    assert waits(bound(priority=0), ("schedulerpolicies", policy), priority=500) == ""


def test_who_borrows_has_room_where_room_is_held_and_leaves_for_who_does_not() -> None:
    assert waits(HELD, may_borrow=True) == "n"
    assert waits(HELD) == ""
    assert waits(bound(borrowed=True, priority=1000), priority=0) == "n"
    assert waits(HELD, bound(borrowed=True), may_borrow=True) == ""


def test_a_gang_has_room_where_all_of_it_has() -> None:
    assert waits(gang_of=3) == "n"
    assert waits(gang_of=5) == ""
    assert waits(bound(priority=0), gang_of=2, priority=500) == "", "nobody is counted on to leave for it"


def test_a_gang_that_waits_beside_room_for_all_of_it_is_found() -> None:
    checker, objects = WaitingChecker(), region(NodePoolSpec())
    objects["schedulingrequests"] = {
        at: replace(one, spec=replace(one.spec, gang="api", gang_size=1)) for at, one in objects["schedulingrequests"].items()
    }
    assert checker.look(0.0, "here", objects, 1, 0) == []
    assert len(checker.look(BOUND_S + 1, "here", objects, 1, 0)) == 1
