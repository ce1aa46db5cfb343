"""`fairlead version`. Reads what is installed; asks no server."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from fairlead.cli.output import json_option, put_json, put_pairs
from fairlead.store.contract import FORMAT


def _installed() -> str:
    try:
        return metadata.version("fairlead")
    except metadata.PackageNotFoundError:
        return "not installed: this is a source checkout"


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Say which Fairlead this is, and which store format it writes."""
    facts = {"fairlead": _installed(), "store_format": FORMAT, "python": platform.python_version()}
    if as_json:
        put_json(facts)
    else:
        put_pairs([(name.replace("_", " "), str(value)) for name, value in facts.items()])
