"""`fairlead replay`: an exported history judged again by the authority's functions and decided again by the scheduler's; and what
another policy would have decided.

Owns the words. What is compared is in fairlead/authority/replay.py and fairlead/scheduler/forking.py.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlead.cli import keeping
from fairlead.cli.frame import CHECK_FAILED, OK, Told, World
from fairlead.cli.history import about_plain
from fairlead.cli.output import json_option, put_json

if TYPE_CHECKING:
    from fairlead.plugins import Loaded

SHOWN_MAX = 20  # differences


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--verify", is_flag=True, help="Exit code 8 if anything is judged otherwise now, or the end differs.")
@click.option(
    "--fork", default="", metavar="policy=REV|FILE", help="Decide every placement again under another policy revision too."
)
@json_option
@click.pass_obj
def command(world: World, file: str, verify: bool, fork: str, as_json: bool) -> int:
    """Judge an exported history again, with this build: the same commands on the same state must give the same effects.

    \b
    fairlead replay incident.history --verify
    fairlead replay incident.history --fork policy=7
    fairlead replay incident.history --fork policy=strict.yaml

    Compared are the effects of every command, by hash and one by one, and the hash of every object at the end. In a region's
    history every placement is also decided again by the scheduler. --fork shows what another policy would have decided in each
    case, on the state of that moment, and which gate or score makes the difference. Plug-ins that its policies name must be
    installed here too.
    """
    assert world.decided_again is not None, "the composition root knows the scheduler"
    begun = keeping.begin(world)
    plugins = _installed(world)
    results = judged_again(Path(file), plugins)
    try:
        results["placements"] = world.decided_again(Path(file), fork, plugins)
    except (ValueError, OSError) as error:
        raise Told(str(error)) from error
    if verify:
        keeping.keep(world, begun, "replay verify", results["identical"], keeping.of_replay(results))
    if as_json:
        environment = {"cores": os.cpu_count() or 1, "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
        put_json({"name": "replay", "params": {"file": file, "fork": fork}, "environment": environment, "results": results})
    else:
        _tell(results)
    return CHECK_FAILED if verify and not results["identical"] else OK


def _tell(results: dict[str, Any]) -> None:
    for one in results["differences"][:SHOWN_MAX]:
        click.echo(f"at {one['position']}: {one['detail']}")
    same = "identical" if results["identical"] else f"{results['different']} of them are decided otherwise now"
    click.echo(f"{results['judged']:,} commands of {results['region'] or results['plane']} judged again: {same}")
    ends = "the same" if results["state_hash"] == results["state_hash_now"] else "another"
    click.echo(f"decisions {results['decisions_hash_now'][:16]}, state {results['state_hash_now'][:16]}: {ends} as recorded")
    placed = results["placements"]
    if not placed:
        return
    apart = [f"{placed[name]:,} {words}" for name, words in (("drawn", "by chance"), ("refused", "refused then")) if placed[name]]
    left_out = f" ({', '.join(apart)}: not compared)" if apart else ""
    click.echo(f"{placed['decided']:,} placements decided again: {placed['same']:,} the same{left_out}")
    for one in placed["not_same"][:SHOWN_MAX]:
        click.echo(f"at {one['position']}: {one['slot']}: {one['then']} then, {one['now']} now")
    if "fork" in placed:
        _tell_fork(placed["fork"], placed["decided"] + placed["waits_same"])


def _tell_fork(fork: dict[str, Any], of: int) -> None:
    click.echo()
    counts = f"{fork['moved']} elsewhere, {fork['would_wait']} would wait, {fork['would_be_placed']} would be placed"
    click.echo(f"Under policy {fork['policy']}, {fork['different']} of {of:,} decisions would have been other ones: {counts}.")
    if fork["by"]:
        click.echo("By: " + ", ".join(f"{cause} ({count})" for cause, count in fork["by"].items()))
    for one in fork["differences"][:SHOWN_MAX]:
        click.echo(f"at {one['position']}: {one['slot']}: {_choice(one['then'])} -> {_choice(one['forked'])}")
        click.echo(f"    {one['by']}: {one['why']}")
    if fork["different"] > SHOWN_MAX:
        click.echo(f"and {fork['different'] - SHOWN_MAX:,} more: --json has the first thousand")


def _choice(one: dict[str, Any]) -> str:
    victims = f", evicting {', '.join(one['victims'])}" if one.get("victims") else ""
    return f"{one['node']}{victims}" if one.get("node") else f"waits: {one.get('reason', '')}"


def _installed(world: World) -> Loaded | None:
    """What a server that is started here would have; what it would leave out is said."""
    found = world.plugins() if world.plugins is not None else None
    for fault in found.faults if found is not None else ():
        click.echo(f"left out: {fault}", err=True)
    return found


def judged_again(path: Path, plugins: Loaded | None = None) -> dict[str, Any]:
    from fairlead.authority.judge import Settings
    from fairlead.authority.replay import Replay
    from fairlead.plugins import NO_PLUGINS
    from fairlead.store.export import read_export, state_hash

    exported = read_export(path)
    about = exported.about
    registry = (plugins or NO_PLUGINS).registry
    settings = Settings(plane=about.plane, region=about.region, node_lease_s=about.node_lease_s, plugins=registry)
    again = Replay(settings)
    again.begin(exported.rows, about.position, about.epoch, about.leader_since_ms)
    again.feed(exported.batches)
    then, now = again.hashes
    end = state_hash(again.objects())
    return {
        **about_plain(about),
        "judged": again.judged,
        "different": len(again.differences),
        "differences": [{"position": one.position, "detail": one.detail} for one in again.differences[:1000]],
        "decisions_hash": then,
        "decisions_hash_now": now,
        "state_hash_now": end,
        "identical": then == now and not again.differences and end == about.state_hash,
    }
