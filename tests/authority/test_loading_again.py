"""A load that the store broke off is begun anew, on nothing: what it had read by then is not counted twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlead.authority.recount import drifts
from fairlead.model.lifecycle import Role
from fairlead.store.contract import Checkpoint, ObjectRow, StoreUnreachable
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, bind_of, ok, running_plane


class BreaksOff(MemoryStore):
    """Out of reach, once, in the middle of a load: a connection is lost, or etcd has compacted what is still read."""

    broken = False

    async def load(self) -> Checkpoint:
        whole = await super().load()
        return Checkpoint(whole.head, whole.position, self._some(whole.chunks))

    async def _some(self, chunks: AsyncIterator[list[ObjectRow]]) -> AsyncIterator[list[ObjectRow]]:
        async for chunk in chunks:
            yield chunk
            if not self.broken:
                self.broken = True
                raise StoreUnreachable("the connection was lost", 0.01)


async def test_a_load_that_was_broken_off_leaves_nothing_behind() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        await plane.add_node("n1")
        ok(await plane.request("risk", "api", 0, await plane.as_role(Role.ASSIGNMENT)))
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), bind_of("risk", "api-0", "n1")))
    assert disk.head.materialised == disk.head.position
    store = BreaksOff(disk)
    async with running_plane(store) as plane:
        assert store.broken
        state, ledger = plane.authority._state, plane.authority._ctx.ledger
        assert state.count("bindings") == 1
        assert await drifts(state, ledger, FakeClock()) == []
