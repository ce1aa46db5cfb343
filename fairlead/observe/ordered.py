"""What was overridden, by whom and why: every change of an override in a history, one line each. What `audit overrides` prints.

Owns the reading of entries; reads nothing itself. The record is the journal's own: nothing can be changed without leaving one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from fairlead.model import codec
from fairlead.model.ids import split_key
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.kinds.policy import Override
from fairlead.store.contract import Batch, ObjectRow

_ORDERED_IN: Final = "fairlead.dev/ordered-in"
_decode = codec.decoder(Override).decode


class Ordered(msgspec.Struct, frozen=True, rename="camel"):
    position: int
    time_ms: int
    tenant: str
    name: str
    kind: str
    what: str  # created, merged (from a region), approved, extended, changed, revoked or removed
    who: str
    requester: str
    approver: str
    ttl_seconds: int
    scope: dict[str, list[str]]
    reason: str


def ordered(batches: Iterable[Batch], rows: Iterable[ObjectRow] = ()) -> Iterator[Ordered]:
    """In the order they were committed. Changes of metadata and status alone are nobody's order. `rows`: what was there before
    the first batch; who ordered that is not there any more."""
    before = ((split_key(key), raw) for key, _, raw in rows)
    seen: dict[tuple[str, str], Override] = {(at[1], at[2]): _decode(raw) for at, raw in before if at[0] == "overrides"}
    for batch in batches:
        blob = decode_blob(batch.blob)
        position = batch.first - 1
        for entry in blob.entries:
            for key, raw in entry.effects:
                position += 1
                plural, tenant, name = split_key(key)
                if plural != "overrides":
                    continue
                old, new = seen.pop((tenant, name), None), _decode(raw) if raw is not None else None
                if new is not None:
                    seen[tenant, name] = new
                command = decode_command(entry.command)
                what = _what(old, new)
                if what:
                    who = command.caller.actor if command is not None else "authority"
                    last = new or old
                    if last is not None and _ORDERED_IN in last.metadata.annotations and what == "created":
                        what, who = "merged", last.spec.requester  # who ordered it in a region that was on its own
                    yield _row(position, blob.header.time_ms, what, who, new or old)


def _what(old: Override | None, new: Override | None) -> str:
    if old is None:
        return "created" if new is not None else ""
    if new is None:
        return "" if old.metadata.deletion_time is not None else "removed"
    if new.metadata.deletion_time is not None and old.metadata.deletion_time is None:
        return "revoked"
    if new.spec == old.spec:
        return ""
    if new.spec.approver != old.spec.approver:
        return "approved" if new.spec.approver else "changed"
    return "extended" if new.spec.ttl_seconds > old.spec.ttl_seconds else "changed"


def _row(position: int, time_ms: int, what: str, who: str, last: Any) -> Ordered:
    spec, meta = last.spec, last.metadata
    scope = {field: list(names) for field, names in msgspec.structs.asdict(spec.scope).items() if names}
    return Ordered(
        position, time_ms, meta.namespace, meta.name, spec.kind, what, who, spec.requester, spec.approver, spec.ttl_seconds,
        scope, spec.reason,
    )  # fmt: skip
