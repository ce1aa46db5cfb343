"""Server-side tables as text: which columns, in which order of rows, and how they change under `-w`.

Owns the picture only: on a terminal one table that is redrawn in place, anywhere else lines that are appended. Called by get,
events and top.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from fairlead.cli import jsonpath
from fairlead.cli.show import NONE, laid_out, put_lines, widths_of

TENANT = "TENANT"
REDRAW_S = 0.05  # changes that come closer together are drawn at once


class Look(NamedTuple):
    """How a table is to look."""

    wide: bool = False
    headings: bool = True
    labels: bool = False  # --show-labels
    label_columns: tuple[str, ...] = ()  # -L
    tenant: bool = False  # -A
    prefix: str = ""  # before each name, where several kinds are shown
    sort_by: tuple[jsonpath.Node, ...] = ()


def headings_of(columns: Sequence[dict[str, Any]], look: Look) -> list[str]:
    shown = [str(columns[index].get("name", "")).upper() for index in _shown(columns, look)]
    first = [TENANT] if _adds_tenant(columns, look) else []
    extra = [key.rsplit("/", 1)[-1].upper() for key in look.label_columns] + (["LABELS"] if look.labels else [])
    return [*first, *shown, *extra]


def cells_of(columns: Sequence[dict[str, Any]], row: dict[str, Any], look: Look) -> list[str]:
    cells = row.get("cells") or []
    metadata = (row.get("object") or {}).get("metadata") or {}
    labels = metadata.get("labels") or {}
    shown = [_text(cells[index]) if index < len(cells) else NONE for index in _shown(columns, look)]
    if look.prefix and shown:
        shown[0] = look.prefix + shown[0]
    first = [str(metadata.get("namespace") or "")] if _adds_tenant(columns, look) else []
    extra = [labels.get(key, "") for key in look.label_columns]
    if look.labels:
        extra.append(",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE)
    return [*first, *shown, *extra]


def _shown(columns: Sequence[dict[str, Any]], look: Look) -> list[int]:
    return [index for index, column in enumerate(columns) if look.wide or not column.get("priority")]


def _adds_tenant(columns: Sequence[dict[str, Any]], look: Look) -> bool:
    return look.tenant and not any(str(column.get("name", "")).upper() == TENANT for column in columns)


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.replace("\n", " ")
    return NONE if cell is None else jsonpath.word(cell)


def sorted_rows(rows: list[dict[str, Any]], look: Look) -> list[dict[str, Any]]:
    if not look.sort_by:
        return rows
    return sorted(rows, key=lambda row: order_of(jsonpath.first(look.sort_by, row.get("object") or {})))


def order_of(value: Any) -> tuple[int, float, str]:
    """What is missing comes first, then numbers and quantities by size, then texts."""
    from fairlead.model.quantity import BadQuantity, parse_quantity

    if value is None:
        return (0, 0.0, "")
    if isinstance(value, bool | int | float):
        return (1, float(value), "")
    text = jsonpath.word(value)
    try:
        return (1, parse_quantity(text, unit_exponent=-3) / 1000, "")
    except BadQuantity:
        return (2, 0.0, text)


def put_table(columns: Sequence[dict[str, Any]], rows: list[dict[str, Any]], look: Look) -> None:
    lines = [cells_of(columns, row, look) for row in sorted_rows(rows, look)]
    put_lines(laid_out(headings_of(columns, look) if look.headings else None, lines))


class Appended:
    """Off a terminal: the table as it was, then one line for every change, in the same columns."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._widths: list[int] = []
        self._began = False

    def __enter__(self) -> Appended:
        return self

    def __exit__(self, *error: object) -> None: ...

    def show(self, columns: Sequence[dict[str, Any]], rows: list[dict[str, Any]], changed: list[dict[str, Any]]) -> None:
        lines = [cells_of(columns, row, self._look) for row in (changed if self._began else sorted_rows(rows, self._look))]
        headings = headings_of(columns, self._look) if self._look.headings and not self._began and columns else None
        self._widths = widths_of([headings or [], *lines], self._widths)
        self._began = True
        put_lines(laid_out(headings, lines, self._widths))
        sys.stdout.flush()  # whoever reads a pipe wants the line now


class Redrawn:
    """On a terminal: one table, drawn again in place when something changed, a burst of changes once. Rows that do not fit are
    counted in the last line."""

    def __init__(self, look: Look, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._look = look
        self._console = console or Console(no_color=bool(os.environ.get("NO_COLOR")), highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._shown: tuple[Sequence[dict[str, Any]], list[dict[str, Any]]] | None = None  # what is yet to be drawn

    def __enter__(self) -> Redrawn:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.draw()
        self._live.__exit__(*error)

    def show(self, columns: Sequence[dict[str, Any]], rows: list[dict[str, Any]], changed: list[dict[str, Any]]) -> None:
        is_first_of_burst = self._shown is None
        self._shown = (columns, rows)
        if is_first_of_burst:
            import asyncio  # Here: a command is loaded for its help and for a Tab too, and neither needs a loop.

            asyncio.get_running_loop().call_later(REDRAW_S, self.draw)

    def draw(self) -> None:
        from rich.text import Text

        if self._shown is None:
            return
        (columns, rows), self._shown = self._shown, None
        lines = [cells_of(columns, row, self._look) for row in sorted_rows(rows, self._look)]
        drawn = laid_out(headings_of(columns, self._look) if self._look.headings else None, lines)
        room = max(2, self._console.size.height - 1)
        if len(drawn) > room:
            drawn = [*drawn[: room - 1], f"... and {len(drawn) - room + 1} more"]
        width = self._console.size.width
        self._live.update(Text("\n".join(line[:width] for line in drawn), no_wrap=True), refresh=True)


def picture(look: Look) -> Appended | Redrawn:
    return Redrawn(look) if sys.stdout.isatty() else Appended(look)


def note_empty(namespace: str, plural: str) -> None:
    where = f" in tenant {namespace}" if namespace else ""
    click.echo(f"no {plural} found{where}", err=True)
