"""`fairlead budget report`: what tenants may use, where it lies, what of it is used, idle or too small; and what is held for
recovery, borrowed by others, on nodes that are not heard, or too little for the services that name it.

Owns the asking, and what is said where something may not be read; the figures are budget_rows.py's.
"""

from __future__ import annotations

from typing import Any

import click

from fairlead.cli.budget_rows import budget_rows, grant_row, quota_row, short_rows, unlisted, words
from fairlead.cli.frame import OK, LazyGroup
from fairlead.cli.kinds import of_model
from fairlead.cli.output import note, put_json
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import laid_out, put_lines
from fairlead.client.rest_errors import Denied
from fairlead.client.rest_shapes import Query


@click.group("budget", cls=LazyGroup)
def command() -> None:
    """See what tenants may use, and what is held for recovery."""


@command.command("report")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@server_options()
@on_server
async def report(session: Session, as_json: bool) -> int:
    """Show for every quota, grant and recovery budget what is used or held, what is idle, and where it is too small.

    Of what a recovery budget holds, BORROWED is in use by others until it is claimed, and idle is what nobody uses. SILENT is
    held on nodes that are not heard: it can be claimed when they are. A row "if REGION is lost" says how much the services that
    name a budget would lack then, as readiness has it (fairlead plan --lose-region). Of a quota, LEASE is what an emergency
    quota in force adds, and until when.

    \b
    fairlead budget report
    fairlead budget report -n risk --json

    Of the tenant that -n or the context names; of all of them where neither does.
    """
    tenant = session.said_tenant or ("" if session.namespace == "default" else session.namespace)
    quotas, grants, budgets = [await _found(session, each, tenant) for each in ("quotas", "grants", "recoverybudgets")]
    regions = [each["metadata"]["name"] for each in await _found(session, "regions", what="regions that have not reported")]
    overrides = await _overrides(session, tenant)
    now_ms = int(session.client.clock.wall() * 1000)
    rows = [
        *(quota_row(one, overrides, regions, now_ms) for one in quotas),
        *(grant_row(one) for one in grants),
        *(row for one in budgets for row in budget_rows(one, regions, now_ms)),
        *await _short(session, tenant),
    ]
    if as_json:
        put_json({"name": "budget report", "params": {"tenant": tenant}, "results": {"rows": rows}})
        return OK
    if not rows:
        click.echo("There are no quotas, grants or recovery budgets.")
        return OK
    titles = ["KIND", "TENANT", "NAME", "LIMIT", "USED OR HELD", "BORROWED", "IDLE", "SILENT", "TOO SMALL BY", "LEASE"]
    fields = ("kind", "tenant", "name", "limit", "used", "borrowed", "idle", "silent", "short", "lease")
    put_lines(laid_out(titles, [[words(row[field]) for field in fields] for row in rows]))
    return OK


async def _found(session: Session, plural: str, tenant: str = "", what: str = "") -> list[dict[str, Any]]:
    """By tenant and name. `what` is said to be left out where they may not be read; without it, that is an error."""
    try:
        found = (await session.client.list(Query(of_model()[plural], tenant))).items
    except Denied as error:
        if not what:
            raise
        note(f"left out are {what}: {error}")
        return []
    return sorted(found, key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))


async def _overrides(session: Session, tenant: str) -> list[dict[str, Any]]:
    """Of all tenants: an override may be about others than the one it belongs to."""
    try:
        return await _found(session, "overrides")
    except Denied:
        return await _found(session, "overrides", tenant, what="emergency quotas")


async def _short(session: Session, tenant: str) -> list[dict[str, Any]]:
    outlooks = await _found(session, "regionoutlooks", what="what readiness says is short")
    if not any((one.get("spec") or {}).get("short") for one in outlooks):
        return []
    workloads = await _found(session, "workloads", tenant, what="the services that are short")
    named = {(one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in workloads}
    left = unlisted(outlooks)
    if left:
        note(f"{left} more services would fall short than readiness lists: more may be missing")
    return short_rows(outlooks, named, tenant)
