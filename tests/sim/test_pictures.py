"""What a picture is told again, and when that ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairlead.controllers.picture import Picture
from fairlead.sim.loop import Draws
from fairlead.sim.pictures import told_again


class Change(NamedTuple):
    plural: str
    tenant: str
    name: str
    position: int


class Heard(Picture):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    async def _take_in(self, changes: Sequence[Any], by_resync: bool = False) -> None:
        self.heard += [change.position for change in changes]


class Server:
    def __init__(self) -> None:
        self.picture = Heard()

    def _new_parts(self) -> list[Any]:
        return [self.picture]


class Always(Draws):
    def random(self) -> float:
        return 0.0


def test_nothing_is_told_again_once_everything_is_healed() -> None:
    server, counts, healed = Server(), Counter[str](), False
    told_again(server, Always(), counts, lambda: healed)  # type: ignore[arg-type]
    (picture,) = server._new_parts()
    for position in (1, 2):
        asyncio.run(picture._take_in([Change("nodes", "", "n0", position)]))
    assert (picture.heard, counts["stale_events"]) == ([1, 2, 1], 1)
    healed = True
    asyncio.run(picture._take_in([Change("nodes", "", "n0", 3)]))
    assert (picture.heard, counts["stale_events"]) == ([1, 2, 1, 3], 1)
