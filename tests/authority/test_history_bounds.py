"""History goes on where the bounds of others are exceeded: what one look at the journal brings, what memory remembers."""

from __future__ import annotations

from pathlib import Path

from fairlead.store.contract import BATCH_BYTES_MAX, Batch, Compacted
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock, ok, running_plane
from tests.authority.test_history import archived, tenant


class Little(MemoryStore):
    """One look at its journal brings one batch, as a look at a long one brings only a part of it."""

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        return await super().tail(after, 1)


async def test_after_a_lost_tail_history_goes_on_behind_a_journal_that_is_longer_than_one_look(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), FakeClock(), archive=tmp_path) as plane:
        for number in range(5):
            ok(await plane.send(OPERATOR, tenant(f"t{number}")))
        await archived(plane)
    disk.lose_tail(2)
    fence = disk.head.fence()
    disk.set_incarnation(fence, fence.incarnation + 1)
    async with running_plane(Little(disk), FakeClock(), archive=tmp_path) as plane:
        made = ok(await plane.send(OPERATOR, tenant("after")))
        await archived(plane)
        history = plane.authority._history
        assert history is not None
        assert await history.get("tenants//after", made.revision) is not None
