"""What is placed stays as it was placed: a binding or a reservation that is changed in place is found (S2, S4, S7)."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from fairlead.model.commands import Caller, Delete, ReleaseReservation, Report, Reserve
from fairlead.model.lifecycle import Role, SlotState
from tests.observe.forging import BASE, T0, TOKEN, Effect, Forged, binding, by, gone, lease, node, reservation, to

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


def test_a_reservation_that_repair_ends_before_it_ran_out_is_found() -> None:
    held, body = reservation(expiry_time=SOON), ReleaseReservation("risk", "api-0", TOKEN)

    def ended(role: Role, at_s: float) -> list[str]:
        return Forged(*BASE, lease(Role.REPAIR), held).entry(by(role), body, gone(held), at_s=at_s).found

    assert ended(Role.REPAIR, 20) == ["S7"]
    assert ended(Role.REPAIR, 31) == []
    assert ended(Role.REPAIR, 29.5) == [], "a batch has the time at which it was begun"
    assert ended(Role.SCHEDULER, 20) == [], "its own"


def test_a_step_by_an_agent_whose_session_is_over_is_found() -> None:
    key, known = node("n1")
    known = replace(known, status=replace(known.status, session=7))
    agent = Caller("n1", Role.AGENT, node="n1")

    def found(session: int) -> list[str]:
        body = Report("risk", "api-0", TOKEN, SlotState.FAILED, session=session)
        return Forged(*BASE[1:], (key, known), binding()).entry(agent, body, binding(state=SlotState.FAILED)).found

    assert found(6) == ["S9"]
    assert found(7) == found(8) == []
    assert found(0) == [], "it does not say which"
