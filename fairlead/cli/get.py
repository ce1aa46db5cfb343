"""`fairlead get`: objects as a table, as data, or followed as they change.

Owns the reading of several kinds at once. Tables are made by the server; everything else is written from whole objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead.cli import selectors, tables
from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.frame import OK, Told, tell
from fairlead.cli.jsonpath import parse, relaxed
from fairlead.cli.kinds import Target, targets
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import Format, format_option, put
from fairlead.client.rest_shapes import Query, Tabled

if TYPE_CHECKING:
    from fairlead.client.rest_errors import NotFound

F = TypeVar("F", bound=Callable[..., Any])


class Asked:
    """What is to be read: the flags that every kind of the command line shares."""

    def __init__(self, session: Session, form: Format, look: tables.Look, flags: dict[str, Any]) -> None:
        self.session = session
        self.form = form
        self.look = look
        self.everywhere: bool = flags["everywhere"]
        self.labels = selectors.text_of(selectors.labels(flags["selector"]))
        self.fields = selectors.text_of(selectors.fields(flags["field_selector"]))
        self.at = session.moment(flags["at"])

    def query(self, target: Target) -> Query:
        namespace = self.session.namespace_of(target.resource, self.everywhere)
        return Query(target.resource, namespace, self.labels, self.fields, self.session.region, self.at)

    def params(self) -> dict[str, str]:
        return {name: value for name, value in (("at", self.at), ("region", self.session.region)) if value}


def selection(work: F) -> F:
    """-l, --field-selector and -A, for every verb that may take many objects."""
    options = [
        click.option(
            "-l", "--selector", default="", metavar="LABELS", help="Only objects with these labels: k=v, k in (a,b), !k."
        ),
        click.option("--field-selector", default="", metavar="FIELDS", help="Only objects with these fields: metadata.name=x."),
        click.option("-A", "--all-namespaces", "--all-tenants", "everywhere", is_flag=True, help="Of all tenants."),
    ]
    return functools.reduce(lambda made, option: option(made), reversed(options), work)


@click.command("get")
@click.argument("words", nargs=-1, metavar="KIND[/NAME] [NAME]...", shell_complete=complete_kinds)
@format_option()
@selection
@click.option("-w", "--watch", is_flag=True, help="Go on showing what changes, until interrupted.")
@click.option("--at", default="", metavar="REVISION|TIME|AGO", help="As it was at this revision or time, or so long ago: 5m.")
@click.option("--sort-by", default="", metavar="PATH", help="Order by a field, such as .metadata.creationTimestamp.")
@click.option("--show-labels", is_flag=True, help="A last column with all labels.")
@click.option("-L", "--label-columns", default="", metavar="KEYS", help="A column for each of these labels.")
@click.option("--no-headers", is_flag=True, help="No line of headings.")
@click.option("--ignore-not-found", is_flag=True, help="An object that is not there is no error.")
@server_options()
@on_server
async def get(session: Session, words: tuple[str, ...], form: Format, watch: bool, sort_by: str, show_labels: bool,
              label_columns: str, no_headers: bool, ignore_not_found: bool, **flags: Any) -> int:  # fmt: skip
    """Show objects: fairlead get workloads, get wl/risk-api -o yaml, get wl,nodes -A, get nodes -w.

    A table is what the server makes of the kind; -o wide adds columns. Exit code 3 if a named object is not there.
    """
    found = await targets(session.client, words)
    look = tables.Look(
        wide=form.name == "wide",
        headings=not no_headers,
        labels=show_labels,
        label_columns=tuple(key.strip() for key in label_columns.split(",") if key.strip()),
        tenant=flags["everywhere"],
        sort_by=parse(relaxed(sort_by)) if sort_by else (),
    )
    asked = Asked(session, form, look, flags)
    _check(asked, found, watch)
    if watch:
        return await _watch(asked, found)
    if form.is_table:
        return await _tables(asked, found, ignore_not_found)
    missing: list[NotFound] = []
    objects, single = await _objects(asked, found, missing)
    if sort_by:
        from fairlead.cli.jsonpath import first

        objects.sort(key=lambda each: tables.order_of(first(look.sort_by, each)))
    if objects or not (single or missing):
        put(form, objects, single=single, headings=not no_headers)
    _say_missing(missing, ignore_not_found)
    return OK


def _check(asked: Asked, found: list[Target], watch: bool) -> None:
    named = any(target.name for target in found)
    if named and asked.everywhere:
        raise Told("-A and a name exclude each other", hint="a name is looked for in one tenant: use -n TENANT")
    if named and (asked.labels or asked.fields):
        raise Told("a selector and a name exclude each other", hint="leave the name out")
    kinds = {target.resource.plural for target in found}
    if watch and len(kinds) > 1:
        raise Told("-w follows one kind at a time", hint=f"such as 'fairlead get {sorted(kinds)[0]} -w'")
    if watch and asked.at:
        raise Told("-w and --at exclude each other: the past does not change")


async def _tables(asked: Asked, found: list[Target], ignore_not_found: bool) -> int:
    by_kind: dict[str, list[Target]] = {}
    for target in found:
        by_kind.setdefault(target.resource.plural, []).append(target)
    begun = False
    missing: list[NotFound] = []
    for plural, ones in by_kind.items():
        tabled = await _table(asked, ones, missing)
        if not tabled.rows:
            if not any(target.name for target in ones) and len(by_kind) == 1:
                tables.note_empty(asked.query(ones[0]).namespace, plural)
            continue
        if begun:
            click.echo()
        begun = True
        prefix = f"{ones[0].resource.singular}/" if len(by_kind) > 1 else ""
        tables.put_table(tabled.columns, tabled.rows, asked.look._replace(prefix=prefix))
    _say_missing(missing, ignore_not_found)
    return OK


def _say_missing(missing: list[NotFound], ignore: bool) -> None:
    """After what was found, so that one misspelt name hides nothing."""
    if missing and not ignore:
        for error in missing[:-1]:
            tell(error.message)
        raise missing[-1]


async def _table(asked: Asked, ones: list[Target], missing: list[NotFound]) -> Tabled:
    client, whole = asked.session.client, bool(asked.look.sort_by)
    if not ones[0].name:
        return await client.table(asked.query(ones[0]), whole_objects=whole)
    columns: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    params = asked.params() | ({"includeObject": "Object"} if whole else {})
    for target in ones:
        got = await _or_none(client.table_of_one(target.resource, asked.query(target).namespace, target.name, params), missing)
        if got is not None:
            columns = columns or got.columns
            rows += got.rows
    return Tabled(columns, rows, "")


async def _objects(asked: Asked, found: list[Target], missing: list[NotFound]) -> tuple[list[dict[str, Any]], bool]:
    client = asked.session.client
    objects: list[dict[str, Any]] = []
    for target in found:
        if not target.name:
            objects += (await client.list(asked.query(target))).items
            continue
        namespace = asked.query(target).namespace
        reading = client.get(target.resource, namespace, target.name, at=asked.at, region=asked.session.region)
        got = await _or_none(reading, missing)
        objects += [got] if got is not None else []
    return objects, len(found) == 1 and bool(found[0].name)


async def _or_none(reading: Any, missing: list[NotFound]) -> Any:
    from fairlead.client.rest_errors import NotFound

    try:
        return await reading
    except NotFound as error:
        missing.append(error)
        return None


async def _watch(asked: Asked, found: list[Target]) -> int:
    from fairlead.client.rest_watch import Watch

    query = asked.query(found[0])
    names = {target.name for target in found if target.name}
    if len(names) == 1:
        query = query._replace(fields=f"metadata.name={found[0].name}")
    watch = Watch(asked.session.client, query, table=asked.form.is_table, whole_objects=bool(asked.look.sort_by))
    if not asked.form.is_table:
        async for event in watch.events():
            if event.type in ("ADDED", "MODIFIED") and _is_wanted(event.object, names):
                put(asked.form, [event.object], single=True, headings=False)
        return OK
    rows: dict[str, dict[str, Any]] = {}
    synced = False
    with tables.picture(asked.look) as picture:
        async for event in watch.events():
            if event.type == "SYNCED":
                synced = True
                picture.show(event.columns, list(rows.values()), [])
                continue
            row = event.object
            if not _is_wanted(row.get("object") or {}, names):
                continue
            key = _key_of(row)
            if event.type == "DELETED":
                rows.pop(key, None)
            else:
                rows[key] = row
            if synced:
                picture.show(event.columns, list(rows.values()), [] if event.type == "DELETED" else [row])
    return OK


def _is_wanted(each: dict[str, Any], names: set[str]) -> bool:
    return not names or (each.get("metadata") or {}).get("name") in names


def _key_of(row: dict[str, Any]) -> str:
    metadata = (row.get("object") or {}).get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name') or row['cells'][0]}"
