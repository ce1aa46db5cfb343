"""What the authority does by itself, where it is not taken the first time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairlead.authority.chores import AGAIN_MS, Chores
from fairlead.authority.judge.context import instant
from fairlead.model.commands import Accepted, Refused
from fairlead.model.kinds.capacity import Reservation, ReservationSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources


def test_the_end_of_a_reservation_that_a_store_did_not_take_is_sent_again() -> None:
    now_ms = 1_000_000
    state: Any = SimpleNamespace(derive=lambda plural, told: None)
    ctx: Any = SimpleNamespace(state=state, plane_ms=lambda: now_ms)
    nothing: Any = None
    chores = Chores(ctx, nothing, nothing, nothing)
    spec = ReservationSpec(node="n", requests=Resources(1, 1), token=Token(incarnation=1, epoch=1, attempt=1),
                           expiry_time=instant(now_ms))  # fmt: skip
    made: Any = SimpleNamespace(hot=Reservation(metadata=Metadata(name="api-0"), spec=spec), tenant="risk", name="api-0")
    chores._reservation_changed(None, made)
    sent = chores._expired_reservations()
    assert len(sent) == 1
    assert chores._expired_reservations() == []
    chores._again(sent, [Refused("StoreUnavailable", "its disk is full")])
    assert chores._expired_reservations() == []
    now_ms += AGAIN_MS
    again = chores._expired_reservations()
    assert [command.body for command in again] == [command.body for command in sent]
    chores._again(again, [Accepted(1)])
    now_ms += AGAIN_MS
    assert chores._expired_reservations() == []
