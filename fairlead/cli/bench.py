"""`fairlead bench NAME`: runs a benchmark of the source checkout in this process and prints its result.

Owns the way from an Option of bench/registry.py to a flag. The benchmarks are no part of the package: measuring needs the
checkout.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, LazyGroup, Told, World
from fairlead.cli.output import json_option, note, put_json, put_pairs

ROOT = Path(__file__).resolve().parents[2]  # of a checkout, if this is one


class BenchGroup(LazyGroup):
    """Its commands are what bench/registry.py lists."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found: list[str] = _registry().names() if _is_checkout() else []
        return found

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not _is_checkout():
            raise Told(
                "benchmarks need a source checkout: they are not part of the installed package",
                hint="clone the repository and run `make bench` there",
                code=NOT_FOUND,
            )
        return _command(cmd_name) if cmd_name in _registry().names() else None


@click.group("bench", cls=BenchGroup)
def command() -> None:
    """Run a benchmark of the source checkout. Exit code 8 if it fails its own limits."""


def _is_checkout() -> bool:
    return (ROOT / "bench" / "registry.py").exists()


def _registry() -> Any:
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return importlib.import_module("bench.registry")


def _command(name: str) -> click.Command:
    module = _registry().load(name)
    parameters: list[click.Parameter] = [
        click.Option(
            [f"--{option.name.replace('_', '-')}", option.name],
            type=click.Choice(option.choices) if option.choices else type(option.default),
            is_flag=isinstance(option.default, bool),
            default=option.default,
            show_default=True,
            help=option.help,
        )
        for option in module.OPTIONS
    ]

    @click.pass_obj
    def run(world: World, /, as_json: bool, **options: Any) -> int:
        begun = keeping.begin(world)
        result: dict[str, Any] = world.run_plane(module.main(**options))
        keeping.keep(world, begun, f"bench {name}", not result["results"].get("failures"), keeping.of_bench(result))
        return _show(result, as_json)

    about = (module.__doc__ or "").strip()
    made = click.Command(
        name, callback=run, params=parameters, help=about, short_help=about.partition("\n")[0].partition(": ")[2]
    )
    return json_option(made)


def _show(result: dict[str, Any], as_json: bool) -> int:
    failures = result["results"].get("failures", [])
    if as_json:
        put_json(result)
    else:
        put_pairs([(name, str(value)) for name, value in result["results"].items() if name != "failures"])
        note(f"on {result['environment']}")
        for failure in failures:
            click.echo(f"FAILED {failure}")
    return CHECK_FAILED if failures else OK
