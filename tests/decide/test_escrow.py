"""Escrow as a model in true time (P13, P6), and its arithmetic."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fairlead.decide import escrow
from fairlead.decide.escrow import Account, Offer, Standing
from tests.decide.escrow_model import GUARDS, QUOTA, REGIONS, Answer, World, restored

REGION = st.sampled_from(REGIONS)
AMOUNT = st.integers(1, 60)


class Escrow(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(ms=st.sampled_from([1, 100, 1_000, 2_500, 4_100, 10_200]))
    def time_passes(self, ms: int) -> None:
        # In small steps, because what holds only at the end of an hour may not have held in between.
        for _ in range(10):
            self.world.advance(max(1, ms // 10))
            assert not self.world.violation()

    @rule(who=st.sampled_from(["global", *REGIONS, *(f"node-{r}" for r in REGIONS)]), rate=st.sampled_from([990, 1000, 1010]))
    def a_clock_runs_otherwise(self, who: str, rate: int) -> None:
        self.world.clocks[who].rate = rate

    @rule(region=REGION, during=st.integers(0, QUOTA), share=st.integers(0, 100))
    def global_wishes(self, region: str, during: int, share: int) -> None:
        self.world.wished[region] = (during, during * share // 100)

    @rule(region=REGION)
    def a_region_asks(self, region: str) -> None:
        self.world.ask(region)

    @rule(which=st.integers(0, 20), again=st.booleans())
    def a_message_arrives(self, which: int, again: bool) -> None:
        deliver(self.world, which, again)

    @rule(which=st.integers(0, 20))
    def a_message_is_lost(self, which: int) -> None:
        if self.world.wires:
            del self.world.wires[which % len(self.world.wires)]

    @rule(region=REGION)
    def a_region_asks_and_hears(self, region: str) -> None:
        talk(self.world, region)

    @rule(region=REGION, amount=AMOUNT)
    def a_region_places(self, region: str, amount: int) -> None:
        self.world.place(region, amount)

    @rule(region=REGION)
    def provisional_work_is_extended(self, region: str) -> None:
        self.world.extend(region)

    @rule(region=REGION)
    def something_ends(self, region: str) -> None:
        if self.world.running[region]:
            self.world.running[region].pop()

    @rule(who=st.sampled_from(["global", *REGIONS]))
    def a_backup_is_taken(self, who: str) -> None:
        self.world.copy(who)

    @rule(who=st.sampled_from(["global", *REGIONS]), which=st.integers(0, 2))
    def a_backup_is_restored(self, who: str, which: int) -> None:
        self.world.restore(who, which)

    @invariant()
    def nothing_is_sold_twice(self) -> None:
        assert not self.world.violation(), self.world.violation()


def deliver(world: World, which: int, again: bool) -> None:
    if not world.wires:
        return
    index = which % len(world.wires)
    message = world.wires[index] if again else world.wires.pop(index)
    if isinstance(message, Answer):
        world.take_answer(message)
    else:
        world.take_ask(message)


def talk(world: World, region: str) -> None:
    """Asks, and the answer comes; twice, because a restored plane asks back first."""
    for _ in range(2):
        world.ask(region)
        deliver(world, len(world.wires) - 1, again=False)
        deliver(world, len(world.wires) - 1, again=False)


def test_what_runs_and_what_may_be_placed_never_exceed_the_quota_whatever_happens_between_the_planes() -> None:
    run_state_machine_as_test(
        Escrow,
        settings=settings(
            max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
        ),
    )


# --- the guards: the model without one of them must be found unsafe


def walk(without: frozenset[str], seed: int, steps: int = 250) -> str:
    """One seeded life. Written out, because a mutant must be found by a search that does not depend on a library's version."""
    world, draw = World(without), random.Random(seed)
    for _ in range(steps):
        region = draw.choice(REGIONS)
        what = draw.randrange(22)
        if what < 5:
            talk(world, region)
        elif what < 8:
            world.advance(draw.choice([50, 500, 2_000, 4_100, 9_950, 10_060, 10_150]))
        elif what < 11:
            world.wished[region] = (during := draw.choice([0, 20, 50, 80, 100]), during * draw.choice([0, 50, 100]) // 100)
        elif what < 14:
            world.place(region, draw.randrange(1, 60))
        else:
            _seldom(world, draw, region, what)
        found = world.violation()
        if found:
            return found
    return ""


def _seldom(world: World, draw: random.Random, region: str, what: int) -> None:
    who = draw.choice(("global", *REGIONS))
    if what == 14:
        world.ask(region)
        if draw.random() < 0.5:
            return
        # an answer that is under way for long
        deliver(world, len(world.wires) - 1, again=False)
        world.advance(draw.choice([0, 3_000, 6_000]))
        deliver(world, len(world.wires) - 1, again=draw.random() < 0.5)
    elif what == 15:
        deliver(world, draw.randrange(20), again=draw.random() < 0.3)
    elif what == 16:
        world.extend(region)
    elif what == 17 and world.running[region]:
        world.running[region].pop(draw.randrange(len(world.running[region])))
    elif what == 18:
        world.clocks[draw.choice(list(world.clocks))].rate = draw.choice([990, 1010])
    elif what in (19, 20):
        world.copy(who)
    elif what == 21:
        world.restore(who, draw.randrange(3))


SEEDS = 1000


def test_the_whole_model_passes_every_seed_that_its_mutants_are_searched_with() -> None:
    assert [(seed, found) for seed in range(SEEDS) if (found := walk(frozenset(), seed))] == []


@pytest.mark.parametrize("guard", sorted(GUARDS))
def test_without_this_guard_something_is_sold_twice(guard: str) -> None:
    assert any(walk(frozenset({guard}), seed) for seed in range(SEEDS)), f"nobody would notice that {guard!r} is gone"


# --- the arithmetic


def cpu(amount: int) -> dict[str, int]:
    return {"cpu": amount}


def test_a_region_is_charged_the_largest_offer_it_may_stand_on_and_after_its_lease_what_remains() -> None:
    account = Account(2, (Offer(2, cpu(60), cpu(20), until_ms=100), Offer(3, cpu(30), cpu(25), until_ms=200)))
    assert escrow.exposure(account, 99) == cpu(60)
    assert escrow.exposure(account, 100) == cpu(30), "the first lease is over; the second may still be believed"
    assert escrow.exposure(account, 200) == cpu(25)


def test_a_shrink_frees_nothing_until_the_region_stands_on_it_and_a_late_word_changes_nothing() -> None:
    account = Account(2, (Offer(2, cpu(60), cpu(60), 100), Offer(3, cpu(30), cpu(30), 100)))
    assert escrow.exposure(account, 0) == cpu(60)
    account = escrow.stands_on(account, 3)
    assert escrow.exposure(account, 0) == cpu(30)
    assert escrow.stands_on(account, 2) == account


def test_an_answer_gives_what_there_is_room_for_and_the_same_again_is_no_new_offer() -> None:
    accounts = {"east": Account(1, (Offer(1, cpu(70), cpu(10), 100),)), "west": Account()}
    west = escrow.answer(accounts["west"], cpu(50), cpu(40), escrow.room_for(cpu(100), accounts, "west", 0), until_ms=100)
    assert west.newest == Offer(1, cpu(30), cpu(30), 100)
    again = escrow.answer(west, cpu(50), cpu(40), escrow.room_for(cpu(100), {**accounts, "west": west}, "west", 1), until_ms=101)
    assert again.offers == (Offer(1, cpu(30), cpu(30), 101),)


def test_while_a_restored_plane_has_not_heard_from_all_nothing_grows_and_what_was_told_goes_on() -> None:
    accounts = {name: restored(Account(1, (Offer(1, cpu(20), cpu(20), 100),)), 1000) for name in ("east", "west")}
    assert escrow.room_for(cpu(100), accounts, "east", 0) == {}
    accounts["east"] = escrow.told(accounts["east"], cpu(45), cpu(10), until_ms=50)
    assert escrow.room_for(cpu(100), accounts, "east", 0) == cpu(45)
    accounts["west"] = escrow.told(accounts["west"], cpu(20), cpu(20), until_ms=50)
    assert escrow.room_for(cpu(100), accounts, "east", 0) == cpu(80)


def test_work_stays_inside_the_limit_after_is_provisional_above_it_and_refused_above_the_limit_of_the_lease() -> None:
    standing = Standing(1, cpu(50), cpu(20), end_ms=100)
    assert escrow.lasting(standing, 0, cpu(10), cpu(10), cpu(10)) is True
    assert escrow.lasting(standing, 0, cpu(20), cpu(20), cpu(1)) is False
    assert escrow.lasting(standing, 0, cpu(20), cpu(50), cpu(1)) is None
    assert escrow.lasting(standing, 100, cpu(20), cpu(20), cpu(1)) is None
    assert escrow.lasting(Standing(1, cpu(50), cpu(20), 100, confirmed=False), 0, cpu(0), cpu(0), cpu(1)) is None
