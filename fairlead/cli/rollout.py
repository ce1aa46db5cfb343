"""`fairlead rollout`: follow a workload's rollout, look at its revisions, go back to one, pause and resume.

Owns the words of progress and what an undo writes: the workload's spec as that Revision has it, so that slots which still run it
stay as they are. The rollout itself is the rollout controller's.
"""

from __future__ import annotations

from typing import Any

import click

from fairlead.cli.complete import workloads as complete_workloads
from fairlead.cli.frame import CONFLICT, ERROR, NOT_FOUND, OK, LazyGroup, Told
from fairlead.cli.kinds import Target, of_model, targets
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.cli.waiting import Seen, until
from fairlead.cli.writing import how, suffix, write_options
from fairlead.client.rest_shapes import Query

# From a Revision to the workload's spec: path in the Revision, path in the workload. Absent there: removed here.
_UNDONE = (
    (("template",), ("template",)),
    (("ask", "requests"), ("resources", "requests")),
    (("ask", "devices"), ("resources", "devices")),
    (("ask", "placement"), ("placement",)),
    (("ask", "isolation"), ("isolation",)),
    (("ask", "workloadClass"), ("workloadClass",)),
    (("ask", "maxObservationAgeSeconds"), ("freshness", "maxObservationAgeSeconds")),
    (("execution",), ("execution",)),
    (("exclusive",), ("exclusive",)),
    (("startTargetSeconds",), ("startTargetSeconds",)),
)


@click.group("rollout", cls=LazyGroup)
def command() -> None:
    """Follow, pause, resume or undo the rollout of a workload."""


async def _workload(session: Session, words: tuple[str, ...]) -> tuple[Target, dict[str, Any]]:
    words = words if any("/" in word for word in words) or len(words) > 1 else tuple(f"workloads/{word}" for word in words)
    found = await targets(session.client, words)
    if len(found) != 1 or not found[0].name or found[0].resource.plural != "workloads":
        raise Told("name one workload", hint="such as wl/risk-api")
    return found[0], await session.client.get(found[0].resource, session.namespace, found[0].name)


workload_argument = click.argument("words", nargs=-1, metavar="WORKLOAD", shell_complete=complete_workloads)


@command.command("status")
@workload_argument
@click.option("-w", "--watch/--no-watch", default=True, help="Wait until it is done.")
@server_options(600.0, waits="How long to wait.")
@on_server
async def status(session: Session, words: tuple[str, ...], watch: bool) -> int:
    """Follow a rollout until it is complete. Exit code 6 when the time is over, 1 if it stands still past its deadline."""
    target, now = await _workload(session, words)
    said = ""

    def holds(seen: Seen) -> bool:
        nonlocal said
        if seen is None:
            raise Told(f"{target} was deleted", code=NOT_FOUND)
        words = progress_of(seen)
        if words != said:
            click.echo(words)
            said = words
        if _reason(seen) == "ProgressDeadlineExceeded" and _is_current(seen):
            hint = f"see 'fairlead describe {target}'; go back with 'fairlead rollout undo {target}'"
            raise Told(f"{target}: the rollout stands still: {_progressing(seen).get('message', '')}", hint=hint, code=ERROR)
        return is_complete(seen)

    if not watch:
        holds(now)
        return OK
    await until(session, target, session.namespace, holds, within_s=session.wait_s, wanted="rolled out", hint=lambda seen: said)
    click.echo(f"{target} rolled out")
    return OK


def _is_current(each: dict[str, Any]) -> bool:
    return int((each.get("status") or {}).get("observedGeneration") or 0) >= int(each["metadata"].get("generation") or 1)


def _progressing(each: dict[str, Any]) -> dict[str, Any]:
    conditions = (each.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "Progressing"), {})


def _reason(each: dict[str, Any]) -> str:
    return str(_progressing(each).get("reason") or "")


def is_complete(each: dict[str, Any]) -> bool:
    """Of a service: the controllers say so of the present generation. Of a job: it has ended."""
    if not _is_current(each):
        return False
    conditions = (each.get("status") or {}).get("conditions") or ()
    ended = any(one.get("type") == "Complete" and one.get("status") == "True" for one in conditions)
    return ended or _reason(each) in ("Complete", "Suspended")


def progress_of(each: dict[str, Any]) -> str:
    if not _is_current(each):
        return f"waiting: generation {each['metadata'].get('generation')} has not been looked at yet"
    counts = (each.get("status") or {}).get("replicas") or {}
    parts = ("updated", "bound", "ready", "serving")
    line = f"{counts.get('desired', 0)} wanted: " + ", ".join(f"{counts.get(part, 0)} {part}" for part in parts)
    pending = [f"{one.get('count')} {one.get('reason')}" for one in (each.get("status") or {}).get("pending") or ()]
    paused = "; paused" if ((each.get("spec") or {}).get("rollout") or {}).get("paused") else ""
    return line + (f"; pending: {', '.join(pending)}" if pending else "") + paused


async def _revisions(session: Session, target: Target, workload: dict[str, Any]) -> list[dict[str, Any]]:
    found = await session.client.list(Query(of_model()["revisions"], session.namespace, fields=f"spec.workload={target.name}"))
    uid = workload["metadata"].get("uid")
    mine = [each for each in found.items if (each.get("spec") or {}).get("workloadUid") == uid]
    return sorted(mine, key=_generation)


def _generation(revision: dict[str, Any]) -> int:
    return int((revision.get("spec") or {}).get("generation") or 0)


@command.command("history")
@workload_argument
@click.option("--revision", type=int, default=None, help="Show this one whole.")
@format_option()
@server_options()
@on_server
async def history(session: Session, words: tuple[str, ...], revision: int | None, form: Format) -> int:
    """List the revisions of a workload that can be gone back to. A * marks the one that is wanted now."""
    target, workload = await _workload(session, words)
    found = await _revisions(session, target, workload)
    if revision is not None:
        found = [_one(found, revision, target)]
    if not form.is_table or revision is not None:
        put(Format("yaml") if form.is_table else form, found, single=revision is not None)
        return OK
    current = (workload.get("status") or {}).get("revision")
    rows = []
    for each in found:
        spec, template = each["spec"], (each.get("spec") or {}).get("template") or {}
        mark = "*" if each["metadata"]["name"] == current else ""
        requests = ((spec.get("ask") or {}).get("requests")) or {}
        asks = ",".join(f"{name}={amount}" for name, amount in requests.items())
        rows.append([f"{_generation(each)}{mark}", each["metadata"].get("creationTimestamp", ""), template.get("image") or "",
                     " ".join(template.get("command") or ()), asks])  # fmt: skip
    put_lines(laid_out(["REVISION", "CREATED", "IMAGE", "COMMAND", "REQUESTS"], rows))
    return OK


def _one(found: list[dict[str, Any]], revision: int, target: Target) -> dict[str, Any]:
    one = next((each for each in found if _generation(each) == revision), None)
    if one is None:
        known = ", ".join(str(_generation(each)) for each in found) or "none"
        raise Told(f"{target} has no revision {revision}", hint=f"there are: {known}", code=NOT_FOUND)
    return one


@command.command("undo")
@workload_argument
@click.option("--to-revision", type=int, default=None, help="Which one; else the one before the present.")
@write_options
@server_options()
@on_server
async def undo(session: Session, words: tuple[str, ...], to_revision: int | None, dry_run: str, idempotency_key: str) -> int:
    """Go back to an earlier revision. Slots that still run it stay as they are; the number of replicas is not touched."""
    target, workload = await _workload(session, words)
    found = await _revisions(session, target, workload)
    current = (workload.get("status") or {}).get("revision")
    if to_revision is not None:
        chosen = _one(found, to_revision, target)
    else:
        now = next((_generation(each) for each in found if each["metadata"]["name"] == current), None)
        before = [each for each in found if now is not None and _generation(each) < now]
        if not before:
            raise Told(
                f"{target} has no revision before the present one",
                hint=f"see 'fairlead rollout history {target}'",
                code=NOT_FOUND,
            )
        chosen = before[-1]
    if chosen["metadata"]["name"] == current and _is_current(workload):
        raise Told(f"{target} is at revision {_generation(chosen)} already", code=CONFLICT)
    body = undone(workload, chosen["spec"])
    if dry_run != "client":
        await session.client.replace(
            target.resource, session.namespace, target.name, body, how(session, dry_run, idempotency_key)
        )
    click.echo(f"{target} goes back to revision {_generation(chosen)}{suffix(dry_run)}")
    return OK


def undone(workload: dict[str, Any], revision: dict[str, Any]) -> dict[str, Any]:
    """The workload with the spec that the revision was made from. Its resourceVersion stays: who changed it meanwhile wins."""
    spec = dict(workload.get("spec") or {})
    minimum = ((spec.get("placement") or {}).get("regions") or {}).get("perRegionMinimum")
    for source, target in _UNDONE:
        value: Any = revision
        for step in source:
            value = value.get(step) if isinstance(value, dict) else None
        *within, last = target
        place = spec
        for step in within:
            place[step] = dict(place.get(step) or {})
            place = place[step]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    if minimum is not None:  # no part of a Revision: how many a region carries restarts nobody
        placement = dict(spec.get("placement") or {})
        spec["placement"] = placement | {"regions": {**(placement.get("regions") or {}), "perRegionMinimum": minimum}}
    metadata = dict(workload["metadata"])
    metadata["labels"] = dict((revision.get("ask") or {}).get("labels") or ())  # what affinity rules match belongs to it
    return {**workload, "metadata": metadata, "spec": spec}


async def _set_paused(session: Session, words: tuple[str, ...], paused: bool, dry_run: str, key: str) -> int:
    target, workload = await _workload(session, words)
    is_paused = bool(((workload.get("spec") or {}).get("rollout") or {}).get("paused"))
    if is_paused == paused:
        click.echo(f"{target} is {'paused' if paused else 'not paused'} already")
        return OK
    if dry_run != "client":
        body = {"spec": {"rollout": {"paused": paused}}}
        await session.client.patch(target.resource, session.namespace, target.name, body, how(session, dry_run, key))
    click.echo(f"{target} {'paused' if paused else 'resumed'}{suffix(dry_run)}")
    return OK


@command.command("pause")
@workload_argument
@write_options
@server_options()
@on_server
async def pause(session: Session, words: tuple[str, ...], dry_run: str, idempotency_key: str) -> int:
    """Stop a rollout where it is. What runs goes on running; nothing more is replaced."""
    return await _set_paused(session, words, True, dry_run, idempotency_key)


@command.command("resume")
@workload_argument
@write_options
@server_options()
@on_server
async def resume(session: Session, words: tuple[str, ...], dry_run: str, idempotency_key: str) -> int:
    """Let a paused rollout go on."""
    return await _set_paused(session, words, False, dry_run, idempotency_key)
