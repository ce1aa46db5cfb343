"""`fairlead budget report`: what tenants may use, where it lies, what of it is used, idle or too small; and what is held for
recovery, borrowed by others, or on nodes that are not heard. Owns the words; every figure is an object's own.
"""

from __future__ import annotations

from typing import Any, Final

import click

from fairlead.cli.frame import OK, LazyGroup
from fairlead.cli.kinds import of_model
from fairlead.cli.output import put_json
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import laid_out, put_lines
from fairlead.client.rest_shapes import Query
from fairlead.model.resources import Resources

_COUNTS: Final = ("held", "claimed", "waiting", "silent", "lent")  # rooms of a shape, as a region says


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
    held on nodes that are not heard: it can be claimed when they are.

    \b
    fairlead budget report
    fairlead budget report -n risk --json

    Of the tenant that -n or the context names; of all of them where neither does.
    """
    tenant = session.said_tenant or ("" if session.namespace == "default" else session.namespace)
    kinds = of_model()
    lists = {}
    for plural in ("quotas", "grants", "recoverybudgets"):
        found = (await session.client.list(Query(kinds[plural], tenant))).items
        lists[plural] = sorted(found, key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))
    rows = [
        *(_quota(one) for one in lists["quotas"]),
        *(_grant(one) for one in lists["grants"]),
        *(row for one in lists["recoverybudgets"] for row in _budget(one)),
    ]
    if as_json:
        put_json({"name": "budget report", "params": {"tenant": tenant}, "results": {"rows": rows}})
        return OK
    if not rows:
        click.echo("There are no quotas, grants or recovery budgets.")
        return OK
    titles = ["KIND", "TENANT", "NAME", "LIMIT", "USED OR HELD", "BORROWED", "IDLE", "SILENT", "TOO SMALL BY", "LEASE"]
    fields = ("kind", "tenant", "name", "limit", "used", "borrowed", "idle", "silent", "short", "lease")
    put_lines(laid_out(titles, [[_text(row[field]) for field in fields] for row in rows]))
    return OK


def _quota(one: dict[str, Any]) -> dict[str, Any]:
    limit, used = _resources(one, "spec", "limits"), _resources(one, "status", "used")
    idle = limit - used
    return _row("Quota", one, limit, used, idle, _negative(idle), "")


def _grant(one: dict[str, Any]) -> dict[str, Any]:
    during, used = _resources(one, "spec", "during"), _resources(one, "status", "used")
    waiting = _resources(one, "status", "waiting")
    lease = (one.get("spec") or {}).get("leaseSeconds", 0)
    taken = (one.get("status") or {}).get("acceptedVersion", 0) == (one.get("spec") or {}).get("version")
    words = f"{lease} s" if taken else f"{lease} s, not taken yet"
    return _row("Grant", one, during, used, during - used, waiting.as_quantities(), words if lease else "none")


def _budget(one: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a region and shape: what it holds, what of that borrowers use, what slots have claimed, what found no place."""
    out = []
    for region in (one.get("status") or {}).get("regions") or ():
        for shape in region.get("shapes") or ():
            each = Resources.parse(shape.get("requests") or {})
            held, claimed, waiting, silent, lent = (int(shape.get(name, 0)) for name in _COUNTS)
            limit, free = each.times(held + claimed + waiting + silent), each.times(held - lent)
            row = _row("RecoveryBudget", one, limit, each.times(held + claimed), free, each.times(waiting).as_quantities(), "")
            row |= {"borrowed": each.times(lent).as_quantities(), "silent": each.times(silent).as_quantities()}
            out.append({**row, "name": f"{row['name']} in {region.get('region', '')}"})
    return out


def _row(
    kind: str, one: dict[str, Any], limit: Resources, used: Resources, idle: Resources, short: dict[str, str], lease: str
) -> dict[str, Any]:
    meta = one["metadata"]
    left = Resources(max(0, idle.cpu), max(0, idle.memory), ((name, max(0, n)) for name, n in idle.scalars))
    return {
        "kind": kind, "tenant": meta.get("namespace", ""), "name": meta["name"], "limit": limit.as_quantities(),
        "used": used.as_quantities(), "borrowed": {}, "idle": left.as_quantities(), "silent": {}, "short": short, "lease": lease,
    }  # fmt: skip


def _negative(idle: Resources) -> dict[str, str]:
    over = Resources(max(0, -idle.cpu), max(0, -idle.memory), ((name, max(0, -n)) for name, n in idle.scalars))
    return over.as_quantities()


def _resources(one: dict[str, Any], part: str, field: str) -> Resources:
    return Resources.parse((one.get(part) or {}).get(field) or {})


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in value.items()) or "-"
    return str(value) or "-"
