"""`fairlead apply`, `create` and `diff`: objects from files.

Owns the order: everything is read and checked before the first request; several objects are first judged by the server in a dry
run, so that one bad document leaves the others alone. What still goes wrong is told object by object.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead.cli.frame import CHANGES, ERROR, OK, Told
from fairlead.cli.session import Session, alone_if_dry, on_server, server_options
from fairlead.cli.show import Format, format_option, put, without_managed_fields
from fairlead.cli.writing import Outcomes, how, keyed, suffix, write_options
from fairlead.client.rest_shapes import Write

if TYPE_CHECKING:
    from fairlead.cli.manifests import Document

F = TypeVar("F", bound=Callable[..., Any])
PREFLIGHT_MAX = 500  # objects judged before any is made; more are made as they come
BOOKKEEPING = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def file_options(work: F) -> F:
    work = click.option("-R", "--recursive", is_flag=True, help="Also files below a directory.")(work)
    return click.option(
        "-f", "--filename", "files", multiple=True, metavar="FILE|DIR|-", help="Where the objects are; repeatable."
    )(work)


def validation_option(work: F) -> F:
    return click.option("--validate", type=click.Choice(["strict", "warn", "ignore"]), default="strict", show_default=True,
                        help="What to do with fields no kind has.")(work)  # fmt: skip


@click.command("apply")
@file_options
@validation_option
@click.option("--force-conflicts", is_flag=True, help="Take over fields that other managers own.")
@click.option("--field-manager", default="fairlead", show_default=True, help="Who owns the fields written here.")
@click.option("--plan", "plan_file", type=click.Path(dir_okay=False, path_type=Path), help="Carry out what 'plan --out' kept.")
@format_option()
@write_options
@server_options()
@alone_if_dry
async def apply(session: Session, files: tuple[str, ...], recursive: bool, validate: str, force_conflicts: bool,
                field_manager: str, plan_file: Path | None, form: Format, dry_run: str, idempotency_key: str) -> int:  # fmt: skip
    """Make objects as files say: created where they are missing, changed where they differ (server-side apply).

    Every fault of every file is told before anything is sent. With several objects the server judges all of them first; only
    then is the first one written. Exit code of the first failure; 7 if an outcome is unknown. With --plan: 4, and nothing is
    written, if what the plan rests on has moved; what did is named.
    """
    from fairlead.cli.manifests import admitted, load

    if plan_file is not None:
        from fairlead.cli.planned import apply_plan

        if files or dry_run == "client":
            raise Told("a plan is carried out by itself, on a server", hint="leave out -f and --dry-run=client")
        return await apply_plan(session, plan_file, how(session, dry_run, ""), dry_run)
    documents = load(files, recursive=recursive, field_validation=validate, tenant=session.said_tenant)
    if dry_run == "client":
        admitted(documents, session.namespace)
        return _shown(form, documents, [(each.tree, "valid") for each in documents], dry_run)
    write = how(session, dry_run, "", field_manager=field_manager, field_validation=validate.capitalize(), force=force_conflicts)
    if len(documents) > 1 and dry_run == "none":
        await _preflight(session, documents, write)
    outcomes = Outcomes("applied", len(documents))
    made: list[tuple[Any, str]] = []
    for index, each in enumerate(documents):
        one = write._replace(key=keyed(idempotency_key, index, len(documents)))
        got = await outcomes.take(str(each), _apply(session, each, one))
        if got is not None:
            made.append(got)
            _say(form, each, got, dry_run)
    _put_made(form, made, len(documents))
    return outcomes.code()


async def _apply(session: Session, each: Document, write: Write) -> tuple[Any, str]:
    from fairlead.client.rest_errors import NotFound

    namespace = each.namespace(session.namespace)
    try:
        before = await session.client.get(each.resource, namespace, each.name, region=session.region)
    except NotFound:
        before = None
    written = await session.client.apply(each.resource, namespace, each.name, sent_as(each, namespace), write)
    if before is None:
        return written.object, "created"
    return written.object, "unchanged" if _versions(before) == _versions(written.object) else "configured"


def _versions(each: Any) -> Any:
    return (each.get("metadata") or {}).get("resourceVersion")


def sent_as(each: Document, namespace: str) -> dict[str, Any]:
    """As written, without what only a server writes: a file made by `get -o yaml` can be applied."""
    metadata = {name: value for name, value in each.tree["metadata"].items() if name not in BOOKKEEPING}
    if namespace:
        metadata["namespace"] = namespace
    return {name: value for name, value in each.tree.items() if name != "status"} | {"metadata": metadata}


async def _preflight(session: Session, documents: Sequence[Document], write: Write) -> None:
    """Lets the server judge everything before anything is stored; but what lives in a tenant of the same files cannot be yet."""
    from fairlead.client.rest_errors import Invalid

    made_here = {each.name for each in documents if each.resource.kind == "Tenant"}
    said: list[str] = []
    for each in documents[:PREFLIGHT_MAX]:
        namespace = each.namespace(session.namespace)
        if namespace in made_here:
            continue
        try:
            dry = write._replace(dry_run=True)
            await session.client.apply(each.resource, namespace, each.name, sent_as(each, namespace), dry)
        except Invalid as error:
            fields = [f"  {each.where}: {cause.field}: {cause.message}" for cause in error.causes if cause.field]
            said += fields or [f"  {each.where}: {error.message}"]
        except Exception:  # denied, in conflict, unreachable: told in its turn, when it is really written
            continue
    if said:
        raise Told("\n".join([f"{len(said)} faults; nothing was changed", *said]), hint="see 'fairlead explain KIND'", code=ERROR)


@click.command("create")
@file_options
@validation_option
@format_option()
@write_options
@server_options()
@alone_if_dry
async def create(session: Session, files: tuple[str, ...], recursive: bool, validate: str, form: Format, dry_run: str,
                 idempotency_key: str) -> int:  # fmt: skip
    """Create objects from files. One that exists already is a conflict (exit code 4)."""
    from fairlead.cli.manifests import admitted, load

    documents = load(files, recursive=recursive, field_validation=validate, tenant=session.said_tenant)
    if dry_run == "client":
        admitted(documents, session.namespace)
        return _shown(form, documents, [(each.tree, "valid") for each in documents], dry_run)
    write = how(session, dry_run, "", field_validation=validate.capitalize())
    outcomes = Outcomes("created", len(documents))
    made: list[tuple[Any, str]] = []
    for index, each in enumerate(documents):
        namespace = each.namespace(session.namespace)
        one = write._replace(key=keyed(idempotency_key, index, len(documents)))
        got = await outcomes.take(str(each), session.client.create(each.resource, namespace, sent_as(each, namespace), one))
        if got is not None:
            made.append((got.object, "created"))
            _say(form, each, made[-1], dry_run)
    _put_made(form, made, len(documents))
    return outcomes.code()


def _say(form: Format, each: Document, got: tuple[Any, str], dry_run: str) -> None:
    if form.is_table:
        click.echo(f"{each} {got[1]}{suffix(dry_run)}")


def _put_made(form: Format, made: Sequence[tuple[Any, str]], total: int) -> None:
    objects = [got for got, _ in made if got]
    if not form.is_table and objects:
        put(form, objects, single=total == 1)


def _shown(form: Format, documents: Sequence[Document], made: Sequence[tuple[Any, str]], dry_run: str) -> int:
    for each, got in zip(documents, made, strict=True):
        _say(form, each, got, dry_run)
    _put_made(form, made, len(documents))
    return OK


# --- diff


@click.command("diff")
@file_options
@validation_option
@click.option("--field-manager", default="fairlead", show_default=True, help="Who would own the fields.")
@click.option(
    "--force-conflicts/--no-force-conflicts", default=True, help="Show it as if other managers' fields were taken over."
)
@server_options()
@on_server
async def diff(
    session: Session, files: tuple[str, ...], recursive: bool, validate: str, field_manager: str, force_conflicts: bool
) -> int:
    """Show what applying files would change, as the server would store it. Exit code 2 if anything would change, else 0."""
    from fairlead.cli.manifests import load
    from fairlead.client.rest_errors import NotFound
    from fairlead.wire.yaml_codec import encode_yaml

    write = Write(True, "", field_manager, validate.capitalize(), force_conflicts, session.region)
    changed = False
    for each in load(files, recursive=recursive, field_validation=validate, tenant=session.said_tenant):
        namespace = each.namespace(session.namespace)
        try:
            live = await session.client.get(each.resource, namespace, each.name, region=session.region)
        except NotFound:
            live = None
        merged = (await session.client.apply(each.resource, namespace, each.name, sent_as(each, namespace), write)).object
        old = encode_yaml(_comparable(live)).splitlines(keepends=True) if live is not None else []
        new = encode_yaml(_comparable(merged)).splitlines(keepends=True)
        for line in difflib.unified_diff(old, new, f"live/{each}", f"applied/{each}"):
            changed = True
            click.echo(_coloured(line), nl=False)
    return CHANGES if changed else OK


def _comparable(each: Any) -> Any:
    """Without what changes by itself: a diff should show what somebody wrote."""
    tree = without_managed_fields(each)
    metadata = {name: value for name, value in (tree.get("metadata") or {}).items() if name not in BOOKKEEPING}
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {name: value for name, value in metadata["annotations"].items() if name != LAST_APPLIED}
    return {name: value for name, value in tree.items() if name != "status"} | {"metadata": metadata}


def _coloured(line: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return line
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style(line, fg=colour) if colour else line
