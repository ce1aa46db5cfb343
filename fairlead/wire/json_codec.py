"""JSON in and out. Text becomes a plain tree in which every trouble is marked; records become camelCase JSON.

Owns the JSON grammar and the wire form of types that choose their own (quantities as strings). Never checks a tree against a
kind: that is shape.py. Called by manifest.py, the API and the client.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar

import msgspec

from fairlead.model.commands import Fault
from fairlead.model.meta import FieldsV1, Record
from fairlead.model.registry import KindInfo
from fairlead.model.report import Report
from fairlead.model.resources import Resources
from fairlead.wire.limits import (
    DEPTH_MAX,
    NODES_MAX,
    Bad,
    check_tree,
    float_of,
    integer_of,
    object_of,
    text_of,
)
from fairlead.wire.shape import Unknowns, conform

API_VERSION: Final = "fairlead.dev/v1alpha1"

T = TypeVar("T")

# Strings are skipped whole (possessively, so that megabytes of them cost no memory); the rest is what nests or separates.
_STRUCTURE: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)


def parse_json(body: bytes) -> object | Fault:
    """A tree of plain values, or why there is none. Troubles inside it are marked for `check_tree`."""
    text = text_of(body)
    if isinstance(text, Fault):
        return text
    if not text.strip():
        return Fault("", "is empty; expected an object")
    fault = _structure_fault(text)
    if fault is not None:
        return fault
    try:
        tree: object = _decoder.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        return Fault("", f"is not JSON: line {error.lineno}, column {error.colno}: {what}")
    return tree


def _structure_fault(text: str) -> Fault | None:
    """Judged before parsing, because the parser recurses and builds the whole tree first."""
    if text.count("[") + text.count("{") <= DEPTH_MAX and text.count(",") < NODES_MAX:
        return None  # whatever stands in strings, it cannot be too deep or too much
    depth = nodes = 0
    for match in _STRUCTURE.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            nodes += 1
            if depth > DEPTH_MAX:
                return Fault("", f"is nested too deeply; at most {DEPTH_MAX} levels are read")
        elif token in "]}":
            depth -= 1
        elif token == ",":
            nodes += 1
        if nodes > NODES_MAX:
            return Fault("", f"has too many values; at most {NODES_MAX} are read")
    return None


def _not_a_number(text: str) -> Bad:
    return Bad(f"must be a number; {text} is none")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=object_of, parse_int=integer_of, parse_float=float_of, parse_constant=_not_a_number
)


def _to_wire(value: object) -> object:
    if isinstance(value, Resources):
        return value.as_quantities()
    if isinstance(value, FieldsV1):
        return msgspec.Raw(value.text.encode())
    raise TypeError(f"{type(value).__name__} has no wire form")


_encoder: Final = msgspec.json.Encoder(enc_hook=_to_wire)


def encode(value: Any) -> bytes:
    """Any record, or plain values that hold records, as JSON. Fields at their defaults are left out."""
    return _encoder.encode(value)


def to_plain(value: Any) -> Any:
    """The same as a tree of dicts, lists and plain values, with times as RFC 3339 text. Through JSON, because msgspec's own
    way keeps tuples, which no patch can be applied to."""
    return msgspec.json.decode(_encoder.encode(value))


# Every object starts so: metadata is its first field and a name is never left out. encode_object builds on it, because
# pasting a head before bytes costs a tenth of building the tree once more.
_HEAD: Final = b'{"metadata":{'


def encode_object(info: KindInfo, record: Record, resource_version: str = "") -> bytes:
    """An object as clients read it: with apiVersion, kind and its resourceVersion, which no record carries itself."""
    body = _encoder.encode(record)
    assert body.startswith(_HEAD), f"a {info.kind} does not start with its metadata"
    version = b'"resourceVersion":' + _encoder.encode(resource_version) + b"," if resource_version else b""
    head = f'{{"apiVersion":"{API_VERSION}","kind":"{info.kind}","metadata":{{'.encode()
    return head + version + body[len(_HEAD) :]


def plain_object(info: KindInfo, record: Record, resource_version: str = "") -> dict[str, Any]:
    """`encode_object` as a plain tree, for YAML, patches and tables."""
    plain: dict[str, Any] = to_plain(record)
    if resource_version:
        plain["metadata"] = {**plain["metadata"], "resourceVersion": resource_version}
    return {"apiVersion": API_VERSION, "kind": info.kind, **plain}


def decode(body: bytes, wanted: type[T]) -> T | tuple[Fault, ...]:
    """One value of a known type. Unknown fields are skipped: a newer peer may send more than this version knows."""
    tree = parse_json(body)
    if isinstance(tree, Fault):
        return (tree,)
    report = Report()
    if not check_tree(report, tree):
        return report.faults()
    value = conform(report, tree, wanted, "", Unknowns("ignore"))
    found = report.faults()
    return found if value is None or found else value
