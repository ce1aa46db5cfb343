"""One stored form for one value: what equals a field's default *is* the default, and numbers are of their field's type.

msgspec leaves a field out where its value is the default itself, the same object in memory, not where it equals it. Which of two
equal objects one has depends on where it came from: a manifest, the store, a computation. So the bytes of what was decoded and
encoded again could differ from those that were judged. Settled records differ in bytes only where they differ in value.

Pure. The judges settle what comes from outside; what they make of settled records is settled too, so that binding, of which there
are thousands a second, does not pay for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from fairlead.model.meta import Record

T = TypeVar("T")
Settle = Callable[[Any], Any]
# Python has one object for each of these values: there, to be equal is to be the same. Of a float there is never one alone.
_SMALL: Final = range(-5, 257)


def settled(record: T) -> T:
    """The same value in the one form that is stored; the record itself, where it has that form."""
    kind: Any = type(record)
    settle = _of_record(kind)
    found: T = record if settle is None else settle(record)
    return found


@functools.cache
def _of_record(record: type[Any]) -> Settle | None:
    """None: nothing of this type can have two forms."""
    hints = get_type_hints(record)
    plan = []
    for field in msgspec.structs.fields(record):
        inner = _of_type(hints[field.name])
        default = _NOTHING if field.default is msgspec.NODEFAULT or _is_one(field.default) else field.default
        if inner is not None or default is not _NOTHING:
            plan.append((field.name, default, inner))
    return _by_plan(tuple(plan)) if plan else None


_NOTHING: Final = object()  # equals no value


def _is_one(default: Any) -> bool:
    return default is None or default in ("", ()) or (isinstance(default, int) and default in _SMALL)


def _by_plan(plan: tuple[tuple[str, Any, Settle | None], ...]) -> Settle:
    def settle(record: Any) -> Any:
        changes: dict[str, Any] = {}
        for name, default, inner in plan:
            value = getattr(record, name)
            if value is default:
                continue
            now = value if inner is None else inner(value)
            if now == default:
                now = default
            if now is not value:
                changes[name] = now
        return msgspec.structs.replace(record, **changes) if changes else record

    return settle


@functools.cache
def _of_type(hint: Any) -> Settle | None:
    if hint is float:
        return _as_float
    if isinstance(hint, type) and issubclass(hint, Record):
        return _of_record(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _each(_of_type(arguments[0]))
    if origin is tuple:
        assert all(_of_type(one) is None for one in arguments), f"{hint}: no stored record holds one of these yet"
        return None
    if origin is dict:
        return _each_value(_of_type(arguments[1]))
    found = [inner for one in arguments if one is not NoneType and (inner := _of_type(one)) is not None]
    assert len(found) <= 1, f"{hint}: which of them it is, is not told apart yet"
    return _if_any(found[0]) if found else None


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _if_any(inner: Settle) -> Settle:
    return lambda value: None if value is None else inner(value)


def _each(inner: Settle | None) -> Settle | None:
    if inner is None:
        return None

    def settle(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not values:
            return values
        now = tuple(map(inner, values))
        return values if all(map(_is_same, now, values)) else now

    return settle


def _each_value(inner: Settle | None) -> Settle | None:
    if inner is None:
        return None

    def settle(values: dict[str, Any]) -> dict[str, Any]:
        now = {key: inner(value) for key, value in values.items()}
        return values if all(map(_is_same, now.values(), values.values())) else now

    return settle


def _is_same(one: Any, other: Any) -> bool:
    return one is other
