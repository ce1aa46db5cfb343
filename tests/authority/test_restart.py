"""What a restart must not change: a server that loads a checkpoint answers as the one that wrote it."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.commands import Put
from fairlead.model.ids import revision
from fairlead.model.lifecycle import Role
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, bind_of, ok, running_plane


async def test_an_object_loaded_from_a_checkpoint_keeps_the_revision_that_wrote_it() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.add_node("n1")
        rec = plane.authority.view().get("nodes", "", "n1")
        assert rec is not None
        written, node = revision(1, rec.position), rec.decode()
    async with running_plane(MemoryStore(disk)) as plane:
        rec = plane.authority.view().get("nodes", "", "n1")
        assert rec is not None
        assert revision(1, rec.position) == written
        changed = replace(node, spec=replace(node.spec, zone="b"))
        ok(await plane.send(OPERATOR, Put("Node", changed, "update", expected_revision=written)))


async def test_a_bind_repeated_after_a_restart_has_the_revision_it_had() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        first = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
    async with running_plane(MemoryStore(disk)) as plane:
        again = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        assert (again.replayed, again.revision) == (True, first.revision)
