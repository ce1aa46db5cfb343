"""From a request's body to a command, and from its outcome to an answer: what all writing verbs share.

Owns decoding with field validation, idempotency keys, dry runs and the reading back of what was written. Called by writing.py,
scaling.py and core.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec

from fairlead.api import served
from fairlead.api.calls import Call
from fairlead.api.catalogue import LAST_APPLIED
from fairlead.api.columns import instant_of
from fairlead.api.failures import Failure, bad_request, of_refusal, unacceptable
from fairlead.api.members import Item, Member
from fairlead.api.sealed import record_of
from fairlead.api.versions import component
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable
from fairlead.decide.admission.workload import remarks
from fairlead.decide.generations import generation_after
from fairlead.model import codec
from fairlead.model.commands import Accepted, Body, Command, IdempotencyKey, Put, Refused, Unknown
from fairlead.model.kinds.intent import Workload
from fairlead.model.meta import Metadata
from fairlead.model.registry import KindInfo
from fairlead.security.strongbox import Strongbox
from fairlead.wire.json_codec import API_VERSION
from fairlead.wire.manifest import Decoded, decode_plain

ATTEMPTS_MAX: Final = 5  # reads again when somebody else wrote in between; then the client decides
KEY_MAX: Final = 200
NAME_SHOWN_MAX: Final = 253  # no name that is one is longer
_VALIDATIONS: Final = ("", "Strict", "Warn", "Ignore")


class Made(msgspec.Struct):
    """An object that was never stored, in the shape of one that was: what a dry run shows."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any = None


def decode(call: Call, tree: Any, name: str = "") -> Decoded:
    """The object in a body. Says which kind and tenant it must be of; unknown fields as `fieldValidation` says."""
    validation = call.query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        raise bad_request(f"fieldValidation: expected Strict, Warn or Ignore, got {validation[:40]!r}")
    tree = _in_place(call, tree, name)
    kind = call.info.kind
    got = decode_plain(tree, field_validation="ignore" if validation == "Ignore" else "warn")
    if not isinstance(got, Decoded):
        raise unacceptable(kind, tree["metadata"].get("name", ""), got)
    if got.warnings and validation == "Strict":
        words = ", ".join(f'unknown field "{fault.path}"' for fault in got.warnings)
        raise bad_request(f'{kind} in version "v1alpha1" cannot be handled as a {kind}: strict decoding error: {words}')
    for fault in got.warnings:
        call.warn(f'unknown field "{fault.path}"' + fault.message.removeprefix("unknown field"))
    if isinstance(got.record, Workload):
        for path, message in remarks(got.record.spec, _rollout_in(tree)):
            call.warn(f"{path}: {message}")
    return got


def _rollout_in(tree: dict[str, Any]) -> dict[str, Any]:
    """What a workload's words say of rollouts: they are of the right shape, or it would not have been read."""
    return (tree.get("spec") or {}).get("rollout") or {}


@contextmanager
def about_said(call: Call, tree: Any) -> Iterator[None]:
    """A failure in it is about the object that the body names, whatever else is wrong with that."""
    try:
        yield
    except Failure as failure:
        metadata = tree.get("metadata") if isinstance(tree, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        shown = name[:NAME_SHOWN_MAX] if isinstance(name, str) else ""
        raise failure.about(call.resource.plural, shown, call.resource.group) from None


def _in_place(call: Call, tree: Any, name: str) -> dict[str, Any]:
    """Checks what the body says of itself against the path, and fills in what it leaves out."""
    if not isinstance(tree, dict):
        raise bad_request("the body must be one object")
    info, tenant = call.info, call.tenant
    if tree.get("kind", info.kind) != info.kind or tree.get("apiVersion", API_VERSION) != API_VERSION:
        said = f"{str(tree.get('apiVersion'))[:80]}, Kind={str(tree.get('kind'))[:80]}"
        raise bad_request(f"the object in the body ({said}) is not a {API_VERSION}, Kind={info.kind}")
    metadata = tree.get("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    metadata = {key: value for key, value in metadata.items() if key not in ("generateName", "managedFields")}
    if info.namespaced:
        if metadata.get("namespace") not in (None, "", tenant):
            raise bad_request(f"the namespace of the object ({metadata['namespace']!r}) is not that of the request ({tenant!r})")
        metadata["namespace"] = tenant
    if name:
        if metadata.get("name") not in (None, "", name):
            raise bad_request(f"the name of the object ({str(metadata['name'])[:80]!r}) is not that of the request ({name!r})")
        metadata["name"] = name
    return {**tree, "apiVersion": API_VERSION, "kind": info.kind, "metadata": metadata}


def expected(call: Call, item: Item, version: str) -> int:
    """The revision a write rests on, of the object's own plane; 0: whatever is there. 409 if it is another by now."""
    if not version:
        return 0
    wanted = component(version, item.member.index)
    if wanted != item.revision:
        refused = Refused(
            "Conflict", "the object has been modified; please apply your changes to the latest version and try again"
        )
        raise of_refusal(refused, call.info.kind, call.resource.plural, call.target.name)
    return wanted


def with_parts(record: Any, **changes: Any) -> Any:
    """The record with other metadata, and no status: that is its owner's."""
    metadata = msgspec.structs.replace(record.metadata, **changes)
    return type(record)(metadata=metadata, spec=record.spec)


def unhidden(record: Any, old: Any, box: Strongbox | None = None) -> Any:
    """A secret that was shown with its values hidden keeps those that come back so. Client-side apply would keep a copy of
    all of them in an annotation: that is dropped where nothing would seal it."""
    if not served.hides(record):
        return record
    if box is None:
        annotations = {key: value for key, value in record.metadata.annotations.items() if key != LAST_APPLIED}
        record = msgspec.structs.replace(record, metadata=msgspec.structs.replace(record.metadata, annotations=annotations))
    before = old.spec.data if old is not None else {}
    data = {key: before.get(key, value) if value == served.HIDDEN else value for key, value in record.spec.data.items()}
    return msgspec.structs.replace(record, spec=msgspec.structs.replace(record.spec, data=data))


# --- commands ----------------------------------------------------------------------------------------------------------


def key_of(call: Call) -> str:
    key = call.request.headers.get("idempotency-key", "")
    if len(key) > KEY_MAX or not key.isprintable():
        raise bad_request(f"Idempotency-Key: expected at most {KEY_MAX} printable characters")
    return key


def suffix(call: Call) -> str:
    """The end of a generated name. The same key gives the same name, so that a repetition is one."""
    key = key_of(call)
    source = f"{call.identity.name}\0{key}" if key else call.services.ids.token()
    return hashlib.blake2b(source.encode(), digest_size=5).hexdigest()[:5]


async def answered_before(call: Call) -> tuple[Item | None, str] | None:
    """What this Idempotency-Key came to already: a repeated change must not be made once more on what it changed itself. The
    object as it was left (None: gone) and its uid; None: nothing has come of the key. Another request under it is refused. To be
    asked once the body is read, and the caller is allowed to do what it says."""
    key = key_of(call)
    if not key or call.dry_run:
        return None
    for member in call.members:
        try:
            outcome = await member.ask(partial(member.plane.receipt, call.services.rules.actor(call.identity), key))
        except Unreachable:
            continue
        if isinstance(outcome, Refused) and outcome.reason == "ReceiptExpired":
            raise refused(call, outcome)
        if isinstance(outcome, Accepted):
            if outcome.request != call.digest():
                raise refused(
                    call, Refused("IdReused", f"the Idempotency-Key {key[:80]!r} belongs to another request; choose a new one")
                )
            name = member.inner_name(call.info.plural, call.target.name) or call.target.name
            return await stored(call, member, outcome, call.tenant, name), outcome.uid
    return None


async def send(call: Call, member: Member, body: Body, old: Any = None) -> Accepted | Refused:
    """One command. A refusal comes back as data where a caller may go on; everything else is raised. What may be said in an
    object is judged on the object itself, as it was and as it would be, not on the address of the request."""
    key, rules, identity = key_of(call), call.services.rules, call.identity
    if getattr(body, "dry_run", False):
        key = ""  # nothing comes of a trial: its key stays free for the write itself
    caller = rules.caller(identity, call.asked)
    if isinstance(caller, Refused):
        return caller
    if isinstance(body, Put):
        body = msgspec.structs.replace(body, object=rules.completed(identity, body.object, old))
        why_not = rules.refuse_object(identity, body.object, old)
        if why_not is not None:
            return why_not
    correlation = rules.correlation(identity, call.request.headers.get("kubectl-session", "")[:64])
    command = Command(caller, body, IdempotencyKey(key, call.digest()) if key else None, correlation=correlation)
    outcome = await call.submit(member, command)
    if isinstance(outcome, Unknown):
        raise undecided(call, outcome.detail)
    if isinstance(outcome, Accepted):
        member.saw(outcome.revision)
    return outcome


def undecided(call: Call, detail: str) -> Failure:
    """It may have been done, and this answer cannot tell."""
    key = key_of(call)
    hint = f"; ask for /receipts/{key}" if key else "; read the object to see whether it was made"
    cause = {"reason": "OutcomeUnknown", "message": detail, "field": ""}
    return Failure(504, f"nobody can say yet whether this took effect: {detail}{hint}", causes=[cause])


def contested(call: Call) -> Failure:
    """Others wrote first every time."""
    return refused(call, Refused("Conflict", f"others changed it {ATTEMPTS_MAX} times meanwhile; please try again"))


def refused(call: Call, refusal: Refused, name: str = "") -> Failure:
    return of_refusal(refusal, call.info.kind, call.resource.plural, name or call.target.name)


async def stored(call: Call, member: Member, accepted: Accepted, tenant: str, name: str) -> Item | None:
    """The object as the command left it; None: it is gone."""
    call.may_be_done = True  # by an earlier request, where this one is its repetition
    plural = call.info.plural
    try:
        try:
            return await member.get(plural, tenant, name, accepted.revision)
        except Expired:
            return await member.get(plural, tenant, name)
    except Failure as failure:  # the plane has too much to do to show it, and has done it: 429 would say otherwise
        raise Unreachable(member.name) from failure


def foreseen(call: Call, member: Member, record: Any, item: Item | None, kind: KindInfo | None = None) -> Item:
    """What a dry run would have stored, by the rules of the authority's own merge."""
    info = kind or call.info
    given: Metadata = record.metadata
    now = instant_of(member.plane.plane_ms())
    entries = tuple(entry if entry.time else msgspec.structs.replace(entry, time=now) for entry in given.managed_fields)
    if item is None:
        finalizers = tuple(dict.fromkeys((*given.finalizers, *info.finalizers)))
        metadata = msgspec.structs.replace(given, creation_time=now, generation=1, finalizers=finalizers, managed_fields=entries)
        raw, position, incarnation = codec.encode(msgspec.structs.replace(record, metadata=metadata)), 0, member.incarnation
    else:
        old = stored_record(item, call.services.secrets)
        incarnation, changed = item.incarnation, record.spec != old.spec
        metadata = msgspec.structs.replace(
            old.metadata, labels=given.labels, annotations=given.annotations, owner_references=given.owner_references,
            generation=generation_after(info.plural, old.metadata.generation, changed=changed, incarnation=member.incarnation),
            managed_fields=entries or old.metadata.managed_fields,
        )  # fmt: skip
        new = msgspec.structs.replace(old, metadata=metadata, spec=record.spec)
        raw, position = codec.encode(new), item.change.position
    return Item(member, Made(info.plural, given.namespace, given.name, position, raw), incarnation)


def stored_record(item: Item, box: Strongbox | None = None) -> Any:
    """The record itself, secrets and all."""
    return record_of(item, box)
