"""Slots that run once in the world, in true time (P11): of each chain of stand-ins one link runs, whatever happens between the
planes. The model drives the functions that run in production; without one of its guards it must be found unsafe."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.decide.slot_lease_model import GUARDS, REGIONS, World

REGION = st.sampled_from(REGIONS)
SOME = st.frozensets(REGION, max_size=2)
DELAY = st.sampled_from([0, 400, 4_000, 9_000])
WAITS_MS = (400, 2_000, 10_000, 30_000, 59_000, 61_500, 66_000)


@pytest.fixture(autouse=True)
def unheard() -> Iterator[None]:
    """Keepers say that their leases have run out; here they do so all the time."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class Slots(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(ms=st.sampled_from(WAITS_MS))
    def time_passes(self, ms: int) -> None:
        for _ in range(10):
            self.world.advance(ms // 10)
            assert not self.world.violation(), self.world.violation()

    @rule(
        who=st.sampled_from(["global", *REGIONS, *(f"node-{region}" for region in REGIONS)]),
        rate=st.sampled_from([990, 1000, 1010]),
    )
    def a_clock_runs_otherwise(self, who: str, rate: int) -> None:
        self.world.clocks[who].rate = rate

    @rule(region=REGION, there_ms=DELAY, back_ms=DELAY, lost=st.booleans(), others=st.lists(st.integers(0, 99), max_size=2))
    def a_region_asks_for_its_lease(self, region: str, there_ms: int, back_ms: int, lost: bool, others: list[int]) -> None:
        asked(self.world, region, (there_ms, back_ms), lost, [lambda n=n: step(self.world, random.Random(n)) for n in others])  # type: ignore[misc]

    @rule(which=st.integers(0, 9))
    def a_question_arrives_again(self, which: int) -> None:
        self.world.arrives_again(which)

    @rule(lost=SOME, settled=SOME, stuck=SOME)
    def recovery_looks(self, lost: frozenset[str], settled: frozenset[str], stuck: frozenset[str]) -> None:
        self.world.recovers(lost, settled - lost, stuck)

    @rule(region=REGION)
    def a_region_is_recovered(self, region: str) -> None:
        recovered(self.world, region)

    @rule(region=REGION)
    def a_region_comes_back(self, region: str) -> None:
        back(self.world, region)

    @rule(region=REGION)
    def an_assignment_is_made(self, region: str) -> None:
        self.world.assigns(region)

    @rule(region=REGION, what=st.sampled_from(["mirror_reads", "mirror_writes", "settles", "hears", "brought_up_to_date"]))
    def a_region_goes_on(self, region: str, what: str) -> None:
        getattr(self.world, what)(region)

    @rule(region=REGION, what=st.sampled_from(["node_hears", "node_tells", "node_starts"]))
    def a_node_goes_on(self, region: str, what: str) -> None:
        getattr(self.world, what)(region)

    @rule(region=REGION, there_ms=DELAY, back_ms=DELAY)
    def a_node_is_heard(self, region: str, there_ms: int, back_ms: int) -> None:
        self.world.heartbeat(region, there_ms, back_ms)

    @rule(who=st.sampled_from(["global", *REGIONS]))
    def a_leader_changes(self, who: str) -> None:
        self.world.leader_changes(who)

    @rule(who=st.sampled_from(["global", *REGIONS]))
    def a_backup_is_taken(self, who: str) -> None:
        self.world.copied(who)

    @rule(who=st.sampled_from(["global", *REGIONS]), which=st.integers(0, 2))
    def a_backup_is_restored(self, who: str, which: int) -> None:
        self.world.restored(who, which)

    @invariant()
    def no_chain_runs_twice(self) -> None:
        assert not self.world.violation(), self.world.violation()


def asked(world: World, region: str, delay_ms: tuple[int, int], lost: bool, others: list[Callable[[], None]]) -> None:
    world.delay_ms, world.lost, world.meanwhile = delay_ms, lost, others
    world.keeps(region)
    world.delay_ms, world.lost, world.meanwhile = (0, 0), False, []


def runs(world: World, region: str) -> None:
    """All goes well there for a moment."""
    world.keeps(region)
    world.brought_up_to_date(region)
    world.keeps(region)
    world.heartbeat(region)
    world.node_starts(region)


def recovered(world: World, region: str) -> None:
    """It is given up, and the others take over, as fast as anybody may."""
    for _ in range(3):
        world.recovers(frozenset({region}), frozenset(), frozenset())
        for each in REGIONS:
            world.assigns(each)
    for each in REGIONS:
        if each != region:
            runs(world, each)


def back(world: World, region: str) -> None:
    """It is well again, for as long as anybody asks for: what stands in for it goes, and then it has its own."""
    for _ in range(4):
        world.recovers(frozenset(), frozenset({region}), frozenset())
        for each in REGIONS:
            world.assigns(each)
            world.brought_up_to_date(each)
    runs(world, region)


def left_behind(world: World, draw: random.Random, region: str) -> None:
    """It was cut off, others took over, and it has its lease again before it knows."""
    world.advance(67_000)
    recovered(world, region)
    for _ in range(draw.randrange(1, 3)):
        world.recovers(frozenset(), frozenset(), frozenset())
    world.keeps(region)
    world.heartbeat(region)
    world.node_starts(region)


def slow(world: World, draw: random.Random, region: str) -> None:
    """An answer takes its time, and the region is given up as soon as that may be."""
    runs(world, region)
    asked(world, region, (0, 9_000), False, [])
    world.heartbeat(region)
    world.node_starts(region)
    for _ in range(draw.randrange(52, 62)):
        world.advance(1_000)
        if draw.random() < 0.3:
            recovered(world, region)
        if world.violation():
            return


def test_of_each_chain_one_link_runs_whatever_happens_between_the_planes() -> None:
    run_state_machine_as_test(
        Slots,
        settings=settings(
            max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
        ),
    )


# --- the guards: the model without one of them must be found unsafe


def step(world: World, draw: random.Random) -> None:
    region, who = draw.choice(REGIONS), draw.choice(("global", *REGIONS))
    what = draw.randrange(29)
    if what < 4:
        world.advance(draw.choice(WAITS_MS))
    elif what < 8:
        runs(world, region)
    elif what < 11:
        recovered(world, region)
    elif what < 14:
        back(world, region)
    elif what < 16:
        others = [lambda: step(world, draw)] if draw.random() < 0.5 and not world.meanwhile else []
        asked(world, region, (draw.choice((0, 9_000)), draw.choice((0, 9_000))), draw.random() < 0.2, others)
    elif what < 20:
        getattr(world, draw.choice(("assigns", "mirror_reads", "mirror_writes", "settles", "hears", "node_hears", "node_tells")))(
            region
        )
    elif what == 20:
        world.heartbeat(region, 0, draw.choice((0, 4_000)))
        world.node_starts(region)
    elif what == 21:
        world.clocks[draw.choice(list(world.clocks))].rate = draw.choice((990, 1010))
    elif what == 22:
        world.leader_changes(who)
    elif what == 23:
        world.copied(who)
    elif what == 24:
        world.restored(who, draw.randrange(3))
    elif what in (25, 26):
        left_behind(world, draw, region)
    elif what == 27:
        slow(world, draw, region)
    else:
        lost = frozenset(draw.sample(REGIONS, draw.randrange(3)))
        world.recovers(lost, frozenset(REGIONS) - lost, frozenset(draw.sample(REGIONS, draw.randrange(2))))
        world.arrives_again(draw.randrange(5))


def walk(without: frozenset[str], seed: int, steps: int = 120) -> str:
    """One seeded life. Written out, because a mutant must be found by a search that does not depend on a library's version."""
    world, draw = World(without), random.Random(seed)
    for _ in range(steps):
        step(world, draw)
        found = world.violation()
        if found:
            return found
    return ""


SEEDS = 120


def test_the_whole_model_passes_every_seed_that_its_mutants_are_searched_with() -> None:
    assert [(seed, found) for seed in range(SEEDS) if (found := walk(frozenset(), seed))] == []


@pytest.mark.parametrize("guard", sorted(GUARDS))
def test_without_this_guard_a_chain_runs_twice(guard: str) -> None:
    assert any(walk(frozenset({guard}), seed) for seed in range(SEEDS)), f"nobody would notice that {guard!r} is gone"
