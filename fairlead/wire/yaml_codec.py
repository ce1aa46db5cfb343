"""YAML in and out: the part of it that JSON can also say, in one or several documents.

Built from the parser's events on a stack of our own, so nothing recurses and nothing is expanded. Aliases, anchors, tags and
merge keys are refused (a kilobyte of aliases is a gigabyte of tree); `yes`, `on`, `1:30` and dates are strings, as in YAML 1.2.
Called by manifest.py and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from fairlead.model.commands import Fault
from fairlead.wire.limits import DEPTH_MAX, DOCUMENTS_MAX, NODES_MAX, Bad, float_of, integer_of, object_of, text_of

# libyaml reads a megabyte in a second; the parser in Python is the same grammar at a tenth of the speed.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: Final[dict[str, object]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


class _Refused(Exception):
    """Ends the reading of a file: what was read is no tree."""


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("is_mapping", "items", "key")

    def __init__(self, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.items: list[Any] = []
        self.key: str | Bad | None = None


def parse_yaml(body: bytes) -> list[object] | Fault:
    """The trees of all documents that are not empty, or why there is none."""
    text = text_of(body)
    if isinstance(text, Fault):
        return text
    try:
        return [tree for tree in _documents(yaml.parse(text, Loader=_LOADER)) if tree is not None]
    except _Refused as refused:
        return Fault("", str(refused))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        return Fault("", f"is not YAML: {where}{error.problem or error.context or 'cannot be read'}")
    except yaml.reader.ReaderError as error:
        return Fault("", f"is not YAML: the character at {error.position} is not allowed")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return Fault("", f"is not YAML: {type(error).__name__}")


def _documents(events: Iterator[Any]) -> Iterator[object]:
    stack: list[_Open] = []
    nodes = documents = 0
    for event in events:
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > DOCUMENTS_MAX:
                    raise _Refused(f"has too many documents; at most {DOCUMENTS_MAX} are read")
            case yaml.AliasEvent():
                raise _Refused(f"{_line(event)}: aliases (*{str(event.anchor)[:40]}) are not allowed; write the value out")
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                _check_plain(event)
                stack.append(_Open(isinstance(event, yaml.MappingStartEvent)))
                if len(stack) > DEPTH_MAX:
                    raise _Refused(f"{_line(event)}: is nested too deeply; at most {DEPTH_MAX} levels are read")
            case yaml.ScalarEvent() | yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                nodes += 1
                if nodes > NODES_MAX:
                    raise _Refused(f"has too many values; at most {NODES_MAX} are read")
                value = _scalar(event) if isinstance(event, yaml.ScalarEvent) else _closed(stack.pop())
                if stack:
                    _put(stack[-1], value, event)
                else:
                    yield value


def _check_plain(event: Any) -> None:
    if event.anchor is not None:
        raise _Refused(f"{_line(event)}: anchors (&{event.anchor[:40]}) are not allowed; write the value out")
    if event.tag is not None:
        raise _Refused(f"{_line(event)}: tags ({event.tag[:40]}) are not allowed")


def _line(event: Any) -> str:
    return f"line {event.start_mark.line + 1}, column {event.start_mark.column + 1}"


def _scalar(event: Any) -> object:
    _check_plain(event)
    text: str = event.value
    if not event.implicit[0]:  # quoted or a block: a string, whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return integer_of(text)
    if _FLOAT.fullmatch(text):
        return float_of(text)
    if _NOT_A_NUMBER.fullmatch(text):
        return Bad(f"must be a number; {text} is none")
    return text


def _closed(node: _Open) -> object:
    return object_of(node.items) if node.is_mapping else node.items


def _put(parent: _Open, value: object, event: Any) -> None:
    if not parent.is_mapping:
        parent.items.append(value)
    elif parent.key is None:
        # Only text can name a field; `1: x` and `true: x` are refused rather than guessed at.
        if not isinstance(event, yaml.ScalarEvent):
            raise _Refused(f"{_line(event)}: a list or mapping may not be a key")
        if not isinstance(value, str):
            raise _Refused(f"{_line(event)}: the key {event.value[:40] or 'null'} is not a string; put it in quotes")
        parent.key = value
    else:
        parent.items.append((parent.key, value))
        parent.key = None


class _Writer(_DUMPER):  # type: ignore[misc]  # the base is chosen above
    """Quotes what `_scalar` would not read as text: a token may be named 71e4902513407769, which is no number to PyYAML."""


def _written(writer: Any, text: str) -> Any:
    number = _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) or _NOT_A_NUMBER.fullmatch(text)
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style="'" if number or text in _WORDS else None)


_Writer.add_representer(str, _written)


def encode_yaml(plain: object) -> str:
    """A plain tree as YAML, fields in the order they have."""
    return str(yaml.dump(plain, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120))
