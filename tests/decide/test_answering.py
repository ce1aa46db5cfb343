"""What the global plane answers a region that asks for its leases, and what it may be charged less for afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fairlead.authority.judge import offers
from fairlead.controllers.contract import View
from fairlead.controllers.policy import PolicyController
from fairlead.decide.answering import answer_spec
from fairlead.decide.granting import honoured_ms, taken_answer
from fairlead.decide.slots import instant
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata
from tests.decide.granting_model import QUOTA, REGIONS, Changed, World, settled


def test_a_lease_is_counted_from_the_question_and_honoured_from_the_answer() -> None:
    asked, answered_at = instant(1_000_000), 1_007_000
    status = GrantTermStatus(incarnation=1, asked=4, asked_time=asked, taken=3, knows=1)
    term = GrantTerm(Metadata(name="east"), GrantTermSpec("east"), status)
    spec = answer_spec(term, 1, {}, 600, answered_at)
    assert taken_answer(replace(term, spec=spec)).end_time == instant(1_000_000 + 594_000)
    assert spec.until_time == instant(answered_at + 606_000 + 30_000)
    assert answer_spec(replace(term, status=replace(status, knows=0)), 1, {}, 600, answered_at).lease_seconds == 0


def test_a_lease_that_was_given_for_longer_is_honoured_after_leases_were_made_shorter() -> None:
    """The region keeps the later end, whatever the next answer says: with it goes what it may not be charged less for."""
    world = World()
    settled(world)
    had, until = world.allowed("east", "risk").limit.cpu, world.planes["global"].get("grantterms", "", "east").spec.until_time
    world.relet(1)
    world.round("east")
    term: GrantTerm = world.planes["global"].get("grantterms", "", "east")
    assert (term.spec.lease_seconds, term.spec.longest_seconds, term.spec.until_time >= until) == (1, 10, True)
    while world.place("west", "risk", 1):
        pass
    spent_s = 0
    while not world.place("west", "risk", 10):  # more than its part: the rest is what the east had
        assert spent_s < 40
        world.round("west")
        assert not world.violation(), f"{spent_s} s after it was cut off the east may use {had} still"
        world.advance(1000)
        spent_s += 1
    assert spent_s >= 5, "the east's lease was of ten seconds, and not of one"


def test_a_region_whose_next_offer_was_refused_is_leased_what_it_has_again() -> None:
    """The answer on the same look had named that offer, so that the lease of the one before was taken for one that ends."""
    world = World()
    settled(world)
    seen, top = world.controllers["global"], world.planes["global"]
    while world.place("west", "risk", 1):
        pass
    world.advance(3000)
    for which in range(3):
        for region in REGIONS:
            world.control(region, which)
            world.mirror_up(region, which)
    seen.catch_up(top)
    seen.controller.reconcile(("risk", ""), seen.view, world.now("global"))  # offers the east less, and is refused
    world._write("global", seen.controller.reconcile(("region/", "east"), seen.view, world.now("global")).bodies[0])
    while world.running["west", "risk"]:  # nor is it wished for any more
        world.end("west", "risk")
    world.advance(1500)
    for which in range(6):
        world.mirror_down("east", which)
        for region in REGIONS:
            world.control(region, which)
        world.mirror_up("west", which)
    assert world.planes["east"].get("grants", "risk", "east").status.lease_end_time is not None
    settled(world, 30)
    assert world.allowed("east", "risk").limit.cpu == QUOTA // 2


# --- after a start that nobody has measured the time before ---------------------------------------------------------------------


def test_a_lease_that_was_given_for_longer_is_waited_for_whole_by_who_starts_cold_on_a_clock_that_is_ahead() -> None:
    world = World()
    settled(world)
    world.clocks["global"].reading += 60_000_000  # all leases seem to have ended
    world.relet(1)
    while world.place("west", "risk", 1):
        pass
    for _ in range(6):
        world.place("west", "risk", 10)
        world.round("west")
        assert not world.violation(), "the east is cut off, and goes on by its lease of ten seconds"
        world.advance(1000)


def longer() -> GrantTerm:
    return GrantTerm(Metadata(name="east"), GrantTermSpec("east", lease_seconds=60, until_time=instant(1), longest_seconds=3600))


def test_the_judge_of_offers_waits_for_it() -> None:
    ctx: Any = SimpleNamespace(leader_since_ms=5_000, state=SimpleNamespace(hot=lambda *key: longer()))
    grant = Grant(Metadata(name="east", namespace="risk"), GrantSpec("east", 1, lease_seconds=60))
    assert offers._floor_ms(ctx, "east", grant) == 5_000 + honoured_ms(3600)


def test_a_policy_is_not_called_effective_before_it_has_ended() -> None:
    view = View({}, {})
    view.since_ms = 5_000
    for plural, thing in (("regions", Region(Metadata(name="east", uid=Uid("1.9"), generation=2))), ("grantterms", longer())):
        view.cache.apply(Changed(plural, "", "east", 1, b"", thing))

    def state(after_ms: int) -> str:
        (found,) = PolicyController(60)._stands(view, view.since_ms + after_ms)
        return found.state

    assert state(honoured_ms(60)) == "Pending"
    assert state(honoured_ms(3600)) == "LeaseEnded"
