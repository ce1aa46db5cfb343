"""Owns campaigns: many seeds, one after the other or in several processes, summed up in one object.

A seed that fails leaves one file behind (its scenario, what was found, and a tape of what was done to it) and one command that
runs it again. Also compares runs of one seed in interpreters with other hash seeds, and counts how many seeds it takes to find a
planted bug. Called by main.py.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.model.controllers import CONTROLLERS
from fairlead.ports import Clock
from fairlead.sim import hunt
from fairlead.sim.coverage import SAFEGUARDS, STRUCK, STRUCK_IN, unmet_calls, void_reasons
from fairlead.sim.kept import Kept
from fairlead.sim.loop import draws_of
from fairlead.sim.mutants import MUTANTS
from fairlead.sim.profiles import PROFILES, draw
from fairlead.sim.scenario import Faults, Scenario
from fairlead.sim.shrink import Shrinking
from fairlead.sim.spells import CALLS
from fairlead.sim.timeline import lines, page
from fairlead.sim.verdict import Finding, Verdict, broken_off
from fairlead.sim.world import run_scenario

Say = Callable[[str], None]


class Failure(msgspec.Struct, rename="camel"):
    """A seed that failed, as it is kept."""

    scenario: Scenario
    findings: list[Finding]
    trace: str
    tape: list[tuple[float, str]] = []  # what was done to it, and when: where a replay goes another way, this says from where on


REPEAT_EVERY: Final = 17  # has no factor in common with the size of the mix, or some profiles would never be run again

# What a campaign is made of when nobody says otherwise: of 103 seeds 16 are the swarm, 35 lose whole regions, 26 of them in the
# profiles that time recovery, and the rest is directed at what those seldom meet, each other profile one to four times. An odd
# number, so that each of two jobs gets some of every profile.
MIXED: Final = "mixed"
SWARM: Final = "swarm"
RECOVERS: Final = ("regions", "failback", "hushed", "barren")  # what these time is how long services were short
MIX: Final = (
    "unknown", "regions", "swarm", "drains", "resets", "regions", "swarm", "regions", "hints", "swarm", "stranded", "regions",
    "swarm", "beheaded", "regions", "overflow", "restored", "meddlers", "picky", "waning", "exclusive", "failback", "hushed",
    "leaders", "tails", "tenants", "zones", "tight", "regions", "gangs", "swarm", "sole", "regions", "swarm", "regions", "leases",
    "swarm", "twins", "regions", "doubts", "denied", "swarm", "restored", "relapses", "regions", "swarm", "regions", "hasty",
    "swarm", "stopped", "regions", "areas", "swarm", "regions", "lost", "swarm", "usurpers", "regions", "echoes", "picky",
    "silent", "regions", "gangs-lost", "regions", "lagging", "exclusive", "failback", "hushed", "leaders", "tails", "barren",
    "tight", "swarm", "strays", "regions", "crowded", "swarm", "overrides", "regions", "swarm", "regions", "grants",
    "standing", "swarm", "regions", "versions", "regions", "zones", "lingering", "elastic", "canary", "fragmented", "elastic",
    "canary", "fragmented", "backups", "returned", "picky", "fragmented", "emergencies", "picky", "fragmented", "alone",
)  # fmt: skip

# What may be asked for by name.
NAMES: Final = {"profile": (MIXED, *PROFILES), "mutant": tuple(MUTANTS), "controller": tuple(CONTROLLERS)}


def scenario_of(seed: int, profile: str, minutes: float, mutant: str = "") -> Scenario:
    profile = MIX[seed % len(MIX)] if profile == MIXED else profile
    return draw(seed, profile, draws_of(seed, "scenario"), minutes, mutant)


def environment() -> dict[str, Any]:
    return {"cores": os.cpu_count() or 1, "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}


def run(
    seeds: Sequence[int], profile: str, minutes: float, jobs: int, out: Path, clock: Clock, say: Say,
    advanced: Callable[[int, int], None] = lambda done, failed: None, kept: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The object to print; its `results` have violations where there are any. Seeds that `kept` has are not run again."""
    began, load = clock.monotonic(), environment()
    scenarios = [scenario_of(seed, profile, minutes) for seed in seeds]
    lines = Kept(kept)
    found = lines.known(scenarios)
    fresh: list[Verdict] = []
    for scenario, verdict in verdicts_of([scenario for scenario in scenarios if scenario.seed not in found], jobs):
        found[scenario.seed] = verdict
        fresh.append(verdict)
        lines.add(scenario, verdict)
        advanced(len(found), sum(bool(v.findings) for v in found.values()))
        if verdict.findings:
            say(told(scenario, verdict, keep(scenario, verdict, out)))
    wall_s = clock.monotonic() - began
    verdicts = [found[seed] for seed in seeds]
    results = (
        summed(verdicts, directed=profile if profile not in (MIXED, SWARM) else "")
        | _repeated(scenarios, verdicts, jobs)
        | {"wall_s": round(wall_s, 1), "resumed": len(verdicts) - len(fresh)}
        | _speed(fresh, wall_s * min(jobs, len(seeds)))
    )
    params = {"seeds": [seeds[0], seeds[-1]] if seeds else [], "profile": profile, "minutes": minutes, "jobs": jobs}
    return {"name": "sim run", "params": params, "environment": load, "results": results}


def _repeated(scenarios: Sequence[Scenario], verdicts: Sequence[Verdict], jobs: int) -> dict[str, Any]:
    """One seed in seventeen is run again, the last where there are fewer, and must come out the same in every field."""
    chosen = list(range(REPEAT_EVERY - 1, len(scenarios), REPEAT_EVERY) or range(len(scenarios))[-1:])
    again = [verdict for _, verdict in verdicts_of([scenarios[number] for number in chosen], jobs)] if chosen else []
    mismatches = [verdict.seed for number, verdict in zip(chosen, again, strict=True) if verdict != verdicts[number]]
    return {"repeated": len(chosen), "mismatches": mismatches}


def _speed(verdicts: Sequence[Verdict], core_s: float) -> dict[str, Any]:
    """Of one core. Time depends on the machine and on its neighbours; steps do not."""
    simulated_s, commits = sum(v.simulated_s for v in verdicts), sum(v.commits for v in verdicts)
    return {
        "times_real": round(simulated_s / core_s, 1) if core_s else None,
        "us_per_simulated_s": round(1e6 * core_s / simulated_s) if simulated_s else None,
        "us_per_commit": round(1e6 * core_s / commits) if commits else None,
    }


def summed(verdicts: Sequence[Verdict], *, directed: str = "") -> dict[str, Any]:
    counts: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for verdict in verdicts:
        counts.update(verdict.counts)
        checked.update(verdict.checked)
        refused.update(verdict.refusals)
    violations = [
        {"invariant": finding.invariant, "seed": verdict.seed, "detail": finding.detail}
        for verdict in verdicts
        for finding in verdict.findings
    ]
    agreed = sorted(verdict.agreed_s for verdict in verdicts if verdict.agreed_s is not None)
    faults = {name: counts.get(name, 0) for name in (*STRUCK, *STRUCK_IN.get(directed, ()))}
    calls = {when: _calls(counts, f"killed_{when}_store_call") for when in ("before", "after")}
    excuses = {name: count for name, count in sorted(counts.items()) if name.startswith("excused_")}
    excused = sum(any(name in excuses for name in verdict.counts) for verdict in verdicts)
    simulated_s, steps = sum(verdict.simulated_s for verdict in verdicts), sum(verdict.steps for verdict in verdicts)
    recovered = sorted(seconds for verdict in verdicts for seconds in verdict.recovered_s)
    return {
        "seeds": len(verdicts),
        "simulated_s": round(simulated_s, 1),
        "steps": steps,
        "steps_per_simulated_s": round(steps / simulated_s, 1) if simulated_s else None,
        "commits": sum(verdict.commits for verdict in verdicts),
        "violations": violations,
        "faults": faults,
        "store_calls": calls,
        "refusals": dict.fromkeys(SAFEGUARDS, 0) | dict(sorted(refused.items())),
        "answers": {name: count for name, count in sorted(counts.items()) if name.startswith("http_")},
        "checked": dict(sorted(checked.items())),
        "excused": excused,
        "excuses": excuses,
        "proven_no_room": [verdict.seed for verdict in verdicts if verdict.counts.get("proven_no_room")],
        "agreed_p50_s": agreed[len(agreed) // 2] if agreed else None,
        "agreed_max_s": agreed[-1] if agreed else None,
        "recovered": len(recovered),
        "recovered_p50_s": recovered[len(recovered) // 2] if recovered else None,
        "recovered_p99_s": recovered[len(recovered) * 99 // 100] if recovered else None,
        "recovered_max_s": recovered[-1] if recovered else None,
        "remains": {name: count for name, count in sorted(counts.items()) if name.startswith("remains_")},
        "regions_lost": counts["F_region"],
        "recovery_unfinished": counts["recovery_unfinished"],  # their region was back first: they say nothing, and are counted
        "recovery_changed": counts["recovery_changed"],  # by people, meanwhile
        "void": void_reasons(faults, refused, len(verdicts), excused, directed=directed, checked=checked)
        + unmet_calls(calls)
        + _unrecovered(verdicts, recovered),
    }


def _calls(counts: Mapping[str, int], killed: str) -> dict[str, int]:
    """At which of its next calls to its store a server was killed, and how often: each is there, also where none was (F9)."""
    return {str(call): counts.get(f"{killed}/{call}", 0) for call in range(1, CALLS)}


def _unrecovered(verdicts: Sequence[Verdict], recovered: Sequence[float]) -> list[dict[str, Any]]:
    """A campaign about recovery in which nothing was recovered shows nothing."""
    if recovered or not any(verdict.profile in RECOVERS for verdict in verdicts):
        return []
    return [{"kind": "recovery", "name": "services", "counted": 0, "floor": 1}]


# --- one seed that failed --------------------------------------------------------------------------------------------------


def keep(scenario: Scenario, verdict: Verdict, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    point = f"-{scenario.sieve.controller}-{scenario.sieve.pattern}-{scenario.sieve.at}" if scenario.sieve is not None else ""
    path = out / f"sim-{scenario.profile}-{scenario.seed}{point}.json"
    path.write_bytes(msgspec.json.encode(Failure(scenario, verdict.findings, verdict.trace, verdict.tape)))
    return path


def told(scenario: Scenario, verdict: Verdict, path: Path) -> str:
    first = verdict.findings[0]
    return (
        f"seed {scenario.seed}: {first.invariant} {first.plane} at {first.at_s} s: {first.detail}\nreproduce: {command_for(path)}"
    )


def replayed(path: Path) -> dict[str, Any]:
    """Runs it again, with a timeline in lines and as a page. Raises ValueError for what is no such file."""
    load = environment()
    failure = msgspec.json.decode(path.read_bytes(), type=Failure)
    verdict = run_scenario(failure.scenario, timeline=True)
    differs = _first_difference(failure.tape, verdict.tape)
    results = summed([verdict]) | {"same": not differs and verdict.trace == failure.trace, "differs": differs}
    return {
        "name": "sim replay",
        "params": {"seed": failure.scenario.seed, "profile": failure.scenario.profile},
        "environment": load,
        "results": results,
        "timeline": [*lines(verdict)],
        "page": page(verdict, command_for(path)),
    }


def _first_difference(kept: Sequence[tuple[float, str]], now: Sequence[tuple[float, str]]) -> str:
    """In words; empty where the tapes are alike, or none was kept."""
    if not kept:
        return ""
    for number, (one, other) in enumerate(zip_longest(kept, now)):
        if one != other:
            was, is_now = (f"{at[1]!r} at {at[0]} s" if at is not None else "nothing" for at in (one, other))
            return f"strike {number}: it was {was}, and is {is_now}"
    return ""


def command_for(path: Path) -> str:
    return f"fairlead sim --replay {path}"


def shrunk(path: Path, budget: int, say: Say) -> dict[str, Any]:
    """Makes a smaller file beside it that fails in the same way. Raises ValueError for what is no such file, or fails no more."""
    load = environment()
    failure = msgspec.json.decode(path.read_bytes(), type=Failure)
    if not failure.findings:
        raise ValueError("nothing was found in this run")
    work = Shrinking(failure.scenario, failure.findings[0].invariant, budget, run_scenario, say)
    if not work.shrink():
        raise ValueError(f"{work.invariant} is not found any more: the code has changed since")
    assert work.verdict is not None
    small = path.with_name(f"{path.stem}-small.json")
    small.write_bytes(msgspec.json.encode(Failure(work.scenario, work.verdict.findings, work.verdict.trace, work.verdict.tape)))
    left = [name for name in Faults.__struct_fields__ if getattr(work.scenario.faults, name)]
    results = {
        "invariant": work.invariant,
        "runs": work.runs,
        "faults": left,
        "strikes": work.verdict.strikes,
        "seeded_steps": work.scenario.seeded,
        "rough_s": work.scenario.rough_s,
        "steps": work.verdict.steps,
        "file": str(small),
        "reproduce": command_for(small),
    }
    params = {"seed": failure.scenario.seed, "profile": failure.scenario.profile, "budget": budget}
    return {"name": "sim shrink", "params": params, "environment": load, "results": results}


# --- in other processes ----------------------------------------------------------------------------------------------------


def verdicts_of(scenarios: Sequence[Scenario], jobs: int) -> Iterator[tuple[Scenario, Verdict]]:
    """In their order; with several jobs, each in a process of its own."""
    if jobs <= 1:
        for scenario in scenarios:
            yield scenario, run_scenario(scenario)
        return
    jobs = min(jobs, len(scenarios))
    workers = [_worker(scenarios[start::jobs], {}) for start in range(jobs)]
    for number, scenario in enumerate(scenarios):
        worker = workers[number % jobs]
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if line.endswith(b"\n"):
            yield scenario, msgspec.json.decode(line, type=Verdict)
        else:  # the process itself is gone: with it this run, and not those after it
            why = f"its process ended with code {worker.wait()}"
            yield scenario, broken_off(scenario.seed, scenario.profile, why)
            workers[number % jobs] = _worker(scenarios[number + jobs :: jobs], {})
    for worker in workers:
        worker.wait()


def _worker(scenarios: Sequence[Scenario], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "fairlead.sim.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, **environ},
    )  # fmt: skip
    assert worker.stdin is not None
    worker.stdin.write(msgspec.json.encode(list(scenarios)))
    worker.stdin.close()
    return worker


def _told_by(worker: subprocess.Popen[bytes]) -> tuple[dict[int, Verdict], int]:
    """What it said before it ended, by seed, and its code. A line that was cut short says nothing."""
    assert worker.stdout is not None
    whole = [msgspec.json.decode(line, type=Verdict) for line in worker.stdout if line.endswith(b"\n")]
    return {verdict.seed: verdict for verdict in whole}, worker.wait()


def determinism(seeds: Sequence[int], profile: str, minutes: float, say: Say) -> dict[str, Any]:
    """Each seed in two fresh interpreters with different hash seeds: every field of the verdict must be the same. `seeds` counts
    those that were compared; one whose process ended before that is among the mismatches: nothing was shown of it."""
    scenarios = [scenario_of(seed, profile, minutes) for seed in seeds]
    load = environment()
    runs: list[dict[int, Verdict]] = []
    lost: dict[int, str] = {}  # of these there is nothing to compare
    hash_seeds = ("1", "2")
    with ThreadPoolExecutor(len(hash_seeds)) as readers:  # beside each other; whoever is not listened to stands still
        told = list(readers.map(_told_by, [_worker(scenarios, {"PYTHONHASHSEED": one}) for one in hash_seeds]))
    for hash_seed, (found, code) in zip(hash_seeds, told, strict=True):
        why = f"its process under hash seed {hash_seed} ended with code {code}"
        untold = [seed for seed in seeds if seed not in found]
        lost |= dict.fromkeys(untold or (seeds[-1:] if code else ()), why)
        runs.append(found)
        say(f"{len(found)} seeds under hash seed {hash_seed}")
    compared = [(runs[0][seed], runs[1][seed]) for seed in seeds if seed not in lost]
    mismatches: list[dict[str, Any]] = [
        {"seed": one.seed, "traces": [one.trace, other.trace], "steps": [one.steps, other.steps]}
        for one, other in compared
        if one != other
    ]
    mismatches += [{"seed": seed, "why": why} for seed, why in lost.items()]
    results = {"seeds": len(compared), "mismatches": mismatches}
    return {
        "name": "sim determinism",
        "params": {"profile": profile, "minutes": minutes},
        "environment": load,
        "results": results,
    }


# --- planted bugs ----------------------------------------------------------------------------------------------------------


def mutants(names: Sequence[str], seeds: int, quick: bool, jobs: int, density: int, say: Say) -> dict[str, Any]:
    """Each planted bug in its directed profile until a checker finds it, or in `density` seeds, and the same without it."""
    load = environment()
    found = hunt.rows(names, seeds, quick, jobs, scenario_of, say, density)
    params = {"seeds": seeds, "quick": quick, "jobs": jobs, "density": density}
    return {"name": "sim mutants", "params": params, "environment": load, "results": {"mutants": found}}
