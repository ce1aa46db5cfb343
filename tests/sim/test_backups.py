"""Simulated planes that are restored: a backup is what a plane was at one moment, and what comes of it is another incarnation."""

from __future__ import annotations

from fairlead.sim import loop as sim
from fairlead.sim.backups import Backup, taken
from fairlead.sim.campaign import scenario_of
from fairlead.sim.loop import SimLoop
from fairlead.sim.store import RecordedDisk
from fairlead.sim.world import run_scenario
from fairlead.store.backup import restored_head
from fairlead.store.contract import Batch, Committed, Fence, Fenced
from tests.store.archive_model import batch_of


def grown(disk: RecordedDisk, fence: Fence, after: Batch | None, count: int) -> Batch:
    """The last of so many batches."""
    for number in range(count):
        after = batch_of([(f"workloads/risk/w{number}", b"{}")], after, number)
        assert isinstance(disk.commit(fence, after), Committed)
    assert after is not None
    return after


def backup_of(disk: RecordedDisk) -> Backup:
    async def main(loop: SimLoop) -> Backup:
        return await taken(disk)

    return sim.run(main, 1).value


def test_a_restored_disk_is_as_it_was_in_a_new_incarnation_and_takes_nothing_of_the_old_one() -> None:
    disk = RecordedDisk()
    lost: list[tuple[int, int]] = []
    disk.tail_lost = lambda position, incarnation: lost.append((position, incarnation))
    fence = disk.acquire("a", disk.head)
    assert isinstance(fence, Fence)
    last = grown(disk, fence, None, 3)
    backup = backup_of(disk)
    last = grown(disk, fence, last, 4)
    late = batch_of([("workloads/risk/late", b"{}")], last, 9)
    disk.begin_again(restored_head(backup.header, disk.head.incarnation), backup.rows)
    assert (disk.head.position, disk.head.hash) == (backup.header.position, backup.header.hash)
    assert disk.head.incarnation == fence.incarnation + 1
    assert sorted((key, *row) for key, row in disk.objects.items()) == sorted(backup.rows)
    assert isinstance(disk.commit(fence, late), Fenced)
    assert lost == [(backup.header.position, fence.incarnation)]


def test_planes_are_restored_where_the_profile_says_so_and_nothing_is_found() -> None:
    verdict = run_scenario(scenario_of(1, "backups", 1.5))
    assert not verdict.findings
    assert verdict.counts["restored"]
