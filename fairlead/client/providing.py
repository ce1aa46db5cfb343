"""What makes a pool's orders true: for each NodePool of a provider's name, the machines in `status.ordered` run and no others.

Owns the comparison and its repetition; a Provider owns its machines. Level, not edge: every round compares what is ordered with
what runs, so a round that failed is made up for by the next, and two rounds do nothing twice. A machine or pool that fails keeps
no other from its turn. Decides nothing. Run by a region's leader where its outside has a provider (fairlead/compose/outside.py):
the local platform's agents, or simulated machines.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from fairlead.client.plane import Plane
from fairlead.model.kinds.capacity import NodePool
from fairlead.ports import Clock

log = logging.getLogger(__name__)
ROUND_S: Final = 2.0


class Provider(Protocol):
    @property
    def name(self) -> str:
        """As pools name it."""

    async def running(self, pool: str) -> Collection[str]:
        """The machines it has started for this pool and not stopped, ready or not."""

    async def start(self, pool: NodePool, name: str) -> None:
        """Returns when the machine is on its way; it registers by itself when it is up."""

    async def stop(self, pool: str, name: str) -> None: ...


class Providing:
    def __init__(self, plane: Plane, clock: Clock, provider: Provider, round_s: float = ROUND_S) -> None:
        self._plane = plane
        self._clock = clock
        self._provider = provider
        self._round_s = round_s
        self._stopping = False
        self._failed: dict[str, str] = {}  # what failed in the last round, and how
        self._failing: dict[str, str] = {}  # in this one

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            try:
                await self.once()
            except Exception:  # the next round compares again
                log.exception("provider %s: a round failed", self._provider.name)
            await self._clock.sleep(self._round_s)

    async def once(self) -> None:
        self._failing = {}
        for row in await self._plane.list("nodepools"):
            if row.raw is None or row.hot.spec.provider != self._provider.name:
                continue
            with self._apart(f"pool {row.name}"):
                await self._compare(row.hot)
        self._failed = self._failing

    async def _compare(self, pool: NodePool) -> None:
        name, wanted = pool.metadata.name, pool.status.ordered
        running = set(await self._provider.running(name))
        for machine in [each for each in wanted if each not in running]:
            with self._apart(f"starting {machine}"):
                await self._provider.start(pool, machine)
        for machine in sorted(running - set(wanted)):
            with self._apart(f"stopping {machine}"):
                await self._provider.stop(name, machine)

    @contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """What fails here fails alone: the others have their turn, and the next round tries again. It is said when it begins,
        when it fails in another way, and when it is over; not every two seconds."""
        before = self._failed.get(what)
        try:
            yield
        except Exception as error:  # whatever a provider raises: the next round compares again
            self._failing[what] = words = f"{type(error).__name__}: {error}"
            if words != before:
                log.warning("provider %s: %s failed: %s", self._provider.name, what, error, exc_info=True)
            return
        if before is not None:
            log.info("provider %s: %s works again", self._provider.name, what)
