"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902) on plain trees. Pure: the tree that comes in is never changed.

Owns the two formats and the bounds on what a patch may grow. Called by writing.py and scaling.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from fairlead.api.failures import Failure, bad_request
from fairlead.wire.limits import DEPTH_MAX, NODES_MAX

OPERATIONS_MAX: Final = 10_000  # Kubernetes' own limit


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386. Recursion is bounded because the patch was read with a bounded depth."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902: all operations or none."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise Failure(413, f"a JSON patch may have {OPERATIONS_MAX} operations, has {len(operations)}")
    document = _Document(copy.deepcopy(target))
    for index, operation in enumerate(operations):
        try:
            document.apply(operation)
        except _Misfit as misfit:
            message = f"the JSON patch cannot be applied: operation {index}: {misfit}"
            raise Failure(
                422, message, causes=[{"reason": "FieldValueInvalid", "message": str(misfit), "field": "patch"}]
            ) from None
    return document.root


class _Misfit(Exception):
    """The operation does not fit the document."""


class _Document:
    def __init__(self, root: Any) -> None:
        self.root = root
        self._copied = 0

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict) or not isinstance(operation.get("op"), str):
            raise bad_request("each operation of a JSON patch is an object with op and path")
        work: Callable[[dict[str, Any], list[str]], None] | None = {
            "add": self._add,
            "remove": self._remove,
            "replace": self._replace,
            "move": self._move,
            "copy": self._copy,
            "test": self._test,
        }.get(operation["op"])
        if work is None:
            raise bad_request(f"unknown JSON patch operation {operation['op'][:40]!r}")
        work(operation, _pointer(operation.get("path")))

    def _add(self, operation: dict[str, Any], path: list[str]) -> None:
        self._put(path, copy.deepcopy(_value(operation)))

    def _remove(self, operation: dict[str, Any], path: list[str]) -> None:
        self._take(path)

    def _replace(self, operation: dict[str, Any], path: list[str]) -> None:
        value = copy.deepcopy(_value(operation))
        if not path:
            self.root = value
            return
        parent = self._at(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            parent[path[-1]] = value
        elif isinstance(parent, list):
            parent[_index(parent, path[-1], more=0)] = value
        else:
            raise _Misfit(f"there is no {_words(path)}")

    def _move(self, operation: dict[str, Any], path: list[str]) -> None:
        source = _pointer(operation.get("from"))
        if path[: len(source)] == source and len(path) > len(source):
            raise _Misfit("a value cannot be moved into itself")
        if path == source:
            self._at(source)
            return
        self._put(path, self._take(source))

    def _copy(self, operation: dict[str, Any], path: list[str]) -> None:
        value = self._at(_pointer(operation.get("from")))
        # Copies of copies double: a kilobyte of operations could otherwise fill the memory.
        self._copied += _size(value)
        if self._copied > NODES_MAX:
            raise Failure(413, "the JSON patch copies too much")
        self._put(path, copy.deepcopy(value))

    def _test(self, operation: dict[str, Any], path: list[str]) -> None:
        if not same(self._at(path), _value(operation)):
            raise _Misfit(f"testing {_words(path)} failed")

    def _at(self, path: list[str]) -> Any:
        node = self.root
        for depth, step in enumerate(path):
            if isinstance(node, dict) and step in node:
                node = node[step]
            elif isinstance(node, list):
                node = node[_index(node, step, more=0)]
            else:
                raise _Misfit(f"there is no {_words(path[: depth + 1])}")
        return node

    def _put(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent = self._at(path[:-1])
        if isinstance(parent, dict):
            parent[path[-1]] = value
        elif isinstance(parent, list):
            parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], more=1), value)
        else:
            raise _Misfit(f"{_words(path[:-1])} holds no members")

    def _take(self, path: list[str]) -> Any:
        if not path:
            root, self.root = self.root, None
            return root
        parent = self._at(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            return parent.pop(path[-1])
        if isinstance(parent, list):
            return parent.pop(_index(parent, path[-1], more=0))
        raise _Misfit(f"there is no {_words(path)}")


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise bad_request(f"the JSON patch operation {operation['op']} needs a value")
    return operation["value"]


def _pointer(text: Any) -> list[str]:
    """RFC 6901."""
    if not isinstance(text, str):
        raise bad_request("path and from of a JSON patch are strings")
    if not text:
        return []
    if not text.startswith("/"):
        raise bad_request(f"a JSON pointer begins with '/', got {text[:60]!r}")
    steps = text[1:].split("/")
    if len(steps) > DEPTH_MAX:
        raise bad_request(f"a JSON pointer of more than {DEPTH_MAX} steps")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _index(items: list[Any], step: str, *, more: int) -> int:
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0") or len(step) > 9:
        raise _Misfit(f"{step[:40]!r} is no index of a list")
    index = int(step)
    if index >= len(items) + more:
        raise _Misfit(f"index {index} lies outside a list of {len(items)}")
    return index


def same(one: Any, other: Any) -> bool:
    """JSON's equality: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(_size(item) for item in value.values())
    if isinstance(value, list):
        return 1 + sum(_size(item) for item in value)
    return 1


def _words(path: list[str]) -> str:
    return repr("/" + "/".join(path))[:120]
