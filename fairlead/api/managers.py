"""Who manages which fields: kept up to date on every write of people's kinds, and the rules of server-side apply. Pure.

An update takes the fields it changed away from everybody else. An apply owns exactly what it says; where it differs from what
another manager says it is a conflict, unless forced; what it no longer says and nobody else owns is removed. As in Kubernetes,
what a manager updates and what it applies are two entries that may conflict; but the command line is one tool, whatever its verb,
and never in its own way. Called by writing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from fairlead.api.failures import Failure
from fairlead.api.fieldsets import Node, Path, Paths, from_text, leaves, merge, remove, shown, to_text
from fairlead.api.patches import same
from fairlead.model.meta import FieldsV1, ManagedFields
from fairlead.wire.json_codec import API_VERSION

ENTRIES_MAX: Final = 100
ONE_TOOL: Final = "fairlead"  # the name under which the command line applies, scales, edits and undoes
Operation = Literal["Apply", "Update"]
Entries = tuple[ManagedFields, ...]


class Applied(NamedTuple):
    tree: Any
    entries: Entries


def updated(entries: Entries, manager: str, before: Any, after: Any, node: Node) -> Entries:
    """The entries after a write that turned one tree into the other."""
    old, new = leaves(before, node), leaves(after, node)
    changed = frozenset(path for path, value in new.items() if path not in old or not same(old[path], value))
    removed = frozenset(path for path in old if path not in new)
    if not changed and not removed:
        return entries
    kept = [(entry, _without(entry, changed | removed)) for entry in entries if not _is(entry, manager, "Update")]
    mine = next((entry for entry in entries if _is(entry, manager, "Update")), None)
    owned = ((from_text(mine.fields_v1.text) if mine is not None else frozenset()) | changed) - removed
    out = [entry for _, entry in kept if entry is not None]
    if owned:
        out.append(_entry(manager, "Update", owned, mine))
    return _bounded(out)


def created(manager: str, operation: Operation, sent: Any, node: Node) -> Entries:
    """Of a new object: whatever its creator said."""
    owned = frozenset(leaves(sent, node))
    return (_entry(manager, operation, owned, None),) if owned else ()


def apply(live: Any, entries: Entries, manager: str, applied: Any, node: Node, *, force: bool, last_applied: Any) -> Applied:
    """Raises 409 with every conflict. `last_applied` is what client-side apply said last, where the object carries it."""
    said, there = leaves(applied, node), leaves(live, node)
    entries = _said_again(entries, manager, frozenset(said))
    others = [entry for entry in entries if not _is(entry, manager, "Apply")]
    mine = next((entry for entry in entries if _is(entry, manager, "Apply")), None)
    contested: set[Path] = set()
    conflicts: list[tuple[str, Path]] = []
    passed = leaves(last_applied, node) if manager == "kubectl" and isinstance(last_applied, dict) else {}
    for entry in others:
        for path in sorted(from_text(entry.fields_v1.text) & said.keys()):
            if _agree(there, said, path):
                continue
            contested.add(path)
            # What kubectl's own client-side apply set, kubectl may set again: it is moving over to this side.
            if not force and not (path in passed and path in there and same(passed[path], there[path])):
                conflicts.append((entry.manager, path))
    if conflicts:
        raise _conflict(conflicts)
    tree = merge(live, applied, node)
    still_owned = frozenset(said).union(*(from_text(entry.fields_v1.text) for entry in others))
    before = from_text(mine.fields_v1.text) if mine is not None else frozenset()
    # What was an empty object may hold others' fields by now: only a leaf is removed. Whole items go first, while they have keys.
    gone = (before - still_owned) & leaves(tree, node).keys()
    for path in sorted(gone, key=lambda p: p[-1] == ".", reverse=True):
        tree = remove(tree, path, node)
    left = [_without(entry, frozenset(contested)) for entry in others]
    out = [entry for entry in left if entry is not None]
    if said:
        out.append(_entry(manager, "Apply", frozenset(said), mine))
    return Applied(tree, _bounded(out))


def _said_again(entries: Entries, manager: str, said: Paths) -> Entries:
    """What the one tool set by its other verbs and applies now, it owns by applying."""
    if manager != ONE_TOOL:
        return entries
    left = (_without(entry, said) if _is(entry, manager, "Update") else entry for entry in entries)
    return tuple(entry for entry in left if entry is not None)


def _agree(there: dict[Path, Any], said: dict[Path, Any], path: Path) -> bool:
    if path in there:
        return same(there[path], said[path])
    return not said[path]  # what is empty is not shown


def _is(entry: ManagedFields, manager: str, operation: Operation) -> bool:
    return (entry.manager, entry.operation, entry.subresource) == (manager, operation, "")


def _without(entry: ManagedFields, paths: Paths) -> ManagedFields | None:
    owned = from_text(entry.fields_v1.text)
    left = owned - paths
    if len(left) == len(owned):
        return entry
    return msgspec.structs.replace(entry, fields_v1=FieldsV1(to_text(left))) if left else None


def _entry(manager: str, operation: Operation, owned: Paths, old: ManagedFields | None) -> ManagedFields:
    """The same entry where nothing changed: a write that changes nothing makes no revision."""
    fields = FieldsV1(to_text(owned))
    if old is not None and old.fields_v1 == fields:
        return old
    return ManagedFields(
        manager=manager, operation=operation, api_version=API_VERSION, fields_type="FieldsV1", fields_v1=fields
    )  # fmt: skip


def _bounded(entries: list[ManagedFields]) -> Entries:
    if len(entries) > ENTRIES_MAX:
        raise Failure(422, f"more than {ENTRIES_MAX} managers have written this object; use fewer names of field managers")
    return tuple(entries)


def _conflict(conflicts: Sequence[tuple[str, Path]]) -> Failure:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}" using {API_VERSION}', "field": shown(path)}
        for manager, path in conflicts
    ]
    words = ", ".join(f'"{manager}" using {API_VERSION}: {shown(path)}' for manager, path in conflicts[:20])
    number = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    return Failure(409, f"Apply failed with {number}: conflicts with {words}", causes=causes)


def entries_of(plain: Any) -> Entries:
    """managedFields as a client wrote them back; 422 where they are none."""
    out = []
    if not isinstance(plain, list):
        raise _bad("metadata.managedFields", "expected a list")
    for index, item in enumerate(plain):
        path = f"metadata.managedFields[{index}]"
        if not isinstance(item, dict) or not item:
            continue  # Kubernetes' way to say: forget them
        manager = item.get("manager")
        if item.get("operation") not in ("Apply", "Update") or not isinstance(manager, str) or not manager.isprintable():
            raise _bad(path, "expected a manager and an operation Apply or Update")
        fields = item.get("fieldsV1", {})
        if not isinstance(fields, dict):
            raise _bad(f"{path}.fieldsV1", "expected an object")
        try:
            text = msgspec.json.encode(fields).decode()
        except (TypeError, ValueError):
            raise _bad(f"{path}.fieldsV1", "holds what is no value") from None
        out.append(
            ManagedFields(
                manager=manager[:128],
                operation=item["operation"],
                api_version=API_VERSION,
                time=_time(item.get("time"), path),
                fields_type="FieldsV1",
                fields_v1=FieldsV1(to_text(from_text(text))),
                subresource=str(item.get("subresource") or "")[:63],
            )
        )
    return _bounded(out)


def _time(text: Any, path: str) -> datetime | None:
    try:
        return None if text is None else msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise _bad(f"{path}.time", "expected a time in RFC 3339") from None


def _bad(path: str, message: str) -> Failure:
    return Failure(422, f"{path}: {message}", causes=[{"reason": "FieldValueInvalid", "message": message, "field": path}])
