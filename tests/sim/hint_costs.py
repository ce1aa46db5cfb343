"""What lies cost: seeds of profile `hints`, and the same worlds where hints are true. Steps, commits, binds, and how long a slot
takes from being asked for to serving, in simulated time.

`python -m tests.sim.hint_costs --seeds 6 --minutes 2` prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from msgspec.structs import replace

from fairlead.model.hot import DECODERS
from fairlead.model.journal import decode_blob
from fairlead.model.lifecycle import SlotState
from fairlead.model.registry import GLOBAL
from fairlead.sim import campaign, world
from fairlead.sim.scenario import Scenario
from fairlead.sim.watched import PlaneWatch


def figures(scenario: Scenario) -> tuple[world.Verdict, list[float]]:
    """A run, and how long each slot took that was asked for and served while hints lied, or might have."""
    kept: list[world.World] = []
    judged = world._verdict

    def keeping(scenario: Scenario, made: world.World, outcome: Any, timeline: bool) -> world.Verdict:
        kept.append(made)
        return judged(scenario, made, outcome, timeline)

    with mock.patch.object(world, "_verdict", keeping):
        verdict = world.run_scenario(scenario)
    took = [took_s for name, watch in kept[0].watches.items() if name != GLOBAL for took_s in _served(watch, scenario.rough_s)]
    return verdict, took


def _served(watch: PlaneWatch, until_s: float) -> list[float]:
    asked: dict[str, float] = {}
    took: list[float] = []
    for batch in watch.batches:
        when_s = watch.times[batch.hash]
        for entry in decode_blob(batch.blob).entries:
            for key, raw in entry.effects:
                plural, _, slot = key.partition("/")
                if plural == "schedulingrequests" and raw is not None and when_s < until_s:
                    asked.setdefault(slot, when_s)
                elif plural == "bindings" and raw is not None and slot in asked and _serves(raw):
                    took.append(when_s - asked.pop(slot))
    return took


def _serves(raw: bytes) -> bool:
    return bool(DECODERS["bindings"].decode(raw).status.state == SlotState.SERVING)


def compared(
    seeds: Sequence[int], minutes: float, changed: Callable[[Scenario], Scenario] = lambda scenario: scenario
) -> list[dict[str, Any]]:
    """One row for each way of lying that the seeds have."""
    sums: dict[str, dict[str, tuple[list[world.Verdict], list[float]]]] = {}
    for seed in seeds:
        scenario = changed(campaign.scenario_of(seed, "hints", minutes))
        for side, hints in (("lies", scenario.hints), ("truth", "")):
            verdicts, took = sums.setdefault(scenario.hints, {}).setdefault(side, ([], []))
            verdict, times = figures(replace(scenario, hints=hints))
            verdicts.append(verdict)
            took += times
    return [{"kind": kind} | {side: _summed(*both) for side, both in sides.items()} for kind, sides in sorted(sums.items())]


def _summed(verdicts: Sequence[world.Verdict], took: list[float]) -> dict[str, Any]:
    took = sorted(took)
    return {
        "seeds": len(verdicts),
        "violations": sum(len(verdict.findings) for verdict in verdicts),
        "steps": sum(verdict.steps for verdict in verdicts),
        "commits": sum(verdict.commits for verdict in verdicts),
        "binds": sum(verdict.checked.get("S1", 0) for verdict in verdicts),
        "served": len(took),
        "serve_p50_s": round(took[len(took) // 2], 2) if took else None,
        "serve_p99_s": round(took[len(took) * 99 // 100], 2) if took else None,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=2.0)
    asked_for = parser.parse_args()
    print(json.dumps(compared(range(1, asked_for.seeds + 1), asked_for.minutes), indent=1))
