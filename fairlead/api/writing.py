"""create, replace, patch, apply, delete, and the status subresource. Called by the dispatcher.

Every change is made on what is stored now and sent with the revision it was made on; where somebody else was faster it is made
again, unless the client itself said which version it had seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from fairlead.api import core, managers, sealed, served
from fairlead.api.calls import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, YAML, Call, is_dry_run, parse
from fairlead.api.catalogue import LAST_APPLIED, user_written
from fairlead.api.failures import Failure, bad_request, not_found, success
from fairlead.api.fieldsets import known, node_of, pick
from fairlead.api.members import Item, Member
from fairlead.api.patches import json_patch, merge_patch
from fairlead.api.reaching import warn_of_reach
from fairlead.api.reading import accepts_of, find, selection_of
from fairlead.api.versions import component
from fairlead.api.writes import (
    ATTEMPTS_MAX,
    Made,
    about_said,
    answered_before,
    contested,
    decode,
    expected,
    foreseen,
    key_of,
    refused,
    send,
    stored,
    stored_record,
    suffix,
    unhidden,
    with_parts,
)
from fairlead.client.resources import Unreachable
from fairlead.model import codec
from fairlead.model.commands import Accepted, Delete, Put, PutStatus, Refused
from fairlead.model.kinds.policy import Override
from fairlead.wire.manifest import Decoded


def _can(call: Call, verb: str) -> None:
    if verb not in call.resource.verbs:
        raise Failure(405, f"{call.resource.plural} cannot be changed by {verb}")
    call.allow(verb)


# --- create ------------------------------------------------------------------------------------------------------------


async def create(call: Call) -> Response:
    _can(call, "create")
    tree = core.from_protobuf(await call.body()) if call.media == PROTOBUF else await call.tree()
    if call.resource.kind == "Namespace":
        tree = core.tenant_of(tree)
    tree = _named(call, tree)
    with about_said(call, tree):  # the path of a collection does not say what is made in it
        decoded = decode(call, tree)
        record: Any = decoded.record
        call.allow("create", record.metadata.name)
        return await _create(call, tree, decoded)


def _named(call: Call, tree: Any) -> Any:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict) or metadata.get("name"):
        return tree
    prefix = metadata.get("generateName")
    if not isinstance(prefix, str) or not prefix:
        return tree
    return {**tree, "metadata": {**metadata, "name": f"{prefix[:240]}{suffix(call)}"}}


async def _create(call: Call, tree: Any, decoded: Decoded, operation: managers.Operation = "Update") -> Response:
    info, record = call.info, unhidden(decoded.record, None, call.services.secrets)
    if decoded.resource_version and decoded.resource_version != "0":
        raise bad_request("resourceVersion should not be set on objects to be created")
    entries: managers.Entries = ()
    if user_written(info):
        node = node_of(info.record)
        sent = pick(served.tree_of(record), known(tree, node), node)
        sent.pop("status", None)
        entries = managers.created(call.manager, operation, sent, node)
    record = with_parts(record, managed_fields=entries, uid="")
    name = record.metadata.name
    member = call.front.home_of_new(info, name, getattr(record.spec, "region", ""), call.region)
    await _unique(call, member, name)
    call.front.check_joining(info, record)
    outcome = await send(call, member, Put(info.kind, record, "create", dry_run=call.dry_run))
    if isinstance(outcome, Refused):
        raise refused(call, outcome, name)
    if isinstance(record, Override):
        await warn_of_reach(call, member, record)
    if call.dry_run:
        return call.answer(call.form().one(foreseen(call, member, record, None), ""), 201)
    item = await stored(call, member, outcome, record.metadata.namespace, name)
    if item is None:
        # It was made; it is gone again, or this server has not come as far yet. No answer may say that it was refused (S13).
        made = foreseen(call, member, with_parts(record, uid=outcome.uid), None)
        return call.answer(call.form().one(made, ""), 201)
    return call.answer(call.form().one(item, item.resource_version), 201)


async def _unique(call: Call, home: Member, name: str) -> None:
    """A name that another region has would be two objects under one name at this door."""
    if len(call.front.serving(call.info)) == 1:
        return
    try:
        item, _ = await call.front.get(call.info, call.tenant, name)
    except Failure:
        if call.front.named_after(call.info, name) is not home:
            raise
        return  # a region that is away cannot be asked; the name begins with that of its own region, which is here
    if item is not None and item.member is not home:
        taken = Refused("AlreadyExists", f"{item.member.name} has it")
        raise refused(call, taken, name)


# --- replace -----------------------------------------------------------------------------------------------------------


async def replace(call: Call) -> Response:
    _can(call, "update")
    tree = await call.tree()
    before = await answered_before(call)
    if before is not None:
        return _again(call, before)
    if call.target.subresource == "status":
        return await _write_status(call, lambda _: tree)
    return await _change(call, lambda _: tree, pinned=_pins(tree))


async def patch(call: Call) -> Response:
    media = call.media
    if not user_written(call.info) and not call.target.subresource:
        raise Failure(415, f"{call.resource.plural} are written by machines and take no patches; send the whole object with PUT")
    if media not in (MERGE_PATCH, JSON_PATCH, *APPLY_PATCH):
        accepted = ", ".join((JSON_PATCH, MERGE_PATCH, APPLY_PATCH[0]))
        message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise Failure(415, message)
    _can(call, "patch")
    body = parse(await call.body(), media, what=(call.resource.kind, call.target.name))
    before = await answered_before(call)
    if before is not None:
        return _again(call, before)
    change = partial(_patched, body, media)
    if call.target.subresource == "status":
        return await _write_status(call, change)
    if media in APPLY_PATCH:
        return await _apply(call, body)
    return await _change(call, change, pinned=_pins(body))


def _again(call: Call, before: tuple[Item | None, str]) -> Response:
    """The answer that the first request with this key was given."""
    item, uid = before
    if item is None:
        return call.answer(success(call.resource.plural, call.target.name, uid, call.resource.group))
    return call.answer(call.form().one(item, item.resource_version))


def _patched(body: Any, media: str, live: Any) -> Any:
    return json_patch(live, body) if media == JSON_PATCH else merge_patch(live, body)


async def _change(call: Call, changed: Callable[[Any], Any], *, pinned: bool) -> Response:
    """`changed` makes the wanted tree of the present one; `pinned`: only of the version the client has seen."""
    for _ in range(ATTEMPTS_MAX):
        item = await find(call)
        old = stored_record(item, call.services.secrets)
        live = _live(call, item)
        tree = changed(live)
        decoded = decode(call, tree, call.target.name)
        record = unhidden(decoded.record, old, call.services.secrets)
        expected(call, item, decoded.resource_version)
        entries = _entries(call, old, live, tree, record)
        outcome = await _put(call, item, with_parts(record, managed_fields=entries))
        if isinstance(outcome, Response):
            return outcome
        if outcome.reason != "Conflict" or pinned:
            raise refused(call, outcome)
    raise contested(call)


def _pins(body: Any) -> bool:
    """Whether the client itself says which version it has seen: then nobody else's write may be overwritten."""
    if isinstance(body, list):
        return any(isinstance(op, dict) and str(op.get("path", "")).startswith("/metadata/resourceVersion") for op in body)
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))


def _live(call: Call, item: Item) -> dict[str, Any]:
    """The present object as a client would see it, to be patched."""
    text = served.text(sealed.shown(call, item).body, call.info.kind, item.resource_version)
    live: dict[str, Any] = msgspec.json.decode(text)
    return live


def _entries(call: Call, old: Any, live: Any, tree: Any, record: Any) -> managers.Entries:
    if not user_written(call.info):
        return ()
    before: managers.Entries = old.metadata.managed_fields
    wanted = tree["metadata"].get("managedFields") if isinstance(tree.get("metadata"), dict) else None
    if wanted is not None and wanted != live["metadata"].get("managedFields"):
        before = managers.entries_of(wanted)  # kubectl moving fields from client-side to server-side apply
    after = served.tree_of(with_parts(record))
    shown = served.tree_of(old) if served.hides(old) else live  # what is hidden must be compared too
    return managers.updated(before, call.manager, _bare(shown), _bare(after), node_of(call.info.record))


def _bare(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key != "status"}


async def _put(call: Call, item: Item, record: Any) -> Response | Refused:
    """Sends a replacement that rests on what `item` shows. A refusal may be worth another look."""
    body = Put(call.info.kind, record, "update", expected_revision=item.revision, dry_run=call.dry_run)
    outcome = await send(call, item.member, body, stored_record(item, call.services.secrets))
    if isinstance(outcome, Refused):
        return outcome
    if call.dry_run:
        shown = foreseen(call, item.member, record, item)
        return call.answer(call.form().one(shown, item.resource_version))
    now = await stored(call, item.member, outcome, record.metadata.namespace, record.metadata.name)
    return call.answer(call.form().one(now or item, (now or item).resource_version))


# --- server-side apply -------------------------------------------------------------------------------------------------


async def _apply(call: Call, body: Any) -> Response:
    if not call.query.get("fieldManager"):
        raise bad_request("fieldManager is required for apply patch")
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict) and body["metadata"].get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    node = node_of(call.info.record)
    decoded = decode(call, body, call.target.name)
    said = pick(served.tree_of(decoded.record), known(body, node), node)
    said.pop("status", None)
    for _ in range(ATTEMPTS_MAX):
        item, warnings = await call.front.get(call.info, call.tenant, call.target.name, region=call.region)
        if item is None:
            if decoded.resource_version:
                raise not_found(call.resource.plural, call.target.name)
            call.allow("create")
            return await _create(call, body, decoded, "Apply")
        for warning in warnings:
            call.warn(warning)
        expected(call, item, decoded.resource_version)
        old = stored_record(item, call.services.secrets)
        live = served.tree_of(old) if served.hides(old) else _live(call, item)
        applied = managers.apply(
            _bare(live), old.metadata.managed_fields, call.manager, said, node,
            force=call.flag("force"), last_applied=_last_applied(live),
        )  # fmt: skip
        if applied.entries == old.metadata.managed_fields and applied.tree == _bare(live) and not key_of(call):
            return call.answer(call.form().one(item, item.resource_version))  # as it is: what most applies find
        metadata = {"name": old.metadata.name, "uid": old.metadata.uid, **applied.tree.get("metadata", {})}
        wanted = decode(call, {**applied.tree, "metadata": metadata}, call.target.name)
        record = unhidden(wanted.record, old, call.services.secrets)
        outcome = await _put(call, item, with_parts(record, managed_fields=applied.entries))
        if isinstance(outcome, Response):
            return outcome
        if outcome.reason != "Conflict" or decoded.resource_version:
            raise refused(call, outcome)
    raise contested(call)


def _last_applied(live: dict[str, Any]) -> Any:
    text = live["metadata"].get("annotations", {}).get(LAST_APPLIED)
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):  # anybody may write an annotation
        return None


# --- status ------------------------------------------------------------------------------------------------------------


async def _write_status(call: Call, changed: Callable[[Any], Any]) -> Response:
    """Of the whole object that comes, the status alone."""
    for _ in range(ATTEMPTS_MAX):
        item = await find(call)
        live = _live(call, item)
        tree = changed(live)
        if not isinstance(tree, dict):
            raise bad_request("the body must be one object")
        given = (tree.get("metadata") or {}).get("resourceVersion") or ""
        expected(call, item, str(given))
        record: Any = decode(call, {**live, "status": tree.get("status", {})}, call.target.name).record
        metadata = item.served.metadata
        body = PutStatus(
            call.info.kind, metadata.namespace, metadata.name, record.status, item.revision, metadata.uid, call.dry_run
        )
        outcome = await send(call, item.member, body)
        if isinstance(outcome, Accepted) and call.dry_run:
            raw = codec.encode(msgspec.structs.replace(stored_record(item, call.services.secrets), status=record.status))
            made = Made(call.info.plural, metadata.namespace, metadata.name, item.change.position, raw)
            return call.answer(call.form().one(Item(item.member, made, item.incarnation), item.resource_version))
        if isinstance(outcome, Accepted):
            now = await stored(call, item.member, outcome, metadata.namespace, metadata.name)
            return call.answer(call.form().one(now or item, (now or item).resource_version))
        if outcome.reason != "Conflict":
            raise refused(call, outcome)
    raise contested(call)


# --- delete ------------------------------------------------------------------------------------------------------------


class _Options(msgspec.Struct, frozen=True):
    propagation: Any
    uid: str
    version: str
    dry_run: bool


async def _options(call: Call) -> _Options:
    raw = await call.body()
    media = call.media
    tree = parse(raw, JSON if media == PROTOBUF else media) if raw.strip() and media in (JSON, *YAML) else {}
    if not isinstance(tree, dict):
        raise bad_request("DeleteOptions must be an object")
    dry = tree.get("dryRun") or []
    if not isinstance(dry, list) or not all(isinstance(word, str) for word in dry):
        raise bad_request("dryRun: expected a list of strings")
    policy = tree.get("propagationPolicy") or call.query.get("propagationPolicy") or "Background"
    if policy not in ("Background", "Foreground", "Orphan"):
        raise bad_request(f"propagationPolicy: expected Background, Foreground or Orphan, got {str(policy)[:40]!r}")
    conditions = tree.get("preconditions") or {}
    if not isinstance(conditions, dict):
        raise bad_request("preconditions must be an object")
    uid, version = conditions.get("uid") or "", conditions.get("resourceVersion") or ""
    if not isinstance(uid, str) or not isinstance(version, str):
        raise bad_request("preconditions: uid and resourceVersion are strings")
    is_dry = call.dry_run or any(is_dry_run(word) for word in dry)
    return _Options(policy, uid, version, is_dry)


async def delete(call: Call) -> Response:
    _can(call, "delete")
    options = await _options(call)
    before = None if options.dry_run else await answered_before(call)
    if before is not None:
        return _again(call, before)
    item = await find(call)
    marked = await _delete(call, item, options)
    if marked is not None:
        return call.answer(call.form().one(marked, marked.resource_version))
    metadata = item.served.metadata
    return call.answer(success(call.resource.plural, metadata.name, metadata.uid, call.resource.group))


async def _delete(call: Call, item: Item, options: _Options) -> Item | None:
    """The object, where finalizers still hold it."""
    metadata = item.served.metadata
    wanted = component(options.version, item.member.index) if options.version else 0
    tenant, name = metadata.namespace, item.change.name
    body = Delete(call.info.kind, tenant, name, options.propagation, wanted, options.uid, options.dry_run)
    outcome = await send(call, item.member, body)
    if isinstance(outcome, Refused):
        raise refused(call, outcome, name)
    if options.dry_run:
        return item if metadata.finalizers else None
    return await stored(call, item.member, outcome, tenant, name)


async def delete_all(call: Call) -> Response:
    _can(call, "deletecollection")
    if key_of(call):
        raise bad_request("Idempotency-Key: is for one object; delete these one by one, or without a key")
    options = await _options(call)
    listing = await call.front.list(
        call.info, call.target.tenant, accepts=accepts_of(call, selection_of(call)), region=call.region
    )
    for warning in listing.warnings:
        call.warn(warning)
    for item in listing.items:
        try:
            await _delete(call, item, options)
        except Failure as failure:
            if failure.code != 404:
                raise
        except Unreachable:
            call.warn(f"{item.member.name} is unreachable; its {call.resource.plural} were not deleted")
    return call.answer(call.form().many(listing, ""))
