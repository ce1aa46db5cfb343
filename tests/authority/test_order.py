"""Commands of one call take effect in the order in which they were sent, whatever happens to their batches."""

from __future__ import annotations

import asyncio

from fairlead.model.commands import Accepted, Command, Outcome, Put
from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.meta import Metadata
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import OPERATOR, PlaneForTest, running_plane

LARGE = {f"a.example/{n}": "x" * 1000 for n in range(100)}  # a few of these fill a batch


def put(number: int) -> Command:
    metadata = Metadata(name="z", labels={"number": str(number)}, annotations=LARGE)
    return Command(OPERATOR, Put("Region", Region(metadata=metadata, spec=RegionSpec(areas=("us",)))))


def check(plane: PlaneForTest, outcomes: list[Outcome]) -> None:
    revisions = [each.revision for each in outcomes if isinstance(each, Accepted)]
    assert len(revisions) == len(outcomes)
    assert revisions == sorted(revisions)
    rec = plane.authority.view().get("regions", "", "z")
    assert rec is not None
    assert rec.hot.metadata.labels["number"] == str(len(outcomes) - 1), "the last that was sent"


async def test_what_does_not_fit_into_a_batch_comes_before_what_was_sent_after_it() -> None:
    async with running_plane() as plane:
        check(plane, await plane.authority.submit([put(number) for number in range(12)]))


async def test_what_is_judged_again_comes_before_what_waits_for_the_next_batch() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        gate = faults.hold("commit")
        first = asyncio.ensure_future(plane.authority.submit([put(0)]))
        await faults.wait_held("commit")
        later = asyncio.ensure_future(plane.authority.submit([put(number) for number in range(14)]))
        await asyncio.sleep(0.3)
        faults.once("commit", DISK_FULL)
        del faults.gates["commit"]
        gate.set()
        assert not isinstance((await first)[0], Accepted)
        check(plane, await later)
