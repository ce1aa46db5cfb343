"""`fairlead timeline` and `fairlead export`: what happened, told step by step or carried away as a file.

Owns the words. Reads the history that servers keep as files: of the local platform, or of the server whose configuration is
named, on its own machine; a running server keeps writing to them. What is asked of it is in fairlead/observe and
fairlead/store/export.py; replay.py judges such a file again.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from fairlead.cli.frame import NOT_FOUND, OK, Told, World
from fairlead.cli.output import instant_of, json_option, note, put_json, put_table
from fairlead.cli.programs import programs_of, state_option
from fairlead.cli.session import DURATION

config_option = click.option(
    "--config", "configs", multiple=True, type=click.Path(exists=True, dir_okay=False),
    help="The configuration of a server whose history is read, instead of the local platform's; may be repeated.",
)  # fmt: skip


def _planes(world: World, state: str, configs: tuple[str, ...]) -> dict[str, Any]:
    """The planes of the local platform, or those whose configurations are named: name -> fairlead.store.export.Plane."""
    known = [Path(one) for one in configs]
    if not known:
        known = [path for path in sorted(Path(state, "config").glob("*.json")) if path.stem not in ("links", "endpoints")]
        known = [path for path in known if not path.stem.startswith("agent-")]
    if not known:
        raise Told(f"there is no local platform in {state}", hint="name a server's file with --config", code=NOT_FOUND)
    try:
        found = [programs_of(world).history(str(path)) for path in known]
    except ValueError as error:
        raise Told(str(error)) from error
    return {one.region or one.plane: one for one in found if os.path.isdir(one.history)}


@click.command("timeline")
@click.argument("workload")
@click.option("-n", "--namespace", "tenant", required=True, metavar="TENANT", help="The tenant the workload belongs to.")
@click.option("--slot", type=int, default=None, metavar="INDEX", help="Only this slot, and what was wanted.")
@click.option("--since", type=DURATION, default=None, metavar="DURATION", help="Only the last while, such as 30m.")
@click.option("--from", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Exported histories instead.")
@config_option
@state_option
@json_option
@click.pass_obj
def timeline(
    world: World, workload: str, tenant: str, slot: int | None, since: float | None, files: tuple[str, ...],
    configs: tuple[str, ...], state: str, as_json: bool,
) -> int:  # fmt: skip
    """Show every step of a workload and its slots, with who made it and on what evidence, from the journals of all planes.

    \b
    fairlead timeline risk-api -n risk
    fairlead timeline risk-api -n risk --slot 20000 --since 10m
    """
    from fairlead.observe.timeline import Timeline

    name, told = workload.rpartition("/")[2], Timeline(tenant, workload.rpartition("/")[2])
    _feed(told, world, files, state, configs)
    since_ms = int((world.clock().wall() - since) * 1000) if since is not None else 0
    steps = [step for step in told.steps() if step.time_ms >= since_ms and _is_of(step.object, name, slot)]
    if as_json:
        put_json({"name": "timeline", "params": {"workload": name, "tenant": tenant}, "results": {"steps": [
            {**step._asdict(), "time": _instant(step.time_ms)} for step in steps
        ]}})  # fmt: skip
        return OK if steps else NOT_FOUND
    if not steps:
        raise Told(f"the history has nothing of {tenant}/{name}", code=NOT_FOUND)
    rows = [(_instant(s.time_ms), s.plane, s.object, s.what, s.owner, s.evidence) for s in steps]
    put_table(("TIME", "PLANE", "OBJECT", "WHAT", "BY", "DECIDED ON"), rows)
    return OK


def _feed(told: Any, world: World, files: tuple[str, ...], state: str, configs: tuple[str, ...]) -> None:
    from fairlead.store.export import read_export

    for file in files:
        exported = read_export(Path(file))
        plane = exported.about.region or exported.about.plane
        told.begin(plane, exported.rows)
        told.feed(plane, exported.batches)
    if files:
        return
    assert world.archived is not None
    for plane, kept in _planes(world, state, configs).items():
        told.feed(plane, world.archived(kept.history))


def _is_of(shown: str, workload: str, slot: int | None) -> bool:
    return slot is None or shown.rpartition("/")[2] in (workload, f"{workload}-{slot}") or not shown.startswith(_OF_SLOTS)


_OF_SLOTS = ("schedulingrequest/", "binding/", "instance/", "evictionrequest/")


def _instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--plane", default="", metavar="NAME", help="Which plane of the local platform, such as us-east.")
@click.option(
    "--config", default=None, type=click.Path(exists=True, dir_okay=False), help="Or the configuration of a server here."
)
@click.option("--since", type=DURATION, default=None, metavar="DURATION", help="Only the last while. Default: all that is kept.")
@state_option
@json_option
@click.pass_obj
def export(world: World, file: str, plane: str, config: str | None, since: float | None, state: str, as_json: bool) -> int:
    """Write a plane's history into one file: what was there at the beginning, and every batch since.

    \b
    fairlead export --plane us-east --since 1h incident.history
    fairlead replay incident.history --verify
    """
    from fairlead.observe.build import build
    from fairlead.store.export import write_export

    if bool(plane) == bool(config):
        raise Told("say --plane NAME, or --config FILE of a server on this machine")
    planes = _planes(world, state, (config,) if config else ())
    if plane and plane not in planes:
        raise Told(f"there is no plane {plane} with a history; there are {', '.join(planes)}", code=NOT_FOUND)
    kept = planes[plane] if plane else next(iter(planes.values()), None)
    if kept is None:
        raise Told(f"{config}: there is no history where it says", code=NOT_FOUND)
    since_ms = int((world.clock().wall() - since) * 1000) if since is not None else 0
    about = write_export(kept, since_ms, Path(file), build())
    if as_json:
        put_json({"name": "export", "params": {"file": file}, "results": about_plain(about)})
    else:
        begun = f"since {instant_of(about.time_ms)}" if about.time_ms else "from the beginning"
        note(f"{file}: {about.batches:,} batches of {about.region or about.plane} {begun}, up to position {about.last:,}")
    return OK


def about_plain(about: Any) -> dict[str, Any]:
    fields = ("plane", "region", "build", "incarnation", "position", "time_ms", "last", "batches", "state_hash")
    return {name: getattr(about, name) for name in fields}
