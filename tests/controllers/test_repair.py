"""What repair may let go, looked at as a value: a picture in, commands out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.compose.config import PlaneConfig
from fairlead.compose.controllers import controllers_of
from fairlead.controllers import repair
from fairlead.controllers.above import Above
from fairlead.controllers.cache import Cache
from fairlead.controllers.contract import View
from fairlead.controllers.mirror import MirrorDown
from fairlead.controllers.repair import RepairController
from fairlead.decide.defragmenting import LEFT_MS
from fairlead.decide.slots import instant
from fairlead.model import codec
from fairlead.model.commands import Move, Put
from fairlead.model.hot import hot_from
from fairlead.model.kinds.capacity import Node, NodeStatus
from fairlead.model.kinds.intent import JobRule, Region
from fairlead.model.kinds.slot import SlotRef, Token, Transition
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    Binding,
    BindingSpec,
    BindingStatus,
    Endpoint,
    Endpoints,
    EndpointsSpec,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    Revision,
    RevisionSpec,
    SlotRange,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata

_S = SlotState
NOW = 1_000_000


class Row(msgspec.Struct):
    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


def picture(*objects: tuple[str, Any]) -> View:
    view = View(RepairController.indexes, {})
    put_in(view.cache, *objects)
    return view


def put_in(cache: Cache, *objects: tuple[str, Any]) -> Cache:
    for position, (plural, value) in enumerate(objects, 1):
        meta = value.metadata
        cache.apply(Row(plural, meta.namespace, meta.name, position, codec.encode(value), hot_from(plural, value)))
    return cache


def order(job: JobRule | None = None, **status: Any) -> tuple[str, Assignment]:
    spec = AssignmentSpec(
        workload="api", workload_uid="u", generation=1, region="r", slots=(SlotRange(first=0, last=0),), job=job
    )
    meta = Metadata(name="api.r", namespace="t")
    return "assignments", Assignment(metadata=meta, spec=spec, status=AssignmentStatus(**status))


def bound(
    state: SlotState, before: SlotState | None = None, at_ms: int = NOW, epoch: int = 2, lived_ms: int = 0
) -> tuple[str, Binding]:
    token = Token(incarnation=1, epoch=epoch, attempt=1)
    spec = BindingSpec(slot=SlotRef(workload="api", uid="u", index=0), node="n", token=token)
    step = Transition(to=state, by="x", time=instant(at_ms), before=before)
    meta = Metadata(name="api-0", namespace="t", creation_time=instant(at_ms - lived_ms))
    return "bindings", Binding(metadata=meta, spec=spec, status=BindingStatus(state=state, last_transition=step))


def node(health: Any) -> tuple[str, Node]:
    return "nodes", Node(metadata=Metadata(name="n"), status=NodeStatus(health=health))


REVISION = (
    "revisions",
    Revision(metadata=Metadata(name="api.g1", namespace="t"), spec=RevisionSpec(workload="api", workload_uid="u", generation=1)),
)
TRAFFIC = (
    "endpoints",
    Endpoints(
        metadata=Metadata(name="api", namespace="t"), spec=EndpointsSpec(endpoints=(Endpoint(slot=0, node="n", address="n"),))
    ),
)


def done(*objects: tuple[str, Any], now_ms: int = NOW) -> list[str]:
    bodies = RepairController("r").reconcile(("t", "api"), picture(*objects), now_ms).bodies
    return [b.to.value if isinstance(b, Move) else f"queue {b.object.spec.epoch}" for b in bodies if isinstance(b, Move | Put)]


def test_a_failed_slot_of_a_job_goes_only_when_its_failure_is_on_record() -> None:
    job = JobRule(completions=1, parallelism=1)
    assert done(order(job), bound(_S.FAILED), node("Ready")) == []
    booked = order(job, failed=(SlotRange(first=0, last=0, epoch=2),), failures=1)
    assert done(booked, bound(_S.FAILED), node("Ready")) == ["Released"]
    earlier = order(job, failed=(SlotRange(first=0, last=0, epoch=1),), failures=1)
    assert done(earlier, bound(_S.FAILED), node("Ready")) == []


def test_an_unknown_slot_goes_when_its_node_is_lost_or_gone_and_its_traffic_withdrawn() -> None:
    unknown = bound(_S.UNKNOWN)
    assert done(order(), unknown, node("Unknown")) == []
    assert done(order(), unknown, node("Lost")) == ["Released"]
    assert done(order(), unknown) == ["Released"]
    assert done(order(), unknown, node("Lost"), TRAFFIC) == []


def test_so_many_slots_are_let_go_in_a_second_and_the_rest_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "LET_GO_PER_S", 3)
    controller = RepairController("r")
    plural, first = bound(_S.UNKNOWN)
    slots = [
        replace(first, metadata=replace(first.metadata, name=f"{workload}-{index}"), spec=replace(first.spec, slot=ref))
        for workload in ("api", "web")
        for index in range(2)
        for ref in (SlotRef(workload=workload, uid="u", index=index),)
    ]
    view = picture(order(), node("Lost"), *((plural, slot) for slot in slots))

    def let_go(workload: str, now_ms: int) -> tuple[list[str], int | None]:
        found = controller.reconcile(("t", workload), view, now_ms)
        return [body.name for body in found.bodies if isinstance(body, Move)], found.wake_ms

    for _ in range(2):
        assert let_go("api", NOW + 300) == (["api-0", "api-1"], None), "who is looked at twice counts once"
        assert let_go("web", NOW + 300) == (["web-0"], NOW + 1000), "a bound of the region, not of a workload"
    assert let_go("web", NOW + 1000) == (["web-0", "web-1"], None)


def test_the_next_life_begins_at_once_after_a_loss_and_after_a_pause_when_it_failed() -> None:
    assert done(order(), bound(_S.RELEASED, _S.UNKNOWN), REVISION) == ["queue 3"]
    failed = bound(_S.RELEASED, _S.FAILED, NOW - 999)
    assert done(order(), failed, REVISION) == []
    assert done(order(), failed, REVISION, now_ms=NOW + 1) == ["queue 3"]
    assert RepairController("r").reconcile(("t", "api"), picture(order(), failed, REVISION), NOW).wake_ms == NOW + 1


@pytest.mark.parametrize(
    ("requester", "reason", "epoch", "left"),
    [
        ("defragmenter", "Evicted", 2, "n"),
        ("defragmenter", "", 2, "n"),  # approved; its process was gone before the request was done
        ("defragmenter", "Evicted", 1, ""),  # a life before this one
        ("defragmenter", "GaveUp", 2, ""),
        ("rollout", "Evicted", 2, ""),
    ],
)
def test_the_request_of_a_slot_that_was_moved_for_room_names_the_node_it_left(
    requester: str, reason: str, epoch: int, left: str
) -> None:
    ref = SlotRef(workload="api", uid="u", index=0)
    done = Condition("Done" if reason else "Approved", "True", 1, instant(NOW), reason)
    asked = EvictionRequest(
        Metadata(name="api-0", namespace="t", generation=1),
        EvictionRequestSpec(slot=ref, reason="x", requester=requester, epoch=epoch),
        EvictionRequestStatus(observed_generation=1, conditions=(done,)),
    )
    view = picture(order(), bound(_S.RELEASED, _S.DRAINING), REVISION, ("evictionrequests", asked))
    (body,) = RepairController("r").reconcile(("t", "api"), view, NOW).bodies
    assert isinstance(body, Put)
    assert body.object.spec.left_node == left
    assert body.object.spec.left_until_time == (instant(NOW + LEFT_MS) if left else None)


def pauses(*lives: tuple[str, Binding]) -> list[int]:
    """After each life of one slot, as one holder sees them, how long its next one waits."""
    repair, out = RepairController("r"), []
    for life in lives:
        wake_ms = repair.reconcile(("t", "api"), picture(order(), life, REVISION), NOW).wake_ms
        out.append((wake_ms or NOW) - NOW)
    return out


def test_the_pause_after_a_failure_doubles_with_those_in_a_row_and_not_with_the_age_of_a_service() -> None:
    def failed(epoch: int, lived_ms: int = 5_000) -> tuple[str, Binding]:
        return bound(_S.RELEASED, _S.FAILED, NOW, epoch, lived_ms)

    assert pauses(*(failed(epoch) for epoch in range(1, 10))) == [1000 << n for n in range(6)] + [60_000] * 3
    assert pauses(failed(40)) == [1000], "rolled out forty times, and failed once"
    assert pauses(failed(40), failed(40), failed(41)) == [1000, 1000, 2000], "looked at twice, it failed once"
    rolled_out = bound(_S.RELEASED, _S.DRAINING, NOW, 42)
    assert pauses(failed(40), failed(41), rolled_out, failed(43)) == [1000, 2000, 0, 1000]
    assert pauses(failed(40), failed(41), failed(42, lived_ms=600_000), failed(43)) == [1000, 2000, 1000, 2000]


def test_slots_whose_assignment_went_before_them_are_asked_to_leave_and_those_it_never_saw_one_of_are_not() -> None:
    repair, view = RepairController("r"), picture(order(), bound(_S.SERVING), node("Ready"))
    assert repair.reconcile(("t", "api"), view, NOW).bodies == ()
    there = view.cache.item("assignments", "t", "api.r")
    assert there is not None
    view.cache.apply(Row("assignments", "t", "api.r", 9, None, None))
    assert list(repair.keys(view, there, False)) == [("t", "api")]
    (asked,) = repair.reconcile(("t", "api"), view, NOW).bodies
    assert isinstance(asked, Put)
    assert (asked.kind, asked.object.spec.requester, asked.object.spec.epoch) == ("EvictionRequest", "repair-controller", 2)
    assert list(repair.resync(view)) == [("t", "api")], "it is looked at until they are gone"
    put_in(view.cache, ("evictionrequests", asked.object))
    assert repair.reconcile(("t", "api"), view, NOW).bodies == [], "it is asked once"
    ended = Condition("Done", "True", 1, instant(NOW), "Evicted")
    before = replace(asked.object, spec=replace(asked.object.spec, epoch=1), status=EvictionRequestStatus(conditions=(ended,)))
    view.cache.apply(Row("evictionrequests", "t", "api-0", 10, codec.encode(before), before))
    assert repair.reconcile(("t", "api"), view, NOW).bodies == [asked], "what is kept is of a life that is over"
    never_seen = RepairController("r")
    assert never_seen.reconcile(("t", "api"), picture(bound(_S.SERVING), node("Ready")), NOW).bodies == ()


def above(*objects: tuple[str, Any]) -> Cache:
    """What the mirror sees of the global plane."""
    return put_in(Cache(MirrorDown("r").indexes_other), *objects)


KNOWN = ("regions", Region(metadata=Metadata(name="r")))


def test_slots_whose_assignment_went_unseen_leave_once_the_global_plane_shows_none_either() -> None:
    def asked(*lists: tuple[int, tuple[tuple[str, Any], ...]]) -> bool:
        """After a new holder has seen these, each of an incarnation of the global plane."""
        seen = Above("r")
        repair, view = RepairController("r", seen), picture(bound(_S.SERVING), node("Ready"))
        keys = list(repair.resync(view))
        for incarnation, objects in lists:
            seen.saw(above(*objects), incarnation)
            keys = list(repair.resync(view))
        bodies = repair.reconcile(("t", "api"), view, NOW).bodies
        assert bool(keys) is bool(bodies)
        return bool(bodies)

    none, ordered = (KNOWN,), (KNOWN, order())
    assert asked((1, none), (1, none), (1, none))
    assert not asked((1, none), (1, none)), "the first may have been under way"
    assert not asked(), "cut off: nobody knows"
    assert not asked((1, ()), (1, ()), (1, ()), (1, ())), "a global plane that does not know the region orders nothing"
    assert not asked((1, none), (1, none), (1, ordered)), "it is ordered, and has merely not come yet"
    assert not asked((1, none), (1, none), (2, none), (2, none)), "restored: it may not know yet what it ordered"
    assert asked((1, none), (2, none), (2, none), (2, none))
    assert not asked((1, ordered), (1, none), (1, none))


def test_the_mirror_s_lists_are_the_repair_s_evidence() -> None:
    config = PlaneConfig(plane="region", store="", data="", region="r")
    placed = [each for each, _, _ in controllers_of(config, "here", "here", {"global": "above"})]
    (repair,) = (each for each in placed if isinstance(each, RepairController))
    (mirror,) = (each for each in placed if isinstance(each, MirrorDown))
    view = picture(bound(_S.SERVING), node("Ready"))
    between = View({}, mirror.indexes_other)
    put_in(between.other, KNOWN)
    for _ in range(3):
        assert list(repair.resync(view)) == []
        mirror.resync(between)
        known = between.other.item("regions", "", "r")
        assert known is not None
        mirror.keys(between, known, True)  # a change of its region is no list
    assert list(repair.resync(view)) == [("t", "api")]


def test_a_slot_nobody_wants_stays_released() -> None:
    assert done(bound(_S.RELEASED, _S.UNKNOWN), REVISION) == []
