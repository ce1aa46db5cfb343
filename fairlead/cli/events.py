"""`fairlead events`: what happened, newest last, for one object or all.

Owns the table of events; describe shows the same of one object. Asks core/v1 as kubectl does, so both show the same.
"""

from __future__ import annotations

from typing import Any

import click

from fairlead.cli.ages import age
from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.frame import OK
from fairlead.cli.kinds import Target, one_target
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.client.rest_shapes import CORE_EVENTS, Query

HEADINGS = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]


def query_for(target: Target, namespace: str, uid: str = "", region: str = "") -> Query:
    pairs = {"involvedObject.name": target.name, "involvedObject.kind": target.resource.kind}
    if uid:
        pairs["involvedObject.uid"] = uid
    return Query(CORE_EVENTS, namespace, fields=",".join(f"{name}={value}" for name, value in pairs.items()), region=region)


def seen_at(event: dict[str, Any]) -> str:
    metadata = event.get("metadata") or {}
    return str(event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp") or "")


def row_of(event: dict[str, Any], now_s: float) -> list[str]:
    about = event.get("involvedObject") or {}
    count = int(event.get("count") or 1)
    last = age(seen_at(event), now_s) + (f" (x{count})" if count > 1 else "")
    name = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    return [
        last,
        str(event.get("type", "")),
        str(event.get("reason", "")),
        name,
        str(event.get("message", "")).replace("\n", " "),
    ]


async def _uid_of(session: Session, target: Target, namespace: str) -> str:
    """Of the one there is now: another of its name, deleted before, is another story. Of one that is gone the name is all."""
    from fairlead.client.rest_errors import ApiError

    try:
        found = await session.client.get(target.resource, namespace, target.name)
    except ApiError:  # gone, or for others to see: its events may be shown all the same
        return ""
    return str((found.get("metadata") or {}).get("uid") or "")


@click.command("events")
@click.option("--for", "about", default="", metavar="KIND/NAME", shell_complete=complete_kinds, help="Only of this object.")
@click.option("--types", default="", metavar="TYPES", help="Only these: Normal, Warning.")
@click.option("-A", "--all-namespaces", "--all-tenants", "everywhere", is_flag=True, help="Of all tenants.")
@click.option("-w", "--watch", is_flag=True, help="Go on showing what happens.")
@click.option("--no-headers", is_flag=True, help="No line of headings.")
@format_option()
@server_options()
@on_server
async def command(session: Session, about: str, types: str, everywhere: bool, watch: bool, no_headers: bool, form: Format) -> int:
    """Show what happened, newest last: fairlead events --for wl/risk-api."""
    query = Query(CORE_EVENTS, "" if everywhere else session.namespace, region=session.region)
    if about:
        target = await one_target(session.client, (about,), "--for")
        namespace = session.namespace_of(target.resource)
        query = query_for(target, namespace, await _uid_of(session, target, namespace), session.region)
    wanted = {kind.strip().lower() for kind in types.split(",") if kind.strip()}

    def is_wanted(event: dict[str, Any]) -> bool:
        return not wanted or str(event.get("type", "")).lower() in wanted

    if watch:
        return await _watch(session, query, form, is_wanted, not no_headers)
    found = sorted(filter(is_wanted, (await session.client.list(query)).items), key=seen_at)
    if not form.is_table:
        put(form, found, single=False)
    elif not found:
        click.echo("no events found", err=True)
    else:
        now_s = session.client.clock.wall()
        put_lines(laid_out(None if no_headers else HEADINGS, [row_of(event, now_s) for event in found]))
    return OK


async def _watch(session: Session, query: Query, form: Format, is_wanted: Any, headings: bool) -> int:
    from fairlead.client.rest_watch import Watch

    widths = (12, 8, 24, 32)
    if headings and form.is_table:
        put_lines(laid_out(HEADINGS, [], widths))
    async for event in Watch(session.client, query).events():
        if event.type in ("ADDED", "MODIFIED") and is_wanted(event.object):
            if form.is_table:
                put_lines(laid_out(None, [row_of(event.object, session.client.clock.wall())], widths))
            else:
                put(form, [event.object], single=True, headings=False)
    return OK
