"""labelSelector and fieldSelector as functions on objects. Pure; unknown fields and bad syntax are the caller's fault (400)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from fairlead.api.failures import bad_request

SELECTOR_MAX: Final = 16 * 1024
REQUIREMENTS_MAX: Final = 200

Accepts = Callable[[Any], bool]  # of a served object
FieldOf = Callable[[Any], str | None]  # None: this object does not know, and matches whatever is asked

_KEY: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET: Final = re.compile(rf"\s*(?P<key>{_KEY})\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*")
_EQUAL: Final = re.compile(rf"\s*(?P<key>{_KEY})\s*(?P<op>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)\s*")
_EXISTS: Final = re.compile(rf"\s*(?P<no>!?)\s*(?P<key>{_KEY})\s*")


def label_selector(text: str) -> Callable[[Mapping[str, str]], bool] | None:
    """None: everything matches."""
    if not text.strip():
        return None
    if len(text) > SELECTOR_MAX:
        raise bad_request("labelSelector is too long")
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(text):
        if len(tests) >= REQUIREMENTS_MAX:
            raise bad_request(f"labelSelector has more than {REQUIREMENTS_MAX} requirements")
        made, position = _requirement(text, position)
        tests.append(made)
        if position < len(text):
            if text[position] != ",":
                raise bad_request(f"unable to parse labelSelector at {text[position : position + 20]!r}")
            position += 1
    return lambda labels: all(test(labels) for test in tests)


def _requirement(text: str, start: int) -> tuple[Callable[[Mapping[str, str]], bool], int]:
    found = _SET.match(text, start)
    if found is not None:
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return (lambda labels: key in labels and labels[key] in values), found.end()
        return (lambda labels: key not in labels or labels[key] not in values), found.end()
    found = _EQUAL.match(text, start)
    if found is not None:
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return (lambda labels: labels.get(key) != value), found.end()
        return (lambda labels: labels.get(key) == value), found.end()
    found = _EXISTS.match(text, start)
    if found is not None:
        key = found["key"]
        return ((lambda labels: key not in labels) if found["no"] else (lambda labels: key in labels)), found.end()
    raise bad_request(f"unable to parse labelSelector at {text[start : start + 20]!r}")


class FieldSelector:
    """What is asked of fields. `name` and `namespace` stand apart: they narrow a read before anything is decoded."""

    def __init__(self, text: str, known: Mapping[str, FieldOf]) -> None:
        self.name: str | None = None
        self.namespace: str | None = None
        self._tests: list[tuple[FieldOf, bool, str]] = []
        if len(text) > SELECTOR_MAX:
            raise bad_request("fieldSelector is too long")
        for part in filter(None, text.split(",")):
            self._add(part, known)

    def _add(self, part: str, known: Mapping[str, FieldOf]) -> None:
        path, equals, value = part.partition("=")
        if not equals:
            raise bad_request(f"invalid selector: {part[:60]!r}; expected FIELD=VALUE")
        wanted = not path.endswith("!")
        path, value = path.rstrip("!").strip(), value.removeprefix("=").strip()
        if path == "metadata.name" and wanted:
            self.name = value
        if path == "metadata.namespace" and wanted:
            self.namespace = value
        field = known.get(path) or _METADATA.get(path)
        if field is None:
            names = ", ".join(sorted({*known, *_METADATA}))
            raise bad_request(f'"{path[:60]}" is not a known field selector: only {names}')
        self._tests.append((field, wanted, value))

    @property
    def needs_objects(self) -> bool:
        """Whether names alone cannot decide it."""
        return any(field not in _METADATA.values() for field, _, _ in self._tests)

    def __bool__(self) -> bool:
        return bool(self._tests)

    def accepts(self, served: Any) -> bool:
        for field, wanted, value in self._tests:
            has = field(served)
            if has is not None and (has == value) is not wanted:
                return False
        return True


_METADATA: Final[dict[str, FieldOf]] = {
    "metadata.name": lambda o: str(o.metadata.name),
    "metadata.namespace": lambda o: str(o.metadata.namespace),
}


class Selection:
    """Both selectors of one request."""

    def __init__(self, labels: str, fields: str, known: Mapping[str, FieldOf]) -> None:
        self._labels = label_selector(labels)
        self.fields = FieldSelector(fields, known)

    @property
    def everything(self) -> bool:
        return self._labels is None and not self.fields

    @property
    def by_name_only(self) -> bool:
        """An object never enters or leaves such a selection: its name does not change."""
        return self._labels is None and not self.fields.needs_objects

    def accepts(self, served: Any) -> bool:
        return (self._labels is None or self._labels(served.metadata.labels)) and self.fields.accepts(served)
