"""`fairlead audit`: the history of planes, from their archives, asked for every promise it can show, or for who ordered what.

Owns the words; what is asked is in fairlead/observe. Reads files only: a running server keeps writing to them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, LazyGroup, Told, World
from fairlead.cli.output import environment, instant_of, json_option, put_json, put_table
from fairlead.cli.programs import state_option
from fairlead.observe.audit import ELSEWHERE, History, audit_of, between
from fairlead.observe.intervals import Interval
from fairlead.observe.ordered import ordered
from fairlead.observe.spending import changes

NAME_ONE = "name the `history` directory of a server, or --state of a local platform"
BEHIND_S = 1.0  # History follows its plane within half a second: no segment is further behind a checkpoint than that.


@click.group("audit", cls=LazyGroup)
def command() -> None:
    """Check the history of a plane."""


directory_argument = click.argument("directory", type=click.Path(file_okay=False), required=False)


def _history(world: World, directory: str) -> History:
    if world.archived is None or not os.path.isdir(directory):
        raise Told(f"there is no archive at {directory}", hint=NAME_ONE, code=NOT_FOUND)
    return world.archived(directory)


def _put_results(name: str, directory: str, results: dict[str, Any]) -> None:
    put_json({"name": name, "params": {"directory": directory}, "environment": environment(), "results": results})


def _of_global_plane(state: str) -> str:
    return os.path.join(state, "data", "global", "history")


def _of_all_planes(state: str) -> list[str]:
    found = sorted(str(path) for path in Path(state, "data").glob("*/history"))
    if not found:
        raise Told(f"there is no local platform in {state}", hint=NAME_ONE, code=NOT_FOUND)
    return found


@command.command("verify")
@directory_argument
@state_option
@json_option
@click.pass_obj
def verify(world: World, directory: str | None, state: str, as_json: bool) -> int:
    """Ask every entry of an archive for the promises it must keep. Exit code 8 if one is broken, or if not all of the archive
    can be read; 3 if there is nothing in it.

    DIRECTORY is a server's history: `history` in its data directory. Without it, every plane of the local platform is asked, and
    then all of them together: whether an exclusive slot ran in two at once. What no history shows is named, with who shows it.
    """
    runs: list[Interval] = []
    found = {one: _verified(world, one, runs) for one in ([directory] if directory else _of_all_planes(state))}
    together = {} if directory else between(runs)
    if as_json:
        results = found[directory] if directory else {"planes": found, "between": together}
        _put_results("audit verify", directory or state, {**results, "elsewhere": ELSEWHERE})
    else:
        for one, results in found.items():
            _put_verified("" if directory else one, results)
        if together:
            click.echo("between the planes")
            _put_invariants(together)
        for name, shown in ELSEWHERE.items():
            click.echo(f"{name} is in no history: {shown}")
    broken = any(_is_broken(results) for results in found.values()) or any(row["violations"] for row in together.values())
    return CHECK_FAILED if broken else OK


def _verified(world: World, directory: str, runs: list[Interval]) -> dict[str, Any]:
    begun = keeping.begin(world)
    history = _history(world, directory)
    results = audit_of(history, runs)
    if results["unread"]:
        world.run(world.clock().sleep(BEHIND_S))
        results["unread"] = history.unread()
    if not results["revisions"] and not results["unread"]:
        raise Told(f"there is no history in {directory}", hint=NAME_ONE, code=NOT_FOUND)
    key = os.path.realpath(directory)
    keeping.keep(world, begun, "audit verify", not _is_broken(results), keeping.of_audit(results, directory), key=key)
    return results


def _is_broken(results: dict[str, Any]) -> bool:
    return bool(results["unread"]) or any(row["violations"] for row in results["invariants"].values())


def _put_verified(heading: str, results: dict[str, Any]) -> None:
    if heading:
        click.echo(heading)
    _put_invariants(results["invariants"])
    since = f"after revision {results['begins']}, which is as far as it is kept, " if results["begins"] else ""
    said = ", and not all there is:" if results["unread"] else ""
    click.echo(f"read {since}up to revision {results['reaches'] or 0}{said}")
    for said in results["unread"]:
        click.echo(f"  {said}")


def _put_invariants(found: dict[str, Any]) -> None:
    put_table(
        ("INVARIANT", "CHECKED", "VIOLATIONS"), [(name, row["checked"], len(row["violations"])) for name, row in found.items()]
    )
    for name, row in found.items():
        for violation in row["violations"][:10]:
            click.echo(f"{name} at {violation['position']}: {violation['detail']}")


@command.command("overrides")
@directory_argument
@state_option
@json_option
@click.pass_obj
def overrides(world: World, directory: str | None, state: str, as_json: bool) -> int:
    """List every change of every override in an archive: who ordered, approved, extended or revoked it, when and why.

    DIRECTORY is a server's history: `history` in its data directory. Without it, the local platform's global plane, which
    has what people ordered.
    """
    directory = directory or _of_global_plane(state)
    history = _history(world, directory)
    found = list(ordered(history, history.rows()))
    if as_json:
        _put_results("audit overrides", directory, {"overrides": found})
        return OK
    rows = [
        (instant_of(each.time_ms), each.what, f"{each.tenant}/{each.name}", each.kind, each.who, each.approver or "-",
         f"{each.ttl_seconds}s", "; ".join(f"{field} {','.join(names)}" for field, names in each.scope.items()), each.reason)
        for each in found
    ]  # fmt: skip
    put_table(("TIME", "WHAT", "OVERRIDE", "KIND", "BY", "APPROVER", "TTL", "SCOPE", "REASON"), rows)
    return OK


@command.command("budgets")
@directory_argument
@state_option
@json_option
@click.pass_obj
def budgets(world: World, directory: str | None, state: str, as_json: bool) -> int:
    """List every change of a quota, grant, recovery budget or emergency quota: who, why, until when, and what is used of it.

    DIRECTORY is a server's history: `history` in its data directory. Without it, the local platform's global plane, which
    has what was decided for all regions.
    """
    directory = directory or _of_global_plane(state)
    history = _history(world, directory)
    found = changes(history, history.rows())
    if as_json:
        _put_results("audit budgets", directory, {"changes": found})
        return OK
    rows = [
        (instant_of(each.time_ms), each.what, each.kind, f"{each.tenant}/{each.name}", each.who, _amounts(each.limits),
         _amounts(each.used), each.until or "-", each.why or "-")
        for each in found
    ]  # fmt: skip
    put_table(("TIME", "WHAT", "KIND", "OBJECT", "BY", "LIMIT", "USED", "UNTIL", "WHY"), rows)
    return OK


def _amounts(amounts: dict[str, str]) -> str:
    between = "; " if any(" " in amount for amount in amounts.values()) else " "
    return between.join(f"{name}={amount}" for name, amount in amounts.items()) or "-"
