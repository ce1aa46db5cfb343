"""What every writing verb shares: its flags, one write after another with the outcome of each, and the end's exit code.

Owns the promise that nothing is half done without saying so: whatever happens to one object, each of them is told. Called by
apply, create, delete, edit and drain.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from fairlead.cli.frame import DENIED, OK, UNKNOWN, WRITES, Told, tell
from fairlead.cli.session import Session, is_terminal, told_of
from fairlead.client.rest_shapes import Write

F = TypeVar("F", bound=Callable[..., Any])


def dry_run_option(work: F) -> F:
    return click.option("--dry-run", type=click.Choice(["none", "client", "server"]), default="none", show_default=True,
                        callback=_writes,
                        help="client: only check here; server: let the server judge it and store nothing.")(work)  # fmt: skip


def _writes(ctx: click.Context, param: click.Parameter, dry_run: str) -> str:
    ctx.meta[WRITES] = dry_run == "none"
    return dry_run


def write_options(work: F) -> F:
    options = [
        dry_run_option,
        click.option("--idempotency-key", default="", metavar="KEY",
                     help="Name this write: sent again under the same key, it is done once (24 hours)."),
    ]  # fmt: skip
    return functools.reduce(lambda made, option: option(made), reversed(options), work)


def how(session: Session, dry_run: str, key: str, **more: Any) -> Write:
    return Write(dry_run=dry_run == "server", key=key, region=session.region, **more)


def suffix(dry_run: str) -> str:
    return f" ({dry_run} dry run)" if dry_run != "none" else ""


class Outcomes:
    """Takes one object after another; remembers how each ended."""

    def __init__(self, verb: str, total: int) -> None:
        self._verb = verb
        self._total = total
        self._done = 0
        self._failed: list[tuple[str, int]] = []

    async def take(self, what: str, work: Awaitable[Any]) -> Any:
        """What the work gives; None if it failed, which is said at once and does not stop the rest."""
        try:
            result = await work
        except Exception as error:
            told = told_of(error)
            if not isinstance(told, Told):
                raise
            tell(f"{what}: {told.format_message()}", told.hint)
            self._failed.append((what, told.code))
            return None
        self._done += 1
        return result

    def code(self) -> int:
        """Of the whole: an unknown outcome counts most, else the first failure."""
        if not self._failed:
            return OK
        if self._total > 1:
            names = ", ".join(name for name, _ in self._failed)
            click.echo(f"{self._done} of {self._total} {self._verb}; not: {names}", err=True)
        codes = [code for _, code in self._failed]
        return UNKNOWN if UNKNOWN in codes else codes[0]


def keyed(key: str, index: int, total: int) -> str:
    """One key names one write; of several, each gets its own, made of the key and its place."""
    return f"{key}-{index + 1}" if key and total > 1 else key


def confirmed(yes: bool, question: str) -> None:
    """Goes on only if somebody said so: --yes, or an answer at a terminal."""
    if yes:
        return
    if not is_terminal():
        raise Told(
            "not done: this is no terminal, so nobody can be asked", hint="say --yes if this is what you want", code=DENIED
        )
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Told("not done", code=DENIED)


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
