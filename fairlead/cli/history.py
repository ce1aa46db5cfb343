"""`fairlead timeline` and `fairlead export`: what happened, told step by step or carried away as a file.

Owns the words. Asks the server, or reads the history that servers keep as files where no server need run: those of the local
platform whose directory is named, or of the server whose configuration is; a running server keeps writing to them. What is asked
of history is in fairlead/observe and fairlead/store/export.py; replay.py judges such a file again.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlead.cli.frame import NOT_FOUND, OK, Told, World
from fairlead.cli.output import instant_of, json_option, note, put_json, put_table
from fairlead.cli.programs import programs_of
from fairlead.cli.session import SOME_TIME, F, chosen_context, client_of, told_of

if TYPE_CHECKING:
    from fairlead.client.rest import RestClient

ASK_S = 90.0  # a server looks through files
_CHUNKS_MAX = 100_000  # of a quarter MiB: 24 GiB

offline_option = click.option(
    "--state", "--state-dir", "state", default="", metavar="DIR",
    help="Read the files of the local platform in this directory, and ask no server.",
)  # fmt: skip


def asked_of(work: F) -> F:
    """Which server is asked."""
    options = (
        click.option("--context", "context_name", metavar="NAME", help="Use this context of the config file."),
        click.option("--server", metavar="URL", help="Ask this server instead of the context's."),
    )
    return functools.reduce(lambda made, option: option(made), options, work)


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
@click.option("--since", type=SOME_TIME, default=None, metavar="DURATION", help="Only the last while, such as 30m.")
@click.option("--from", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Exported histories instead.")
@config_option
@offline_option
@asked_of
@click.option("--region", metavar="REGION", help="Ask about this region only.")
@click.option("--otlp", default="", metavar="URL", help="Send it as traces, one each generation, to this OTLP/HTTP collector.")
@click.option("--all", "each", is_flag=True, help="Every step of every slot in a row of its own.")
@json_option
@click.pass_obj
def timeline(
    world: World, workload: str, tenant: str, slot: int | None, since: float | None, files: tuple[str, ...],
    configs: tuple[str, ...], state: str, context_name: str | None, server: str | None, region: str | None, otlp: str,
    each: bool, as_json: bool,
) -> int:  # fmt: skip
    """Show every step of a workload and its slots, with who made it and on what evidence, from the journals of all planes.

    \b
    fairlead timeline risk-api -n risk
    fairlead timeline risk-api -n risk --slot 20000 --since 10m
    fairlead timeline risk-api -n risk --state .fairlead
    fairlead timeline risk-api -n risk --otlp http://localhost:4318/v1/traces

    What many slots did alike, one after the other, is one row with their number and the time until the last; --all shows each.
    A server tells the last 24 hours where --since says nothing. With --state, --config or --from no server is asked.
    """
    name = workload.rpartition("/")[2]
    since_ms = int((world.clock().wall() - since) * 1000) if since is not None else 0
    if files or configs or state:
        found = _read(tenant, name, since_ms, world, files, state, configs)
    else:
        found = world.run(_asked(world, (context_name, server, region or ""), tenant, name, since_ms))
    steps = [step for step in found if _is_of(step.object, name, slot)]
    if otlp:
        return _traced(otlp, tenant, name, steps)
    if as_json:
        put_json({"name": "timeline", "params": {"workload": name, "tenant": tenant}, "results": {"steps": [
            {**step._asdict(), "time": _instant(step.time_ms)} for step in steps
        ]}})  # fmt: skip
        return OK if steps else NOT_FOUND
    if not steps:
        raise Told(f"the history has nothing of {tenant}/{name}", code=NOT_FOUND)
    _put_steps(steps, each)
    return OK


def _put_steps(steps: list[Any], each: bool) -> None:
    from fairlead.observe.alike import rows_of

    shown = rows_of(steps)
    if each or all(row.steps == 1 for row in shown):
        rows = [(_instant(s.time_ms), s.plane, s.object, s.what, s.owner, s.evidence) for s in steps]
        put_table(("TIME", "PLANE", "OBJECT", "WHAT", "BY", "DECIDED ON"), rows)
        return
    put_table(
        ("TIME", "TAKES", "PLANE", "COUNT", "OBJECT", "WHAT", "BY", "DECIDED ON"),
        [(_instant(r.time_ms), f"{(r.last_ms - r.time_ms) / 1000:.1f}s" if r.steps > 1 else "-", r.plane, r.steps, r.object,
          r.what, r.owner, r.evidence) for r in shown],
    )  # fmt: skip


def _traced(url: str, tenant: str, name: str, steps: list[Any]) -> int:
    from fairlead.observe import otel
    from fairlead.observe.traces import spans_of

    spans = spans_of(tenant, name, steps)
    try:
        count = otel.send(spans, otel.exporter(url))
    except (otel.NotInstalled, otel.Undelivered) as error:
        raise Told(str(error)) from error
    note(f"{count} spans of {len({span.trace_id for span in spans})} generations of {tenant}/{name} sent to {url}")
    return OK if spans else NOT_FOUND


async def _asked(world: World, where: tuple[str | None, str | None, str], tenant: str, name: str, since_ms: int) -> list[Any]:
    from fairlead.cli.kinds import of_model
    from fairlead.observe.timeline import Step

    params = {"since": _instant(since_ms)} if since_ms else {}
    params |= {"region": where[2]} if where[2] else {}
    async with client_for(world, where) as client:
        got = await client.read(of_model()["workloads"].path(tenant, name, "timeline"), params)
    return [
        Step(
            int(_seconds(one["time"]) * 1000 + 0.5), one["plane"], one["position"], one["object"], one["what"], one["by"],
            one["evidence"], one.get("stage", ""), one.get("generation", 0), one.get("uid", ""),
        )
        for one in got["items"]
    ]  # fmt: skip


def _read(
    tenant: str, name: str, since_ms: int, world: World, files: tuple[str, ...], state: str, configs: tuple[str, ...]
) -> list[Any]:
    from fairlead.observe.timeline import Timeline

    told = Timeline(tenant, name)
    _feed(told, world, files, state, configs)
    return [step for step in told.steps() if step.time_ms >= since_ms]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@asynccontextmanager
async def client_for(world: World, where: tuple[str | None, str | None, str]) -> AsyncIterator[RestClient]:
    """Who asks no server has no need of a context, so these commands take theirs only when they do."""
    context_name, server, _ = where
    try:
        async with client_of(world, chosen_context(context_name, server), ASK_S) as client:
            yield client
    except Exception as error:
        raise told_of(error) from error


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
        history = world.archived(kept.history)
        told.begin(plane, history.rows())
        told.feed(plane, history)


def _is_of(shown: str, workload: str, slot: int | None) -> bool:
    from fairlead.observe.alike import OF_SLOTS

    return slot is None or shown.rpartition("/")[2] in (workload, f"{workload}-{slot}") or not shown.startswith(OF_SLOTS)


def _instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--plane", default="", metavar="NAME", help="Which plane of the local platform, such as us-east.")
@click.option(
    "--config", default=None, type=click.Path(exists=True, dir_okay=False), help="Or the configuration of a server here."
)
@click.option("--since", type=SOME_TIME, default=None, metavar="DURATION", help="Only the last while. Default: all that is kept.")
@offline_option
@asked_of
@json_option
@click.pass_obj
def export(
    world: World, file: str, plane: str, config: str | None, since: float | None, state: str, context_name: str | None,
    server: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Write a plane's history into one file: what was there at the beginning, and every batch since.

    \b
    fairlead export --plane us-east --since 1h incident.history
    fairlead replay incident.history --verify

    Asked of a server, it needs the right to read the audit record (roles admin and auditor). With --state or --config no server
    is asked: the files are read where they lie.
    """
    if bool(plane) == bool(config):
        raise Told("say --plane NAME, or --config FILE of a server on this machine")
    since_ms = int((world.clock().wall() - since) * 1000) if since is not None else 0
    if state or config:
        about = _written(world, file, plane, config, since_ms, state)
    else:
        about = world.run(_downloaded(world, (context_name, server, plane), Path(file), since_ms))
    if as_json:
        put_json({"name": "export", "params": {"file": file}, "results": about_plain(about)})
    else:
        begun = f"since {instant_of(about.time_ms)}" if about.time_ms else "from the beginning"
        note(f"{file}: {about.batches:,} batches of {about.region or about.plane} {begun}, up to position {about.last:,}")
    return OK


async def _downloaded(world: World, where: tuple[str | None, str | None, str], path: Path, since_ms: int) -> Any:
    import base64

    from fairlead.store.export import read_export

    params = {"region": where[2], **({"since": _instant(since_ms)} if since_ms else {})}
    written, size = 0, 1
    part = path.with_name(f"{path.name}.part")
    try:
        async with client_for(world, where) as client:
            with part.open("wb") as out:
                for _ in range(_CHUNKS_MAX):
                    got = await client.read("/history", {**params, "offset": str(written)})
                    params["token"], size = got["token"], got["size"]
                    written += out.write(base64.b64decode(got["data"]))
                    if written >= size or not got["data"]:
                        break
        if written != size:
            raise Told(f"{path}: {written:,} of {size:,} bytes came")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return read_export(path).about


def _written(world: World, file: str, plane: str, config: str | None, since_ms: int, state: str) -> Any:
    from fairlead.observe.build import build
    from fairlead.store.export import write_export

    planes = _planes(world, state, (config,) if config else ())
    if plane and plane not in planes:
        raise Told(f"there is no plane {plane} with a history; there are {', '.join(planes)}", code=NOT_FOUND)
    kept = planes[plane] if plane else next(iter(planes.values()), None)
    if kept is None:
        raise Told(f"{config}: there is no history where it says", code=NOT_FOUND)
    return write_export(kept, since_ms, Path(file), build())


def about_plain(about: Any) -> dict[str, Any]:
    fields = ("plane", "region", "build", "incarnation", "position", "time_ms", "last", "batches", "state_hash")
    return {name: getattr(about, name) for name in fields}
