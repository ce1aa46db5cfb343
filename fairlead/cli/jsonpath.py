"""kubectl's JSONPath templates: `{.items[*].metadata.name}`, `{range ...}{end}`, filters, slices, unions, recursive descent.

Owns the grammar, its evaluation on plain trees and how a result is written. A field that is not there is nothing, never an
error; a template that cannot be read says where it stops making sense. Called by show.py, tables.py and wait.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

_NAME: Final = re.compile(r"(?:\\.|[^\s.\[\](){}'\"?@=!<>,|&*\\])+")
_INTEGER: Final = re.compile(r"-?\d{1,9}")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_OPERATOR: Final = re.compile(r"==|!=|<=|>=|<|>")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
DEPTH_MAX: Final = 32  # of ranges and filters within each other


class BadPath(ValueError):
    """The template cannot be read; says where."""


class Field(NamedTuple):
    name: str


class Every(NamedTuple):
    """`*`: every member."""


class Deep(NamedTuple):
    """`..`: the value and everything below it."""


class Slice(NamedTuple):
    start: int | None
    stop: int | None
    step: int | None


class Union(NamedTuple):
    parts: tuple[Step, ...]


class Filter(NamedTuple):
    left: Operand
    operator: str  # empty: it is there
    right: Operand | None


class Path(NamedTuple):
    steps: tuple[Step, ...]
    from_root: bool = False


class Literal(NamedTuple):
    value: Any


class Text(NamedTuple):
    text: str


class Range(NamedTuple):
    path: Path
    body: tuple[Node, ...]


Step = Field | Every | Deep | Slice | Union | Filter
Operand = Path | Literal
Node = Text | Path | Range


def relaxed(template: str) -> str:
    """`.spec.x` and `spec.x` are `{.spec.x}`, as kubectl takes them for columns, sorting and waiting."""
    if "{" in template:
        return template
    return f"{{{template if template.startswith(('.', '[', '$', '@')) else '.' + template}}}"


def parse(template: str) -> tuple[Node, ...]:
    return _Parser(template).template()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def template(self) -> tuple[Node, ...]:
        nodes = self._nodes(0)
        if self._at < len(self._text):
            raise self._bad("{end} without {range}")
        return nodes

    def _nodes(self, depth: int) -> tuple[Node, ...]:
        if depth > DEPTH_MAX:
            raise self._bad("ranges are nested too deeply")
        nodes: list[Node] = []
        while self._at < len(self._text):
            opening = self._text.find("{", self._at)
            if opening != self._at:
                end = len(self._text) if opening < 0 else opening
                nodes.append(Text(self._text[self._at : end]))
                self._at = end
                continue
            if re.match(r"\{\s*end\s*\}", self._text[self._at :]):
                return tuple(nodes)  # whoever began the range takes it
            nodes.append(self._braced(depth))
        return tuple(nodes)

    def _braced(self, depth: int) -> Node:
        self._at += 1
        self._spaces()
        if self._peek() in "'\"" and self._peek():
            node: Node = Text(self._quoted())
        elif re.match(r"range\s", self._text[self._at :]):
            return self._range(depth)
        else:
            node = self._path(depth)
        self._spaces()
        self._take("}")
        return node

    def _range(self, depth: int) -> Range:
        self._at += len("range")
        self._spaces()
        path = self._path(depth)
        self._spaces()
        self._take("}")
        body = self._nodes(depth + 1)
        closing = re.match(r"\{\s*end\s*\}", self._text[self._at :])
        if closing is None:
            raise self._bad("this {range} has no {end}")
        self._at += closing.end()
        return Range(path, body)

    def _path(self, depth: int) -> Path:
        steps: list[Step] = []
        from_root = self._peek() == "$"
        began = self._at
        if self._peek() in ("$", "@"):
            self._at += 1
        elif name := self._name():
            steps.append(Field(name))
        while self._peek() in (".", "["):
            if self._peek() == "[":
                steps.append(self._bracket(depth))
            elif self._text.startswith("..", self._at):
                self._at += 2
                steps.append(Deep())
                if self._peek() != "[":
                    steps.append(self._member())
            else:
                self._at += 1
                if self._peek() not in ("", "}", "[", " ", ")", "=", "!", "<", ">"):
                    steps.append(self._member())
        if self._at == began:
            raise self._bad("expected a path such as .metadata.name")
        return Path(tuple(steps), from_root)

    def _member(self) -> Step:
        if self._peek() == "*":
            self._at += 1
            return Every()
        name = self._name()
        if not name:
            raise self._bad("expected a field's name")
        return Field(name)

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return re.sub(r"\\(.)", r"\1", found.group())

    def _bracket(self, depth: int) -> Step:
        self._at += 1
        self._spaces()
        if self._peek() == "?":
            step: Step = self._filter(depth)
        else:
            parts = [self._part()]
            while self._peek() == ",":
                self._at += 1
                parts.append(self._part())
            step = parts[0] if len(parts) == 1 else Union(tuple(parts))
        self._spaces()
        self._take("]")
        return step

    def _part(self) -> Step:
        self._spaces()
        here = self._peek()
        if here == "*":
            self._at += 1
            return Every()
        if here and here in "'\"":
            return Field(self._quoted())
        part = self._slice() if here == ":" or _INTEGER.match(self._text, self._at) else self._member()
        self._spaces()
        return part

    def _slice(self) -> Slice:
        numbers: list[int | None] = [self._integer()]
        while self._peek() == ":" and len(numbers) < 3:
            self._at += 1
            numbers.append(self._integer())
        if len(numbers) == 1:  # one index: the slice of one element from there
            assert numbers[0] is not None, "an index without a number"
            return Slice(numbers[0], numbers[0] + 1 or None, None)
        if len(numbers) == 3 and numbers[2] is not None and numbers[2] <= 0:
            raise self._bad("a step is at least 1")
        return Slice(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else None)

    def _integer(self) -> int | None:
        found = _INTEGER.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return int(found.group())

    def _filter(self, depth: int) -> Filter:
        if depth > DEPTH_MAX:
            raise self._bad("filters are nested too deeply")
        self._at += 1
        self._take("(")
        self._spaces()
        left = self._operand(depth + 1)
        self._spaces()
        operator = _OPERATOR.match(self._text, self._at)
        right: Operand | None = None
        if operator is not None:
            self._at = operator.end()
            self._spaces()
            right = self._operand(depth + 1)
            self._spaces()
        if self._peek() in ("&", "|"):
            raise self._bad("&& and || are not part of kubectl's JSONPath; use one condition")
        self._take(")")
        return Filter(left, operator.group() if operator else "", right)

    def _operand(self, depth: int) -> Operand:
        here = self._peek()
        if here in ("@", "$", "."):
            return self._path(depth)
        if here and here in "'\"":
            return Literal(self._quoted())
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            return Literal(float(number.group()) if "." in number.group() else int(number.group()))
        word = self._name()
        if word not in ("true", "false", "null"):
            raise self._bad("expected @.field, a quoted text, a number, true or false")
        return Literal({"true": True, "false": False, "null": None}[word])

    def _quoted(self) -> str:
        mark = self._peek()
        self._at += 1
        made: list[str] = []
        while (here := self._peek()) != mark:
            if not here:
                raise self._bad(f"the {mark} is not closed")
            self._at += 1
            if here == "\\":
                here = _ESCAPES.get(self._peek(), "\\" + self._peek())
                self._at += 1
            made.append(here)
        self._at += 1
        return "".join(made)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _spaces(self) -> None:
        while self._peek().isspace():
            self._at += 1

    def _take(self, wanted: str) -> None:
        if self._peek() != wanted:
            raise self._bad(f"expected {wanted}")
        self._at += 1

    def _bad(self, what: str) -> BadPath:
        rest = self._text[self._at : self._at + 20]
        return BadPath(f"jsonpath: {what}, at character {self._at + 1}" + (f": {rest!r}" if rest else ", where it ends"))


# --- evaluation


def find(path: Path, root: Any, here: Any) -> list[Any]:
    values = [root if path.from_root else here]
    for step in path.steps:
        values = [found for value in values for found in _step(step, root, value)]
    return values


def _step(step: Step, root: Any, value: Any) -> Iterable[Any]:
    match step:
        case Field(name):
            return [value[name]] if isinstance(value, dict) and name in value else []
        case Every():
            return _members(value)
        case Deep():
            return _below(value)
        case Slice(start, stop, count):
            return value[start:stop:count] if isinstance(value, list) else []
        case Union(parts):
            return [found for part in parts for found in _step(part, root, value)]
        case Filter():
            return [member for member in _members(value) if _holds(step, root, member)]


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _below(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(_members(node)))


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda left, right: left < right, "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right, ">=": lambda left, right: left >= right,
}  # fmt: skip


def _holds(rule: Filter, root: Any, here: Any) -> bool:
    left = _values(rule.left, root, here)
    if rule.right is None:
        return bool(left)
    right = _values(rule.right, root, here)
    if not left or not right:
        return rule.operator == "!=" and bool(left or right)
    if rule.operator in ("==", "!="):
        return (left[0] == right[0] and type(left[0]) is type(right[0])) == (rule.operator == "==")
    try:
        return _COMPARE[rule.operator](left[0], right[0])
    except TypeError:
        return False  # a text and a number have no order


def _values(operand: Operand, root: Any, here: Any) -> list[Any]:
    return [operand.value] if isinstance(operand, Literal) else find(operand, root, here)


def render(nodes: tuple[Node, ...], tree: Any) -> str:
    return "".join(_render(nodes, tree, tree))


def _render(nodes: tuple[Node, ...], root: Any, here: Any) -> Iterator[str]:
    for node in nodes:
        match node:
            case Text(text):
                yield text
            case Path():
                yield " ".join(map(word, find(node, root, here)))
            case Range(path, body):
                for value in find(path, root, here):
                    yield from _render(body, root, value)


def first(nodes: tuple[Node, ...], tree: Any) -> Any:
    """What the first path of a template finds first; None if nothing."""
    path = next((node for node in nodes if isinstance(node, Path)), None)
    found = find(path, tree, tree) if path is not None else []
    return found[0] if found else None


def word(value: Any) -> str:
    """Texts as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
