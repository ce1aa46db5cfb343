"""`fairlead bench sim`: what a simulated second costs, of a global plane, three regions and 30 nodes under 2 commands a second.

The size that speed is stated for: people send two commands a second (`base`), the same with the ordinary faults of profile `full`
(`faults`), and nobody sends anything (`rest`). What the authorities are asked is told beside it: components make some twenty-five
commands of one of people's, and say how they do at rest. All checkers are on, and a run in which they find anything fails.
Counted is CPU of the one process, between the moment the platform has started up and the moment its people stop; what comes
after (healing, rest) is checked and not counted. Steps, frames, commands and commits are the same on every machine. Microseconds
are not: `loop_ns` beside them says how fast this one was meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time  # by its own name: what a world reaches for by the module's is walled off
from typing import Any, Final

import msgspec

from bench.apart import answer_apart, measured_apart
from bench.planes import loop_ns, result
from bench.registry import Option
from fairlead.model.journal import NO_COMMAND, decode_blob
from fairlead.sim import loop as sim
from fairlead.sim.campaign import scenario_of
from fairlead.sim.hearing import hearing, quiet
from fairlead.sim.loop import SimLoop
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.walls import unheard, walls
from fairlead.sim.world import World
from fairlead.store.contract import Batch

WARM_S: Final = 10.0  # leaders are elected, nodes have registered, the first workloads run
AIM: Final = 300.0  # times real time, of one core
COMMANDS_PER_S: Final = 2.0
PARTS: Final = ("base", "faults", "rest")
SETTLED_S: Final = 40.0  # by then the first workloads serve, and nobody writes anything but leases

OPTIONS = (
    Option("seed", 1, "Of each part."),
    Option("seconds", 60, "Simulated seconds that are counted."),
    Option("part", "all", "Which one.", ("all", *PARTS)),
)


class Mark(msgspec.Struct):
    """How far it had come at one moment."""

    cpu_s: float
    simulated_s: float
    steps: int
    commits: int
    commands: int
    frames: int

    def since(self, before: Mark) -> Mark:
        return Mark(*(getattr(self, name) - getattr(before, name) for name in self.__struct_fields__))


class Measured(msgspec.Struct):
    counted: Mark
    loop_ns: float  # the mean of just before and just after
    findings: list[str]


def began_s(chosen: Scenario) -> float:
    """From when on it is counted."""
    return WARM_S if chosen.work.actions > 1 else SETTLED_S


def scenario(part: str, seed: int, seconds: int) -> Scenario:
    rough_s = (SETTLED_S if part == "rest" else WARM_S) + seconds
    if part == "faults":
        return scenario_of(seed, "full", rough_s / 60)
    work = Work(workloads=10, actions=0.001 if part == "rest" else 60 * COMMANDS_PER_S, operators=0.0, replays=0.0)
    return Scenario(seed, "full", 3, 1, 10, rough_s=rough_s, settle_s=10.0, quiet_s=5.0, work=work)


def measured(chosen: Scenario) -> Measured:
    marks: list[Mark] = []
    ends: list[dict[str, int]] = []  # how many batches each plane had

    async def main(loop: SimLoop) -> World:
        world = World(loop, chosen)

        def mark() -> None:
            commits = sum(len(watch.times) for watch in world.watches.values())
            ends.append({name: len(watch.batches) for name, watch in world.watches.items()})
            marks.append(Mark(process_time(), loop.now, loop.steps, commits, 0, world.platform.network.frames))

        loop.after(began_s(chosen), mark)
        loop.after(chosen.rough_s, mark)
        with hearing(loop, world.found):
            await world.live()
        return world

    before_ns = loop_ns()
    with quiet(), unheard(), walls():
        world = sim.run(main, chosen.seed).value
    found = [f"{one.invariant} in {one.plane or 'all'} at {one.at_s} s: {one.detail}" for one in world.findings]
    if len(marks) < 2:
        raise RuntimeError(f"it ended before {chosen.rough_s} s: {found}")
    counted = marks[1].since(marks[0])
    for name, watch in world.watches.items():
        counted.commands += commands_in(watch.batches[ends[0][name] : ends[1][name]])
    return Measured(counted, (before_ns + loop_ns()) / 2, found)


def commands_in(batches: Sequence[Batch]) -> int:
    """Counted when all is over: it is no part of what a simulated second costs."""
    return sum(entry.command != NO_COMMAND for batch in batches for entry in decode_blob(batch.blob).entries)


def figures(found: Measured) -> dict[str, Any]:
    counted = found.counted
    return {
        "times_real": round(counted.simulated_s / counted.cpu_s, 1),
        "us_per_simulated_s": round(1e6 * counted.cpu_s / counted.simulated_s),
        "us_per_commit": round(1e6 * counted.cpu_s / counted.commits),
        "us_per_step": round(1e6 * counted.cpu_s / counted.steps, 1),
        "steps_per_simulated_s": round(counted.steps / counted.simulated_s, 1),
        "commands_per_simulated_s": round(counted.commands / counted.simulated_s, 1),
        "commits_per_simulated_s": round(counted.commits / counted.simulated_s, 1),
        "frames_per_simulated_s": round(counted.frames / counted.simulated_s, 1),
        "loop_ns": round(found.loop_ns, 1),
        "findings": found.findings,
    }


async def main(**options: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"aim_times_real": AIM}
    failures: list[str] = []
    for part in PARTS if options["part"] == "all" else (options["part"],):
        found = await measured_apart("bench.sim", scenario(part, options["seed"], options["seconds"]), Measured)
        told[part] = figures(found)
        failures += found.findings
    return result("sim", options, {**told, "failures": failures})


if __name__ == "__main__":
    answer_apart(Scenario, measured)
