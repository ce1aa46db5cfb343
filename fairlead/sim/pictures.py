"""Owns stale events before controllers: what a server's pictures of a plane are told is followed, now and then, by what it has
replaced.

Nothing from before a picture was listed last: a feed is in order, and begins before the list does. Changes nothing of the
controllers. Called by strays.py for each server, before it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from fairlead.compose.plane import PlaneServer
from fairlead.controllers.picture import Picture
from fairlead.sim.loop import Draws

CHANCE: Final = 0.3  # of a change that replaces another: what is revived is soon replaced again, or found by the next list


def told_again(server: PlaneServer, draws: Draws, counts: Counter[str]) -> None:
    new_parts = server._new_parts

    def parts() -> Any:
        made = new_parts()
        for part in made:
            if isinstance(part, Picture):
                _stale(part, draws, counts)
        return made

    setattr(server, "_new_parts", parts)  # noqa: B010  of this one server alone


def _stale(picture: Picture, draws: Draws, counts: Counter[str]) -> None:
    take_in, list_again, opened = picture._take_in, picture.list_again, picture.open
    told: dict[tuple[str, str, str], Any] = {}

    async def taken(changes: Sequence[Any], by_resync: bool = False) -> None:
        over = [told[each.plural, each.tenant, each.name] for each in changes if (each.plural, each.tenant, each.name) in told]
        await take_in(changes, by_resync)
        for each in changes:
            told[each.plural, each.tenant, each.name] = each
        if draws.random() < CHANCE and over:
            counts["stale_events"] += 1
            await take_in(over)

    async def listed(at_most_s: float) -> None:
        told.clear()
        await list_again(at_most_s)
        told.clear()

    async def open_anew() -> None:
        told.clear()
        await opened()
        told.clear()

    for name, function in (("_take_in", taken), ("list_again", listed), ("open", open_anew)):
        setattr(picture, name, function)
