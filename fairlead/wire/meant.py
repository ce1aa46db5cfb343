"""What somebody may have meant by a field that is not there: one beside it with such a name, or one of the same name elsewhere.

Owns the guess and its cost. Never decides whether the field is wrong. Called by shape.py.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import inspect

_LENGTH_MAX: Final = 64  # comparing names costs the square of their length
_DEPTH_MAX: Final = 8  # no kind is as deep; one that held itself would be
_ENDING_MIN: Final = 4  # `id` is at the end of too many
_NOT_ASKED_FOR: Final = frozenset({"metadata", "status"})  # nobody who writes a manifest looks for a field of these


def meant(key: str, known: Iterable[str], root: type) -> str:
    """A field beside it, or the path of one elsewhere in the object; empty where nothing comes near."""
    if len(key) > _LENGTH_MAX:
        return ""
    known = tuple(known)
    spelled = [name for name in known if name.lower() == key.lower()]
    elsewhere = _places(root).get(key, ())
    if spelled or len(elsewhere) == 1:
        return spelled[0] if spelled else elsewhere[0]
    near = difflib.get_close_matches(key, known, n=1) or ([] if elsewhere else _ending_with(key, known))
    return near[0] if near else ""


def _ending_with(key: str, known: Iterable[str]) -> list[str]:
    """`class` is `workloadClass`, where nothing else ends so."""
    found = [name for name in known if name.lower().endswith(key.lower())] if len(key) >= _ENDING_MIN else []
    return found if len(found) == 1 else []


@functools.cache
def _places(root: type) -> dict[str, tuple[str, ...]]:
    """Every field of a kind by its name."""
    out: dict[str, tuple[str, ...]] = {}
    for name, path in _walk(inspect.type_info(root), "", 0):
        out[name] = (*out.get(name, ()), path)
    return out


def _walk(kind: Any, at: str, depth: int) -> Iterator[tuple[str, str]]:
    match kind:
        case inspect.StructType(array_like=False) if depth < _DEPTH_MAX:
            for field in kind.fields:
                if depth or field.encode_name not in _NOT_ASKED_FOR:
                    path = f"{at}.{field.encode_name}" if at else field.encode_name
                    yield field.encode_name, path
                    yield from _walk(field.type, path, depth + 1)
        case inspect.VarTupleType() | inspect.ListType():
            yield from _walk(kind.item_type, f"{at}[]", depth)
        case inspect.UnionType():
            for option in kind.types:
                yield from _walk(option, at, depth)
