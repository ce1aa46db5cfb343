"""Planted bugs: the quick ones are found on every commit, each by a promise it breaks; without them the same worlds are clean."""

from __future__ import annotations

import inspect

import pytest

from fairlead.sim.campaign import scenario_of
from fairlead.sim.hunt import Hunt, rows
from fairlead.sim.mutants import MUTANTS, QUICK, planted
from fairlead.sim.profiles import PROFILES
from fairlead.sim.world import run_scenario

SEED, SEEDS_MAX = 1, 4  # the first seed shows nearly all of them
HUNT = Hunt(scenario_of, lambda text: None)
WORLDS = sorted({(MUTANTS[name].profile, MUTANTS[name].minutes) for name in QUICK})
# What strays must have run into, or the guards were not asked.
ASKED = (
    "FencedOut", "NoFit", "NotOwner", "NotPending", "StaleEpoch", "StaleGeneration", "StaleGrant", "StalePolicy", "StaleToken",
)  # fmt: skip


MEDDLED = ("Conflict", "FencedOut", "InUse", "NotOwner", "NotPending", "StaleEpoch", "StaleGrant")


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found_by_a_promise_it_breaks(name: str) -> None:
    seeds = range(SEED, SEED + SEEDS_MAX)
    assert any(HUNT.found(name, seed) for seed in seeds), f"fairlead sim mutants {name} --seeds {SEEDS_MAX}"


def test_several_processes_find_what_one_does_in_the_order_that_was_asked_for() -> None:
    names = ("watch-twice", "reads-all")
    assert len({MUTANTS[name].profile for name in names}) == 2, "those of one world are one process's"
    told = rows(names, 1, False, 2, scenario_of, print)
    assert [(row["name"], row["found"], row["control"]) for row in told] == [(name, True, []) for name in names]


@pytest.mark.parametrize(("profile", "minutes"), WORLDS)
def test_without_it_the_same_world_breaks_no_promise(profile: str, minutes: float) -> None:
    missing = set({"crowded": ASKED, "meddlers": MEDDLED}.get(profile, ()))
    for seed in range(SEED, SEED + SEEDS_MAX):
        verdict = run_scenario(scenario_of(seed, profile, minutes))
        assert not verdict.findings, f"{verdict.findings}: fairlead sim run --profile {profile} --first-seed {seed} --seeds 1"
        missing -= {name.removeprefix("stray_") for name in verdict.counts} | set(verdict.refusals)
        if not missing:
            break
    assert not missing, sorted(missing)


@pytest.mark.parametrize("name", MUTANTS)
def test_every_planted_bug_has_a_profile_and_is_taken_out_again(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.profile in PROFILES
    assert not {"X1", "X2"} & set(mutant.invariants), "a crash proves nothing about a guard"
    before = [getattr(owner, attribute) for owner, attribute, _ in mutant.swaps()]
    with planted(name):
        inside = [getattr(owner, attribute) for owner, attribute, _ in mutant.swaps()]
    after = [getattr(owner, attribute) for owner, attribute, _ in mutant.swaps()]
    assert before == after
    assert all(one != other for one, other in zip(before, inside, strict=True))


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_planted_can_be_called_as_what_it_stands_for(name: str) -> None:
    """Else it ends the program that calls it, and a crash proves nothing about a guard."""
    for owner, attribute, planted_there in MUTANTS[name].swaps():
        right = inspect.getattr_static(owner, attribute)
        if not inspect.isfunction(right) or not inspect.isfunction(planted_there):
            continue
        wanted = inspect.signature(right).parameters.values()
        given = ["x"] * sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in wanted)
        named = {each.name: "x" for each in wanted if each.kind is each.KEYWORD_ONLY}
        inspect.signature(planted_there).bind(*given, **named)
