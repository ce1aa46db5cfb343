"""How objects are written: -o table, wide, json, yaml, name, jsonpath=, custom-columns=, and the flags of every reading verb.

Owns the formats; asks nobody. JSON and YAML are the server's objects, unchanged but for managedFields, in the order they came.
Called by get and by every verb that answers with an object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from fairlead.cli import jsonpath
from fairlead.cli.output import put_json

NAMES = ("table", "wide", "json", "yaml", "name", "jsonpath=", "custom-columns=")
EXAMPLES = {"jsonpath": "jsonpath={.metadata.name}", "custom-columns": "custom-columns=NAME:.metadata.name"}
NONE = "<none>"

F = TypeVar("F", bound=Callable[..., Any])


class Column(NamedTuple):
    heading: str
    path: tuple[jsonpath.Node, ...]


class Format(NamedTuple):
    name: str = "table"
    template: tuple[jsonpath.Node, ...] = ()
    columns: tuple[Column, ...] = ()

    @property
    def is_table(self) -> bool:
        return self.name in ("table", "wide")


class FormatType(click.ParamType):  # type: ignore[type-arg]
    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Format:
        if isinstance(value, Format):
            return value
        name, equals, rest = str(value).partition("=")
        try:
            if name == "jsonpath" and rest:
                return Format(name, jsonpath.parse(jsonpath.relaxed(rest) if rest.startswith((".", "$", "[")) else rest))
            if name == "custom-columns" and rest:
                return Format(name, columns=_columns(rest))
        except jsonpath.BadPath as error:
            self.fail(str(error), param, ctx)
        except ValueError as error:
            self.fail(f"custom-columns: {error}", param, ctx)
        if equals and not rest and f"{name}=" in NAMES:
            self.fail(f"{value} of what? Write {EXAMPLES[name]}", param, ctx)
        if equals or name not in NAMES:
            self.fail(f"{value!r} is not a format; {_near(name)}use one of {', '.join(NAMES)}", param, ctx)
        return Format(name)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in NAMES if name.startswith(incomplete)]


def _near(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


def _columns(text: str) -> tuple[Column, ...]:
    made = []
    for part in text.split(","):
        heading, colon, path = part.partition(":")
        if not colon or not heading or not path:
            raise ValueError(f"{part!r} is not HEADING:PATH, such as NAME:.metadata.name")
        made.append(Column(heading, jsonpath.parse(jsonpath.relaxed(path))))
    return tuple(made)


FORMAT = FormatType()


def format_option(default: str = "table") -> Callable[[F], F]:
    form = click.option("-o", "--output", "form", type=FORMAT, default=default, show_default=True, metavar="FORMAT",
                        help=f"How to write it: {', '.join(NAMES)}.")  # fmt: skip
    flag = click.option("--json", "form", flag_value=Format("json"), type=FORMAT, help="The same as -o json.")

    def decorate(work: F) -> F:
        return form(flag(work))

    return decorate


def put(form: Format, objects: Sequence[dict[str, Any]], *, single: bool, headings: bool = True) -> None:
    """`single`: one object was asked for by its name, so it stands alone and not in a list."""
    shown = [without_managed_fields(each) for each in objects]
    tree: Any = shown[0] if single and len(shown) == 1 else listed(shown)
    match form.name:
        case "json":
            put_json(tree)
        case "yaml":
            from fairlead.wire.yaml_codec import encode_yaml

            click.echo(encode_yaml(tree), nl=False)
        case "name":
            for each in shown:
                click.echo(name_of(each))
        case "jsonpath":
            click.echo(jsonpath.render(form.template, tree), nl=False)
        case "custom-columns":
            rows = [[jsonpath.word(_cell(column, each)) for column in form.columns] for each in shown]
            put_lines(laid_out([column.heading for column in form.columns] if headings else None, rows))


def _cell(column: Column, each: dict[str, Any]) -> Any:
    found = [jsonpath.find(node, each, each) for node in column.path if isinstance(node, jsonpath.Path)]
    values = found[0] if found else []
    if len(values) > 1:
        return ",".join(map(jsonpath.word, values))
    return values[0] if values and values[0] is not None else NONE


def name_of(each: dict[str, Any]) -> str:
    return f"{str(each.get('kind', 'object')).lower()}/{(each.get('metadata') or {}).get('name', '')}"


def listed(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(objects)}


def without_managed_fields(each: dict[str, Any]) -> dict[str, Any]:
    metadata = each.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return each
    return {**each, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


# --- columns of text


def laid_out(headings: Sequence[str] | None, rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> list[str]:
    """Aligned columns, three spaces apart as kubectl has them; with `widths`, appended lines stay in line."""
    lines = [list(headings), *map(list, rows)] if headings is not None else list(map(list, rows))
    wide = widths_of(lines, widths)
    return ["   ".join(cell.ljust(width) for cell, width in zip(line, wide, strict=False)).rstrip() for line in lines]


def widths_of(lines: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    count = max((len(line) for line in lines), default=0)
    columns = [[len(line[index]) for line in lines if index < len(line)] for index in range(count)]
    return [max([*column, least[index] if index < len(least) else 0]) for index, column in enumerate(columns)]


def put_lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line)
