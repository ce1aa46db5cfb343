"""Who changed what may be used: every change of a quota, a grant, a recovery budget and an emergency quota in a history, one line
each, with what is used of it at the end; of an emergency quota, which has an end of its own, the most that ever was. What `audit
budgets` prints.

Owns the reading of entries; reads nothing itself. Changes of statuses are nobody's decision and make no line.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from fairlead.decide import escrow
from fairlead.decide.escrow import Amounts
from fairlead.decide.granting import resources
from fairlead.decide.offering import REASON
from fairlead.decide.overrides import Where, all_in_force, concerns
from fairlead.decide.sharing import EMERGENCY, emergency_of
from fairlead.model.hot import DECODERS
from fairlead.model.ids import split_key
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.kinds.capacity import Grant, HeldShape
from fairlead.model.resources import Resources
from fairlead.store.contract import Batch, ObjectRow

KINDS: Final = {"quotas": "Quota", "grants": "Grant", "recoverybudgets": "RecoveryBudget", "overrides": "Override"}

Seen = dict[tuple[str, str, str], Any]  # (plural, tenant, name) -> the object as it is now


class Changed(msgspec.Struct, rename="camel"):
    position: int
    time_ms: int
    kind: str
    tenant: str
    name: str
    what: str  # created, changed or removed
    who: str
    why: str
    limits: dict[str, str]
    until: str  # empty: until somebody changes it
    used: dict[str, str]  # at the end of the history; of an emergency quota: the most of each while it held


def changes(batches: Iterable[Batch], rows: Iterable[ObjectRow] = ()) -> list[Changed]:
    """In the order they were committed. `rows`: what was there before the first batch; who decided that is not there any more."""
    before = ((split_key(key), raw) for key, _, raw in rows)
    seen: Seen = {at: DECODERS[at[0]].decode(raw) for at, raw in before if at[0] in KINDS}
    out: list[Changed] = []
    most: dict[tuple[str, str], Amounts] = {}  # (tenant, name) of an emergency quota
    for batch in batches:
        blob = decode_blob(batch.blob)
        position = batch.first - 1
        for entry in blob.entries:
            for key, raw in entry.effects:
                position += 1
                at = split_key(key)
                if at[0] not in KINDS:
                    continue
                old, new = seen.pop(at, None), DECODERS[at[0]].decode(raw) if raw is not None else None
                if new is not None:
                    seen[at] = new
                if at[0] == "grants" and new is not None:
                    _note_emergency(most, seen, new, blob.header.time_ms)
                what = _what(old, new)
                if not what:
                    continue
                command = decode_command(entry.command)
                who = command.caller.actor if command is not None else "authority"
                out.append(_row(position, blob.header.time_ms, at, what, who, new if new is not None else old))
    for row in out:
        last = seen.get((_plural(row.kind), row.tenant, row.name))
        of_emergency = resources(most.get((row.tenant, row.name), {})) if row.kind == "Override" else None
        row.used = dict(of_emergency.as_quantities()) if of_emergency is not None else _used(last)
    return out


def _plural(kind: str) -> str:
    return next(plural for plural, name in KINDS.items() if name == kind)


def _what(old: Any, new: Any) -> str:
    """Empty: nobody's decision. One that a finalizer keeps for a while is removed by who deletes it, not by who lets it go."""
    last = new if new is not None else old
    if last is None or (hasattr(last.spec, "ttl_seconds") and last.spec.kind != EMERGENCY):
        return ""
    if old is None:
        return "created"
    if old.metadata.deletion_time is not None:
        return ""
    if new is None or new.metadata.deletion_time is not None:
        return "removed"
    return "changed" if old.spec != new.spec else ""


def _row(position: int, time_ms: int, at: tuple[str, str, str], what: str, who: str, last: Any) -> Changed:
    spec = last.spec
    return Changed(
        position, time_ms, KINDS[at[0]], at[1], at[2], what, who, getattr(spec, "reason", "") or _why(last), _limits(spec),
        _until(last), {},
    )  # fmt: skip


def _why(last: Any) -> str:
    return str(last.metadata.annotations.get(REASON, ""))


def _limits(spec: Any) -> dict[str, str]:
    if hasattr(spec, "limits"):
        return dict(spec.limits.as_quantities())
    if hasattr(spec, "during"):
        return dict(spec.during.as_quantities())
    if hasattr(spec, "shapes"):
        return {str(number): f"{shape.count} x {_amounts(shape.requests)}" for number, shape in enumerate(spec.shapes)}
    return dict(spec.parameters)


def _amounts(requests: Resources) -> str:
    return ",".join(f"{name}={amount}" for name, amount in requests.as_quantities().items()) or "nothing"


def _until(last: Any) -> str:
    spec = last.spec
    end: datetime | None = getattr(spec, "expiry_time", None) or getattr(spec, "lease_end_time", None)
    if hasattr(spec, "ttl_seconds") and last.metadata.creation_time is not None:
        end = last.metadata.creation_time + timedelta(seconds=spec.ttl_seconds)
    if end is not None:
        return end.strftime("%Y-%m-%dT%H:%M:%SZ")
    seconds = getattr(spec, "lease_seconds", 0)
    return f"leased for {seconds} s at a time" if seconds else ""


def _used(last: Any) -> dict[str, str]:
    if last is None:
        return {}
    if hasattr(last.status, "regions"):
        return {f"{each.region}/{n}": _held(shape) for each in last.status.regions for n, shape in enumerate(each.shapes)}
    used = getattr(last.status, "used", None)
    return dict(used.as_quantities()) if used is not None else {}


def _held(shape: HeldShape) -> str:
    silent = f", {shape.silent} silent" if shape.silent else ""
    return f"{shape.claimed} claimed, {shape.held} held{silent}"


def _note_emergency(most: dict[tuple[str, str], Amounts], seen: Seen, grant: Grant, now_ms: int) -> None:
    """What a tenant uses above what its grants are without their emergency part is used of the emergency quotas in force for it.
    Where several are, nobody knows of which: each is said to be used as far as it goes."""
    if not grant.spec.emergency.amounts():
        return
    tenant = grant.metadata.namespace
    emergencies = [each for (plural, _, _), each in seen.items() if plural == "overrides"]
    for override in all_in_force(emergencies, EMERGENCY, now_ms):
        used: Amounts = {}
        for (plural, owner, region), each in seen.items():
            if plural == "grants" and owner == tenant and concerns(override, Where(tenant, region=region)):
                used = escrow.added(used, _of_emergency(each))
        at = (override.metadata.namespace, override.metadata.name)
        most[at] = escrow.largest((most.get(at, {}), escrow.smallest(used, emergency_of(override).amounts())))


def _of_emergency(grant: Grant) -> Amounts:
    spec, used = grant.spec, grant.status.used.amounts()
    whole = spec.during.amounts()
    return {
        name: min(part, max(0, used.get(name, 0) - whole.get(name, 0) + part)) for name, part in spec.emergency.amounts().items()
    }
