"""What a placement was decided on, asked of forged journals: its reservation ends with the entry that binds it (S8)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fairlead.model.commands import Bind
from fairlead.model.lifecycle import Role, SlotState
from tests.observe.forging import BASE, T0, Effect, Forged, binding, by, gone, request, reservation

SCHEDULER = by(Role.SCHEDULER)
HELD = reservation(expiry_time=T0 + timedelta(seconds=30))


def bound(on: str = "n1", **more: Any) -> Effect:
    return binding(on=on, cpu=100, state=SlotState.BOUND, **more)


def test_what_was_reserved_ends_with_the_entry_that_binds_it() -> None:
    bind = Bind("risk", "api-0", 1, 1, "n1", 0, 1)
    assert Forged(*BASE, request(), HELD).entry(SCHEDULER, bind, gone(HELD), gone(request()), bound()).found == []
    assert Forged(*BASE, request(), HELD).entry(SCHEDULER, bind, gone(request()), bound()).found == ["S8"]


def test_a_slot_that_somebody_else_binds_elsewhere_while_it_is_reserved_is_found() -> None:
    bind = Bind("risk", "api-0", 1, 1, "n2", 0, 1)
    forged = Forged(*BASE, request(), HELD).entry(by(Role.SCHEDULER, "t"), bind, gone(request()), bound(on="n2"))
    assert forged.found == ["S8"], forged.details


def test_a_room_that_is_claimed_is_not_held_any_more() -> None:
    room, bind = reservation(1, budget="b"), Bind("risk", "api-0", 1, 1, "n1", 0, 1, claims="api-1")
    claimer = bound(claimed="api-1")
    assert Forged(*BASE, request(), room).entry(SCHEDULER, bind, gone(room), gone(request()), claimer).found == []
    assert Forged(*BASE, request(), room).entry(SCHEDULER, bind, gone(request()), claimer).found == ["S8"]
