"""`fairlead wait`: until objects have a condition, a value, are there or are gone.

Owns the reading of --for. Exit code 6 when the time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click

from fairlead.cli import jsonpath, selectors
from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.frame import NOT_FOUND, OK, Told
from fairlead.cli.get import selection
from fairlead.cli.kinds import Target, targets
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.waiting import Seen, until
from fairlead.client.rest_shapes import Query


class Wanted(NamedTuple):
    words: str
    holds: Callable[[Seen], bool]
    may_be_missing: bool = False
    condition: str = ""


class WantedType(click.ParamType):  # type: ignore[type-arg]
    name = "for"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Wanted:
        if isinstance(value, Wanted):
            return value
        try:
            return _wanted(str(value))
        except ValueError as error:
            return self.fail(str(error), param, ctx)


def _wanted(text: str) -> Wanted:
    what, _, rest = text.partition("=")
    match what:
        case "delete" if not rest:
            return Wanted("gone", lambda seen: seen is None, may_be_missing=True)
        case "create" if not rest:
            return Wanted("there", lambda seen: seen is not None, may_be_missing=True)
        case "condition" if rest:
            name, _, status = rest.partition("=")
            return Wanted(f"{name}={status or 'True'}", _condition(name, status or "True"), condition=name)
        case "jsonpath" if rest:
            return _value(rest)
    raise ValueError(f"{text!r} is not condition=NAME[=STATUS], jsonpath=PATH[=VALUE], create or delete")


def _condition(name: str, status: str) -> Callable[[Seen], bool]:
    def holds(seen: Seen) -> bool:
        if seen is None:
            return False
        generation = (seen.get("metadata") or {}).get("generation") or 0
        for each in (seen.get("status") or {}).get("conditions") or ():
            if str(each.get("type", "")).lower() == name.lower():
                observed = each.get("observedGeneration") or (seen.get("status") or {}).get("observedGeneration") or generation
                # What was said of an older generation is not yet about what is wanted now.
                return str(each.get("status")).lower() == status.lower() and observed >= generation
        return False

    return holds


def _value(text: str) -> Wanted:
    path, brace, value = text.rpartition("}=") if "}=" in text else (text, "", "")
    template = path + "}" if brace else text
    if not brace and "{" not in text and "=" in text:
        template, _, value = text.partition("=")
        brace = "="
    nodes = jsonpath.parse(jsonpath.relaxed(template))

    def holds(seen: Seen) -> bool:
        if seen is None:
            return False
        found = jsonpath.first(nodes, seen)
        return jsonpath.word(found) == value if brace else found is not None

    return Wanted(f"{template}={value}" if brace else f"with {template}", holds)


@click.command("wait")
@click.argument("words", nargs=-1, metavar="KIND/NAME...", shell_complete=complete_kinds)
@click.option("--for", "wanted", type=WantedType(), required=True, metavar="WHAT",
              help="condition=NAME[=STATUS], jsonpath=PATH[=VALUE], create or delete.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="All objects of the kind.")
@selection
@server_options(30.0, waits="How long to wait in all; a negative one is for ever.")
@on_server
async def command(session: Session, words: tuple[str, ...], wanted: Wanted, every: bool, selector: str, field_selector: str,
                  everywhere: bool) -> int:  # fmt: skip
    """Wait until objects are as wanted: fairlead wait wl/risk-api --for=condition=Serving --timeout 60s.

    Exit code 6 when the time is over, 3 if there is nothing to wait for.
    """
    found = await _found(session, words, every, selector, field_selector, everywhere)
    clock = session.client.clock
    end = clock.monotonic() + session.wait_s
    for target, namespace in found:
        if not wanted.may_be_missing:
            await session.client.get(target.resource, namespace, target.name, region=session.region)  # a misspelt name ends here
        left_s = max(0.0, end - clock.monotonic()) if session.wait_s >= 0 else -1.0
        await until(session, target, namespace, wanted.holds, within_s=left_s, wanted=wanted.words, hint=partial(_why, wanted))
        click.echo(f"{target} {'condition met' if wanted.words not in ('gone', 'there') else wanted.words}")
    return OK


async def _found(session: Session, words: tuple[str, ...], every: bool, selector: str, field_selector: str, everywhere: bool,
                 ) -> list[tuple[Target, str]]:  # fmt: skip
    found: list[tuple[Target, str]] = []
    labels = selectors.text_of(selectors.labels(selector))
    fields = selectors.text_of(selectors.fields(field_selector))
    for target in await targets(session.client, words):
        namespace = session.namespace_of(target.resource, everywhere)
        if target.name:
            found.append((target, namespace))
            continue
        if not (every or labels or fields):
            raise Told(f"which {target.resource.plural}?", hint="name them, or use -l LABELS or --all")
        listed = await session.client.list(Query(target.resource, namespace, labels, fields, session.region))
        for item in listed.items:
            found.append((Target(target.resource, item["metadata"]["name"]), item["metadata"].get("namespace", "")))
    if not found:
        raise Told("there is no object to wait for", hint="check the selector and -n TENANT", code=NOT_FOUND)
    return found


def _why(wanted: Wanted, seen: Seen) -> str:
    """What the object says of itself: the conditions that are not True, and what it waits for."""
    status = (seen or {}).get("status") or {}
    there = [str(each.get("type")) for each in status.get("conditions") or ()]
    said = []
    if wanted.condition and wanted.condition.lower() not in map(str.lower, there):
        said.append(f"it has no condition {wanted.condition}; it has {', '.join(there) or 'none yet'}")
    said += [f"{each.get('type')}={each.get('status')} ({': '.join(filter(None, (each.get('reason'), each.get('message'))))})"
            for each in status.get("conditions") or () if each.get("status") != "True"]  # fmt: skip
    said += [f"{each.get('count')} pending: {each.get('reason')}" for each in status.get("pending") or ()]
    if (seen or {}).get("metadata", {}).get("deletionTimestamp"):
        said.append(f"being deleted; waits for {', '.join((seen or {})['metadata'].get('finalizers') or ['nothing'])}")
    return "; ".join(said)
