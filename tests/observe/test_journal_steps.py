"""What is placed stays as it was placed: a binding or a reservation that is changed in place is found (S2, S4, S7)."""

from __future__ import annotations

from datetime import timedelta

from fairlead.model.commands import Caller, Delete, Reserve
from fairlead.model.lifecycle import Role, SlotState
from tests.observe.forging import BASE, T0, Effect, Forged, binding, by, reservation, to

ROLLOUT = by(Role.ROLLOUT)
SERVE = to(SlotState.SERVING)
SOON = T0 + timedelta(seconds=30)


def test_a_binding_that_is_written_as_it_is_breaks_nothing() -> None:
    assert Forged(*BASE, binding()).entry(ROLLOUT, SERVE, binding()).found == []


def test_a_binding_that_moves_to_another_node_in_its_state_is_found() -> None:
    assert Forged(*BASE, binding()).entry(ROLLOUT, SERVE, binding(on="n2")).found == ["S7"]


def test_a_binding_that_grows_in_place_is_found_and_its_node_and_grant_are_asked() -> None:
    assert Forged(*BASE, binding()).entry(ROLLOUT, SERVE, binding(cpu=600)).found == ["S7"]
    forged = Forged(*BASE, binding()).entry(ROLLOUT, SERVE, binding(cpu=90_000))
    assert set(forged.found) == {"S2", "S4", "S7"}, forged.details


def test_a_binding_that_a_user_overwrites_is_found() -> None:
    forged = Forged(*BASE, binding()).entry(
        Caller("mallory", Role.USER), Delete("Binding", "risk", "api-0"), binding(cpu=90_000, on="nowhere")
    )
    assert set(forged.found) == {"S2", "S4", "S7"}, forged.details


def test_a_binding_that_becomes_anothers_is_found() -> None:
    assert Forged(*BASE, binding()).entry(ROLLOUT, SERVE, binding(uid="another")).found == ["S7"]


def test_only_the_authority_lets_a_provisional_binding_stay() -> None:
    provisional = binding(provisional_until_time=SOON)
    assert Forged(*BASE, provisional).entry(Caller("authority", Role.AUTHORITY), SERVE, binding()).found == []
    assert Forged(*BASE, provisional).entry(ROLLOUT, SERVE, binding()).found == ["S7"]
    assert Forged(*BASE, binding()).entry(Caller("authority", Role.AUTHORITY), SERVE, provisional).found == ["S7"]


def test_a_reservation_that_grows_or_moves_is_found() -> None:
    held, body = reservation(expiry_time=SOON), Reserve("risk", "api-0", 1, 1, "n1", 0, 1)
    assert Forged(*BASE, held).entry(by(Role.SCHEDULER), body, held).found == []
    forged = Forged(*BASE, held).entry(by(Role.SCHEDULER), body, reservation(cpu=90_000, expiry_time=SOON))
    assert set(forged.found) == {"S2", "S4", "S7"}, forged.details
    assert Forged(*BASE, held).entry(by(Role.SCHEDULER), body, reservation(on="n2", expiry_time=SOON)).found == ["S7"]


def test_of_a_budgets_room_one_slot_may_take_a_part_and_give_it_back_and_nothing_else() -> None:
    body = Reserve("risk", "api-0", 1, 1, "n1", 0, 1)
    room, rest = reservation(budget="eu"), reservation(cpu=40, budget="eu", claimer="api-7")

    def found(before: Effect, after: Effect) -> bool:
        return "S7" in Forged(*BASE, before).entry(by(Role.SCHEDULER), body, after).found

    assert not found(room, rest)
    assert not found(rest, reservation(budget="eu", owner="api-7"))
    assert found(room, reservation(cpu=200, budget="eu", claimer="api-7")), "a rest is never more than the room"
    assert found(rest, reservation(budget="eu", owner="api-8")), "only who took it gives it back"
    assert found(room, reservation(cpu=40, on="n2", budget="eu", claimer="api-7")), "and it stays where it was"
    assert found(rest, reservation(cpu=90, budget="eu", claimer="api-7")), "nor does a rest grow"
