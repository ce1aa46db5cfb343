"""Plain objects: put, status, delete, by Kubernetes' rules for generation, revision, uid, finalizers and owners.

generation grows with the spec only (decide/generations.py); a write that changes nothing makes no revision; status is its
owner's; an object with finalizers is marked and goes when the last is removed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.authority.judge.apart import count_ended
from fairlead.authority.judge.context import Context, Draft, Effect, Judgement, describe, drop, put
from fairlead.authority.judge.epochs import refuse_lower_floor
from fairlead.authority.judge.giving import refuse_given_up, refuse_none_left
from fairlead.authority.judge.granting import judged_status
from fairlead.authority.judge.kinds import refuse_delete, refuse_put, side_effects_of_put
from fairlead.authority.judge.letting_go import refuse_let_go
from fairlead.authority.judge.marks import refuse_marks
from fairlead.authority.judge.mending import is_done
from fairlead.authority.judge.pooled import refuse_order
from fairlead.authority.judge.reported import in_order, refuse_stale_report
from fairlead.authority.state import RECEIPTS, Rec
from fairlead.decide.admission import OBJECT_BYTES_MAX, faults
from fairlead.decide.generations import generation_after
from fairlead.model import codec
from fairlead.model.commands import Caller, Delete, Fault, Put, PutStatus, Refused
from fairlead.model.ids import key
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Evidence, ManagedFields, Metadata, Record
from fairlead.model.registry import BY_KIND, FINALIZERS, KindInfo
from fairlead.model.settling import settled


def put_object(ctx: Context, caller: Caller, body: Put, _: Evidence | None = None) -> Judgement:
    info = _kind(ctx, body.kind)
    if type(info) is Refused:
        return info
    new = body.object
    if not isinstance(new, info.record):
        return Refused("Invalid", f"the body is not a {info.kind}", faults=(Fault("", f"expected a {info.kind}"),))
    metadata: Metadata = new.metadata
    rec = ctx.state.get(info.plural, metadata.namespace, metadata.name)
    refused = _refuse_put(ctx, caller, info, body, rec)
    if refused is not None:
        return refused
    old: Any = _decoded(rec) if rec else None
    if info.immutable and old is not None and new.spec != old.spec:
        return Refused(
            "Immutable", f"{info.kind} {metadata.name} never changes; create another", describe(ctx, rec) if rec else {}
        )
    found = faults(info, new, old)
    if found:
        return Refused("Invalid", f"{info.kind} {metadata.name}: {found[0].path}: {found[0].message}", faults=found)
    merged = _merge(ctx, caller, info, new, old)
    refused = refuse_marks(caller, merged.metadata, old.metadata if old is not None else None)
    refused = refused or refuse_put(ctx, caller, info, merged, old)
    if refused is not None:
        return refused
    object_key = key(info.plural, metadata.namespace, metadata.name)
    if old is not None and merged == old and rec is not None:
        return Draft([], object_key, old.metadata.uid, position=rec.position, dry_run=body.dry_run)
    if merged.metadata.deletion_time is not None and not merged.metadata.finalizers:
        gone = drop(info.plural, metadata.namespace, metadata.name)
        return Draft([gone], object_key, merged.metadata.uid, dry_run=body.dry_run)
    effect = put(info.plural, metadata.namespace, metadata.name, settled(merged))
    if effect.raw is not None and len(effect.raw) > OBJECT_BYTES_MAX:
        return Refused("TooLarge", f"{info.kind} {metadata.name} takes {len(effect.raw)} bytes of at most {OBJECT_BYTES_MAX}")
    effects = [effect, *side_effects_of_put(ctx, caller, info, merged)]
    return Draft(effects, object_key, merged.metadata.uid, dry_run=body.dry_run)


def put_status(ctx: Context, caller: Caller, body: PutStatus, _: Evidence | None = None) -> Judgement:
    info = _kind(ctx, body.kind)
    if type(info) is Refused:
        return info
    if caller.role not in info.status_owners:
        owners = ", ".join(sorted(role.value for role in info.status_owners)) or "nobody"
        return Refused("NotOwner", f"the status of a {info.kind} belongs to {owners}, not to {caller.role.value}")
    rec = ctx.state.get(info.plural, body.tenant, body.name)
    if rec is None:
        return Refused("NotFound", f"there is no {info.kind} {body.tenant}/{body.name}")
    old = _decoded(rec)
    refused = _refuse_version(ctx, rec, old, body.expected_revision, body.uid)
    if refused is not None:
        return refused
    refused = refuse_stale_report(old, body.status) or _refuse_status(info, caller, old, body)
    refused = refused or refuse_given_up(ctx, old, body.status) or refuse_none_left(ctx, old, body.status)
    refused = refused or refuse_lower_floor(ctx, old, body.status) or refuse_let_go(ctx, old, body.status)
    refused = refused or refuse_order(ctx, old, body.status)
    if refused is not None:
        return refused
    status = judged_status(ctx, caller, info, old, in_order(old, body.status))
    if isinstance(status, Refused):
        return status
    if old.status == status:
        return Draft([], rec.key, old.metadata.uid, position=rec.position, dry_run=body.dry_run)
    new = msgspec.structs.replace(old, status=status)
    return Draft([put(info.plural, body.tenant, body.name, settled(new))], rec.key, old.metadata.uid, dry_run=body.dry_run)


def delete_object(ctx: Context, caller: Caller, body: Delete) -> Judgement:
    if body.kind == "Receipt" and caller.role is Role.AUTHORITY:
        return Draft([drop(RECEIPTS, "", body.name)], key(RECEIPTS, "", body.name))
    info = _kind(ctx, body.kind)
    if type(info) is Refused:
        return info
    rec = ctx.state.get(info.plural, body.tenant, body.name)
    if rec is None:
        return Refused("NotFound", f"there is no {info.kind} {body.tenant}/{body.name}")
    old = _decoded(rec)
    refused = _refuse_version(ctx, rec, old, body.expected_revision, body.uid) or refuse_delete(ctx, caller, info, rec, old)
    if refused is not None:
        return refused
    finalizers = old.metadata.finalizers
    wanted = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(body.propagation)
    if wanted and wanted not in finalizers and ctx.owners.has_dependents(old.metadata.uid):
        finalizers = (*finalizers, wanted)
    if not finalizers:
        effects = [drop(info.plural, body.tenant, body.name), *_companions(ctx, info, body)]
        return Draft(effects, rec.key, old.metadata.uid, dry_run=body.dry_run)
    if old.metadata.deletion_time is not None and finalizers == old.metadata.finalizers:
        return Draft([], rec.key, old.metadata.uid, position=rec.position, dry_run=body.dry_run)
    metadata = msgspec.structs.replace(old.metadata, deletion_time=old.metadata.deletion_time or ctx.now, finalizers=finalizers)
    marked = msgspec.structs.replace(old, metadata=metadata)
    return Draft([put(info.plural, body.tenant, body.name, settled(marked))], rec.key, old.metadata.uid, dry_run=body.dry_run)


def _companions(ctx: Context, info: KindInfo, body: Delete) -> list[Effect]:
    """What cannot outlive the object: a withdrawn request's reservation, a binding's instance. In a cut it is counted."""
    pairs = {"schedulingrequests": "reservations", "bindings": "instances"}
    companion = pairs.get(info.plural)
    gone = companion and ctx.state.get(companion, body.tenant, body.name) is not None
    out = [drop(companion, body.tenant, body.name)] if companion and gone else []
    return out + count_ended(ctx, body.tenant, body.name) if info.plural == "bindings" else out


def _kind(ctx: Context, kind: str) -> KindInfo | Refused:
    info = BY_KIND.get(kind)
    if info is None:
        return Refused("UnknownKind", f"there is no kind {kind!r}")
    if ctx.settings.plane not in info.planes:
        return Refused("UnknownKind", f"{kind} objects live on the {'/'.join(sorted(info.planes))} plane, not on this one")
    return info


def _decoded(rec: Rec) -> Any:
    return rec.hot if isinstance(rec.hot, Record) else rec.decode()


def _refuse_put(ctx: Context, caller: Caller, info: KindInfo, body: Put, rec: Rec | None) -> Refused | None:
    if info.commands_only:
        return Refused("NotOwner", f"{info.kind} objects are made by commands of their own, not by a put")
    if caller.role not in info.spec_owners and caller.role is not Role.AUTHORITY and not _only_finalizes(ctx, caller, body, rec):
        owners = ", ".join(sorted(role.value for role in info.spec_owners))
        return Refused("NotOwner", f"the spec of a {info.kind} belongs to {owners}, not to {caller.role.value}")
    if rec is None:
        if body.mode == "update" or body.expected_revision:
            return Refused("NotFound", f"there is no {info.kind} {body.object.metadata.name} to update")
        return None
    old = _decoded(rec)
    if body.mode == "create":
        return Refused("AlreadyExists", f"{info.kind} {rec.name} exists", describe(ctx, rec))
    return _refuse_version(ctx, rec, old, body.expected_revision, body.object.metadata.uid)


def _only_finalizes(ctx: Context, caller: Caller, body: Put, rec: Rec | None) -> bool:
    """Whoever may take a finalizer off may write the object it holds, as long as nothing but metadata changes: its owner, and
    where that is gone an operator, once the object is being deleted, or repair, once it waits for nothing."""
    if rec is None:
        return False
    old = _decoded(rec)
    may = any(f in FINALIZERS and _may_take_off(ctx, caller, f, old) for f in old.metadata.finalizers)
    return may and bool(body.object.spec == old.spec)


def _refuse_version(ctx: Context, rec: Rec, old: Any, expected_revision: int, uid: str) -> Refused | None:
    if uid and uid != old.metadata.uid:
        return Refused("Conflict", f"{rec.key} is another object now (uid {old.metadata.uid})", describe(ctx, rec))
    if expected_revision and expected_revision != ctx.revision(rec.position):
        return Refused("Conflict", f"{rec.key} has changed since revision {expected_revision}", describe(ctx, rec))
    return None


def _refuse_status(info: KindInfo, caller: Caller, old: Any, body: PutStatus) -> Refused | None:
    wanted = type(old.status)
    if not isinstance(body.status, wanted):
        return Refused("Invalid", f"the body is not the status of a {info.kind}")
    before = getattr(old.status, "observed_generation", 0)
    after = getattr(body.status, "observed_generation", 0)
    if after < before or after > old.metadata.generation:
        detail = f"observedGeneration may not go from {before} to {after} at generation {old.metadata.generation}"
        return Refused("Invalid", detail, faults=(Fault("status.observedGeneration", detail),))
    if info.plural == "schedulingrequests":
        same = (body.status.state, body.status.attempt) == (old.status.state, old.status.attempt)
        if not same:
            return Refused("NotOwner", "a request's state and attempt change by reserve, bind and release only")
    if info.plural == "nodes" and caller.role is Role.AGENT and caller.node != body.name:
        return Refused("WrongNode", f"{caller.actor} speaks for {caller.node or 'no node'}, not for {body.name}")
    if len(codec.encode(body.status)) > OBJECT_BYTES_MAX:
        return Refused("TooLarge", f"the status of {info.kind} {body.name} is larger than {OBJECT_BYTES_MAX} bytes")
    return None


def _may_take_off(ctx: Context, caller: Caller, finalizer: str, old: Any) -> bool:
    known = FINALIZERS.get(finalizer)
    if known is None or caller.role in (known.owner, Role.AUTHORITY):
        return True
    if caller.role in (Role.REPAIR, Role.WORKLOAD) and is_done(ctx, finalizer, old):
        return True
    return old.metadata.deletion_time is not None and caller.role in (Role.OPERATOR, Role.BREAK_GLASS)


def _merge(ctx: Context, caller: Caller, info: KindInfo, new: Any, old: Any) -> Any:
    """What will be stored: the caller's spec, labels, annotations, finalizers and owners; our uid, times and generation."""
    if old is None:
        given: Metadata = new.metadata
        wanted = tuple(dict.fromkeys((*given.finalizers, *info.finalizers)))
        metadata = msgspec.structs.replace(
            given, uid=ctx.next_uid(), generation=1, creation_time=ctx.now, deletion_time=None, finalizers=wanted,
            managed_fields=_stamped(ctx, given),
        )  # fmt: skip
        return type(new)(metadata=metadata, spec=new.spec)
    # Applying a manifest again must not take off what others rely on: a registered finalizer goes by its owner's hand, or by
    # an operator's once the object is going and its owner is not coming.
    kept = (f for f in old.metadata.finalizers if f in new.metadata.finalizers or not _may_take_off(ctx, caller, f, old))
    finalizers = tuple(dict.fromkeys((*kept, *new.metadata.finalizers)))
    changed = new.spec != old.spec
    generation = generation_after(info.plural, old.metadata.generation, changed=changed, incarnation=ctx.incarnation)
    metadata = msgspec.structs.replace(
        old.metadata,
        labels=new.metadata.labels,
        annotations=new.metadata.annotations,
        owner_references=new.metadata.owner_references,
        finalizers=finalizers,
        generation=generation,
        # A component that builds its objects anew says nothing of managers; what people said stays.
        managed_fields=_stamped(ctx, new.metadata) or old.metadata.managed_fields,
    )
    return msgspec.structs.replace(old, metadata=metadata, spec=new.spec)


def _stamped(ctx: Context, metadata: Metadata) -> tuple[ManagedFields, ...]:
    """Plane time on the entries this write made: the sender has no clock, and the same request sent twice is the same bytes."""
    entries = metadata.managed_fields
    if all(entry.time is not None for entry in entries):
        return entries
    return tuple(entry if entry.time else msgspec.structs.replace(entry, time=ctx.now) for entry in entries)
