"""`fairlead audit verify`: the whole history of a plane, from its archive, asked for every promise it can show.

Owns the words; what is asked is in fairlead/observe. Reads files only: a running server keeps writing to them.
"""

from __future__ import annotations

import os
import platform

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, LazyGroup, Told, World
from fairlead.cli.output import instant_of, json_option, put_json, put_table
from fairlead.observe.audit import audit
from fairlead.observe.ordered import ordered
from fairlead.observe.spending import changes


@click.group("audit", cls=LazyGroup)
def command() -> None:
    """Check the history of a plane."""


@command.command("verify")
@click.argument("directory", type=click.Path(file_okay=False))
@json_option
@click.pass_obj
def verify(world: World, directory: str, as_json: bool) -> int:
    """Ask every entry of an archive for the promises it must keep. Exit code 8 if one is broken.

    DIRECTORY is a server's history: `history` in its data directory.
    """
    if world.archived is None or not os.path.isdir(directory):
        raise Told(f"there is no archive at {directory}", hint="name the `history` directory of a server", code=NOT_FOUND)
    begun = keeping.begin(world)
    results = audit(world.archived(directory))
    broken = any(row["violations"] for row in results["invariants"].values())
    key = os.path.realpath(directory)
    keeping.keep(world, begun, "audit verify", not broken, keeping.of_audit(results, directory), key=key)
    if as_json:
        environment = {"cores": os.cpu_count() or 1, "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
        put_json({"name": "audit verify", "params": {"directory": directory}, "environment": environment, "results": results})
    else:
        rows = [(name, row["checked"], len(row["violations"])) for name, row in results["invariants"].items()]
        put_table(("INVARIANT", "CHECKED", "VIOLATIONS"), rows)
        for name, row in results["invariants"].items():
            for violation in row["violations"][:10]:
                click.echo(f"{name} at {violation['position']}: {violation['detail']}")
    return CHECK_FAILED if broken else OK


@command.command("overrides")
@click.argument("directory", type=click.Path(file_okay=False))
@json_option
@click.pass_obj
def overrides(world: World, directory: str, as_json: bool) -> int:
    """List every change of every override in an archive: who ordered, approved, extended or revoked it, when and why.

    DIRECTORY is a server's history: `history` in its data directory. The global plane's has what people ordered.
    """
    if world.archived is None or not os.path.isdir(directory):
        raise Told(f"there is no archive at {directory}", hint="name the `history` directory of a server", code=NOT_FOUND)
    found = list(ordered(world.archived(directory)))
    if as_json:
        environment = {"cores": os.cpu_count() or 1, "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
        results = {"overrides": found}
        put_json({"name": "audit overrides", "params": {"directory": directory}, "environment": environment, "results": results})
        return OK
    rows = [
        (instant_of(each.time_ms), each.what, f"{each.tenant}/{each.name}", each.kind, each.who, each.approver or "-",
         f"{each.ttl_seconds}s", "; ".join(f"{field} {','.join(names)}" for field, names in each.scope.items()), each.reason)
        for each in found
    ]  # fmt: skip
    put_table(("TIME", "WHAT", "OVERRIDE", "KIND", "BY", "APPROVER", "TTL", "SCOPE", "REASON"), rows)
    return OK


@command.command("budgets")
@click.argument("directory", type=click.Path(file_okay=False))
@json_option
@click.pass_obj
def budgets(world: World, directory: str, as_json: bool) -> int:
    """List every change of a quota, grant, recovery budget or emergency quota: who, why, until when, and what is used of it.

    DIRECTORY is a server's history: `history` in its data directory. The global plane's has what was decided for all regions.
    """
    if world.archived is None or not os.path.isdir(directory):
        raise Told(f"there is no archive at {directory}", hint="name the `history` directory of a server", code=NOT_FOUND)
    found = changes(world.archived(directory))
    if as_json:
        environment = {"cores": os.cpu_count() or 1, "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
        results = {"changes": found}
        put_json({"name": "audit budgets", "params": {"directory": directory}, "environment": environment, "results": results})
        return OK
    rows = [
        (instant_of(each.time_ms), each.what, each.kind, f"{each.tenant}/{each.name}", each.who, _amounts(each.limits),
         _amounts(each.used), each.until or "-", each.why or "-")
        for each in found
    ]  # fmt: skip
    put_table(("TIME", "WHAT", "KIND", "OBJECT", "BY", "LIMIT", "USED", "UNTIL", "WHY"), rows)
    return OK


def _amounts(amounts: dict[str, str]) -> str:
    return " ".join(f"{name}={amount}" for name, amount in amounts.items()) or "-"
