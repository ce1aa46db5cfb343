"""`fairlead describe`: all about objects in words: metadata, spec, status, conditions, what they wait for, their events.

Owns the order of the parts. Works for every kind, known or new, because it shows what is there.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from fairlead.cli import copies, selectors
from fairlead.cli.ages import age
from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.events import HEADINGS, query_for, row_of, seen_at
from fairlead.cli.frame import NOT_FOUND, OK, Told
from fairlead.cli.get import selection
from fairlead.cli.kinds import Target, targets
from fairlead.cli.output import put_pairs
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import laid_out
from fairlead.client.rest_shapes import Query

EVENTS_MAX = 20


@click.command("describe")
@click.argument("words", nargs=-1, metavar="KIND[/NAME] [NAME]...", shell_complete=complete_kinds)
@selection
@click.option("--show-events/--no-show-events", default=True, help="Also what happened to it.")
@click.option("--at", default="", metavar="REVISION|TIME|AGO", help="As it was then, or so long ago (5m), without events.")
@server_options()
@on_server
async def command(
    session: Session, words: tuple[str, ...], selector: str, field_selector: str, everywhere: bool, show_events: bool, at: str
) -> int:
    """Tell all about objects: fairlead describe wl/risk-api."""
    at = session.moment(at)
    found: list[tuple[Target, dict[str, Any]]] = []
    labels = selectors.text_of(selectors.labels(selector))
    fields = selectors.text_of(selectors.fields(field_selector))
    for target in await targets(session.client, words):
        namespace = session.namespace_of(target.resource, everywhere)
        if target.name:
            one = await session.client.get(target.resource, namespace, target.name, region=session.region, at=at)
            found.append((target, one))
            continue
        items = (await session.client.list(Query(target.resource, namespace, labels, fields, session.region, at))).items
        found += [(Target(target.resource, item["metadata"]["name"]), item) for item in items]
    if not found:
        raise Told("there is nothing to describe", hint="check the selector and -n TENANT", code=NOT_FOUND)
    for number, (target, each) in enumerate(found):
        if number:
            click.echo("\n")
        await _describe(session, target, each, show_events and not at)
    return OK


async def _describe(session: Session, target: Target, each: dict[str, Any], show_events: bool) -> None:
    now_s = session.client.clock.wall()
    _metadata(target, each, now_s)
    status = dict(each.get("status") or {})
    conditions, pending = status.pop("conditions", None), status.pop("pending", None)
    for heading, part in (("Spec", each.get("spec")), ("Status", status)):
        _tree(heading, part)
    if conditions:
        rows = [[str(one.get(name, "")) for name in ("type", "status", "reason", "message")] for one in conditions]
        since = [age(str(one.get("lastTransitionTime", "")), now_s) for one in conditions]
        _table("Conditions", ["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"],
               [[row[0], row[1], when, *row[2:]] for row, when in zip(rows, since, strict=True)])  # fmt: skip
    if pending:
        _table("Pending", ["COUNT", "REASON", "NEXT OWNER", "DETAIL"],
               [[str(one.get(name, "")) for name in ("count", "reason", "nextOwner", "detail")] for one in pending])  # fmt: skip
    if show_events:
        await _events(session, target, each, now_s)


def _metadata(target: Target, each: dict[str, Any], now_s: float) -> None:
    metadata = each.get("metadata") or {}
    created = str(metadata.get("creationTimestamp") or "")
    pairs = [
        ("Name:", str(metadata.get("name", ""))),
        ("Tenant:", str(metadata.get("namespace", ""))),
        ("Kind:", target.resource.kind),
        ("Labels:", _joined(metadata.get("labels"))),
        ("Annotations:", _joined(metadata.get("annotations"))),
        ("Created:", f"{created} ({age(created, now_s)} ago)" if created else ""),
        ("Being deleted:", str(metadata.get("deletionTimestamp") or "")),
        ("Finalizers:", ", ".join(_held_by(name, metadata, now_s) for name in metadata.get("finalizers") or ())),
        ("Owned by:", ", ".join(f"{o.get('kind', '').lower()}/{o.get('name')}" for o in metadata.get("ownerReferences") or ())),
        ("Generation:", str(metadata.get("generation") or "")),
        ("Shown:", _from_memory(each)),
        ("Version:", str(metadata.get("resourceVersion") or "")),
        ("Uid:", str(metadata.get("uid") or "")),
    ]
    put_pairs([pair for pair in pairs if pair[1]])


def _from_memory(each: dict[str, Any]) -> str:
    old_s = copies.age_s(each)
    return f"as of {old_s:.0f} s ago: {copies.region_of(each)} cannot be reached" if old_s is not None else ""


def _held_by(finalizer: str, metadata: dict[str, Any], now_s: float) -> str:
    """Of an object that is being deleted: who has still to let go of it, and until when they should have."""
    from fairlead.model.registry import FINALIZERS

    marked, known = str(metadata.get("deletionTimestamp") or ""), FINALIZERS.get(finalizer)
    if not marked:
        return finalizer
    if known is None:
        return f"{finalizer} (of an owner nobody here knows)"
    try:
        due = datetime.fromisoformat(marked.replace("Z", "+00:00")) + timedelta(seconds=known.deadline_s)
    except ValueError:
        return finalizer
    words = f"late by {age(due.isoformat(), now_s)}" if due.timestamp() < now_s else f"due {due:%H:%M:%S} UTC"
    return f"{finalizer} ({known.owner.value} lets go, {words})"


def _joined(values: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted((values or {}).items()))


def _tree(heading: str, part: Any) -> None:
    from fairlead.wire.yaml_codec import encode_yaml

    if part:
        click.echo(f"{heading}:")
        for line in encode_yaml(part).splitlines():
            click.echo(f"  {line}")


def _table(heading: str, headings: list[str], rows: list[list[str]]) -> None:
    click.echo(f"{heading}:")
    for line in laid_out(headings, rows):
        click.echo(f"  {line}")


async def _events(session: Session, target: Target, each: dict[str, Any], now_s: float) -> None:
    from fairlead.client.rest_errors import ApiError

    metadata = each.get("metadata") or {}
    try:
        found = (
            await session.client.list(query_for(target, str(metadata.get("namespace") or ""), str(metadata.get("uid") or "")))
        ).items
    except ApiError as error:
        click.echo(f"Events: not known ({error.message})")
        return
    last = sorted(found, key=seen_at)[-EVENTS_MAX:]
    if not last:
        click.echo("Events: none")
        return
    _table("Events", [*HEADINGS[:3], HEADINGS[4]], [[*row[:3], row[4]] for row in (row_of(event, now_s) for event in last)])
