"""Runs the command line in this process, as the console script does, with its output caught. Called by the tests beside it."""

from __future__ import annotations

import contextlib
import io
from typing import Any, NamedTuple

import msgspec

from fairlead import main
from fairlead.cli.frame import World, answer
from fairlead.ports import SystemClock, SystemIds


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


def world() -> World:
    return World(
        open_store=main.open_store,
        shown=main.without_password,
        how_to_make_room=main.how_to_make_room,
        archived_through=main.archived_through,
        clock=SystemClock,
        ids=SystemIds,
        run=main.run,
        run_plane=main.run_plane,
    )


def fairlead(*arguments: object, within: World | None = None) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = answer(within or world(), [str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())
