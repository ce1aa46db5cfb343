"""Owns backups of simulated planes, and operators who restore one (P6): minutes of history are gone that others remember.

The copy is taken by production code beside a running leader, and what it becomes is what `fairlead store restore` makes of it.
Nobody is held to what was forgotten (watched.py); all else is asked as ever. Called by chaos.py.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import Draws
from fairlead.sim.machines import Program
from fairlead.sim.platform import Plane, Platform
from fairlead.sim.store import RecordedDisk
from fairlead.store.backup import BackupHeader, header_of, restored_head
from fairlead.store.contract import ObjectRow
from fairlead.store.memory import MemoryStore
from fairlead.store.snapshot import take_snapshot


class Backup:
    """A whole plane as it was at one moment."""

    def __init__(self, header: BackupHeader, rows: list[ObjectRow]) -> None:
        self.header = header
        self.rows = rows


async def taken(disk: RecordedDisk) -> Backup:
    """On the machine of the store, so nothing is in its way."""
    snapshot = await take_snapshot(MemoryStore(disk))
    rows = [row async for chunk in snapshot.chunks() for row in chunk]
    return Backup(header_of(snapshot, "", 0, len(rows)), rows)


class Restoring:
    def __init__(
        self, platform: Platform, left_out: Callable[[], bool], healed: Callable[[], bool],
        start_again: Callable[[Program], None], cut_off: Callable[[str], Callable[[], None]],
    ) -> None:  # fmt: skip
        self._platform = platform
        self._left_out = left_out
        self._healed = healed
        self._start_again = start_again
        self._cut_off = cut_off
        self._waiting: set[str] = set()  # planes that will go back to a backup

    async def strike(self, draws: Draws) -> None:
        """A backup is made now, and restored when it is old; in every other case a region is cut off then, and cannot say what
        it has been given since."""
        at, age_s, down_s = draws.random(), draws.uniform(5.0, 90.0), draws.uniform(1.0, 8.0)
        silent, silent_s = draws.choice(("", draws.choice(self._platform.regions))), draws.uniform(15.0, 60.0)
        name = GLOBAL if at < 0.5 else self._platform.regions[int(2 * (at - 0.5) * len(self._platform.regions))]
        plane = self._platform.planes[name]
        if self._left_out() or plane.name in self._waiting or not plane.store.disk.head.position:
            return
        backup = await taken(plane.store.disk)
        self._waiting.add(plane.name)
        self._platform.machines.tell("chaos", f"a backup is made of {plane.name}, at {backup.header.position}")
        self._platform.loop.after(age_s, self._restore, plane, backup, age_s, down_s)
        if silent and plane.name == GLOBAL:
            self._platform.loop.after(age_s, self._hush, silent, silent_s)

    def _hush(self, region: str, for_s: float) -> None:
        if not self._healed():
            self._platform.machines.tell("chaos", f"{region} is cut off for {for_s:.1f} s")
            self._platform.loop.after(for_s, self._cut_off(region))

    def _restore(self, plane: Plane, backup: Backup, age_s: float, down_s: float) -> None:
        self._waiting.discard(plane.name)
        if self._healed():
            return
        for server in plane.servers:
            if server.alive:
                server.kill()
            self._platform.loop.after(down_s, self._start_again, server)
        disk = plane.store.disk
        # The old store can still be read, and says the highest incarnation that anybody has seen (docs/operations/backup.md).
        disk.begin_again(restored_head(backup.header, disk.head.incarnation), backup.rows)
        self._platform.machines.counts["F14"] += 1
        self._platform.machines.counts["restored"] += 1
        words = f"{plane.name} is restored as it was {age_s:.1f} s ago, at {disk.head.position}, and starts in {down_s:.1f} s"
        self._platform.machines.tell("chaos", words)
