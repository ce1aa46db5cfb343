"""A manifest to records: any bytes give objects or faults, never an exception.

Owns apiVersion, kind and resourceVersion, documents and lists of objects. Never judges whether an object makes sense: that is
decide/admission. Called by the API on every write and by the command line on files.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from fairlead.model.commands import Fault
from fairlead.model.meta import Record
from fairlead.model.registry import BY_KIND, KindInfo
from fairlead.model.report import Report, shown
from fairlead.wire.json_codec import API_VERSION, parse_json
from fairlead.wire.limits import Bad, check_tree, child
from fairlead.wire.shape import FieldValidation, Unknowns, conform, readable, word_for
from fairlead.wire.yaml_codec import parse_yaml

Media = Literal["json", "yaml"]

_LIST_KINDS: Final = frozenset({"List", *(f"{kind}List" for kind in BY_KIND)})
_LIST_VERSIONS: Final = frozenset({"v1", API_VERSION})


class Decoded(msgspec.Struct, frozen=True):
    """An object as its writer sent it. `resource_version` is what the writer had read; empty: whatever is there."""

    info: KindInfo
    record: Record
    resource_version: str = ""
    warnings: tuple[Fault, ...] = ()


def decode_object(text: bytes, *, media: Media, field_validation: FieldValidation = "strict") -> Decoded | tuple[Fault, ...]:
    """Exactly one object."""
    trees = _trees(text, media)
    if isinstance(trees, Fault):
        return (trees,)
    if len(trees) != 1:
        return (Fault("", f"expected one object, got {len(trees)} documents"),)
    return decode_plain(trees[0], field_validation=field_validation)


def decode_objects(
    text: bytes, *, media: Media, field_validation: FieldValidation = "strict"
) -> list[Decoded] | tuple[Fault, ...]:
    """Every object of a file: documents and the items of lists. All or none, with the faults of all."""
    trees = _trees(text, media)
    if isinstance(trees, Fault):
        return (trees,)
    decoded: list[Decoded] = []
    report = Report()
    for number, tree in enumerate(trees, start=1):
        prefix = f"document[{number}]" if len(trees) > 1 else ""
        for path, item in _items(tree, prefix):
            got = decode_plain(item, field_validation=field_validation, path=path)
            if isinstance(got, Decoded):
                decoded.append(got)
            else:
                for fault in got:
                    report.add(fault.path, fault.message)
    return report.faults() or decoded


def decode_plain(tree: object, *, field_validation: FieldValidation = "strict", path: str = "") -> Decoded | tuple[Fault, ...]:
    """One object from plain values, such as the result of a patch. `path` is put before the paths of its faults."""
    report = Report()
    if not check_tree(report, tree, path):
        return report.faults()
    if not isinstance(tree, dict):
        if not isinstance(tree, Bad):
            report.add(path, f"expected an object, got {word_for(tree)}")
        return report.faults()
    info = _kind_of(report, tree, path)
    if info is None:
        return report.faults()
    body = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    version = _resource_version(report, body, path)
    unknowns = Unknowns(field_validation)
    record = conform(report, body, info.record, path, unknowns)
    found = report.faults()
    if record is None or found:
        return found
    return Decoded(info=info, record=record, resource_version=version, warnings=unknowns.warnings())


def readable_part(tree: object) -> tuple[KindInfo, Record] | None:
    """Of an object with faults, what can be read without them; None where too little is left."""
    info = _kind_of(Report(), tree, "") if isinstance(tree, dict) and check_tree(Report(), tree, "") else None
    if info is None or not isinstance(tree, dict):
        return None
    record = readable({key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}, info.record)
    return (info, record) if record is not None else None


def _trees(text: bytes, media: Media) -> list[object] | Fault:
    if media == "json":
        tree = parse_json(text)
        return tree if isinstance(tree, Fault) else [tree]
    trees = parse_yaml(text)
    if isinstance(trees, list) and not trees:
        return Fault("", "is empty; expected an object")
    return trees


def _items(tree: object, prefix: str) -> list[tuple[str, object]]:
    """The objects in one document, with the path of each."""
    if isinstance(tree, dict) and _is_one_of(tree.get("kind"), _LIST_KINDS):
        items = tree.get("items")
        if _is_one_of(tree.get("apiVersion"), _LIST_VERSIONS) and isinstance(items, list):
            return [(f"{child(prefix, 'items')}[{index}]", item) for index, item in enumerate(items)]
    return [(prefix, tree)]


def _is_one_of(value: object, known: frozenset[str]) -> bool:
    return isinstance(value, str) and value in known


def _kind_of(report: Report, tree: dict[str, Any], path: str) -> KindInfo | None:
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if version is None:
        report.add(child(path, "apiVersion"), f"is required: {API_VERSION}")
    elif version != API_VERSION and not isinstance(version, Bad):
        got = shown(version) if isinstance(version, str) else word_for(version)
        report.add(child(path, "apiVersion"), f"expected {API_VERSION}, got {got}")
    info = BY_KIND.get(kind) if isinstance(kind, str) else None
    if kind is None:
        report.add(child(path, "kind"), f"is required: one of {', '.join(sorted(BY_KIND))}")
    elif info is None and not isinstance(kind, Bad):
        got = shown(kind) if isinstance(kind, str) else word_for(kind)
        report.add(child(path, "kind"), f"expected one of {', '.join(sorted(BY_KIND))}, got {got}")
    return info


def _resource_version(report: Report, body: dict[str, Any], path: str) -> str:
    metadata = body.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version is None or isinstance(version, Bad):
        return ""
    if not isinstance(version, str):
        report.add(child(child(path, "metadata"), "resourceVersion"), f"expected a string, got {word_for(version)}")
        return ""
    return version
