"""The scheduler's picture: columns equal the sum of what lies on the nodes, whatever order news comes in."""

from __future__ import annotations

import random

import msgspec
import pytest

from fairlead.model.kinds.capacity import NodePool, NodePoolSpec, Reservation, ReservationSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Marks
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceHold, Resources
from fairlead.scheduler.snapshot import FIRM, HELD, LENT, Snapshot, Use
from tests.scheduler.fleets import GI, NOW_MS, node, snapshot_of


class Seen(msgspec.Struct):
    """A binding as the watch shows it."""

    node: str
    state: SlotState = SlotState.BOUND
    requests: Resources = Resources(1000, GI)
    devices: tuple[DeviceHold, ...] = ()
    borrowed: bool = False
    priority: int = 0
    workload_uid: str = "u"
    marks: Marks | None = None


def cells(snapshot: Snapshot, row: int = 0) -> dict[str, int]:
    names = ("cpu_free", "cpu_unlent", "memory_free", "slots_free")
    return {name: snapshot.fleet.cells[name][row] for name in names}


def test_the_echo_of_an_assumed_placement_changes_nothing() -> None:
    snapshot = snapshot_of(node("n0"))
    snapshot.set_use(("risk", "w-0"), Use(0, FIRM, Resources(1000, GI), uid="u", evictable=True))
    before, changes = cells(snapshot), snapshot.changes
    snapshot.set_binding(("risk", "w-0"), Seen("n0"))
    assert cells(snapshot) == before
    assert snapshot.changes == changes
    snapshot.set_binding(("risk", "w-0"), None)
    assert cells(snapshot)["cpu_free"] == 4000


def test_what_the_watch_says_a_slot_bears_is_believed() -> None:
    snapshot = snapshot_of(node("n0"))
    snapshot.set_use(("risk", "w-0"), Use(0, FIRM, Resources(1000, GI), uid="u", marks=Marks(ports=(80,)), evictable=True))
    assert snapshot.set_binding(("risk", "w-0"), Seen("n0", marks=Marks(ports=(443,))))
    assert [snapshot.topology.of_port(port)[0] for port in (80, 443)] == [0, 1]


def test_a_reserved_place_bears_what_its_slot_will() -> None:
    snapshot = snapshot_of(node("n0"))
    slot = SlotRef(workload="w", uid="u", index=0)
    spec = ReservationSpec(node="n0", requests=Resources(1000, GI), slot=slot, marks=Marks(ports=(80,)))
    snapshot.set_reservation(("risk", "w-0"), Reservation(metadata=Metadata(name="w-0", namespace="risk"), spec=spec))
    assert snapshot.topology.of_port(80)[0] == 1


def test_a_slot_bound_elsewhere_by_another_moves_in_the_picture() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    snapshot.set_use(("risk", "w-0"), Use(0, FIRM, Resources(1000, GI), uid="u", evictable=True))
    snapshot.set_binding(("risk", "w-0"), Seen("n1"))
    assert cells(snapshot, 0)["cpu_free"] == 4000
    assert cells(snapshot, 1)["cpu_free"] == 3000


def test_held_and_lent_are_booked_apart() -> None:
    snapshot = snapshot_of(node("n0"))
    snapshot.set_use(("risk", "held"), Use(0, HELD, Resources(1000, GI)))
    assert cells(snapshot) == {"cpu_free": 3000, "cpu_unlent": 4000, "memory_free": 7 * GI, "slots_free": 110}
    snapshot.set_use(("risk", "w-0"), Use(0, LENT, Resources(500, GI), uid="u"))
    assert cells(snapshot) == {"cpu_free": 3000, "cpu_unlent": 3500, "memory_free": 7 * GI, "slots_free": 109}


def test_a_released_slot_frees_its_node_and_a_draining_one_does_not() -> None:
    snapshot = snapshot_of(node("n0"))
    snapshot.set_binding(("risk", "w-0"), Seen("n0"))
    snapshot.set_binding(("risk", "w-0"), Seen("n0", SlotState.DRAINING))
    assert cells(snapshot)["cpu_free"] == 3000
    assert not snapshot.uses["risk", "w-0"].evictable
    snapshot.set_binding(("risk", "w-0"), Seen("n0", SlotState.RELEASED))
    assert cells(snapshot)["cpu_free"] == 4000


def test_a_reservation_that_became_a_binding_is_not_freed_by_its_own_end() -> None:
    snapshot = snapshot_of(node("n0"))
    spec = ReservationSpec(node="n0", requests=Resources(1000, GI))
    snapshot.set_reservation(("risk", "w-0"), Reservation(metadata=Metadata(name="w-0", namespace="risk"), spec=spec))
    assert cells(snapshot)["cpu_free"] == 3000
    snapshot.set_binding(("risk", "w-0"), Seen("n0"))
    snapshot.set_reservation(("risk", "w-0"), None)
    assert cells(snapshot)["cpu_free"] == 3000


def test_the_rest_of_a_claimed_room_is_held_and_no_room_of_its_budget() -> None:
    snapshot = snapshot_of(node("n0"))
    key = ("risk", "standing.eu-0")
    spec = ReservationSpec(node="n0", requests=Resources(2000, GI), budget="eu")
    for claimer, requests, rooms in (("", Resources(2000, GI), 1), ("api-0", Resources(1000), 0), ("", Resources(2000, GI), 1)):
        seen = msgspec.structs.replace(spec, claimer=claimer, requests=requests)
        snapshot.set_reservation(key, Reservation(metadata=Metadata(name=key[1], namespace=key[0]), spec=seen))
        assert (snapshot.uses[key].how, snapshot.uses[key].requests) == (HELD, requests)
        assert len(snapshot.rooms.free("risk", "eu", snapshot.uses)) == rooms


def test_what_the_authority_saw_is_believed_until_the_watch_has_caught_up() -> None:
    snapshot = snapshot_of(node("n0"))
    snapshot.correct("n0", {"cpuFree": 500, "memoryFree": 8 * GI, "slotsFree": 110}, revision=50)
    assert cells(snapshot)["cpu_free"] == 500
    snapshot.reached(49)
    assert cells(snapshot)["cpu_free"] == 500
    snapshot.set_binding(("risk", "w-0"), Seen("n0", requests=Resources(3500, GI)))
    snapshot.reached(50)
    assert cells(snapshot)["cpu_free"] == 500


def test_a_node_that_goes_takes_its_capacity_and_one_that_returns_brings_it() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    assert snapshot.capacity["cpu"] == 8000
    snapshot.set_node("n0", None)
    assert snapshot.capacity["cpu"] == 4000
    assert snapshot.row(0).schedulable == 0
    snapshot.set_node("n0", node("n0", cpu=6000))
    assert snapshot.capacity["cpu"] == 10_000
    assert cells(snapshot)["cpu_free"] == 6000


def test_a_pool_that_closes_changes_the_class_of_its_nodes() -> None:
    snapshot = snapshot_of(node("n0", pool="gold"))
    layout, before = snapshot.layout, snapshot.row(0).node_class
    pool = NodePool(metadata=Metadata(name="gold"), spec=NodePoolSpec(allowed_tenants=("risk",)))
    snapshot.set_pool("gold", pool)
    assert snapshot.row(0).node_class != before
    assert snapshot.layout > layout


def test_devices_are_booked_by_thousandths_and_their_columns_follow() -> None:
    snapshot = snapshot_of(node("n0", devices=(Device(id="g0", model="a"), Device(id="g1", model="b"))))
    rows = snapshot.fleet.all()
    assert list(rows.devices_whole("gpu", ())) == [2]
    assert list(rows.devices_whole("gpu", ("b",))) == [1]
    held = Use(0, FIRM, Resources(100, GI), (DeviceHold(id="g0", thousandths=400),), uid="u")
    snapshot.set_use(("risk", "w-0"), held)
    assert list(snapshot.fleet.all().devices_whole("gpu", ())) == [1]
    assert snapshot.row(0).devices_share("gpu", ("a",)) == 600
    assert snapshot.used["risk"]["device:gpu"] == 400
    snapshot.set_use(("risk", "w-0"), None)
    assert snapshot.row(0).devices_whole("gpu", ()) == 2


def test_a_silent_node_that_is_heard_again_counts_as_changed_and_others_do_not() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    snapshot.now_ms = NOW_MS + 40_000
    snapshot.heard([("n0", NOW_MS + 39_000)], 30_000)
    changes = snapshot.changes
    snapshot.heard([("n0", NOW_MS + 39_500), ("nobody", 1)], 30_000)
    assert snapshot.changes == changes
    snapshot.heard([("n1", NOW_MS + 39_500)], 30_000)
    assert snapshot.changed[-1] == 1
    changes = snapshot.changes
    snapshot.now_ms = NOW_MS + 52_000
    snapshot.heard([("n0", NOW_MS + 52_000)], 30_000)  # within the policy's bound, but perhaps too silent for some workload
    assert snapshot.changed[changes - snapshot.changed_base :] == [0]


@pytest.mark.parametrize("seed", range(10))
def test_columns_equal_the_sum_of_what_lies_there(seed: int) -> None:
    draws = random.Random(seed)
    snapshot = snapshot_of(*(node(f"n{n}", cpu=50_000, memory=400 * GI) for n in range(4)))
    for _ in range(400):
        key = ("risk", f"w-{draws.randrange(30)}")
        if draws.random() < 0.3:
            snapshot.set_use(key, None)
        else:
            requests = Resources(draws.randrange(1, 900), draws.randrange(1, 5) * GI, [("licences", draws.randrange(3))])
            snapshot.set_use(key, Use(draws.randrange(4), draws.choice((FIRM, HELD, LENT)), requests, uid=draws.choice("ab")))
        uses = list(snapshot.uses.values())
        for row in range(4):
            here = [one for one in uses if one.row == row]
            firm = sum(one.requests.cpu for one in here if one.how != LENT)
            unlent = sum(one.requests.cpu for one in here if one.how != HELD)
            assert cells(snapshot, row)["cpu_free"] == 50_000 - firm
            assert cells(snapshot, row)["cpu_unlent"] == 50_000 - unlent
            assert cells(snapshot, row)["slots_free"] == 110 - sum(one.how != HELD for one in here)
        assert snapshot.used.get("risk", {}).get("cpu", 0) == sum(one.requests.cpu for one in uses)


def test_a_node_where_slots_failed_is_remembered_for_a_while() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    snapshot.failed("n0")
    snapshot.now_ms += 300_000
    snapshot.failed("n0")
    snapshot.failed("nobody")
    assert snapshot.row(0).recent_failures == 2
    snapshot.now_ms += 300_000
    snapshot.forget_failures()
    assert snapshot.row(0).recent_failures == 1
    snapshot.now_ms += 300_000
    snapshot.forget_failures()
    assert snapshot.row(0).recent_failures == 0
