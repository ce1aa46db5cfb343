"""The page docs/reference/cli.md: every command and every flag, read off the commands themselves.

Owns the page's order and words around them. Called by reference.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from fairlead.cli import frame

# Said once for all commands that ask a server; --timeout stays with each, because its meaning differs.
CONNECTION = ("context_name", "server", "local_socket", "namespace", "region")
EXIT_CODES = (
    (0, "done"),
    (1, "an error, told on stderr"),
    (2, "changes present (`diff`, `plan`)"),
    (3, "not found"),
    (4, "conflict: it exists, somebody changed it, or its state forbids this"),
    (5, "denied or fenced; also a question nobody answered with yes"),
    (6, "a wait timed out"),
    (7, "outcome unknown; `receipt/KEY` is on stdout"),
    (8, "a check failed"),
    (9, "the data is too stale"),
    (130, "interrupted"),
)


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group, info_name="fairlead")
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, f"{name} is listed and is not there"
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


def sections() -> list[str]:
    """The page's parts, one for each command."""
    made = ["## Exit codes\n\n" + _table(["code", "meaning"], [(str(code), words) for code, words in EXIT_CODES])]
    shared: dict[str, click.Parameter] = {}
    parts: list[str] = []
    for path, command in commands(frame.fairlead):
        options = [each for each in command.params if isinstance(each, click.Option)]
        asks = all(any(each.name == name for each in options) for name in CONNECTION)
        if asks:
            shared |= {str(each.name): each for each in options if each.name in CONNECTION}
            options = [each for each in options if each.name not in CONNECTION]
        parts.append(_section(path, command, options, asks))
    rows = [_row(each) for each in shared.values() if isinstance(each, click.Option)]
    made.append("## Connection flags\n\nOf every command that asks a server.\n\n" + _table(["flag", "meaning", "default"], rows))
    return [*made, *parts]


def _section(path: tuple[str, ...], command: click.Command, options: list[click.Option], asks: bool) -> str:
    arguments = [each.metavar or each.human_readable_name.upper() for each in command.params if isinstance(each, click.Argument)]
    usage = " ".join(["fairlead", *path, *arguments, *(["COMMAND"] if isinstance(command, click.Group) else [])])
    about = (command.help or "").replace("\b\n", "").partition("\f")[0].strip()
    lines = [f"## fairlead {' '.join(path)}", f"`{usage}`", "\n".join(line.strip() for line in about.splitlines())]
    if options:
        lines.append(_table(["flag", "meaning", "default"], [_row(each) for each in options]))
    if asks:
        lines.append("And the [connection flags](#connection-flags).")
    return "\n\n".join(lines)


def _row(option: click.Option) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        names += f" {option.metavar or _choices(option)}"
    return names, option.help or "", _default(option)


def _choices(option: click.Option) -> str:
    kind = option.type
    return "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name.upper()


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return f"`{option.show_default}`"
    value = option.default
    shown = isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
    return f"`{value}`" if shown else ""


def _table(headings: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])
