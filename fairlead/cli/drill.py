"""`fairlead drill`: practises a failure on the local platform and says whether what was promised held.

Owns the words and the exit code. What is done is fairlead/drills', handed over by main.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, Told, World
from fairlead.cli.output import environment, json_option, note, put_json, put_table
from fairlead.cli.programs import programs_of, state_option
from fairlead.observe.evidence import Begun

LIST = "list"


class Drills(Protocol):
    """Raises LookupError for a name that no drill has, ValueError where it cannot be run."""

    def known(self, state: str) -> list[dict[str, Any]]: ...

    def due(self, schedule: str, state: str) -> list[str]: ...

    def run(self, name: str, state: str, say: Callable[[str], None]) -> Coroutine[Any, Any, dict[str, Any]]: ...


@click.command("drill")
@click.argument("name", metavar="[NAME|list]", required=False)
@click.option("--due", "schedule", metavar="FILE", help="Run what this schedule says is due, one after the other.")
@state_option
@json_option
@click.pass_obj
def command(world: World, name: str | None, schedule: str | None, state: str, as_json: bool) -> int:
    """Practise a failure on the local platform that runs, or on one that is started for it and goes with it.

    \b
    fairlead drill list
    fairlead drill region-loss
    fairlead drill leader-restart --json
    fairlead drill --due deploy/drills/schedule.json

    Real processes are killed and real links are cut; everything is put back at the end, also after Ctrl-C. The result is kept
    under `drills` in the platform's directory. Exit code 8 if something was not as expected.
    """
    drills = programs_of(world).drills()
    if (name is None) == (schedule is None):
        raise Told("say which drill, or --due FILE", hint="`fairlead drill list` has them all")
    if schedule is not None:
        return _due(world, drills, schedule, state, as_json)
    assert name is not None
    if name == LIST:
        return _list(drills.known(state), as_json)
    result = _run(world, drills, name, state)
    if as_json:
        put_json(result)
    else:
        _tell(result["results"])
    return OK if result["results"]["passed"] else CHECK_FAILED


def _run(world: World, drills: Drills, name: str, state: str) -> dict[str, Any]:
    begun = keeping.begin(world)
    try:
        result: dict[str, Any] = world.run(drills.run(name, state, note))
    except LookupError as error:
        raise Told(str(error.args[0]), code=NOT_FOUND) from error
    except ValueError as error:
        raise Told(str(error)) from error
    except asyncio.CancelledError:
        raise click.Abort from None
    _keep(world, begun, name, result["results"])
    return result


def _due(world: World, drills: Drills, schedule: str, state: str, as_json: bool) -> int:
    """One that cannot be run at all (the platform is not well) fails, and the others are run all the same."""
    try:
        names = drills.due(schedule, state)
    except ValueError as error:
        raise Told(str(error)) from error
    outcomes: list[tuple[str, bool, str]] = []
    for name in names:
        try:
            results = _run(world, drills, name, state)["results"]
            failed = [check["name"] for check in results["checks"] if not check["passed"]]
            outcomes.append((name, results["passed"], ", ".join(failed)))
        except Told as error:
            outcomes.append((name, False, error.message))
    if as_json:
        rows = [{"drill": name, "passed": passed, "detail": detail} for name, passed, detail in outcomes]
        put_json(
            {"name": "drill due", "params": {"schedule": schedule}, "environment": environment(), "results": {"drills": rows}}
        )
    elif outcomes:
        put_table(("DRILL", "", "WHAT FAILED"), [(name, "ok" if passed else "FAILED", said) for name, passed, said in outcomes])
    else:
        note("nothing is due")
    return OK if all(passed for _, passed, _ in outcomes) else CHECK_FAILED


def _keep(world: World, begun: Begun | None, name: str, results: dict[str, Any]) -> None:
    keeping.keep(world, begun, f"drill {name}", results["passed"], keeping.of_drill(results))
    audited = keeping.of_drill_audit(results)
    if audited is not None:
        passed = not (audited["violations"] or audited.get("unread"))
        keeping.keep(world, begun, "audit verify", passed, audited, key=f"drill {name}")


def _list(known: list[dict[str, Any]], as_json: bool) -> int:
    if as_json:
        put_json({"drills": known})
        return OK
    rows = []
    for one in known:
        last = one["last"] or {}
        word = "-" if not last else "passed" if last["passed"] else "failed"
        rows.append((one["name"], f"{one['about_s']} s", word, last.get("time", "-"), one["does"]))
    put_table(("DRILL", "ABOUT", "LAST", "WHEN", "WHAT IT DOES"), rows)
    return OK


def _tell(results: dict[str, Any]) -> None:
    put_table(("CHECK", "", "WHAT WAS SEEN"), [
        (check["name"], "ok" if check["passed"] else "FAILED", check["detail"]) for check in results["checks"]
    ])  # fmt: skip
    times = ", ".join(f"{name} {seconds:g} s" for name, seconds in results["timings_s"].items())
    click.echo()
    click.echo(f"{results['drill']}: {'passed' if results['passed'] else 'FAILED'}" + (f" ({times})" if times else ""))
