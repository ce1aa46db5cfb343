"""How much of a stranger's text we look at, and what a tree of plain values may hold.

Owns the numbers and the walk that applies them; recursion happens only on trees that passed it. Never knows any kind. Called
by the codecs and by manifest.py before anything else touches the input.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final

from fairlead.model.commands import Fault
from fairlead.model.report import Report

BODY_BYTES_MAX: Final = 3 * 1024 * 1024  # Kubernetes' own limit
DEPTH_MAX: Final = 64
NODES_MAX: Final = 200_000  # An object of 256 KiB cannot hold more; a tree of them costs some 20 MB.
DOCUMENTS_MAX: Final = 1_000  # in one file
INTEGER_DIGITS_MAX: Final = 19  # of 2^63

_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1
_TOO_LARGE: Final = "is too large; a whole number may be -2^63 to 2^63 - 1"


class Bad:
    """Stands in a tree where the text held something no value can be made of; the walk reports it with its path."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


class Repeating(dict[str, Any]):
    """An object whose text named a key more than once."""

    repeated: tuple[str, ...] = ()


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict, marked when a key came twice. JSON would silently take the last, and somebody else's parser the first."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    marked = Repeating(plain)
    seen: set[str] = set()
    marked.repeated = tuple(dict.fromkeys(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return marked


def integer_of(text: str) -> int | Bad:
    """Bounded before it is converted: the time to convert grows with the square of the length."""
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= INTEGER_DIGITS_MAX else _INTEGER_MAX + 2
    value = -value if text.startswith("-") else value
    return value if _INTEGER_MIN <= value <= _INTEGER_MAX else Bad(_TOO_LARGE)


def float_of(text: str) -> float | Bad:
    value = float(text)
    return value if math.isfinite(value) else Bad("is too large for a number")


def child(path: str, key: object) -> str:
    """The path of a member. Keys that are not plain words stand in brackets, shortened and escaped."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    text = str(key)
    if text.isidentifier() and text.isascii() and len(text) <= 80:
        return f"{path}.{text}" if path else text
    shown = text if len(text) <= 80 else text[:77] + "..."
    return f"{path}[{shown if shown.isprintable() else ascii(shown)[1:-1]}]"


# Where a walk stands: the caller's path, then (where from, key) step by step. Put into words only when there is a fault.
At = tuple[Any, str | int] | str


def words(at: At) -> str:
    steps: list[str | int] = []
    while not isinstance(at, str):
        at, step = at
        steps.append(step)
    return functools.reduce(child, reversed(steps), at)


def tell(report: Report, at: At, message: str) -> None:
    report.add("" if report.is_full else words(at), message)


def body_fault(text: bytes) -> Fault | None:
    if len(text) > BODY_BYTES_MAX:
        return Fault("", f"is too large: {len(text)} bytes, at most {BODY_BYTES_MAX} are read")
    return None


def text_of(body: bytes) -> str | Fault:
    """The body as text. A UTF-8 byte order mark is let through: editors on some systems write one."""
    fault = body_fault(body)
    if fault is not None:
        return fault
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Fault("", f"is not UTF-8 text: byte {error.start} cannot be read")


def check_tree(report: Report, tree: object, path: str = "") -> bool:
    """Reports everything no record could hold. False: too deep, too large or keyed by other things
    than strings, so nobody may walk it further."""
    if _is_sound(tree):
        return True
    budget = NODES_MAX
    stack: list[tuple[At, object, int]] = [(path, tree, 1)]
    while stack:
        here, node, depth = stack.pop()
        if isinstance(node, dict | list | tuple):
            if depth > DEPTH_MAX:
                report.add(words(here)[:200], f"is nested too deeply; at most {DEPTH_MAX} levels are read")
                return False
            budget -= len(node)
            if budget < 0:
                report.add(path, f"has too many values; at most {NODES_MAX} are read")
                return False
            members = _members(report, here, node, depth + 1)
            if members is None:
                return False
            stack.extend(reversed(members))
        else:
            _check_leaf(report, here, node)
    return True


def _is_sound(tree: object) -> bool:
    """The same without words, level by level: nearly every tree passes, and naming every value costs ten times as much."""
    level: list[object] = [tree]
    nodes = 0
    for _ in range(DEPTH_MAX + 1):
        below: list[object] = []
        for node in level:
            kind = type(node)
            if kind is dict:
                below += node  # type: ignore[arg-type]
                below += node.values()  # type: ignore[attr-defined]
                if not all(type(key) is str for key in node):  # type: ignore[attr-defined]
                    return False
            elif kind is list or kind is tuple:
                below += node  # type: ignore[arg-type]
            elif not _is_plain_leaf(node):
                return False
        nodes += len(below)
        if not below:
            return True
        if nodes > NODES_MAX:
            return False
        level = below
    return False


def _is_text(text: str) -> bool:
    """Half a surrogate pair can be written in JSON escapes, but be neither stored nor sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain_leaf(leaf: object) -> bool:
    if type(leaf) is str:
        return leaf.isascii() or _is_text(leaf)
    if type(leaf) is int:
        return _INTEGER_MIN <= leaf <= _INTEGER_MAX
    if type(leaf) is float:
        return math.isfinite(leaf)
    return leaf is None or type(leaf) is bool


def _members(
    report: Report, at: At, node: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int
) -> list[tuple[At, object, int]] | None:
    if not isinstance(node, dict):
        return [((at, index), item, depth) for index, item in enumerate(node)]
    if isinstance(node, Repeating):
        for key in node.repeated:
            tell(report, (at, key), "stands here more than once; keep one")
    members: list[tuple[At, object, int]] = []
    for key, item in node.items():
        if not isinstance(key, str):
            tell(report, at, f"has the key {str(key)[:60]}, which is not a string; put it in quotes")
            return None
        _check_leaf(report, at, key)
        members.append(((at, key), item, depth))
    return members


def _check_leaf(report: Report, at: At, leaf: object) -> None:
    match leaf:
        case Bad():
            tell(report, at, leaf.message)
        case str():
            if not _is_text(leaf):
                tell(report, at, "holds half a surrogate pair, which is not text")
        case None | bool():
            pass
        case int():
            if not _INTEGER_MIN <= leaf <= _INTEGER_MAX:
                tell(report, at, _TOO_LARGE)
        case float():
            if not math.isfinite(leaf):
                tell(report, at, "must be a number; NaN and Infinity are none")
        case _:
            tell(report, at, f"is of the type {type(leaf).__name__}, which no manifest can hold")
