"""`fairlead version`. Reads what is installed; asks a server only with --remote."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from fairlead.cli.frame import World
from fairlead.cli.output import json_option, put_json, put_pairs
from fairlead.store.contract import FORMAT


def installed() -> str:
    try:
        return metadata.version("fairlead")
    except metadata.PackageNotFoundError:
        return "not installed: this is a source checkout"


@click.command("version")
@json_option
@click.option("--remote", is_flag=True, help="Also ask the current context's server.")
@click.pass_obj
def command(world: World, as_json: bool, remote: bool) -> None:
    """Say which Fairlead this is, and which store format it writes."""
    facts = {"fairlead": installed(), "store_format": FORMAT, "python": platform.python_version()}
    if remote:
        facts["server"] = world.run(_remote(world))
    if as_json:
        put_json(facts)
    else:
        put_pairs([(name.replace("_", " "), str(value)) for name, value in facts.items()])


async def _remote(world: World) -> Any:
    from fairlead.cli.session import chosen_context, client_of, told_of

    try:
        async with client_of(world, chosen_context(None, None), 5.0) as client:
            return (await client.read("/version")).get("gitVersion", "unknown")
    except Exception as error:
        raise told_of(error) from error
