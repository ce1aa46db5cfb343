"""`fairlead edit`, `patch` and `scale`: change one object that is there.

Owns the editor's round trip: nothing a person typed is lost, whatever the server says to it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click

from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.complete import workloads as complete_workloads
from fairlead.cli.frame import CONFLICT, ERROR, OK, Told
from fairlead.cli.kinds import Target, one_target, targets
from fairlead.cli.session import Session, is_terminal, on_server, server_options, told_of
from fairlead.cli.show import Format, format_option, put, without_managed_fields
from fairlead.cli.writing import Outcomes, how, keyed, suffix, write_options
from fairlead.client.rest_shapes import JSON_PATCH, MERGE_PATCH

ROUNDS_MAX = 20  # times somebody may mend one text


@click.command("edit")
@click.argument("words", nargs=-1, metavar="KIND/NAME", shell_complete=complete_kinds)
@click.option("--editor", default=None, help="The editor; else $VISUAL or $EDITOR.")
@write_options
@server_options()
@on_server
async def edit(session: Session, words: tuple[str, ...], editor: str | None, dry_run: str, idempotency_key: str) -> int:
    """Change an object in your editor. If somebody changed it meanwhile, nothing is written (exit code 4) and your text is kept.

    What the server refuses comes back into the editor with the reasons above it. An unchanged or empty text ends the edit.
    """
    if not (editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or is_terminal()):
        hint = "name an editor that needs none with --editor or $EDITOR, or change it with 'fairlead patch' or 'fairlead apply'"
        raise Told("this is no terminal, so no editor can be opened", hint=hint)
    target = await one_target(session.client, words, "edit")
    namespace = session.namespace_of(target.resource)
    before = await session.client.get(target.resource, namespace, target.name, region=session.region)
    text, reasons = _yaml_of(before), ""
    for _ in range(ROUNDS_MAX):
        edited = click.edit(_commented(reasons) + text, editor=editor, extension=".yaml")
        body = _uncommented(edited) if edited is not None else ""
        if edited is None or not body.strip() or (body == text and not reasons):
            click.echo("edit ended, nothing changed", err=True)
            return OK
        if reasons and body == text:
            raise Told(f"not changed: {reasons}", hint=_kept(body), code=ERROR)
        text = body
        try:
            tree = _checked(body, target, before)
            written = await session.client.replace(
                target.resource, namespace, target.name, tree, how(session, dry_run, idempotency_key)
            )
        except Exception as error:
            told = told_of(error)
            if not isinstance(told, Told) or told.code != ERROR:
                hint = _kept(body)
                raise (
                    Told(told.format_message(), hint=f"{told.hint}; {hint}", code=told.code) if isinstance(told, Told) else error
                ) from error
            reasons = told.format_message()
            continue
        same = _version(written.object) == _version(before)
        click.echo(f"{target} {'unchanged' if same else 'edited'}{suffix(dry_run)}")
        return OK
    raise Told(f"not changed: {reasons}", hint=_kept(text), code=ERROR)


def _version(each: Any) -> Any:
    return (each.get("metadata") or {}).get("resourceVersion")


def _yaml_of(before: dict[str, Any]) -> str:
    from fairlead.wire.yaml_codec import encode_yaml

    return encode_yaml({name: value for name, value in without_managed_fields(before).items() if name != "status"})


def _commented(reasons: str) -> str:
    lines = ["Lines that begin with # are left out. Save an empty text to end without a change."]
    lines += ["", "It was not taken:", *reasons.splitlines()] if reasons else []
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "#\n"


def _uncommented(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _checked(text: str, target: Target, before: dict[str, Any]) -> dict[str, Any]:
    from fairlead.cli.manifests import body_of
    from fairlead.wire.manifest import Decoded, decode_plain

    tree = body_of(text.encode(), "the text")
    decoded = decode_plain(tree)
    if not isinstance(decoded, Decoded):
        raise Told("\n".join(f"{fault.path}: {fault.message}" if fault.path else fault.message for fault in decoded))
    assert isinstance(tree, dict), "an object was decoded from something else"
    if tree.get("kind") != before.get("kind") or tree["metadata"].get("name") != target.name:
        raise Told("kind and metadata.name cannot be changed by an edit; create another object instead")
    tree["metadata"].setdefault("resourceVersion", _version(before))
    return tree


def _kept(text: str) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="fairlead-edit-", suffix=".yaml", delete=False) as file:
        file.write(text)
    return f"your text is kept in {file.name}"


@click.command("patch")
@click.argument("words", nargs=-1, metavar="KIND/NAME", shell_complete=complete_kinds)
@click.option("-p", "--patch", "text", default="", metavar="JSON|YAML", help="The patch.")
@click.option("--patch-file", type=click.Path(dir_okay=False, exists=True), help="A file that holds the patch.")
@click.option("--type", "kind", type=click.Choice(["merge", "json"]), default="merge", show_default=True,
              help="merge: fields to set, null to remove; json: a list of operations.")  # fmt: skip
@click.option("--subresource", default="", metavar="NAME", help="Patch this part, such as status or scale.")
@format_option()
@write_options
@server_options()
@on_server
async def patch(session: Session, words: tuple[str, ...], text: str, patch_file: str | None, kind: str, subresource: str,
                form: Format, dry_run: str, idempotency_key: str) -> int:  # fmt: skip
    """Change fields of an object: fairlead patch wl/risk-api -p '{"spec": {"replicas": 8}}'."""
    from fairlead.cli.manifests import body_of

    if bool(text) == bool(patch_file):
        raise Told("give the patch with -p or with --patch-file, one of them")
    body = body_of(text.encode(errors="surrogateescape") if text else Path(str(patch_file)).read_bytes(), "the patch")
    if isinstance(body, list) != (kind == "json"):
        raise Told(f"a {kind} patch is {'a list of operations' if kind == 'json' else 'an object of fields'}", hint="see --type")
    target = await one_target(session.client, words, "patch")
    namespace = session.namespace_of(target.resource)
    if dry_run == "client":
        click.echo(f"{target} patched{suffix(dry_run)}")
        return OK
    before = await session.client.get(target.resource, namespace, target.name, region=session.region)
    media = JSON_PATCH if kind == "json" else MERGE_PATCH
    write = how(session, dry_run, idempotency_key)
    written = await session.client.patch(target.resource, namespace, target.name, body, write, kind=media, sub=subresource)
    if form.is_table:
        same = _version(written.object) == _version(before)
        click.echo(f"{target} patched{' (no change)' if same else ''}{suffix(dry_run)}")
    else:
        put(form, [written.object], single=True)
    return OK


@click.command("scale")
@click.argument("words", nargs=-1, metavar="WORKLOAD...", shell_complete=complete_workloads)
@click.option("--replicas", type=click.IntRange(min=0), required=True, help="How many there should be.")
@click.option("--current-replicas", type=click.IntRange(min=0), default=None, help="Only if there should be this many now.")
@write_options
@server_options()
@on_server
async def scale(session: Session, words: tuple[str, ...], replicas: int, current_replicas: int | None, dry_run: str,
                idempotency_key: str) -> int:  # fmt: skip
    """Change how many replicas workloads have: fairlead scale wl/risk-api --replicas 8. Says what that starts or drains."""
    words = words if any("/" in word for word in words) or len(words) > 1 else tuple(f"workloads/{word}" for word in words)
    found = await targets(session.client, words)
    outcomes = Outcomes("scaled", len(found))
    for index, target in enumerate(found):
        key = keyed(idempotency_key, index, len(found))
        await outcomes.take(str(target), _scale(session, target, replicas, current_replicas, dry_run, key))
    return outcomes.code()


async def _scale(session: Session, target: Target, replicas: int, expected: int | None, dry_run: str, key: str) -> bool:
    namespace = session.namespace_of(target.resource)
    before = await session.client.get(target.resource, namespace, target.name, sub="scale", region=session.region)
    current = int((before.get("spec") or {}).get("replicas") or 0)
    if expected is not None and current != expected:
        raise Told(f"has {current} replicas, not {expected}; nothing was changed", hint="look again, then repeat", code=CONFLICT)
    moved = f"{replicas - current} to start" if replicas > current else f"{current - replicas} to drain"
    if dry_run != "client" and replicas != current:
        body: dict[str, Any] = {"spec": {"replicas": replicas}}
        if expected is not None:  # whoever changes it between our look and our write wins
            body["metadata"] = {"resourceVersion": _version(before)}
        await session.client.patch(target.resource, namespace, target.name, body, how(session, dry_run, key), sub="scale")
    click.echo(
        f"{target} {f'scaled from {current} to {replicas}, {moved}' if replicas != current else 'unchanged'}{suffix(dry_run)}"
    )
    return True
