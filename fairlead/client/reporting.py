"""How the components of a leader's process are doing, written into their leases for all of them together.

Their leases are the leader's and need no renewal (ADR 0038); whoever lists them wants to see what is stuck all the same. What has
changed so that somebody should look is told within seconds, everything else now and then, in one call and one batch. Decides
nothing. Made by the composition root beside the components; ends with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.client.leased import TELL_S, Health, Leased, until_next
from fairlead.client.plane import Plane
from fairlead.ports import Clock

LOOK_S: Final = 3.0  # how soon it is told that one does not get on


class Reporting:
    def __init__(self, plane: Plane, clock: Clock, components: Sequence[Leased]) -> None:
        self._plane = plane
        self._clock = clock
        self._components = components
        self._told: dict[str, tuple[object, float]] = {}  # lease -> what was last said that matters, and when

    def stop(self) -> None:
        """Its task is cancelled with those of everybody it speaks for."""

    async def run(self) -> None:
        while True:
            await self._clock.sleep(until_next(self._clock.monotonic(), LOOK_S))
            await self.tell()

    async def tell(self) -> None:
        due = [(each, health) for each in self._components if each.serving and self._is_news(each, health := each.health())]
        if not due:
            return
        for (each, _), got in zip(due, await self._plane.submit([each.renewal(health) for each, health in due]), strict=True):
            each.renewed(got)

    def _is_news(self, component: Leased, health: Health) -> bool:
        now = self._clock.monotonic()
        matters = (component.epoch, health.stalled, health.last_error, health.zones)
        before = self._told.get(component.terms.name)
        if before is not None and before[0] == matters and now - before[1] < TELL_S - LOOK_S / 2:
            return False
        self._told[component.terms.name] = (matters, now)
        return True
