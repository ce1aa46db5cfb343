"""A plan in words: + comes, ~ changes or moves, - goes. Owns the tables; the facts are the server's.

Called by plan.py and unblock.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from fairlead.cli.show import laid_out, put_lines

SLOTS_MAX: Final = 40  # told one by one; all are in -o json
Row = dict[str, Any]


def tell(status: Row) -> None:
    click.echo(_summary(status))
    for one in status["objects"]:
        where = f" -n {one['namespace']}" if one["namespace"] else ""
        click.echo(f"  {one['mark']} {one['kind'].lower()}/{one['name']}{where}")
    _table(["", "TENANT", "WORKLOAD", "REGION", "BOUND", "WAITING"], [
        [row["mark"], row["namespace"], row["name"], part["region"] or "<none>",
         _step(part["boundBefore"], part["boundAfter"]), _step(part["pendingBefore"], part["pendingAfter"])]
        for row in status["workloads"] for part in row["regions"]
    ])  # fmt: skip
    slots = sorted(status["slots"], key=lambda row: "-~+".index(row["mark"]))
    _table(["", "SLOT", "REGION", "FROM", "TO", "WHY"], [_slot(row) for row in slots[:SLOTS_MAX]])
    if len(slots) > SLOTS_MAX:
        click.echo(f"and {len(slots) - SLOTS_MAX} more slots")
    _table(["WAITING", "REGION", "SLOTS", "TODAY", "REASON", "DETAIL"], [
        [f"{row['namespace']}/{row['workload']}", row["region"] or "<none>", str(row["count"]), str(row["before"]), row["reason"],
         row["detail"]] for row in status["pending"]
    ])  # fmt: skip
    _table(["DRAINED", "REGION", "LEFT", "BLOCKED BY"], [
        [row["node"], row["region"], str(row["left"]), row["message"] or "-"] for row in status["drains"]
    ])  # fmt: skip
    _table(["BUDGET", "REGION", "ROOMS HELD", "ROOMS TO BE FOUND"], [
        [f"{row['namespace']}/{row['name']}", row["region"], _step(row["heldBefore"], row["heldAfter"]),
         _step(row["waitingBefore"], row["waitingAfter"])] for row in status["budgets"]
    ])  # fmt: skip
    _readiness(status["readiness"])
    _table(["COST PER HOUR", "NODES", "USED BY WORK"], [
        [row["region"], _step(row["nodesBefore"], row["nodesAfter"]), _step(row["usedBefore"], row["usedAfter"])]
        for row in status["cost"]
    ])  # fmt: skip


def _summary(status: Row) -> str:
    if not status["changed"]:
        return "No changes."
    marks = [row["mark"] for row in status["slots"]]
    gone = [row for row in status["slots"] if row["mark"] == "-"]
    evicted = sum(row["reason"] != "NotWanted" for row in gone)
    waiting = sum(row["count"] for row in status["pending"])
    today = sum(row["before"] for row in status["pending"])
    parts = [f"start {marks.count('+')}", f"move {marks.count('~')}", f"lose their place {evicted}", f"end {len(gone) - evicted}"]
    return f"Slots that would {', '.join(parts)}, wait {waiting} (today {today})."


def _slot(row: Row) -> list[str]:
    why = f"{row['reason']}{': ' + row['detail'] if row['detail'] else ''}" if row["reason"] else ""
    why = "; ".join(part for part in (f"makes room for {row['by']}" if row["by"] else "", why) if part)
    return [row["mark"], f"{row['namespace']}/{row['slot']}", row["region"], row["fromNode"] or "-", row["toNode"] or "-", why]


def _readiness(rows: Sequence[Row]) -> None:
    _table(["IF LOST", "WOULD RECOVER", "WOULD NOT"], [
        [row["lostRegion"], _step(row["readyBefore"], row["readyAfter"]), _step(row["shortBefore"], row["shortAfter"])]
        for row in rows
    ])  # fmt: skip
    for row in rows:
        for one in row["services"]:
            click.echo(
                f"  {one['namespace']}/{one['workload']} would miss {one['missing']} without {row['lostRegion']}: {one['why']}"
            )


def _step(before: Any, after: Any) -> str:
    return f"{before} -> {after}" if before != after else f"{after}"


def _table(head: list[str], rows: list[list[str]]) -> None:
    if rows:
        click.echo()
        put_lines(laid_out(head, rows))


def tell_unblocking(changes: Sequence[Row]) -> None:
    if not changes:
        return
    click.echo()
    click.echo("Any one of these would give it a place (each was tried on the present state):")
    for one in changes:
        where = f"  [it would go to {one['node']}]" if one.get("node") else ""
        click.echo(f"  - {one['change']}{where}")
        if one.get("command"):
            click.echo(f"      {one['command']}")


# --- the loss of a region


def tell_loss(region: str, spec: Row, others: bool, *, gone: bool = False) -> None:
    """`gone`: the region is lost, and this is what was expected while it was healthy."""
    services = spec.get("services") or ()
    if gone:
        click.echo(f"{region} IS LOST. What follows was worked out while it was healthy; see 'fairlead incident status' for now.")
    if not services:
        what = "what else runs there would be lost with it" if others else "nothing runs there"
        click.echo(f"No critical service has slots in {region}: nothing would have to be recovered, and {what}.")
        return
    ready, short = spec.get("ready", 0), spec.get("short", 0)
    lost = f"if {region} were lost now" if not gone else f"had {region} been lost then"
    if short:
        click.echo(f"NOT READY: {lost}, {short} of {ready + short} critical services would NOT reach their minimum.")
    else:
        who = f"all {ready} critical services would reach their" if ready > 1 else "the one critical service would reach its"
        click.echo(f"{lost[0].upper()}{lost[1:]}, {who} minimum, in {spec.get('seconds', 0.0):.0f} s.")
    click.echo()
    rows = [_service(one) for one in services]
    put_lines(laid_out(["TENANT", "WORKLOAD", "IN REGION", "NEW SLOTS", "SECONDS", "MISSING", "WHY"], rows))
    if len(services) < ready + short:
        click.echo(f"and {ready + short - len(services)} more that would be well")


def _service(one: Row) -> list[str]:
    seconds = f"{one.get('seconds', 0):.0f}" if not one.get("missing") else "-"
    return [
        one.get("tenant", ""), one.get("workload", ""), one.get("region") or "<nowhere>", str(one.get("newSlots", 0)), seconds,
        str(one.get("missing", 0)), one.get("why") or "-",
    ]  # fmt: skip
