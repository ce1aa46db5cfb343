"""Workloads of many replicas: what a controller does about one change does not grow with the slots that did not change. Work is
counted in instructions of the interpreter, never timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from fairlead.controllers import disruption as disruption_module
from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.contract import Controller, View
from fairlead.controllers.disruption import DisruptionController
from fairlead.controllers.given import GivenTotals
from fairlead.controllers.repair import RepairController
from fairlead.controllers.rollout import RolloutController
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.assigning import spare_in
from fairlead.model.commands import Enqueue, Move, Put, PutStatus
from fairlead.model.hot import BindingHot
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import RolloutRule
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    Endpoint,
    Endpoints,
    EndpointsSpec,
    EvictionRequest,
    EvictionRequestSpec,
    Instance,
    InstanceSpec,
    InstanceStatus,
    Revision,
    RevisionSpec,
    SchedulingRequest,
    SchedulingRequestSpec,
    SlotRange,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources

_S = SlotState
KEY = ("risk", "api")
NODES = 20
FEW, MANY = 200, 1600


class Told(msgspec.Struct):
    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


class Region:
    """A picture of a region, changed by hand, and one controller that looks at it."""

    def __init__(self, controller: Controller, count: int, generation: int = 1) -> None:
        self.controller = controller
        self.view = View(controller.indexes, controller.indexes_other)
        self.count = count
        self.now_ms = 1_000_000
        self._position = 0
        self._version = 0
        for number in range(NODES):
            node = Node(
                metadata=Metadata(name=f"n{number}"), spec=NodeSpec(region="r", zone="a"), status=NodeStatus(health="Ready")
            )
            self.tell("nodes", "", f"n{number}", node)
        grant = Grant(metadata=Metadata(name="r", namespace="risk"), spec=GrantSpec(region="r", version=1, during=NOTHING))
        self.tell("grants", "risk", "r", grant)
        for number in (1, 2):
            spec = RevisionSpec(workload="api", workload_uid="u", generation=number)
            self.tell("revisions", "risk", f"api.g{number}", Revision(metadata=Metadata(name=f"api.g{number}"), spec=spec))
        self.order(generation)

    def order(self, generation: int) -> set[tuple[str, str]]:
        rule = RolloutRule(max_surge=10, max_unavailable=10)
        spec = AssignmentSpec(
            workload="api", workload_uid="u", generation=generation, region="r", rollout=rule, spare=spare_in(0, 10),
            slots=(SlotRange(first=0, last=self.count - 1),),
        )  # fmt: skip
        metadata = Metadata(name="api.r", namespace="risk", uid=Uid("a"), generation=generation)
        return self.tell("assignments", "risk", "api.r", Assignment(metadata=metadata, spec=spec))

    def tell(self, plural: str, tenant: str, name: str, hot: Any) -> set[tuple[str, str]]:
        self._position += 1
        raw = b"" if hot is not None else None
        old, new = self.view.cache.apply(Told(plural, tenant, name, self._position, raw, hot))
        return {key for version in (old, new) if version is not None for key in self.controller.keys(self.view, version, False)}

    def request(self, index: int, generation: int = 1) -> set[tuple[str, str]]:
        slot = SlotRef(workload="api", uid="u", index=index)
        spec = SchedulingRequestSpec(slot=slot, generation=generation, ask=Ask())
        found = SchedulingRequest(metadata=Metadata(name=slot.object_name, namespace="risk"), spec=spec)
        return self.tell("schedulingrequests", "risk", slot.object_name, found)

    def bind(self, index: int, state: SlotState, generation: int = 1) -> set[tuple[str, str]]:
        """As a batch tells it: kind by kind, in the order in which the controller follows them."""
        hot = BindingHot(f"n{index % NODES}", state, Token(1, 1, 1), NOTHING, (), False, 0, generation, "u", index)
        keys: set[tuple[str, str]] = set()
        for plural in self.controller.follows:
            if plural == "bindings":
                keys |= self.tell("bindings", "risk", f"api-{index}", hot)
            if plural == "schedulingrequests" and self.view.cache.item("schedulingrequests", "risk", f"api-{index}"):
                keys |= self.tell("schedulingrequests", "risk", f"api-{index}", None)
        return keys

    def serve(self, indices: range) -> set[tuple[str, str]]:
        self._version += 1
        named = tuple(Endpoint(slot=i, node=f"n{i % NODES}", address=f"n{i % NODES}", ports={}) for i in indices)
        spec = EndpointsSpec(workload_uid="u", version=self._version, endpoints=named)
        return self.tell("endpoints", "risk", "api", Endpoints(metadata=Metadata(name="api", namespace="risk"), spec=spec))

    def evict(self, index: int) -> set[tuple[str, str]]:
        slot = SlotRef(workload="api", uid="u", index=index)
        spec = EvictionRequestSpec(slot=slot, reason="rollout", requester="rollout", epoch=1)
        found = EvictionRequest(metadata=Metadata(name=slot.object_name, namespace="risk", generation=1), spec=spec)
        return self.tell("evictionrequests", "risk", slot.object_name, found)

    def look(self) -> Any:
        self.now_ms += 10
        return self.controller.reconcile(KEY, self.view, self.now_ms)


def instructions(work: Callable[[], object]) -> int:
    """How many instructions of the interpreter it takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def settled(controller: Controller, count: int) -> Region:
    """Every slot serves, and the controller has looked until it had nothing more to say."""
    made = Region(controller, count)
    for index in range(count):
        made.bind(index, _S.SERVING)
    made.serve(range(count))
    for _ in range(3):
        made.look()
        made.now_ms += 2_000
    return made


def one_change(controller: Controller, count: int) -> int:
    made = settled(controller, count)

    def change() -> None:
        made.bind(7, _S.READY)
        made.look()

    return instructions(change)


CONTROLLERS = [lambda: AssignmentController("r"), RolloutController, lambda: RepairController("r"), DisruptionController]


@pytest.mark.parametrize("make", CONTROLLERS)
def test_a_look_after_one_change_costs_the_same_in_a_small_and_in_a_large_workload(make: Callable[[], Controller]) -> None:
    few, many = one_change(make(), FEW), one_change(make(), MANY)
    assert few > 0
    assert many < 1.5 * few, f"{few} instructions with {FEW} slots, {many} with {MANY}"


def through_all_stages(controller: Controller, count: int, at_once: int = 50) -> int:
    """From nothing to serving, in batches as a plane tells of them, with a look after each that concerns anybody."""
    made = Region(controller, count)

    def batches(change: Callable[[int], set[tuple[str, str]]]) -> None:
        for first in range(0, count, at_once):
            keys = [change(index) for index in range(first, min(first + at_once, count))]
            if any(keys):
                made.look()

    def work() -> None:
        made.look()
        batches(made.request)
        for state in (_S.BOUND, _S.STARTING, _S.READY, _S.SERVING):
            batches(lambda index, state=state: made.bind(index, state))  # type: ignore[misc]

    return instructions(work)


@pytest.mark.parametrize("make", CONTROLLERS)
def test_bringing_up_four_times_the_slots_is_four_times_the_work(make: Callable[[], Controller]) -> None:
    few, many = through_all_stages(make(), 200), through_all_stages(make(), 800)
    assert many < 5.5 * few, f"{few} instructions for 200 slots, {many} for 800"


def test_a_request_to_leave_is_read_once_and_not_with_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    made = settled(DisruptionController(), 50)
    for index in range(50):
        made.evict(index)
    approved = made.look().bodies
    assert len(approved) == 50
    read: list[str] = []
    reading = disruption_module._read

    def counted(found: EvictionRequest, order: Assignment | None) -> Any:
        read.append(found.metadata.name)
        return reading(found, order)

    monkeypatch.setattr(disruption_module, "_read", counted)
    made.evict(7)
    assert len(made.look().bodies) == 50
    assert read == ["api-7"]
    made.order(2)  # who is wanted may be another now
    made.look()
    assert len(read) == 1 + 50


def test_what_a_tenant_was_given_is_not_added_up_again_for_every_workload() -> None:
    def cost(workloads: int) -> int:
        view = View(WorkloadController.indexes, {})
        for number in range(workloads):
            order = AssignmentSpec(
                workload=f"w{number}", workload_uid=f"u{number}", generation=1, region="r", requests=Resources(100, 1 << 20),
                slots=(SlotRange(first=0, last=2),),
            )  # fmt: skip
            found = Assignment(metadata=Metadata(name=f"w{number}.r", namespace="risk"), spec=order)
            view.cache.apply(Told("assignments", "risk", f"w{number}.r", number + 1, b"", found))
        totals = view.cache.derived = GivenTotals(view.cache)
        assert totals.beside(("risk", "r"), []) == Resources(300, 3 << 20).times(workloads)
        gone = Told("assignments", "risk", "w0.r", workloads + 1, None, None)
        return instructions(lambda: (view.cache.apply(gone), totals.beside(("risk", "r"), [])))

    assert cost(1000) < 1.5 * cost(100)


def named_when_due(made: Region, result: Any) -> Any:
    """Looks whenever a look is due, until Endpoints are written."""
    for _ in range(10):
        made.now_ms = result.wake_ms
        result = made.look()
        for body in result.bodies:
            if isinstance(body, Put) and body.kind == "Endpoints":
                return body.object
    raise AssertionError("Endpoints were not written")


def test_endpoints_of_many_are_written_together_and_of_few_at_once() -> None:
    for count, waits in ((20, False), (4000, True)):
        made = settled(RolloutController(), count)
        made.bind(7, _S.READY)
        made.look()
        made.serve(range(8, count))  # as if somebody had written them without the others
        first = made.look()
        assert any(isinstance(body, Put) and body.kind == "Endpoints" for body in first.bodies)
        made.serve(range(9, count))
        again = made.look()
        written = any(isinstance(body, Put) and body.kind == "Endpoints" for body in again.bodies)
        assert written is not waits
        if waits:
            assert 9 in {e.slot for e in named_when_due(made, again).spec.endpoints}


def test_a_slot_that_changes_its_address_is_named_anew_even_where_the_write_had_to_wait() -> None:
    made = settled(RolloutController(), 4000)
    for index in range(7, 4000, NODES):
        name = f"api-{index}"
        spec, status = InstanceSpec(node="n7", token=Token(1, 1, 1)), InstanceStatus(ready=True)
        made.tell("instances", "risk", name, Instance(metadata=Metadata(name=name, namespace="risk"), spec=spec, status=status))
    made.serve(range(1, 4000))
    assert made.look().bodies  # slot 0 is named again, so the next write has to wait
    made.serve(range(4000))
    node = Node(
        metadata=Metadata(name="n7"), spec=NodeSpec(region="r", zone="a", address="10.0.0.7"), status=NodeStatus(health="Ready")
    )
    made.tell("nodes", "", "n7", node)
    waiting = made.look()
    assert not any(isinstance(body, Put) for body in waiting.bodies)
    assert {e.address for e in named_when_due(made, waiting).spec.endpoints if e.node == "n7"} == {"10.0.0.7"}


def test_slots_are_queued_once_and_the_first_status_waits_for_more_to_say() -> None:
    made = Region(AssignmentController("r"), 300)
    first = made.look()
    assert [body.count for body in first.bodies if isinstance(body, Enqueue)] == [256, 44]
    assert first.wake_ms is not None
    for index in range(300):
        made.request(index)
    assert not made.look().bodies
    assert not any(made.bind(index, _S.BOUND) for index in range(300))  # a look is due anyway
    made.now_ms = first.wake_ms
    (status,) = [body.status for body in made.look().bodies if isinstance(body, PutStatus)]
    assert (status.replicas.bound, status.replicas.pending) == (300, 0)


def test_slots_on_their_way_to_ready_are_nothing_for_a_rollout_to_look_at() -> None:
    made = Region(RolloutController(), 20)
    made.look()
    assert not made.request(3)
    assert not made.bind(3, _S.BOUND)
    assert not made.bind(3, _S.STARTING)
    assert made.bind(3, _S.READY)
    assert made.bind(4, _S.BOUND, generation=2)  # of another generation than the wanted one


def test_readiness_that_is_lost_is_followed_up_although_its_slot_is_on_its_way_again() -> None:
    made = settled(RolloutController(), 20)
    assert made.bind(7, _S.STARTING)  # it was serving: Endpoints must let go of it
    bodies = made.look().bodies
    (put,) = [body for body in bodies if isinstance(body, Put)]
    assert 7 not in {e.slot for e in put.object.spec.endpoints}
    assert not [body for body in bodies if isinstance(body, Move)]
