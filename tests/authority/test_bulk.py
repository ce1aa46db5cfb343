"""Commands with parts: each judged alone on what those before it leave; one entry, and one answer that names the refused."""

from __future__ import annotations

import pytest

from fairlead.authority.judge import Settings, bulk, placing
from fairlead.authority.judge.bulk import PARTS_MAX
from fairlead.authority.replay import Replay
from fairlead.model.commands import BindMany, Command, Enqueue, SessionId
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.lifecycle import Role
from fairlead.store.contract import BATCH_BYTES_MAX, Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import GI, REGION, PlaneForTest, bind_of, no, ok, request_of, running_plane


async def names(plane: PlaneForTest, plural: str) -> list[str]:
    return [rec.name for rec in (await plane.authority.view().page(plural, "risk")).items]


def journal(disk: MemoryDisk) -> list[Batch]:
    return [entry.batch for entry in disk.journal]


async def furnished(plane: PlaneForTest, nodes: int = 2) -> None:
    await plane.grant("risk")
    for number in range(nodes):
        await plane.add_node(f"n{number}", cpu=4000)


async def test_a_range_of_slots_is_queued_by_one_command_and_one_entry() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await furnished(plane)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 3), 4)))
        assert await names(plane, "schedulingrequests") == ["api-3", "api-4", "api-5", "api-6"]
        rec = plane.authority.view().get("schedulingrequests", "risk", "api-5")
        assert rec is not None
        assert rec.hot.spec.slot.index == 5
        commands = [decode_command(e.command) for b in journal(disk) for e in decode_blob(b.blob).entries]
        assert sum(command is not None and isinstance(command.body, Enqueue) for command in commands) == 1


async def test_slots_that_wait_already_are_left_as_they_are() -> None:
    async with running_plane() as plane:
        await furnished(plane)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 2)))
        before = plane.authority.view().get("schedulingrequests", "risk", "api-1")
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 4)))
        after = plane.authority.view().get("schedulingrequests", "risk", "api-1")
        assert before is not None
        assert after is before
        assert len(await names(plane, "schedulingrequests")) == 4


async def test_a_repeated_id_queues_nothing_again_even_when_the_slots_are_gone() -> None:
    async with running_plane() as plane:
        await furnished(plane)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        body = Enqueue(request_of("risk", "api", 0), 2)
        ok(await plane.send(assigner, body, SessionId("a", 1)))
        ok(await plane.send(scheduler, BindMany(tuple(bind_of("risk", f"api-{n}", "n0") for n in range(2)))))
        assert ok(await plane.send(assigner, body, SessionId("a", 1))).replayed
        assert await names(plane, "schedulingrequests") == []


async def test_a_bound_slot_is_refused_by_index_and_its_neighbours_are_queued() -> None:
    async with running_plane() as plane:
        await furnished(plane)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 1), 1)))
        ok(await plane.send(scheduler, bind_of("risk", "api-1", "n0")))
        answer = ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 3)))
        assert [(index, refused.reason) for index, refused in answer.refused] == [(1, "AlreadyBound")]
        assert await names(plane, "schedulingrequests") == ["api-0", "api-2"]


async def test_only_the_assignment_controller_queues_and_only_sound_slots() -> None:
    async with running_plane() as plane:
        await furnished(plane)
        scheduler = await plane.as_role(Role.SCHEDULER)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        no(await plane.send(scheduler, Enqueue(request_of("risk", "api", 0), 2)), "NotOwner")
        no(await plane.send(assigner, Enqueue(request_of("risk", "api", 0, cpu=-1), 2)), "Invalid")
        no(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), PARTS_MAX + 1)), "TooLarge")
        no(await plane.send(assigner, Enqueue(request_of("nobody", "api", 0), 2)), "NoGrant")
        assert await names(plane, "schedulingrequests") == []


async def test_each_bind_sees_what_those_before_it_took() -> None:
    async with running_plane() as plane:
        await furnished(plane, nodes=1)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0, cpu=1500), 4)))
        answer = ok(await plane.send(scheduler, BindMany(tuple(bind_of("risk", f"api-{n}", "n0") for n in range(4)))))
        assert [(index, refused.reason) for index, refused in answer.refused] == [(2, "NoFit"), (3, "NoFit")]
        assert answer.refused[0][1].facts["cpuFree"] == 1000
        assert await names(plane, "bindings") == ["api-0", "api-1"]
        assert await names(plane, "schedulingrequests") == ["api-2", "api-3"]
        assert plane.authority.meters.refusals["NoFit"] == 2


async def test_binds_of_which_all_are_refused_change_nothing() -> None:
    async with running_plane() as plane:
        await furnished(plane)
        scheduler = await plane.as_role(Role.SCHEDULER)
        before = plane.authority.view().revision
        answer = ok(await plane.send(scheduler, BindMany((bind_of("risk", "api-0", "n0"),))))
        assert [refused.reason for _, refused in answer.refused] == ["NotFound"]
        assert plane.authority.view().revision == before
        no(await plane.send(scheduler, BindMany(())), "TooLarge")


async def test_a_batch_the_store_cannot_take_is_undone_and_every_part_judged_again() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        await furnished(plane)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 3)))
        faults.once("commit", DISK_FULL)
        binds = BindMany(tuple(bind_of("risk", f"api-{n}", "n0") for n in range(3)))
        no(await plane.send(scheduler, binds), "StoreUnavailable")
        assert await names(plane, "bindings") == []
        assert ok(await plane.send(scheduler, binds)).refused == ()
        assert len(await names(plane, "bindings")) == 3


async def test_a_judge_that_breaks_half_way_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_plane() as plane:
        await furnished(plane)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 3)))
        real, calls = placing.bind, iter(range(10))

        def breaks_at_the_third(*args: object) -> object:
            if next(calls) == 2:
                raise RuntimeError("planted")
            return real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(bulk, "bind", breaks_at_the_third)
        binds = BindMany(tuple(bind_of("risk", f"api-{n}", "n0") for n in range(3)))
        no(await plane.send(scheduler, binds), "JudgeFailed")
        monkeypatch.setattr(bulk, "bind", real)
        assert await names(plane, "bindings") == []
        assert ok(await plane.send(scheduler, binds)).refused == ()


async def test_what_does_not_fit_into_a_batch_any_more_goes_whole_into_the_next() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        bodies = [Enqueue(request_of("risk", f"api{n}", 0, supersedes="x" * 2500), 200) for n in range(3)]
        await plane.authority.submit([Command(assigner, body) for body in bodies])
        assert len(await names(plane, "schedulingrequests")) == 600
        batches = [b for b in journal(disk) if len(b.blob) > 100_000]
        assert len(batches) > 1, "three such commands do not fit into one batch"
        assert all(len(b.blob) <= BATCH_BYTES_MAX for b in batches)


async def test_a_replay_judges_every_part_again_and_agrees() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await furnished(plane, nodes=1)
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0, cpu=1500, memory=GI), 4)))
        ok(await plane.send(scheduler, BindMany(tuple(bind_of("risk", f"api-{n}", "n0") for n in range(4)))))
        replay = Replay(Settings(region=REGION))
        replay.feed(journal(disk))
        assert replay.differences == []
        assert replay.judged > 4
