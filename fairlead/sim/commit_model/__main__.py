"""Owns the command line of the commit model: `python -m fairlead.sim.commit_model --seeds N [--mutant X] [--json]`.

Prints counts and, for a seed that broke a promise, the command that runs it again. Exit code 8 means that a promise
was broken, that a mutant was not found, or that the campaign was void because some safeguard was never needed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections import Counter

import msgspec

from fairlead.sim.commit_model.records import Mutant
from fairlead.sim.commit_model.world import SeedResult, run_seed

CHECK_FAILED = 8
SHOWN_MAX = 5

# A campaign that never met these proves nothing about them. Fewer seeds than this are a reproduction, not a campaign.
CAMPAIGN_SEEDS_MIN = 60
MUST_HAPPEN = (
    "acknowledged",
    "refused",
    "reads",
    "fenced",
    "already_there",
    "landed_late",
    "undone",
    "joined",
    "held_back",
    "lease_ran_out",
    "takeovers",
    "acquire_beaten_by_renewal",
    "unavailable_after_unknown",
    "unknown_committed",
    "unknown_absent",
    "unknown_batches_committed",
    "unknown_batches_absent",
)


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    mutant = Mutant[options.mutant.upper()] if options.mutant else None
    last = options.first_seed + options.seeds
    results = [run_seed(seed, mutant, options.profile) for seed in range(options.first_seed, last)]
    broken = [result for result in results if result.violations]
    counts: Counter[str] = sum((result.counts for result in results), Counter())
    campaign = len(results) >= CAMPAIGN_SEEDS_MIN and options.profile == "general"
    void = [name for name in MUST_HAPPEN if not counts[name]] if campaign else []
    if options.json:
        sys.stdout.write(_json(options, results, broken, counts, void) + "\n")
    else:
        sys.stdout.write(_text(options, results, broken, counts, void))
    return CHECK_FAILED if bool(broken) != bool(mutant) or (void and not mutant) else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fairlead.sim.commit_model", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--mutant", choices=[mutant.name.lower() for mutant in Mutant], help="remove one safeguard")
    parser.add_argument("--profile", choices=["general", "leases", "strays"], default="general", help="which faults")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser.parse_args(arguments)


def _text(
    options: argparse.Namespace,
    results: list[SeedResult],
    broken: list[SeedResult],
    counts: Counter[str],
    void: list[str],
) -> str:
    steps, simulated_s = sum(r.steps for r in results), sum(r.simulated_s for r in results)
    lines = [f"{len(results)} seeds, {simulated_s:.0f} simulated seconds, {steps} steps, {len(broken)} seeds with violations"]
    lines += [f"  {name:28} {count}" for name, count in sorted(counts.items())]
    if void:
        lines.append(f"void: never happened: {', '.join(void)}")
    for result in broken[:SHOWN_MAX]:
        extra = f" --profile {options.profile}" + (f" --mutant {options.mutant}" if options.mutant else "")
        lines.append(f"python -m fairlead.sim.commit_model --first-seed {result.seed} --seeds 1{extra}")
        lines += [f"  {violation.invariant}: {violation.detail}" for violation in result.violations[:SHOWN_MAX]]
    return "\n".join(lines) + "\n"


def _json(
    options: argparse.Namespace,
    results: list[SeedResult],
    broken: list[SeedResult],
    counts: Counter[str],
    void: list[str],
) -> str:
    report = {
        "name": "sim commit-model",
        "params": {
            "first_seed": options.first_seed,
            "seeds": options.seeds,
            "mutant": options.mutant,
            "profile": options.profile,
        },
        "environment": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
        "results": {
            "seeds": len(results),
            "simulated_s": round(sum(result.simulated_s for result in results), 3),
            "steps": sum(result.steps for result in results),
            "violations": [
                {"invariant": violation.invariant, "seed": result.seed, "detail": violation.detail}
                for result in broken
                for violation in result.violations[:SHOWN_MAX]
            ],
            "counts": dict(sorted(counts.items())),
            "void": void,
        },
    }
    return msgspec.json.encode(report).decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
