"""`fairlead delete`: says what goes, asks, deletes exactly that, and waits until it is gone.

Owns the question. Every deletion names the uid that was shown, so a new object under the same name is never hit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from fairlead.cli import blast, selectors
from fairlead.cli.apply import file_options
from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.frame import NOT_FOUND, OK, Told
from fairlead.cli.get import selection
from fairlead.cli.kinds import Target, targets
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.waiting import Seen, until
from fairlead.cli.writing import Outcomes, confirmed, how, keyed, suffix, write_options, yes_option
from fairlead.client.rest_shapes import Query

SHOWN_MAX = 20  # of many, enough to see what kind of many


class Doomed(NamedTuple):
    target: Target
    namespace: str
    object: dict[str, Any]

    @property
    def uid(self) -> str:
        return str(self.object["metadata"].get("uid") or "")


@click.command("delete")
@click.argument("words", nargs=-1, metavar="KIND/NAME...", shell_complete=complete_kinds)
@file_options
@selection
@click.option("--all", "every", is_flag=True, help="All objects of the kind in the tenant.")
@click.option("--cascade", type=click.Choice(["background", "foreground", "orphan"]), default="background", show_default=True,
              help="What happens to objects that this one owns.")  # fmt: skip
@click.option("--wait/--no-wait", default=True, help="Wait until they are gone.")
@click.option("--ignore-not-found", is_flag=True, help="An object that is not there is no error.")
@yes_option
@write_options
@server_options(60.0, waits="How long to wait until they are gone.")
@on_server
async def command(session: Session, yes: bool, cascade: str, wait: bool, dry_run: str, idempotency_key: str, **flags: Any) -> int:
    """Delete objects, after saying what goes with them. Asks first; off a terminal it needs --yes.

    Exit code 3 if one is not there, 5 if nobody confirmed, 6 if they are not gone in time (with whose finalizer is late).
    """
    doomed = await _doomed(session, **flags)
    if not doomed:
        click.echo("nothing to delete", err=True)
        return OK
    await _tell_radius(session, doomed)
    if dry_run == "none":
        confirmed(yes, f"Delete {len(doomed)} object{'s' if len(doomed) > 1 else ''}?")
    outcomes = Outcomes("deleted", len(doomed))
    for index, one in enumerate(doomed):
        options = {"propagationPolicy": cascade.capitalize(), **({"preconditions": {"uid": one.uid}} if one.uid else {})}
        write = how(session, dry_run, keyed(idempotency_key, index, len(doomed)))
        if dry_run != "client":
            deleting = session.client.delete(one.target.resource, one.namespace, one.target.name, write, options=options)
            if await outcomes.take(str(one.target), deleting) is None:
                continue
        if wait and dry_run == "none" and not await outcomes.take(str(one.target), _gone(session, one)):
            continue
        click.echo(f"{one.target} deleted{suffix(dry_run)}")
    return outcomes.code()


async def _gone(session: Session, one: Doomed) -> bool:
    def holds(seen: Seen) -> bool:
        return seen is None or (seen.get("metadata") or {}).get("uid") != one.object["metadata"].get("uid")

    await until(session, one.target, one.namespace, holds, within_s=session.wait_s, wanted="gone", hint=_whose)
    return True


def _whose(seen: Seen) -> str:
    from fairlead.model.registry import FINALIZERS

    left = ((seen or {}).get("metadata") or {}).get("finalizers") or ()
    said = [
        f"{name}, removed by {FINALIZERS[name].owner.value}" if name in FINALIZERS else f"{name}, of no known owner"
        for name in left
    ]
    return f"it goes when its finalizers are done: {'; '.join(said)}" if said else ""


async def _doomed(session: Session, words: tuple[str, ...], files: tuple[str, ...], recursive: bool, selector: str,
                  field_selector: str, everywhere: bool, every: bool, ignore_not_found: bool) -> list[Doomed]:  # fmt: skip
    from fairlead.client.rest_errors import NotFound

    if bool(words) == bool(files):
        raise Told("name objects, or files with -f, one of them", hint="such as 'fairlead delete wl/risk-api'")
    if files:
        from fairlead.cli.manifests import load

        documents = load(files, recursive=recursive, tenant=session.said_tenant)
        named = [(Target(each.resource, each.name), each.namespace(session.namespace)) for each in documents]
        named.reverse()  # what others live in goes last
    else:
        named = [(target, session.namespace_of(target.resource, everywhere)) for target in await targets(session.client, words)]
    labels = selectors.text_of(selectors.labels(selector))
    fields = selectors.text_of(selectors.fields(field_selector))
    doomed: list[Doomed] = []
    for target, namespace in named:
        if not target.name:
            if not (every or labels or fields):
                raise Told(f"which {target.resource.plural}?", hint="name them, or use -l LABELS or --all")
            listed = await session.client.list(Query(target.resource, namespace, labels, fields, session.region))
            doomed += [Doomed(Target(target.resource, item["metadata"]["name"]), item["metadata"].get("namespace", ""), item)
                       for item in listed.items]  # fmt: skip
            continue
        try:
            doomed.append(
                Doomed(
                    target, namespace, await session.client.get(target.resource, namespace, target.name, region=session.region)
                )
            )
        except NotFound as error:
            if not ignore_not_found:
                raise Told(error.message, hint="nothing was deleted; see --ignore-not-found", code=NOT_FOUND) from error
    return doomed


async def _tell_radius(session: Session, doomed: list[Doomed]) -> None:
    click.echo("this deletes:", err=True)
    for one in doomed[:SHOWN_MAX]:
        what = await blast.radius(session, one.target, one.object)
        click.echo(f"  {blast.named(one.target.resource, one.target.name, one.namespace)}{': ' + what if what else ''}", err=True)
    if len(doomed) > SHOWN_MAX:
        click.echo(f"  and {len(doomed) - SHOWN_MAX} more", err=True)
