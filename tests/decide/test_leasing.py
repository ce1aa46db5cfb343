"""Policy and residency are leased with versions: nobody judges by what is older than what is called effective (P14)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge.policies import Policies
from fairlead.controllers import policy
from fairlead.decide import leasing
from fairlead.decide.leasing import Versions
from fairlead.decide.slots import millis
from tests.decide.granting_model import REGIONS
from tests.decide.leasing_model import World

KINDS = (
    ["advance"] * 6 + ["control"] * 6 + ["down"] * 6 + ["up"] * 6 + ["install"] * 3 + ["promote"] * 2 + ["move"] + ["rule"] * 6
    + ["copy"] + ["restart"] + ["round"] * 4 + ["ask"] * 6
)  # fmt: skip


def walk(seed: int, steps: int = 250) -> tuple[str, int, int]:
    """A random walk: what was broken, how often a region could judge, and how often all that was ordered was effective."""
    rng, world, judged, effective = random.Random(seed), World(), 0, 0
    for clock in world.clocks.values():
        clock.rate = rng.choice((990, 1000, 1010))
    for number in range(steps):
        kind = "restore" if rng.random() < 0.008 else rng.choice(KINDS)
        region = rng.choice(REGIONS) if number % 100 < 50 or rng.random() < 0.1 else REGIONS[seed % 2]  # the other is cut off
        who, which, plural = rng.choice(("global", *REGIONS)), rng.randrange(1000), rng.choice(("policychannels", "regions"))
        older = rng.random() < 0.3
        match kind:
            case "advance":
                world.advance(rng.choice((1, 50, 300, 1500, 4000, 9000)))
            case "control":
                world.control(who, which)
            case "down":
                world.mirror_down(region, which)
            case "up":
                world.mirror_up(region, which)
            case "install":
                copies = world.copies["global"]
                world.install(region, plural, copies[which % len(copies)] if older and copies else world.planes["global"])
            case "promote":
                world.promote(1 + which % 5)
            case "move":
                world.move(region, f"area-{which % 5}")
            case "rule":
                world.rule()
            case "copy":
                world.copy(who)
            case "restart":
                world.restart(who)
            case "restore":
                world.restore(who, which)
            case "round":
                world.round(region)
            case "ask":
                world.ask(region)
        broken = world.violation()
        if broken:
            return f"seed {seed}, step {number}, {kind}: {broken}", judged, effective
        judged += world.may_judge(region)
        effective += world.effective()
    return "", judged, effective


def test_what_is_called_effective_leaves_nobody_who_may_judge_by_what_was_before() -> None:
    judged = effective = 0
    for seed in range(12):
        broken, could, was = walk(seed)
        assert not broken
        judged, effective = judged + could, effective + was
    assert min(judged, effective) > 200, "a walk in which nobody judges, or nothing is ever effective, shows nothing"


def _ended(*facts: Any) -> Any:
    stand = leasing.stand_of(*facts)
    return replace(stand, state="LeaseEnded", until_time=None) if stand.state == "Pending" else stand


def _fresh(term: Any, have: Versions, incarnation: int) -> int:
    """As if every answer were about whatever is installed."""
    return millis(term.status.end_time) if term is not None and term.status.incarnation == incarnation else 0


def _unwatched(region: str, term: Any, wanted: Versions, floor_ms: int, now_ms: int) -> Any:
    return leasing.stand_of(region, term, wanted, 0, now_ms)


GUARDS: dict[str, list[tuple[Any, str, Callable[..., Any]]]] = {
    "a lease that runs is waited for": [(policy, "stand_of", _ended)],
    "a lease is on versions": [(leasing, "policy_end_ms", _fresh), (World, "may_judge", lambda w, r: w.now(r) < _fresh(
        w.planes[r].get("grantterms", "", r), w.have(r), w.planes[r].incarnation))],
    "who has just begun watches for a whole lease": [(policy, "stand_of", _unwatched)],
    "a copy never goes back": [(Policies, "refuse_older", staticmethod(lambda new, old: None))],
}  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS)
def test_without_one_of_its_guards_somebody_judges_by_what_was_before(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, new in GUARDS[guard]:
        monkeypatch.setattr(owner, name, new)
    assert any(walk(seed)[0] for seed in range(60)), guard
