"""`fairlead cordon`, `uncordon` and `drain`: keep work away from nodes, let it back, move it off.

Owns the order an operator gives and the words of its progress. The disruption controller carries it out, within budgets; it
gives up at the deadline rather than break one, and this names the one that blocked.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from fairlead.cli import blast, copies, selectors
from fairlead.cli.complete import nodes as complete_nodes
from fairlead.cli.frame import CONFLICT, NOT_FOUND, Told
from fairlead.cli.kinds import Target, of_model
from fairlead.cli.output import note, progress
from fairlead.cli.session import SOME_TIME, Session, WaitTimedOut, on_server, server_options
from fairlead.cli.writing import Outcomes, confirmed, how, keyed, suffix, write_options, yes_option
from fairlead.client.rest_shapes import Query, Written

DEADLINE_S = 600.0  # as long as a workload's drain may take unless it says otherwise
GRACE_S = 15.0  # after the deadline, for the controller to say how it ended
BLOCKED = "; blocked: "  # how the disruption controller begins the list of what is in the way
BUDGET = "disruption budget of "  # and each budget in it
LOOK_S = 1.0

node_argument = click.argument("names", nargs=-1, metavar="NODE...", shell_complete=complete_nodes)
selector_option = click.option("-l", "--selector", default="", metavar="LABELS", help="All nodes with these labels.")


async def _nodes(session: Session, names: tuple[str, ...], selector: str) -> list[dict[str, Any]]:
    resource = of_model()["nodes"]
    if bool(names) == bool(selector):
        raise Told("name nodes, or choose them with -l, one of them", hint="see 'fairlead get nodes'")
    if selector:
        labels = selectors.text_of(selectors.labels(selector))
        found = (await session.client.list(Query(resource, labels=labels, region=session.region))).items
        if not found:
            raise Told(f"no node has the labels {labels}", code=NOT_FOUND)
        return found
    plain = [name.rpartition("/")[2] for name in names]
    return [await session.client.get(resource, "", name, region=session.region) for name in plain]


async def _refused(node: dict[str, Any], word: str) -> None:
    copies.refuse_copy(node, f"it cannot be {word}")


def _target(node: dict[str, Any]) -> Target:
    return Target(of_model()["nodes"], node["metadata"]["name"])


async def _mark(session: Session, names: tuple[str, ...], selector: str, dry_run: str, key: str, unschedulable: bool) -> int:
    found = await _nodes(session, names, selector)
    outcomes = Outcomes("cordoned" if unschedulable else "uncordoned", len(found))
    word = "cordoned" if unschedulable else "uncordoned"
    for index, node in enumerate(found):
        target, spec = _target(node), node.get("spec") or {}
        if copies.age_s(node) is not None:
            await outcomes.take(str(target), _refused(node, word))
            continue
        if bool(spec.get("unschedulable")) == unschedulable and (unschedulable or not spec.get("drain")):
            click.echo(f"{target} {word} already")
            continue
        body: dict[str, Any] = {"spec": {"unschedulable": unschedulable}}
        if not unschedulable:
            body["spec"]["drain"] = None  # a node cannot be open and empty itself at once
        write = how(session, dry_run, keyed(key, index, len(found)))
        if dry_run != "client" and await outcomes.take(
            str(target), session.client.patch(target.resource, "", target.name, body, write)
        ) is None:  # fmt: skip
            continue
        click.echo(f"{target} {word}{suffix(dry_run)}")
    return outcomes.code()


@click.command("cordon")
@node_argument
@selector_option
@write_options
@server_options()
@on_server
async def cordon(session: Session, names: tuple[str, ...], selector: str, dry_run: str, idempotency_key: str) -> int:
    """Keep new work away from nodes. What runs there stays."""
    return await _mark(session, names, selector, dry_run, idempotency_key, True)


@click.command("uncordon")
@node_argument
@selector_option
@write_options
@server_options()
@on_server
async def uncordon(session: Session, names: tuple[str, ...], selector: str, dry_run: str, idempotency_key: str) -> int:
    """Let new work onto nodes again. Ends a drain that is under way."""
    return await _mark(session, names, selector, dry_run, idempotency_key, False)


@click.command("drain")
@node_argument
@selector_option
@click.option("--reason", required=True, metavar="TEXT", help="Why: whoever is moved will read it.")
@click.option("--deadline", type=SOME_TIME, default=DEADLINE_S, show_default="10m", metavar="DURATION",
              help="After this the drain stops trying and says what blocked it.")  # fmt: skip
@click.option("--wait/--no-wait", default=True, help="Show the progress until the nodes are empty.")
@yes_option
@write_options
@server_options()
@on_server
async def drain(session: Session, names: tuple[str, ...], selector: str, reason: str, deadline: float, wait: bool, yes: bool,
                dry_run: str, idempotency_key: str) -> int:  # fmt: skip
    """Move everything off nodes, within disruption budgets, before a deadline. Asks first; off a terminal it needs --yes.

    The nodes are cordoned and stay so. Exit code 6 if something is left at the deadline, with the budget that blocks it; 4 if
    somebody ends the drain meanwhile. The deadline is kept by the server's clock.
    """
    if not reason.strip():
        raise Told("--reason is empty", hint="say why, for whoever is moved: --reason 'kernel update'")
    found = await _nodes(session, names, selector)
    for node in found:
        copies.refuse_copy(node, f"{_target(node)} cannot be drained")
    note("this drains:")
    for node in found:
        note(f"  {_target(node)}: {await blast.radius(session, _target(node), node)}")
    if dry_run == "none":
        confirmed(yes, f"Drain {len(found)} node{'s' if len(found) > 1 else ''} within {deadline:g} s?")
    end = datetime.fromtimestamp(session.client.server_wall() + deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"spec": {"unschedulable": True, "drain": {"reason": reason.strip(), "deadlineTime": end}}}
    outcomes = Outcomes("being drained", len(found))
    ordered: list[tuple[Target, int]] = []
    for index, node in enumerate(found):
        target, write = _target(node), how(session, dry_run, keyed(idempotency_key, index, len(found)))
        made: Written | None = Written(node)
        if dry_run != "client":
            made = await outcomes.take(str(target), session.client.patch(target.resource, "", target.name, body, write))
        if made is None:
            continue
        ordered.append((target, _generation(made.object)))
        click.echo(f"{target} draining until {end}{suffix(dry_run)}")
    if wait and dry_run == "none":
        await _empty(session, ordered, deadline)
    return outcomes.code()


async def _empty(session: Session, ordered: list[tuple[Target, int]], deadline_s: float) -> None:
    """Until nothing is left on them, telling how far it is and what blocks. With each the generation that has the order."""
    clock = session.client.clock
    end = clock.monotonic() + deadline_s + GRACE_S
    waiting, since = {target.name: target for target, _ in ordered}, {target.name: number for target, number in ordered}
    ended: list[str] = []  # what is said of those whose drain somebody else has ended
    said: dict[str, str] = {}
    here: dict[str, str] = {}  # what is left, where the controller does not name it
    blocks: dict[str, str] = {}  # what it last named: when the time is over it says only how many are left
    with progress("draining") as told:
        while waiting:
            for name in list(waiting):
                left = await blast.bindings_on(session, name)
                node = await session.client.get(waiting[name].resource, "", name, region=session.region)
                if _generation(node) >= since[name] and not (node.get("spec") or {}).get("drain"):
                    kept = f"still on it: {blast.by_workload(left)}" if left else "nothing is left on it"
                    ended.append(f"{waiting.pop(name)} is not drained any more: somebody has ended it; {kept}")
                    continue
                condition = _drained(node)
                if not left and condition.get("status", "True") == "True":
                    click.echo(f"{waiting.pop(name)} drained")
                    continue
                told(f"{name}: slots left", len(left))
                blocked = str(condition.get("message") or "") if condition.get("reason") in ("Blocked", "DeadlinePassed") else ""
                if blocked and said.get(name) != blocked:
                    note(f"{waiting[name]}: {blocked}")
                said[name] = blocked or f"{len(left)} slots left: {blast.by_workload(left)}"
                if BLOCKED in blocked:
                    blocks[name] = blocked[blocked.index(BLOCKED) :]
                named = blocks.get(name) or f"; here: {blast.by_workload(left)}"
                here[name] = named if blocked and BLOCKED not in blocked else ""
                if condition.get("reason") == "DeadlinePassed":
                    end = min(end, clock.monotonic())
            if waiting and clock.monotonic() >= end:
                lines = [f"{target} is not empty at its deadline: {said[name]}{here[name]}" for name, target in waiting.items()]
                raise WaitTimedOut("\n".join([*lines, *ended]), _hint(lines))
            if waiting:
                await clock.sleep(LOOK_S)
    if ended:
        hint = "'fairlead get events -A' tells what happened meanwhile; drain it again, or leave it"
        raise Told("\n".join(ended), hint=hint, code=CONFLICT)


def _hint(lines: list[str]) -> str:
    budget = "make room for one more slot of it (rollout.maxSurge above 0), or lower its disruption.minServing; then drain again"
    order = "see whether a freeze or a hold covers it: 'fairlead override list -A'; then drain again"
    return f"{budget if any(BUDGET in line for line in lines) else order}; 'fairlead uncordon' gives up"


def _generation(node: dict[str, Any]) -> int:
    return int((node.get("metadata") or {}).get("generation") or 0)


def _drained(node: dict[str, Any]) -> dict[str, Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    found: dict[str, Any] = next((one for one in conditions if one.get("type") == "Drained"), {})
    # What the controller said of an earlier order is not about this one.
    return found if int(found.get("observedGeneration") or 0) >= _generation(node) else {}
