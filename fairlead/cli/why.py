"""`fairlead why`: what a workload or one of its slots waits for, since when, on whom, until when, and what was last decided.

Owns the words; the server has put the facts together (`/why`). Nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import click

from fairlead.cli.ages import age
from fairlead.cli.complete import workloads as complete_workloads
from fairlead.cli.frame import NOT_FOUND, OK, Told
from fairlead.cli.kinds import Target, targets
from fairlead.cli.plan_words import tell_unblocking
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, laid_out, put, put_lines
from fairlead.cli.unblock import changes_for
from fairlead.client.rest_errors import ApiError, NotFound
from fairlead.client.rest_shapes import Query

ASKABLE = ("workloads", "schedulingrequests", "bindings")
WALKS_MAX = 3  # slots shown step by step; of those that wait for the same one
RULED_OUT_MAX = 6  # gates and nodes named; the rest is in -o yaml


@click.command("why")
@click.argument("words", nargs=-1, metavar="WORKLOAD", shell_complete=complete_workloads)
@click.option("--slot", default=None, type=click.IntRange(min=0), metavar="INDEX", help="Only this slot, also one that serves.")
@click.option("--generation", default=None, type=click.IntRange(min=1), metavar="N", help="As this generation last stood.")
@click.option("--at", default="", metavar="REVISION|TIME|AGO", help="As it was at this revision or time, or so long ago: 5m.")
@format_option()
@server_options()
@on_server
async def command(
    session: Session, words: tuple[str, ...], slot: int | None, generation: int | None, at: str, form: Format
) -> int:  # fmt: skip
    """Say what a workload waits for: fairlead why wl/risk-api. Also of one slot: schedulingrequest/NAME or binding/NAME.

    \b
    fairlead why wl/risk-api -n risk --slot 3
    fairlead why wl/risk-api -n risk --at 2026-01-31T12:00:00Z
    fairlead why wl/risk-api -n risk --generation 7
    """
    words = words if any("/" in word for word in words) or len(words) > 1 else tuple(f"workloads/{word}" for word in words)
    found = await targets(session.client, words)
    if len(found) != 1 or not found[0].name or found[0].resource.plural not in ASKABLE:
        raise Told("name one workload, or one slot of it", hint="such as wl/risk-api, or binding/risk-api-0")
    target, at = found[0], session.moment(at)
    if (slot is not None or generation is not None) and target.resource.plural != "workloads":
        raise Told("--slot and --generation are about a workload")
    asked = {"slot": slot, "generation": generation, "at": at or None, "region": session.region or None}
    path = target.resource.path(session.namespace, target.name, "why")
    try:
        got = await session.client.read(path, {name: str(value) for name, value in asked.items() if value is not None})
    except NotFound as error:
        raise Told(str(error), hint=await _elsewhere(session, target), code=NOT_FOUND) from None
    status = got.get("status") or {}
    unblock = await changes_for(session, status, session.namespace) if not at and generation is None else []
    if not form.is_table:
        put(form, [{**got, "status": {**status, "unblock": unblock}} if unblock else got], single=True)
        return OK
    then = str(status.get("atTime") or "")
    _tell(f"{target}{f' at {then}' if then else ''}", status, _seconds(then) if then else session.client.clock.wall())
    tell_unblocking(unblock)
    return OK


async def _elsewhere(session: Session, target: Target) -> str:
    """Most are asked for in a hurry, without -n: where there is one of that name."""
    try:
        found = await session.client.list(Query(target.resource, fields=f"metadata.name={target.name}"))
    except ApiError:
        return ""
    tenants = sorted({one["metadata"].get("namespace", "") for one in found.items} - {session.namespace})
    there = f"there is one in tenant {' and one in '.join(tenants)}: say -n {tenants[0]}" if tenants else ""
    return there or "check the name, -n TENANT and --context"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _tell(name: str, status: dict[str, Any], now_s: float) -> None:
    click.echo(f"{name}: {status.get('summary', '')}")
    slots = status.get("slots") or ()
    if slots:
        click.echo()
        rows = _together([_row(slot, now_s) for slot in slots])
        put_lines(laid_out(["SLOT", "REGION", "STATE", "REASON", "SINCE", "NEXT OWNER", "NEXT TRY"], rows))
        if status.get("slotsLeftOut"):
            click.echo(f"and {status['slotsLeftOut']} more")
    conditions = [one for one in status.get("conditions") or () if one.get("message") or one.get("reason")]
    if conditions:
        click.echo()
        rows = [[str(one.get(part, "")) for part in ("type", "status", "reason", "message")] for one in conditions]
        put_lines(laid_out(["CONDITION", "STATUS", "REASON", "MESSAGE"], rows))
    _tell_failure(status, now_s)
    last = [status["lastSettled"]] if status.get("lastSettled") else []
    for slot in _unlike(slots) or last:
        _walk(slot, now_s)
    for slot in slots or last:
        for line in _decision(slot, now_s):
            click.echo(line)


def _tell_failure(status: dict[str, Any], now_s: float) -> None:
    failure = status.get("lastFailure")
    if failure and failure["note"] not in status.get("summary", ""):
        often = f", {failure['count']} times" if failure["count"] > 1 else ""
        click.echo(f"\nlast failure in {failure['region']}, {age(str(failure['time']), now_s)} ago{often}: {failure['note']}")


def _unlike(slots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of slots that stand still at the same step for the same reason the first: the way of the others is the same."""
    found = {(slot.get("state"), slot.get("reason")): slot for slot in reversed(slots) if slot.get("steps")}
    return list(reversed(found.values()))[:WALKS_MAX]


def _walk(slot: dict[str, Any], now_s: float) -> None:
    click.echo(f"\n{slot['name']}, step by step")
    rows = []
    for step in slot["steps"]:
        when = f"{age(str(step['time']), now_s)} ago" if step.get("time") else ""
        rows.append([step["step"], step["state"], when, step.get("evidence", "")])
    put_lines(laid_out(["STEP", "STATE", "WHEN", "EVIDENCE"], rows))


def _row(slot: dict[str, Any], now_s: float) -> list[str]:
    following = str(slot.get("nextAttemptTime") or "")
    return [
        slot["name"], slot.get("region", ""), slot.get("state", ""), slot.get("reason", ""),
        age(str(slot["sinceTime"]), now_s) if slot.get("sinceTime") else "", slot.get("nextOwner", ""),
        _ahead(following, now_s) if following else "when something changes",
    ]  # fmt: skip


def _together(rows: list[list[str]]) -> list[list[str]]:
    """Slots that follow each other and differ in nothing but their number share a row."""
    out: list[list[str]] = []
    for same, group in groupby(enumerate(rows), lambda pair: (_number(pair[1][0]) - pair[0], pair[1][1:])):
        names = [row[0] for _, row in group]
        told = names[0] if len(names) == 1 else f"{names[0]}..{_number(names[-1])}"
        out.append([told, *same[1]])
    return out


def _number(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def _ahead(text: str, now_s: float) -> str:
    left_s = _seconds(text) - now_s
    return f"in {left_s:.0f}s" if left_s >= 1 else "now"


def _decision(slot: dict[str, Any], now_s: float) -> list[str]:
    decision = slot.get("lastDecision")
    if not decision:
        return []
    nodes = decision.get("nodes") or {}
    when = age(str(decision["time"]), now_s)
    out = [
        "",
        f"{slot['name']}: last decided {when} ago by {decision.get('scheduler', '')}, policy {decision.get('policyRevision', 0)}",
    ]
    out.append(f"  {decision.get('outcome', '')}" + (f": {decision['detail']}" if decision.get("detail") else ""))
    ask = ", ".join(f"{name} {amount}" for name, amount in (decision.get("ask") or {}).items())
    if ask:
        out.append(f"  asks for {ask}")
    out.append(f"  {nodes.get('lookedAt', 0)} nodes looked at, {nodes.get('feasible', 0)} would do")
    ruled_out = sorted((nodes.get("ruledOut") or {}).items(), key=lambda pair: -pair[1])
    out += [f"    {count} ruled out by {gate}" for gate, count in ruled_out[:RULED_OUT_MAX]]
    reasons = sorted((nodes.get("reasons") or {}).items())
    out += [f"    {node}: {reason}" for node, reason in reasons[:RULED_OUT_MAX]]
    if decision.get("node") and decision.get("candidates"):
        out.append(
            "    rated when the record was written; what was just placed may count already, so the chosen may stand lower:"
        )
        out += [f"    {_rated(one, chosen=one['node'] == decision['node'])}" for one in decision.get("candidates") or ()]
    return out


def _rated(candidate: dict[str, Any], *, chosen: bool) -> str:
    """A node that would do, and what each score gave it times its weight."""
    parts = [(name, score["weight"] * score["rate"]) for name, score in (candidate.get("scores") or {}).items()]
    told = ", ".join(f"{name} {given:+}" for name, given in sorted(parts, key=lambda part: -abs(part[1])) if given)
    return f"{candidate['node']}: {candidate['total']}{f' ({told})' if told else ''}{', chosen' if chosen else ''}"
