"""Owns the walk through the points of a sieve: for each controller and each pattern, one run for each call at which it can
strike, each of which must come right as any other run must.

What a controller missed it must have been told within the bound of L3 after it was missed. The worlds are small and left alone
otherwise, so that what is found is the pattern's: one region where everything works, and two of which one is lost, for those that
have nothing to do before. Called by main.py through the command line, and by tests in a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.controllers import CONTROLLERS
from fairlead.model.lifecycle import Role
from fairlead.model.registry import GLOBAL
from fairlead.sim.campaign import command_for, environment, keep, verdicts_of
from fairlead.sim.scenario import Faults, Scenario, Sieve, Work
from fairlead.sim.world import Verdict, run_scenario

PATTERNS: Final = ("crash", "missed", "stale")
MISSED_S: Final = 35.0  # L3
ROUGH_S: Final = 25.0

Say = Callable[[str], None]

SMALL: Final = Scenario(
    seed=11,
    profile="sieve",
    regions=1,
    servers=1,
    nodes=2,
    rough_s=ROUGH_S,
    settle_s=40.0,  # a resync is every 30 s, and what it finds is put right
    quiet_s=10.0,
    work=Work(workloads=3, actions=40.0, exclusive=0.3, jobs=0.2, operators=4.0, replays=0.0),
)

# Two regions of which one goes dark, critical services with rooms held for them, exceptions that end within seconds, pools that
# order machines and a service that follows its load.
WIDE: Final = replace(
    SMALL,
    seed=23,  # the loss is early, a service is recovered, and a node is lost as well
    profile="sieve-wide",
    regions=2,
    nodes=2,
    elastic=True,
    node_lease_s=6.0,
    rough_s=60.0,
    settle_s=100.0,
    agreed_s=140.0,  # what stands in stays for a minute after its region is well
    faults=Faults(region=3.0, instance=2.0, power=2.0),
    work=Work(
        workloads=6,
        actions=30.0,
        exclusive=0.2,
        jobs=0.1,
        operators=2.0,
        replays=0.0,
        critical=0.6,
        overrides=8.0,
        promotions=2.0,
    ),
)
# Those that have nothing to write in the small one.
IN_WIDE: Final = (
    "region", "recovery", "job", "override", "override-global", "policy", "autoscaler", "node-autoscaler", "node", "repair",
    "repair-leftovers", "repair-global", "standing", "disruption", "defragmenter", "garbage", "garbage-global",
)  # fmt: skip
SEEDS: Final = {"job": 14}  # in which it has more to do
_TELLS: Final = tuple(name for name, info in CONTROLLERS.items() if info.role is Role.NARRATOR)  # what it misses is not told


def scenario_at(controller: str, pattern: str, at: int) -> Scenario:
    """`at` below nought: nothing strikes, the calls are counted."""
    world = WIDE if controller in IN_WIDE else SMALL
    return replace(world, seed=SEEDS.get(controller, world.seed), sieve=Sieve(controller, pattern, at))


def sifted(names: Sequence[str], patterns: Sequence[str], points: int, out: Path, say: Say, jobs: int = 1) -> dict[str, Any]:
    """Points that fail are kept in `out`."""
    load = environment()
    rows = [_row(name, pattern, points, out, say, jobs) for name in names or CONTROLLERS for pattern in patterns]
    params = {"controllers": list(names or CONTROLLERS), "patterns": list(patterns), "points": points}
    return {"name": "sim sieve", "params": params, "environment": load, "results": {"controllers": rows}}


def _row(name: str, pattern: str, points: int, out: Path, say: Say, jobs: int) -> dict[str, Any]:
    counted = run_scenario(scenario_at(name, pattern, -1)).counts
    calls = counted.get("sieve_calls", 0)
    wanted = spread(calls, points)
    failed: list[dict[str, Any]] = []
    agreed, made_good, steps = list[float](), list[float](), 0
    if not calls:  # green would say that it came right
        failed.append({"at": None, "found": ["it made no call at which this could strike"], "reproduce": ""})
        say(f"{name}: {pattern}: it made no call at which this could strike")
    verdicts = verdicts_of([scenario_at(name, pattern, at) for at in wanted], jobs)
    for at, (scenario, verdict) in zip(wanted, verdicts, strict=True):
        steps += verdict.steps
        found = faults_of(verdict, scenario)
        if found:
            failed.append({"at": at, "found": found, "reproduce": command_for(keep(scenario, verdict, out))})
        if verdict.agreed_s is not None:
            agreed.append(verdict.agreed_s)
        if "sieve_made_good_ms" in verdict.counts:
            made_good.append(made_good_s(verdict))
        say(f"{name}: {pattern} at {at} of {calls}: {'; '.join(found) or 'came right'}")
    return {
        "controller": name,
        "pattern": pattern,
        "world": scenario_at(name, pattern, -1).profile,
        "calls": calls,
        "works": counted.get("sieve_works", 0),
        "tried": len(wanted),
        "failed": failed,
        "agreed_max_s": max(agreed, default=0.0),
        "made_good_max_s": max(made_good, default=0.0),
        "steps": steps,
    }


def spread(calls: int, points: int) -> list[int]:
    """Which calls: all of them, or so many from the first to the last."""
    if points <= 0 or points >= calls:
        return list(range(calls))
    return sorted({round(number * (calls - 1) / max(1, points - 1)) for number in range(points)})


def made_good_s(verdict: Verdict) -> float:
    """From the moment at which it was not told until it was; at the end of the run at the latest."""
    end_ms = verdict.counts.get("sieve_made_good_ms", round(1000 * verdict.simulated_s))
    return (end_ms - verdict.counts.get("sieve_struck_ms", end_ms)) / 1000


def faults_of(verdict: Verdict, scenario: Scenario) -> list[str]:
    found = [f"{finding.invariant}: {finding.detail}" for finding in verdict.findings]
    sieve = scenario.sieve
    if sieve is None or sieve.pattern != "missed" or sieve.controller in _TELLS:
        return found
    if scenario.faults.region and CONTROLLERS[sieve.controller].plane != GLOBAL:
        return found  # in a region that is dark it is told nothing
    if (seconds := made_good_s(verdict)) > MISSED_S:
        found.append(f"L3: what was missed was put right only {seconds} s after it was missed")
    return found
