"""The compact form in which objects, commands and batches are kept: msgpack, with deterministic order and exact integers.

Owns the hooks for types that choose their own form. JSON and YAML live in fairlead/wire and nowhere else.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fairlead.model.meta import FieldsV1
from fairlead.model.resources import Resources

T = TypeVar("T")

# Few distinct shapes exist beside millions of bindings, so equal ones share one object. Cleared when a flood of
# different shapes makes it useless, because an unbounded cache is a leak.
_SHAPES_MAX = 100_000
_shapes: dict[Resources, Resources] = {}
_plain_shapes: dict[tuple[int, int], Resources] = {}  # those of cpu and memory alone, found without making one first


def intern_resources(value: Resources) -> Resources:
    if len(_shapes) > _SHAPES_MAX:
        _shapes.clear()
        _plain_shapes.clear()
    return _shapes.setdefault(value, value)


def _to_plain(value: object) -> object:
    if isinstance(value, Resources):
        if value.scalars:
            return (value.cpu, value.memory, value.scalars)
        return (value.cpu, value.memory)
    if isinstance(value, FieldsV1):
        return value.text
    raise TypeError(f"{type(value).__name__} has no stored form")


def _from_plain(wanted: type, plain: Any) -> object:
    if wanted is Resources:
        if len(plain) == 2:
            found = _plain_shapes.get((plain[0], plain[1]))
            if found is None:
                found = intern_resources(Resources(plain[0], plain[1]))
                _plain_shapes[plain[0], plain[1]] = found
            return found
        return intern_resources(Resources(plain[0], plain[1], ((name, amount) for name, amount in plain[2])))
    if wanted is FieldsV1:
        return FieldsV1(plain)
    raise TypeError(f"{wanted.__name__} has no stored form")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain, order="deterministic")
encode = _encoder.encode


def decoder(wanted: type[T]) -> msgspec.msgpack.Decoder[T]:
    """A decoder for one record type. Unknown fields are skipped, so a newer version's records can be read."""
    return msgspec.msgpack.Decoder(wanted, dec_hook=_from_plain)


def convert(plain: Any, wanted: type[T]) -> T:
    """What a decoder without a type left as maps and lists, as the record it is."""
    return msgspec.convert(plain, wanted, dec_hook=_from_plain)
