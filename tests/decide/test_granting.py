"""The quota controllers, the judge of their words and the mirrors between them, in true time (granting_model.py)."""

from __future__ import annotations

import random

import pytest

from tests.decide.granting_model import QUOTA, REGIONS, TENANTS, World

KINDS = (
    ["advance"] * 6 + ["control"] * 6 + ["blindly"] * 4 + ["down"] * 6 + ["up"] * 6 + ["place"] * 10 + ["end"] * 3 + ["copy"]
    + ["restart"] + ["round"] * 8
)  # fmt: skip


def walk(seed: int, steps: int = 300) -> tuple[str, int]:
    """A random walk; answers with what was broken, and how much was placed."""
    rng, world, placed = random.Random(seed), World(), 0
    for clock in world.clocks.values():
        clock.rate = rng.choice((990, 1000, 1010))
    for number in range(steps):
        kind = "restore" if rng.random() < 0.006 else rng.choice(KINDS)
        # For half of the time one region is as good as cut off.
        region = rng.choice(REGIONS) if number % 200 < 100 or rng.random() < 0.2 else REGIONS[seed % 2]
        who = rng.choice(("global", *REGIONS))
        first, second = rng.randrange(1000), rng.randrange(1000)
        match kind:
            case "advance":
                world.advance(rng.choice((1, 50, 300, 1500, 1500, 4000, 9000)))
            case "control":
                world.control(who, first)
            case "blindly":
                world.look_blindly(who, first, second)
            case "down":
                world.mirror_down(region, first)
            case "up":
                world.mirror_up(region, first)
            case "place":
                placed += world.place(region, rng.choice(TENANTS), rng.choice((5, 10, 30)))
            case "end":
                world.end(region, rng.choice(TENANTS))
            case "copy":
                world.copy(who)
            case "restart":
                world.restart(who)
            case "restore":
                world.restore(who, first)
            case "round":
                world.round(region)
        broken = world.violation()
        if broken:
            return f"seed {seed}, step {number}, {kind}: {broken}", placed
    return "", placed


@pytest.mark.parametrize("part", range(4))
def test_what_runs_and_what_could_be_placed_never_exceed_the_quota(part: int) -> None:
    total = 0
    for seed in range(part * 8, part * 8 + 8):
        broken, placed = walk(seed)
        assert not broken
        total += placed
    assert total > 40, "a walk in which nothing is placed shows nothing"


def test_quota_goes_where_work_waits_for_it_and_comes_back() -> None:
    world = World()
    for _ in range(8):
        for region in REGIONS:
            world.round(region)
        world.advance(300)
    assert [world.allowed(region, "risk").limit.cpu for region in REGIONS] == [QUOTA // 2] * 2
    for _ in range(30):
        world.place("east", "risk", 10)
        for region in REGIONS:
            world.round(region)
        world.advance(1100)
    assert sum(world.running["east", "risk"]) >= QUOTA * 8 // 10
    while world.running["east", "risk"]:
        world.end("east", "risk")
    for _ in range(30):
        world.place("west", "risk", 10)
        for region in REGIONS:
            world.round(region)
        world.advance(1100)
    assert sum(world.running["west", "risk"]) >= QUOTA * 8 // 10
    assert not world.violation()
