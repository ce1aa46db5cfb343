"""`fairlead explain` and `api-resources`: what kinds there are and what their fields mean.

Owns the walk from a path such as workload.spec.placement to its record. Explains from the program's own records, so it needs no
server; api-resources asks one, and without one lists what this program knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from msgspec import inspect as shapes

from fairlead.cli.complete import kinds as complete_kinds
from fairlead.cli.frame import NOT_FOUND, OK, Told
from fairlead.cli.kinds import discover, named, of_model, unknown_kind
from fairlead.cli.session import Session, on_server, server_options
from fairlead.cli.show import laid_out, put_lines
from fairlead.client.rest_shapes import GROUP, VERSION
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from fairlead.wire.meanings import meaning

DEPTH_MAX = 12


@click.command("explain")
@click.argument("path", metavar="KIND[.FIELD]...", shell_complete=complete_kinds)
@click.option("--recursive", is_flag=True, help="All fields below it, names and types only.")
def explain(path: str, recursive: bool) -> None:
    """Say what a kind or a field is: fairlead explain workload.spec.placement."""
    kind, *steps = path.split(".")
    resource = named(kind, of_model())
    if resource is None:
        raise unknown_kind(kind, of_model(), NOT_FOUND)
    shape: shapes.Type = shapes.type_info(BY_KIND[resource.kind].record)
    field: shapes.Field | None = None
    owner: Any = None
    for index, step in enumerate(steps):
        struct = _struct(shape)
        owner = struct.cls if struct is not None else None
        field = _member(shape, step, ".".join([kind, *steps[:index]]))
        shape = field.type
    click.echo(f"KIND:       {resource.kind}\nVERSION:    {GROUP}/{VERSION}")
    if steps and field is not None:
        click.echo(f"FIELD:      {'.'.join(steps)} <{type_name(shape)}>{_extra(field)}")
        said = meaning(owner, field.name, field.encode_name)
        if said:
            click.echo(f"\n{said}")
    struct = _struct(shape)
    about = _about(struct.cls) if struct is not None else ""
    if about:
        click.echo(f"\n{about}")
    if struct is None or not struct.fields:
        return
    click.echo("\nFIELDS:")
    put_lines(list(_tree(struct, 1)) if recursive else _fields(struct))


def _member(shape: shapes.Type, step: str, where: str) -> shapes.Field:
    import difflib

    struct = _struct(shape)
    fields = {field.encode_name: field for field in struct.fields} if struct is not None else {}
    if step in fields:
        return fields[step]
    near = difflib.get_close_matches(step, fields, n=1, cutoff=0.5)
    said = f"did you mean {near[0]!r}? " if near else ""
    raise Told(f"{where} has no field {step!r}", hint=f"{said}see 'fairlead explain {where}'", code=NOT_FOUND)


def _struct(shape: shapes.Type) -> shapes.StructType | None:
    """The record a field is, or is a list or map of."""
    match shape:
        case shapes.StructType():
            return shape
        case shapes.ListType() | shapes.VarTupleType():
            return _struct(shape.item_type)
        case shapes.DictType():
            return _struct(shape.value_type)
        case shapes.UnionType():
            return next((found for each in shape.types if (found := _struct(each)) is not None), None)
    return None


def _about(record: type[Any]) -> str:
    text = inspect.getdoc(record) or ""
    return "" if text.startswith(("Base of all", f"{record.__name__}(")) else text


def _extra(field: shapes.Field | None) -> str:
    if field is None:
        return ""
    if field.required:
        return " -required-"
    value = field.default if field.default is not msgspec.NODEFAULT else None
    shown = str(value).lower() if isinstance(value, bool) else value
    return f" (default {shown})" if isinstance(value, int | float | str) and value != "" else ""


def _fields(struct: shapes.StructType) -> list[str]:
    rows = [
        [
            f"  {field.encode_name}",
            f"<{type_name(field.type)}>{_extra(field)}",
            meaning(struct.cls, field.name, field.encode_name),
        ]
        for field in struct.fields
    ]
    return laid_out(None, rows)


def _tree(struct: shapes.StructType, depth: int) -> Iterator[str]:
    for field in struct.fields:
        yield f"{'  ' * depth}{field.encode_name} <{type_name(field.type)}>"
        below = _struct(field.type)
        if below is not None and depth < DEPTH_MAX:
            yield from _tree(below, depth + 1)


_PLAIN: dict[type[shapes.Type], str] = {
    shapes.IntType: "integer", shapes.FloatType: "number", shapes.StrType: "string", shapes.BoolType: "boolean",
    shapes.DateTimeType: "time",
}  # fmt: skip


def type_name(shape: shapes.Type) -> str:
    match shape:
        case shapes.StructType():
            return "Object"
        case shapes.CustomType():
            return "map of quantities" if shape.cls is Resources else "string"
        case shapes.EnumType():
            return "|".join(str(member.value) for member in shape.cls)
        case shapes.LiteralType():
            return "|".join(str(value) for value in shape.values if value != "")
        case shapes.ListType() | shapes.VarTupleType():
            return f"[]{type_name(shape.item_type)}"
        case shapes.DictType():
            return f"map[string]{type_name(shape.value_type)}"
        case shapes.UnionType():
            return " or ".join(type_name(each) for each in shape.types if not isinstance(each, shapes.NoneType))
    return _PLAIN.get(type(shape), "value")


@click.command("api-resources")
@click.option("--namespaced/--no-namespaced", default=None, help="Only kinds that belong to a tenant, or only those that do not.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "name"]), default="table", show_default=True, help="How to write them."
)
@click.option("--no-headers", is_flag=True, help="No line of headings.")
@server_options()
@on_server
async def api_resources(session: Session, namespaced: bool | None, output: str, no_headers: bool) -> int:
    """List the kinds the server serves, with their short names."""
    found = await discover(session.client)
    rows = [each for _, each in sorted(found.items()) if namespaced is None or each.namespaced == namespaced]
    if output == "name":
        put_lines([each.plural for each in rows])
        return OK
    cells = [
        [each.plural, ",".join(each.short_names), f"{GROUP}/{VERSION}", str(each.namespaced).lower(), each.kind] for each in rows
    ]
    put_lines(laid_out(None if no_headers else ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"], cells))
    return OK
