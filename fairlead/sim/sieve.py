"""Owns the walk through the points of a sieve: for each controller and each pattern, one run for each call at which it can
strike, each of which must come right as any other run must.

After a missed change what is wanted must be there within the bound of L3. The world is small and left alone otherwise, so that
what is found is the pattern's. Called by main.py through the command line, and by tests in a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.controllers import CONTROLLERS
from fairlead.sim.campaign import command_for, environment, keep
from fairlead.sim.scenario import Scenario, Sieve, Work
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


def scenario_at(controller: str, pattern: str, at: int) -> Scenario:
    """`at` below nought: nothing strikes, the calls are counted."""
    return replace(SMALL, sieve=Sieve(controller, pattern, at))


def sifted(names: Sequence[str], patterns: Sequence[str], points: int, out: Path, say: Say) -> dict[str, Any]:
    """Points that fail are kept in `out`."""
    load = environment()
    rows = [_row(name, pattern, points, out, say) for name in names or CONTROLLERS for pattern in patterns]
    params = {"controllers": list(names or CONTROLLERS), "patterns": list(patterns), "points": points}
    return {"name": "sim sieve", "params": params, "environment": load, "results": {"controllers": rows}}


def _row(name: str, pattern: str, points: int, out: Path, say: Say) -> dict[str, Any]:
    calls = run_scenario(scenario_at(name, pattern, -1)).counts.get("sieve_calls", 0)
    wanted = spread(calls, points)
    failed, agreed, steps = [], [], 0
    for at in wanted:
        scenario = scenario_at(name, pattern, at)
        verdict = run_scenario(scenario)
        steps += verdict.steps
        found = faults_of(verdict, pattern)
        if found:
            failed.append({"at": at, "found": found, "reproduce": command_for(keep(scenario, verdict, out))})
        if verdict.agreed_s is not None:
            agreed.append(verdict.agreed_s)
        say(f"{name}: {pattern} at {at} of {calls}: {'; '.join(found) or 'came right'}")
    return {
        "controller": name,
        "pattern": pattern,
        "calls": calls,
        "tried": len(wanted),
        "failed": failed,
        "agreed_max_s": max(agreed, default=0.0),
        "steps": steps,
    }


def spread(calls: int, points: int) -> list[int]:
    """Which calls: all of them, or so many from the first to the last."""
    if points <= 0 or points >= calls:
        return list(range(calls))
    return sorted({round(number * (calls - 1) / max(1, points - 1)) for number in range(points)})


def faults_of(verdict: Verdict, pattern: str) -> list[str]:
    found = [f"{finding.invariant}: {finding.detail}" for finding in verdict.findings]
    if pattern == "missed" and verdict.agreed_s is not None and verdict.agreed_s > MISSED_S:
        found.append(f"L3: what was missed was put right only {verdict.agreed_s} s after the last change")
    return found
