"""Owns the hunt for planted bugs: each in its directed profile until a checker finds it, and the same seeds without it.

A finding counts only if it is of the promises that the bug was planted against: a crash proves nothing about its guard. Decides
nothing about the bugs themselves (mutants.py). Called by the command line through campaign.py, and by tests.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from fairlead.sim.mutants import MUTANTS, QUICK
from fairlead.sim.scenario import Scenario
from fairlead.sim.verdict import Verdict
from fairlead.sim.world import run_scenario

Say = Callable[[str], None]
Draw = Callable[[int, str, float, str], Scenario]
Run = Callable[[Scenario], Verdict]


class Hunt:
    def __init__(self, scenario_of: Draw, say: Say, run: Run = run_scenario) -> None:
        self._scenario_of = scenario_of
        self._say = say
        self._run = run
        self._controls: dict[tuple[int, str, float], list[str]] = {}  # several bugs share a world without them

    def control(self, seed: int, profile: str, minutes: float) -> list[str]:
        """What the checkers say of that world when nothing is planted: nothing, if all is well."""
        key = (seed, profile, minutes)
        if key not in self._controls:
            verdict = self._run(self._scenario_of(seed, profile, minutes, ""))
            self._controls[key] = [finding.invariant for finding in verdict.findings]
        return self._controls[key]

    def found(self, name: str, seed: int) -> list[str]:
        """The promises by which that seed shows the bug."""
        mutant = MUTANTS[name]
        verdict = self._run(self._scenario_of(seed, mutant.profile, mutant.minutes, name))
        hits = [finding.invariant for finding in verdict.findings if finding.invariant in mutant.invariants]
        self._say(f"{name}: seed {seed}: {hits or [f.invariant for f in verdict.findings] or 'nothing'}")
        return hits

    def row(self, name: str, seeds: int = 0, density: int = 0) -> dict[str, Any]:
        """Until a seed shows it, in `seeds` at most, or in as many as are stated for it. With `density`, in that many seeds
        whatever is found, so that the share of those that show it is measured."""
        mutant = MUTANTS[name]
        showed: dict[int, str] = {}  # seed -> the first promise it broke
        control, hunted = list[str](), 0
        for seed in range(1, (density or seeds or mutant.within) + 1):
            hits = self.found(name, seed)
            control += self.control(seed, mutant.profile, mutant.minutes)
            hunted = seed
            if hits:
                showed[seed] = hits[0]
                if not density:
                    break
        needed = min(showed, default=0)
        return {
            "name": name,
            "profile": mutant.profile,
            "guard": mutant.guard,
            "found": bool(needed),
            "found_by": showed.get(needed, ""),
            "seeds_needed": needed,
            "within": mutant.within,
            "late": needed > mutant.within,
            "hunted": hunted,
            "showed": len(showed),
            "density": round(len(showed) / hunted, 4),
            "control": control,
        }


def rows(
    names: Sequence[str], seeds: int, quick: bool, jobs: int, scenario_of: Draw, say: Say, density: int = 0
) -> list[dict[str, Any]]:
    """In the order of the names. With several jobs `scenario_of` and `say` are called in other processes."""
    wanted = list(names or (QUICK if quick else MUTANTS))
    hunted = partial(_hunted, seeds=seeds, density=density, scenario_of=scenario_of, say=say)
    if jobs <= 1:
        return hunted(wanted)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        found = {row["name"]: row for part in pool.map(hunted, _sharing(wanted)) for row in part}
    return [found[name] for name in wanted]


def _hunted(names: Sequence[str], seeds: int, density: int, scenario_of: Draw, say: Say) -> list[dict[str, Any]]:
    hunt = Hunt(scenario_of, say)
    return [hunt.row(name, seeds, density) for name in names]


def _sharing(names: Iterable[str]) -> list[list[str]]:
    """By world: those that share one share its runs without a bug. The largest first, so that none is left alone at the end."""
    parts: dict[tuple[str, float], list[str]] = {}
    for name in names:
        parts.setdefault((MUTANTS[name].profile, MUTANTS[name].minutes), []).append(name)
    return sorted(parts.values(), key=len, reverse=True)
