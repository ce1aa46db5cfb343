"""Just enough protobuf for the few bodies kubectl sends so from 1.32 on, and to write OpenAPI v2 for those before 1.27.

Owns the wire format of varints and length-delimited fields. Pure; any bytes give fields or ValueError. Called by core.py,
questions.py and openapi_v2.py.
"""

from __future__ import annotations

from typing import Final

KUBERNETES: Final = b"k8s\x00"
FIELDS_MAX: Final = 10_000

Fields = dict[int, list[bytes | int]]


def fields(data: bytes) -> Fields:
    """The fields of one message: bytes for what has a length, ints for varints."""
    out: Fields = {}
    at = count = 0
    while at < len(data):
        count += 1
        if count > FIELDS_MAX:
            raise ValueError("too many fields")
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: bytes | int
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {wire}")
        if at > len(data):
            raise ValueError("the message ends in the middle of a field")
        out.setdefault(number, []).append(value)
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number without an end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def message(found: Fields, number: int) -> Fields:
    last = found.get(number, [b""])[-1]
    return fields(last) if isinstance(last, bytes) else {}


def text(found: Fields, number: int) -> str:
    last = found.get(number, [b""])[-1]
    return last.decode("utf-8", "replace") if isinstance(last, bytes) else ""


def text_map(found: Fields, number: int) -> dict[str, str]:
    entries = [fields(entry) for entry in found.get(number, []) if isinstance(entry, bytes)]
    return {text(entry, 1): text(entry, 2) for entry in entries}


def envelope(body: bytes) -> tuple[str, Fields]:
    """Kubernetes' wrapper: (kind, the object's fields)."""
    if not body.startswith(KUBERNETES):
        raise ValueError("not Kubernetes' protobuf")
    outer = fields(body[len(KUBERNETES) :])
    return text(message(outer, 1), 2), message(outer, 2)


# --- writing -----------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | bool) -> bytes:
    if isinstance(value, bool):
        return varint(number << 3) + (b"\x01" if value else b"\x00")
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data
