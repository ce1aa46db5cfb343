"""`fairlead decisions`: what schedulers decided about a workload, a slot or a node, newest first.

Owns the table; the server asks the decision logs of all regions. `fairlead why` tells what follows from the last one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from fairlead.cli.ages import age
from fairlead.cli.complete import workloads as complete_workloads
from fairlead.cli.frame import OK, Told
from fairlead.cli.kinds import targets
from fairlead.cli.output import note
from fairlead.cli.session import SOME_TIME, Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines

ASKABLE = ("workloads", "schedulingrequests", "bindings", "nodes")
HEADINGS = ["DECIDED", "SLOT", "GEN", "REGION", "OUTCOME", "NODE", "WOULD DO", "POLICY", "DETAIL"]


@click.command("decisions")
@click.argument("words", nargs=-1, metavar="WORKLOAD", shell_complete=complete_workloads)
@click.option("--slot", type=click.IntRange(min=0), default=None, help="Only of this replica.")
@click.option("--generation", type=click.IntRange(min=1), default=None, help="Only of this generation of the workload.")
@click.option("--node", default="", help="Only those that chose this node.")
@click.option("--outcome", default="", help="Only with this outcome, such as Bound or WaitingForQuota.")
@click.option("--since", type=SOME_TIME, default=None, metavar="DURATION", help="Only the last while, such as 30m.")
@click.option(
    "--limit", type=click.IntRange(min=1, max=500), default=20, show_default=True, help="At most so many of each region."
)
@format_option()
@server_options()
@on_server
async def command(session: Session, words: tuple[str, ...], slot: int | None, generation: int | None, node: str, outcome: str,
                  since: float | None, limit: int, form: Format) -> int:  # fmt: skip
    """Show what schedulers decided, newest first: fairlead decisions wl/risk-api. Also of a slot (binding/NAME) or node/NAME."""
    words = words if any("/" in word for word in words) or len(words) > 1 else tuple(f"workloads/{word}" for word in words)
    found = await targets(session.client, words)
    if len(found) != 1 or not found[0].name or found[0].resource.plural not in ASKABLE:
        raise Told("name one workload, slot or node", hint="such as wl/risk-api, binding/risk-api-0 or node/us-east-general-a")
    target = found[0]
    now_s = session.client.clock.wall()
    began = datetime.fromtimestamp(now_s - since, UTC).isoformat() if since is not None else None
    given = {"slot": slot, "generation": generation, "node": node or None, "outcome": outcome or None, "since": began,
             "limit": limit, "region": session.region or None}  # fmt: skip
    params = {name: str(value) for name, value in given.items() if value is not None}
    got = await session.client.read(target.resource.path(session.namespace, target.name, "decisions"), params)
    if not form.is_table:
        put(form, [got], single=True)
        return OK
    records = [one["spec"] for one in got.get("items") or ()]
    if not records:
        await session.client.get(target.resource, session.namespace_of(target.resource), target.name)  # a misspelt name ends here
        note(f"nothing was decided about {target} that is kept and looked for")
        return OK
    put_lines(laid_out(HEADINGS, [_row(one, now_s) for one in records]))
    if (got.get("metadata") or {}).get("continue"):
        note(f"there is more: --limit, now {limit} of each region, and --since say how much is shown")
    return OK


def _row(one: dict[str, Any], now_s: float) -> list[str]:
    nodes = one.get("nodes") or {}
    return [
        f"{age(str(one['time']), now_s)} ago", one["slot"].rpartition("/")[2], str(one.get("generation", "")), one["region"],
        one.get("outcome", ""), one.get("node", ""), f"{nodes.get('feasible', 0)} of {nodes.get('lookedAt', 0)}",
        str(one.get("policyRevision", 0)), str(one.get("detail", "")),
    ]  # fmt: skip
