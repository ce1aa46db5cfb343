"""From the watch to the pictures: what is told on."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from fairlead.model.lifecycle import SlotState
from fairlead.scheduler.observer import Observer
from fairlead.scheduler.partition import Partition, Parts
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.snapshot import Use
from tests.scheduler.fleets import REGION, node, snapshot_of
from tests.scheduler.test_snapshot import Seen


class Told(msgspec.Struct):
    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


def test_a_slot_that_ends_is_told_once_and_one_that_drains_or_moves_is_not() -> None:
    snapshot, ended = snapshot_of(node("n0"), node("n1")), list[Use]()
    parts = Parts(Partition())
    observer = Observer(snapshot, Queue(random.Random(1)), Policies(), REGION, parts, ended=ended.append)

    def see(hot: Seen | None) -> int:
        observer.observe([Told("bindings", "risk", "w-0", 1, b"" if hot is not None else None, hot)])
        return len(ended)

    steps = (Seen("n0"), Seen("n1"), Seen("n1", SlotState.DRAINING), Seen("n1", SlotState.RELEASED), None)
    assert [see(hot) for hot in steps] == [0, 0, 0, 1, 1]
    assert snapshot.names[ended[0].row] == "n1"
