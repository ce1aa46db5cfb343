"""`fairlead sim`: runs whole platforms through simulated faults, replays a seed that failed, plants bugs, compares runs.

Owns the words; what is done is in fairlead/sim, which main.py hands over. Exit code 8 when something was found.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, ERROR, OK, LazyGroup, Told, World
from fairlead.cli.output import bar, json_option, note, put_json, put_pairs, put_table

MINUTES = 2.0
PATTERNS = ("crash", "missed", "stale")

Say = Callable[[str], None]
Advanced = Callable[[int, int], None]  # seeds that are done, and those of them that failed


class Simulator(Protocol):
    """What main.py hands over. Each answers with the object to print; seeds that fail are kept in `out`."""

    def names(self, of: str) -> Sequence[str]:
        """Those there are: of a profile, a mutant, a controller."""
        ...

    def run(
        self,
        seeds: list[int],
        profile: str,
        minutes: float,
        jobs: int,
        out: Path,
        say: Say,
        advanced: Advanced,
        kept: Path | None,
    ) -> dict[str, Any]: ...

    def replay(self, path: Path) -> dict[str, Any]: ...

    def shrink(self, path: Path, budget: int, say: Say) -> dict[str, Any]: ...

    def sieve(
        self, names: Sequence[str], patterns: Sequence[str], points: int, jobs: int, out: Path, say: Say
    ) -> dict[str, Any]: ...

    def mutants(self, names: Sequence[str], seeds: int, quick: bool, jobs: int, density: int, say: Say) -> dict[str, Any]: ...

    def determinism(self, seeds: list[int], profile: str, minutes: float, say: Say) -> dict[str, Any]: ...


profile_option = click.option("--profile", default="mixed", show_default=True, help="What the worlds are like.")
minutes_option = click.option(
    "--minutes", default=MINUTES, show_default=True, type=click.FloatRange(min=0.1), help="Simulated minutes of faults per seed."
)
out_option = click.option(
    "--out", default=".", show_default=True, type=click.Path(file_okay=False), help="Where runs that failed are kept."
)
jobs_option = click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes to run them in.")
first_option = click.option("--first-seed", default=1, show_default=True, help="Seeds are counted from here.")


def simulator_of(world: World) -> Simulator:
    assert world.simulator is not None, "the composition root knows the simulator"
    return world.simulator


def _simulator_that_knows(world: World, of: str, names: Sequence[str]) -> Simulator:
    """Names are looked at before anything is run: what goes wrong later is not the user's spelling."""
    simulator = simulator_of(world)
    known = simulator.names(of)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            said = f"did you mean {near[0]!r}? " if near else ""
            raise Told(f"there is no {of} {name!r}", hint=f"{said}known: {', '.join(sorted(known))}", code=ERROR)
    return simulator


@click.group("sim", cls=LazyGroup, invoke_without_command=True)
@click.option("--replay", "path", type=click.Path(exists=True, dir_okay=False), help="Run a seed that failed again.")
@click.pass_context
def command(ctx: click.Context, path: str | None) -> int | None:
    """Run whole platforms through simulated faults and check every promise. Exit code 8 if one is broken."""
    if ctx.invoked_subcommand is None:
        if path is None:
            click.echo(ctx.get_help())
            return OK
        return _replay(ctx.obj, path, False)
    return None


@command.command("run")
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(min=1), help="How many seeds.")
@first_option
@profile_option
@minutes_option
@jobs_option
@out_option
@click.option(
    "--resume",
    type=click.Path(dir_okay=False),
    help="Add each seed's result to this file, and run none again that it has of the same code.",
)
@click.option("--thin", is_flag=True, help="Do not ask whether every fault and refusal was met often enough.")
@json_option
@click.pass_obj
def run(
    world: World, seeds: int, first_seed: int, profile: str, minutes: float, jobs: int, out: str, resume: str | None, thin: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Run seeds of a profile: safety under faults, then convergence once everything is healed.

    A campaign of the mixed profile or the swarm that met a fault or a refusal too seldom, or any that excused too many seeds, is
    void: exit code 8 as well."""
    numbers = list(range(first_seed, first_seed + seeds))
    simulator = _simulator_that_knows(world, "profile", [profile])
    begun = keeping.begin(world)
    with bar("seeds", seeds) as moved:
        told = simulator.run(
            numbers, profile, minutes, jobs, Path(out), moved.say, lambda done, failed: moved(done, f"{failed} failed"),
            Path(resume) if resume is not None else None,
        )  # fmt: skip
    figures = keeping.of_campaign(told["results"])
    well = (
        not figures["violations"] and not figures["mismatches"]
    )  # what it did not meet is in `void`, for each promise to look at
    keeping.keep(world, begun, "sim run", well, figures, keeping.key_of_campaign(told["params"]))
    return _tell_run(told, as_json, thin)


def _tell_run(told: dict[str, Any], as_json: bool, thin: bool) -> int:
    results = told["results"]
    if as_json:
        put_json(told)
    else:
        put_pairs([(name, _text(results[name])) for name in ("seeds", "simulated_s", "wall_s", "steps", "commits")])
        put_pairs([("faults", _text(results["faults"])), ("checked", _text(results["checked"]))])
        if results["violations"]:
            rows = [(one["invariant"], one["seed"], one["detail"]) for one in results["violations"]]
            put_table(("INVARIANT", "SEED", "DETAIL"), rows)
        put_pairs([("refusals", _text(results["refusals"]))])
        if results.get("recovered"):
            seconds = {name: results[f"recovered_{name}_s"] for name in ("p50", "p99", "max")}
            left = {name: results[f"recovery_{name}"] for name in ("unfinished", "changed")}
            put_pairs([("recovered", _text({"services": results["recovered"]} | left)), ("recovered_s", _text(seconds))])
    if results.get("mismatches"):
        note(f"not deterministic: run again, these seeds came out otherwise: {results['mismatches']}")
    if results["void"] and not thin:
        note("this campaign is void: " + "; ".join(_in_words(reason) for reason in results["void"]))
    failed = results["violations"] or results.get("mismatches") or (results["void"] and not thin)
    return CHECK_FAILED if failed else OK


def _in_words(reason: dict[str, Any]) -> str:
    return f"{reason['kind']} {reason['name']} {reason['counted']} of {reason['floor']}"


def _text(value: Any) -> str:
    return " ".join(f"{name}={count}" for name, count in value.items()) if isinstance(value, dict) else f"{value:,}"


@command.command("replay")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--html", type=click.Path(dir_okay=False), help="Also write a page with a lane for each machine, and nothing outside it."
)
@json_option
@click.pass_obj
def replay(world: World, path: str, html: str | None, as_json: bool) -> int:
    """Run a seed that failed again, from the file it left, and print what happened."""
    return _replay(world, path, as_json, html)


def _replay(world: World, path: str, as_json: bool, html: str | None = None) -> int:
    try:
        told = simulator_of(world).replay(Path(path))
    except ValueError as error:
        raise Told(f"{path}: {error}", hint="give a file that `fairlead sim run` left", code=ERROR) from error
    if html is not None:
        Path(html).write_text(told["page"], encoding="utf-8")
        note(f"wrote {html}")
    if as_json:
        put_json({name: value for name, value in told.items() if name not in ("timeline", "page")})
    else:
        for line in told["timeline"]:
            click.echo(line)
        if not told["results"]["same"]:
            note("this run differs from the one that was kept: the code has changed, or a run is not deterministic")
            note(told["results"]["differs"] or "all that was done to it was the same: the difference is in what came of it")
    return CHECK_FAILED if told["results"]["violations"] else OK


@command.command("shrink")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.option("--budget", default=60, show_default=True, type=click.IntRange(min=1), help="Runs that may be spent.")
@json_option
@click.pass_obj
def shrink(world: World, path: str, budget: int, as_json: bool) -> int:
    """Make a smaller file of a seed that failed: fewer faults, plainer order, the same invariant broken."""
    try:
        told = simulator_of(world).shrink(Path(path), budget, note)
    except ValueError as error:
        raise Told(f"{path}: {error}", hint="give a file that `fairlead sim run` left", code=ERROR) from error
    if as_json:
        put_json(told)
    else:
        put_pairs([(name, str(value)) for name, value in told["results"].items()])
    return OK


@command.command("sieve")
@click.option("--controller", "names", multiple=True, help="Which controllers; all without it.")
@click.option("--pattern", "patterns", multiple=True, type=click.Choice(PATTERNS), help="What befalls it; all three without it.")
@click.option("--points", default=0, show_default=True, help="At how many of its calls, spread evenly; 0: at every one of them.")
@jobs_option
@out_option
@json_option
@click.pass_obj
def sieve(
    world: World, names: tuple[str, ...], patterns: tuple[str, ...], points: int, jobs: int, out: str, as_json: bool
) -> int:
    """Crash a controller, hide an event from it or show it the past, at each of its calls, and demand that all comes right."""
    simulator = _simulator_that_knows(world, "controller", names)
    begun = keeping.begin(world)
    told = simulator.sieve(names, patterns or PATTERNS, points, jobs, Path(out), note)
    rows = told["results"]["controllers"]
    figures = keeping.of_sieve(rows)
    keeping.keep(world, begun, "sim sieve", not figures["failed"], figures)
    if as_json:
        put_json(told)
    else:
        put_table(
            ("CONTROLLER", "PATTERN", "CALLS", "TRIED", "FAILED", "AGREED_MAX_S"),
            [(r["controller"], r["pattern"], r["calls"], r["tried"], len(r["failed"]), r["agreed_max_s"]) for r in rows],
        )
    return CHECK_FAILED if any(row["failed"] for row in rows) else OK


@command.command("mutants")
@click.argument("names", nargs=-1)
@click.option(
    "--seeds", default=0, type=click.IntRange(min=0), help="Seeds to look in before giving up; as many as are stated for each."
)
@click.option("--density", default=0, type=click.IntRange(min=0), help="Look in this many seeds of each, also when it is found.")
@click.option("--quick", is_flag=True, help="Only those that one short seed shows, about a minute for all of them.")
@jobs_option
@json_option
@click.pass_obj
def mutants(world: World, names: tuple[str, ...], seeds: int, density: int, quick: bool, jobs: int, as_json: bool) -> int:
    """Plant bugs, one guard each, and say how many seeds it took a checker to find them.

    Exit code 8 where one is not found, is found in a later seed than is stated for it, or a world is not well without it."""
    simulator = _simulator_that_knows(world, "mutant", names)
    begun = keeping.begin(world)
    told = simulator.mutants(names, seeds, quick, jobs, density, note)
    rows = told["results"]["mutants"]
    figures = keeping.of_mutants(rows)
    keeping.keep(world, begun, "sim mutants", not figures["lost"], figures)
    if as_json:
        put_json(told)
    else:
        put_table(
            ("NAME", "PROFILE", "FOUND BY", "SEED", "WITHIN", "DENSITY", "CONTROL"),
            [
                (
                    r["name"], r["profile"], r["found_by"] or "-", r["seeds_needed"], r["within"],
                    f"{r['showed']}/{r['hunted']}", ",".join(r["control"]) or "clean",
                )
                for r in rows
            ],
        )  # fmt: skip
    return CHECK_FAILED if figures["lost"] else OK


@command.command("determinism")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="How many seeds.")
@first_option
@profile_option
@minutes_option
@json_option
@click.pass_obj
def determinism(world: World, seeds: int, first_seed: int, profile: str, minutes: float, as_json: bool) -> int:
    """Run each seed in two interpreters with different hash seeds and compare the traces."""
    numbers = list(range(first_seed, first_seed + seeds))
    simulator = _simulator_that_knows(world, "profile", [profile])
    begun = keeping.begin(world)
    told = simulator.determinism(numbers, profile, minutes, note)
    results = told["results"]
    differ = len(results["mismatches"])
    keeping.keep(world, begun, "sim determinism", not differ, {"seeds": results["seeds"], "mismatches": differ})
    if as_json:
        put_json(told)
    else:
        put_pairs([("seeds", str(results["seeds"])), ("mismatches", str(results["mismatches"] or "none"))])
    return CHECK_FAILED if results["mismatches"] else OK
