"""What a placement was decided on, asked of forged journals: its reservation ends with the entry that binds it (S8),
and its node was heard of late (S2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from fairlead.model.commands import Bind
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec, WorkloadClass
from fairlead.model.lifecycle import Role, SlotState
from tests.observe.forging import BASE, T0, Effect, Forged, binding, by, gone, named, request, reservation

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


def test_a_place_on_a_node_that_was_not_heard_for_longer_than_any_class_may_rely_on_is_found() -> None:
    classes = (WorkloadClass(name="patient", max_observation_age_seconds=20.0),)
    spec = SchedulerPolicySpec(revision=1, max_observation_age_seconds=10.0, workload_classes=classes)
    policy: Effect = ("schedulerpolicies//r1", SchedulerPolicy(named("r1"), spec))
    channel: Effect = ("policychannels//default", PolicyChannel(named("default"), PolicyChannelSpec(current=1)))
    place, bind = bound(policy_revision=1), Bind("risk", "api-0", 1, 1, "n1", 1, 1)

    def found(at_s: float, *there: Effect) -> list[str]:
        forged = Forged(*BASE, policy, channel, request(), *there)
        ended = [gone(each) for each in there]
        return forged.entry(SCHEDULER, bind, *ended, gone(request()), place, at_s=at_s, heard=(("n1", 0),)).found

    assert (found(19.0), found(21.0)) == ([], ["S2"])
    held = reservation(expiry_time=T0 + timedelta(seconds=30), policy_revision=1)
    assert found(21.0, held) == [], "it was asked when that was reserved"


def born(effect: Effect, at_s: float) -> Effect:
    key, one = effect
    return key, replace(one, metadata=replace(one.metadata, creation_time=T0 + timedelta(seconds=at_s)))


def test_who_leaves_for_somebody_counts_until_then_in_full_unless_it_is_that_very_life_and_he_waits_for_it() -> None:
    def found(claimer: SlotState, victim_born_s: float = 1, victim: SlotState = SlotState.DRAINING) -> list[str]:
        """Somebody is placed into the room that is left beside one who claimed another at second 5."""
        first = born(binding(1, cpu=600, state=claimer, start_after=("risk/api-2",)), 5)
        forged = Forged(*BASE, request(), first, born(binding(2, cpu=600, state=victim), victim_born_s))
        bind = Bind("risk", "api-0", 1, 1, "n1", 0, 1)
        return forged.entry(SCHEDULER, bind, gone(request()), bound(), at_s=20, heard=(("n1", 20_000),)).found

    assert "S2" not in found(SlotState.BOUND)
    assert "S2" in found(SlotState.BOUND, victim=SlotState.SERVING)
    assert "S2" in found(SlotState.SERVING), "he has begun: who drains there now does so for somebody else"
    assert "S2" in found(SlotState.BOUND, victim_born_s=9), "it came back since"
