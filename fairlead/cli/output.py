"""How commands write: JSON, pairs and tables to stdout; notes and progress to stderr. Owns no data; called by every command.

Tables are plain text in aligned columns, the same on a terminal and in a pipe, so that what people see is what scripts get.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])
_AS_JSON = "fairlead.cli.json"


def json_option(work: F) -> F:
    """--json, and -o json for whoever is used to the verbs on objects. The command is told `as_json`."""
    form = click.option(
        "-o", "as_form", type=click.Choice(["table", "json"]), is_eager=True, expose_value=False, callback=_note_form,
        help="How to write it; json is --json.",
    )  # fmt: skip
    flag = click.option(
        "--json", "as_json", is_flag=True, callback=_as_json, help="Print one JSON object on stdout and nothing else."
    )
    return flag(form(work))


def _note_form(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[_AS_JSON] = value == "json"


def _as_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    return value or bool(ctx.meta.get(_AS_JSON))


def put_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def environment() -> dict[str, Any]:
    """Of whoever measures: what a figure depends on, beside what was measured."""
    return {"cores": os.cpu_count() or 1, "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}


def put_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{name:<{width}}  {value}".rstrip())


def put_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers stand to the right, words to the left."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    right = [all(isinstance(row[column], int | float) for row in rows) for column in range(len(headings))]
    widths = [max(len(line[column]) for line in [list(headings), *cells]) for column in range(len(headings))]
    for line in [list(headings), *cells]:
        parts = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def note(text: str) -> None:
    click.echo(text, err=True)


def size_of(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def instant_of(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else "never"


class Progress:
    """Says how far a long piece of work has come. Silent off a terminal."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def __call__(self, what: str, done: int) -> None:
        if self._status is not None:
            self._status.update(f"{what} {done:,}")


@contextmanager
def progress(doing: str) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Progress(None)
        return
    from rich.console import Console

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    with console.status(doing) as status:
        yield Progress(status)


class Bar:
    """How much of a known amount is done. Off a terminal it says so in lines."""

    def __init__(self, what: str, total: int, console: Any = None, shown: Any = None) -> None:
        self._what = what
        self._total = total
        self._console = console
        self._shown = shown
        self._task = shown.add_task(what, total=total, note="") if shown is not None else None

    def __call__(self, done: int, remark: str = "") -> None:
        if self._shown is None:
            note(f"{done} of {self._total} {self._what}{', ' if remark else ''}{remark}")
        else:
            self._shown.update(self._task, completed=done, note=remark)

    def say(self, text: str) -> None:
        if self._console is None:
            note(text)
        else:
            self._console.print(text, markup=False, highlight=False)  # above the bar


@contextmanager
def bar(what: str, total: int) -> Iterator[Bar]:
    if not sys.stderr.isatty():
        yield Bar(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Shown

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Shown(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as shown:
        yield Bar(what, total, console, shown)
