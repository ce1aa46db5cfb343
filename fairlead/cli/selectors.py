"""Label and field selectors, read before they are sent: a slip is told with its place instead of a 400 from afar.

Owns the grammar and the canonical text. Which fields may be selected is the server's to say. Called by every command with -l or
--field-selector.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_KEY: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_PAIR: Final = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)")
_FIELD: Final = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9_.]*)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!,]*)")


class BadSelector(ValueError):
    """The selector cannot be read; says which part, and what a part looks like."""


class Requirement(NamedTuple):
    key: str
    operator: str  # =, !=, in, notin, exists, !
    values: tuple[str, ...] = ()

    def text(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{self.operator}{self.values[0]}"


def labels(text: str) -> tuple[Requirement, ...]:
    return tuple(_label(part.strip(), text) for part in _parts(text))


def fields(text: str) -> tuple[Requirement, ...]:
    found = []
    for part in text.split(",") if text.strip() else ():
        match = _FIELD.fullmatch(part.strip())
        if match is None:
            raise BadSelector(
                f"--field-selector: {part.strip()!r} is not FIELD=VALUE or FIELD!=VALUE, such as metadata.name=risk-api"
            )
        found.append(Requirement(match["key"], "!=" if match["operator"] == "!=" else "=", (match["value"].strip(),)))
    return tuple(found)


def text_of(requirements: tuple[Requirement, ...]) -> str:
    return ",".join(requirement.text() for requirement in requirements)


def _parts(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    if not text.strip():
        return []
    parts, depth, part = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth not in (0, 1):
            raise BadSelector(f"-l: the parentheses of {text!r} do not match")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    if depth:
        raise BadSelector(f"-l: the parentheses of {text!r} do not match")
    return [*parts, part]


def _label(part: str, whole: str) -> Requirement:
    if match := _SET.fullmatch(part):
        values = tuple(value.strip() for value in match["values"].split(","))
        return _checked(Requirement(match["key"], match["operator"], values), part)
    if match := _PAIR.fullmatch(part):
        operator = "!=" if match["operator"] == "!=" else "="
        return _checked(Requirement(match["key"], operator, (match["value"],)), part)
    if part.startswith("!"):
        return _checked(Requirement(part[1:].strip(), "!"), part)
    if not part or any(character in part for character in " ()=!"):
        raise BadSelector(f"-l: {part or whole!r} is not one of key=value, key!=value, key in (a,b), key notin (a,b), key, !key")
    return _checked(Requirement(part, "exists"), part)


def _checked(requirement: Requirement, part: str) -> Requirement:
    if not _KEY.fullmatch(requirement.key):
        raise BadSelector(f"-l: in {part!r}, {requirement.key!r} cannot be a label's key")
    wrong = next((value for value in requirement.values if not _VALUE.fullmatch(value)), None)
    if wrong is not None:
        raise BadSelector(f"-l: in {part!r}, {wrong!r} cannot be a label's value")
    return requirement
