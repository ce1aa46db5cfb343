"""Makes a record of a plain tree, or says everything that is wrong with the tree, in plain words and with paths.

msgspec stops at the first fault, so this walks the record's type beside the tree, reports every mismatch, missing and unknown
field, and hands msgspec a tree it will accept. Never raises on any tree that passed limits.check_tree. Called by json_codec.py
and manifest.py.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect

from fairlead.model.commands import Fault
from fairlead.model.meta import Metadata, OwnerReference
from fairlead.model.quantity import BadQuantity
from fairlead.model.report import Report, shown
from fairlead.model.resources import Resources
from fairlead.wire.limits import At, Bad, tell, words
from fairlead.wire.meant import meant

FieldValidation = Literal["strict", "warn", "ignore"]

T = TypeVar("T")

# Written by the server, or by Kubernetes' habits, and of no meaning in a request: taken without a word.
_SKIPPED: Final[dict[type, frozenset[str]]] = {
    Metadata: frozenset({"managedFields", "resourceVersion", "selfLink"}),
    OwnerReference: frozenset({"apiVersion"}),
}
_SUGGESTIONS_MAX: Final = 20  # in one object: whoever has mistyped more has sent something else
_MISSING: Final = object()  # the value could not be made; its faults are in the report


class Unknowns:
    """What to do with fields no record has, and the warnings so far."""

    def __init__(self, mode: FieldValidation) -> None:
        self.mode = mode
        self._found = 0
        self._warnings = Report()

    def found(self, report: Report, at: At, key: str, known: Iterable[str], root: type) -> None:
        """`known`: the fields there are in its place; `root`: the kind of which it was to be a part."""
        if self.mode == "ignore":
            return
        self._found += 1
        near = meant(key, known, root) if self._found <= _SUGGESTIONS_MAX else ""
        hint = f"; did you mean {near}?" if near else ""
        tell(report if self.mode == "strict" else self._warnings, (at, key), f"unknown field{hint}")

    def warnings(self) -> tuple[Fault, ...]:
        return self._warnings.faults()


class _Walk(NamedTuple):
    report: Report
    unknowns: Unknowns
    root: type  # what the whole tree is to be
    lenient: bool = False  # what cannot be read and may be left out is

    def fault(self, at: At, message: str) -> object:
        # What check_tree said of a value is nearer the cause.
        if self.report.is_full or not self.report.mentions(words(at)):
            tell(self.report, at, message)
        return _MISSING


def conform(report: Report, tree: object, wanted: type[T], path: str, unknowns: Unknowns) -> T | None:
    """A value of the wanted type, or None with the reasons in the report."""
    kind: type = wanted
    walk = _Walk(report, unknowns, kind)
    plain = _fit(walk, _type_of(kind), tree, path)
    if plain is _MISSING or report.faults():
        return None
    try:
        return msgspec.convert(plain, wanted, strict=True)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        # The walk knows fewer types than msgspec; what it let through is still judged.
        report.add(path, f"cannot be read: {str(error)[:200]}")
        return None


def readable(tree: object, wanted: type[T]) -> T | None:
    """What can be read of a tree that has faults, without them; None where too little is left."""
    kind: type = wanted
    plain = _fit(_Walk(Report(), Unknowns("ignore"), kind, lenient=True), _type_of(kind), tree, "")
    try:
        return msgspec.convert(plain, wanted, strict=True) if plain is not _MISSING else None
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None


@functools.cache
def _type_of(wanted: type) -> inspect.Type:
    return inspect.type_info(wanted)


def word_for(value: object) -> str:
    """What a value is, in the words of someone who writes manifests."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number with a fraction"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


def _wrong(walk: _Walk, at: At, expected: str, value: object) -> object:
    return walk.fault(at, f"expected {expected}, got {word_for(value)}")


def _fit(walk: _Walk, wanted: inspect.Type, value: object, at: At) -> object:
    if isinstance(value, Bad):
        return _MISSING  # check_tree has reported it
    fit = _FITS.get(type(wanted))
    return fit(walk, wanted, value, at) if fit is not None else value


def _fit_struct(walk: _Walk, wanted: inspect.StructType, value: object, at: At) -> object:
    if wanted.array_like:
        return _fit_array(walk, wanted, value, at)
    if not isinstance(value, dict):
        return _wrong(walk, at, "an object", value)
    made: dict[str, object] = {}
    whole = True
    known = _fields(wanted)
    for key, item in value.items():
        field = known.get(key)
        if field is None:
            _unknown_field(walk, wanted, key, at)
        elif item is not None:  # null means "not said", as in Kubernetes
            got = made[key] = _fit(walk, field.type, item, (at, key))
            if got is _MISSING and walk.lenient and not field.required:
                del made[key]
            else:
                whole = whole and got is not _MISSING
    for name, field in known.items():
        if field.required and name not in made:
            walk.fault((at, name), f"is required: {_expected(field.type)}")
            whole = False
    return made if whole else _MISSING


@functools.cache
def _fields_of_class(cls: type) -> dict[str, inspect.Field]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field for field in info.fields if field.encode_name not in _SKIPPED.get(cls, ())}


def _fields(wanted: inspect.StructType) -> dict[str, inspect.Field]:
    return _fields_of_class(wanted.cls)


def _unknown_field(walk: _Walk, wanted: inspect.StructType, key: str, at: At) -> None:
    if key not in _SKIPPED.get(wanted.cls, ()):
        walk.unknowns.found(walk.report, at, key, _fields(wanted), walk.root)


def _fit_array(walk: _Walk, wanted: inspect.StructType, value: object, at: At) -> object:
    """A record that is written as a list, such as a fencing token."""
    names = [field.encode_name for field in wanted.fields]
    least = sum(field.required for field in wanted.fields)
    if not isinstance(value, list | tuple):
        return _wrong(walk, at, f"a list of {', '.join(names)}", value)
    if not least <= len(value) <= len(names):
        return walk.fault(at, f"expected a list of {', '.join(names)}, got {len(value)} values")
    made = [_fit(walk, field.type, item, (at, i)) for i, (field, item) in enumerate(zip(wanted.fields, value, strict=False))]
    return _MISSING if any(item is _MISSING for item in made) else made


def _fit_list(walk: _Walk, wanted: inspect.VarTupleType | inspect.ListType, value: object, at: At) -> object:
    if not isinstance(value, list | tuple):
        return _wrong(walk, at, "a list", value)
    made = [_fit(walk, wanted.item_type, item, (at, index)) for index, item in enumerate(value)]
    return _MISSING if any(item is _MISSING for item in made) else made


def _fit_dict(walk: _Walk, wanted: inspect.DictType, value: object, at: At) -> object:
    if not isinstance(value, dict):
        return _wrong(walk, at, "an object", value)
    made = {key: _fit(walk, wanted.value_type, item, (at, key)) for key, item in value.items()}
    return _MISSING if any(item is _MISSING for item in made.values()) else made


def _fit_union(walk: _Walk, wanted: inspect.UnionType, value: object, at: At) -> object:
    if value is None and wanted.includes_none:
        return None
    others = [option for option in wanted.types if not isinstance(option, inspect.NoneType)]
    # A union of several is left to msgspec: none is part of a manifest.
    return _fit(walk, others[0], value, at) if len(others) == 1 else value


def _fit_str(walk: _Walk, wanted: inspect.Type, value: object, at: At) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return walk.fault(at, f"expected a string, got {word_for(value)}; put it in quotes")
    return _wrong(walk, at, "a string", value)


def _fit_int(walk: _Walk, wanted: inspect.Type, value: object, at: At) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _wrong(walk, at, "a whole number", value)


def _fit_float(walk: _Walk, wanted: inspect.Type, value: object, at: At) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return _wrong(walk, at, "a number", value)


def _fit_bool(walk: _Walk, wanted: inspect.Type, value: object, at: At) -> object:
    return value if isinstance(value, bool) else _wrong(walk, at, "true or false", value)


def _fit_choice(walk: _Walk, wanted: inspect.LiteralType | inspect.EnumType, value: object, at: At) -> object:
    choices = _choices(wanted)
    if isinstance(value, str) and value in choices:
        return value
    got = shown(value) if isinstance(value, str) else word_for(value)
    return walk.fault(at, f"{_expected(wanted)}, got {got}")


def _choices(wanted: inspect.LiteralType | inspect.EnumType) -> list[str]:
    values = wanted.values if isinstance(wanted, inspect.LiteralType) else [member.value for member in wanted.cls]
    return [str(value) for value in values]


def _fit_time(walk: _Walk, wanted: inspect.Type, value: object, at: At) -> object:
    if isinstance(value, str):
        try:
            moment = msgspec.convert(value, datetime)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC)  # one form for one instant, so that equal objects have equal bytes
        except (msgspec.ValidationError, ValueError, OverflowError):
            pass
    got = shown(value) if isinstance(value, str) else word_for(value)
    return walk.fault(at, f"{_expected(wanted)}, got {got}")


def _fit_custom(walk: _Walk, wanted: inspect.CustomType, value: object, at: At) -> object:
    assert wanted.cls is Resources, f"{wanted.cls.__name__} has no wire form"
    if not isinstance(value, dict):
        return _wrong(walk, at, "an object", value)
    if not any(isinstance(amount, Bad) for amount in value.values()):
        with contextlib.suppress(BadQuantity):  # which of them is bad is asked only where one is
            return Resources.parse(value)
    whole = True
    for name, amount in value.items():
        if isinstance(amount, Bad):
            whole = False
            continue
        try:
            Resources.parse({name: amount})
        except BadQuantity as error:
            walk.fault((at, name), str(error).removeprefix(f"{name}: "))
            whole = False
    return Resources.parse(value) if whole else _MISSING


def _expected(wanted: inspect.Type) -> str:
    match wanted:
        case inspect.LiteralType() | inspect.EnumType():
            return f"expected one of {', '.join(sorted(c for c in _choices(wanted) if c))}"
        case inspect.DateTimeType():
            return "expected a time such as 2026-01-31T12:00:00Z"
        case inspect.StrType():
            return "expected a string"
        case inspect.IntType():
            return "expected a whole number"
        case inspect.FloatType():
            return "expected a number"
        case inspect.BoolType():
            return "expected true or false"
        case inspect.VarTupleType() | inspect.ListType():
            return "expected a list"
        case inspect.StructType(array_like=True):
            return "expected a list"
    return "expected an object"


_Fit = Callable[[_Walk, Any, object, At], object]
_FITS: Final[dict[type, _Fit]] = cast(
    "dict[type, _Fit]",
    {
        inspect.StructType: _fit_struct,
        inspect.VarTupleType: _fit_list,
        inspect.ListType: _fit_list,
        inspect.DictType: _fit_dict,
        inspect.UnionType: _fit_union,
        inspect.StrType: _fit_str,
        inspect.IntType: _fit_int,
        inspect.FloatType: _fit_float,
        inspect.BoolType: _fit_bool,
        inspect.LiteralType: _fit_choice,
        inspect.EnumType: _fit_choice,
        inspect.DateTimeType: _fit_time,
        inspect.CustomType: _fit_custom,
    },
)
