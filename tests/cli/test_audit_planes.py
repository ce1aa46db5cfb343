"""What `fairlead audit verify` finds beside what one region's placements show: quota offered twice (S5), what a restore should
have ended (S16), exclusive slots that ran in two planes at once (S12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.authority.judge import Settings, kinds
from fairlead.cli.frame import CHECK_FAILED, OK, answer
from fairlead.model.commands import Put, PutStatus
from fairlead.model.journal import chain_hash, decode_blob, encode_blob
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.kinds.quota import GrantOffer
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.audit import CHECKED, ELSEWHERE, audit
from fairlead.store.archive import Archive
from fairlead.store.contract import Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock, agent_of, bind_of, ok, report_of, request_of, running_plane
from tests.cli.test_audit import placed, world


def batches(disk: MemoryDisk) -> list[Batch]:
    return [entry.batch for entry in disk.journal]


def broken(found: list[Batch], name: str) -> list[str]:
    return [each["detail"] for each in audit(found)["invariants"][name]["violations"]]


def test_every_promise_is_asked_of_a_history_or_said_to_be_shown_elsewhere() -> None:
    assert {*CHECKED, *ELSEWHERE} == {f"S{number}" for number in range(1, 21)}
    assert not {*CHECKED} & {*ELSEWHERE}


# --- S5 ------------------------------------------------------------------------------------------------------------------


def offer(region: str, cpu: int, version: int = 1, offers: tuple[GrantOffer, ...] = ()) -> Put:
    spec = GrantSpec(region, version, Resources(cpu), Resources(cpu), lease_seconds=600, offers=offers)
    return Put("Grant", Grant(Metadata(name=region, namespace="risk"), spec))


@pytest.fixture
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The authority that wrote this history asked nothing of offers."""
    monkeypatch.setattr(kinds, "refuse_grant", lambda *facts: None)


async def offered(*steps: Any, limit: int = 8000) -> list[Batch]:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global", region="global")) as plane:
        quota = Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=Resources(limit)))
        ok(await plane.send(OPERATOR, Put("Quota", quota)))
        sharer, mirror = await plane.as_role(Role.QUOTA), await plane.as_role(Role.MIRROR)
        for step in steps:
            ok(await plane.send(mirror if isinstance(step, PutStatus) else sharer, step))
    return batches(disk)


@pytest.mark.usefixtures("unjudged")
async def test_quota_that_is_offered_to_two_regions_is_found_in_the_global_plane_s_history() -> None:
    assert broken(await offered(offer("east", 4000), offer("west", 4000)), "S5") == []
    (found,) = broken(await offered(offer("east", 4000), offer("west", 4001)), "S5")
    assert "8001 cpu of 8000" in found


@pytest.mark.usefixtures("unjudged")
async def test_what_a_region_was_offered_before_counts_until_it_has_given_it_up() -> None:
    before = (GrantOffer(1, Resources(4000), Resources(4000)),)
    less = (offer("east", 4000), offer("east", 1000, 2, before))
    assert broken(await offered(*less, offer("west", 7000)), "S5"), "east may still stand on the first"
    taken = PutStatus("Grant", "risk", "east", GrantStatus(accepted_version=2, incarnation=1))
    assert broken(await offered(*less, taken, offer("west", 7000)), "S5") == []


@pytest.mark.usefixtures("unjudged")
async def test_limits_that_were_lowered_break_nothing_and_offers_that_give_up_raise_nothing() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global", region="global")) as plane:
        quota = Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=Resources(2000)))
        sharer = await plane.as_role(Role.QUOTA)
        ok(await plane.send(sharer, offer("east", 4000)))
        ok(await plane.send(OPERATOR, Put("Quota", quota)))  # there was none: what was granted before stands
        ok(await plane.send(sharer, offer("east", 3000, 2)))
        mirror = await plane.as_role(Role.MIRROR)
        ok(await plane.send(mirror, PutStatus("Grant", "risk", "east", GrantStatus(accepted_version=2, incarnation=1))))
        assert broken(batches(disk), "S5") == []
        ok(await plane.send(sharer, offer("east", 3500, 3)))
    assert broken(batches(disk), "S5")


# --- S16 -----------------------------------------------------------------------------------------------------------------


def restored(found: list[Batch], last: int) -> list[Batch]:
    """The last so many batches as if the plane had been restored before them, and had believed what was leased in its past."""
    out, previous = [], found[-last - 1].hash
    for batch in found[-last:]:
        blob = decode_blob(batch.blob)
        header = msgspec.structs.replace(blob.header, incarnation=2)
        raw = encode_blob(header, [msgspec.msgpack.encode(entry) for entry in blob.entries])
        out.append(Batch(batch.first, batch.last, previous, chain_hash(previous, raw), raw))
        previous = out[-1].hash
    return [*found[:-last], *out]


async def test_a_lease_of_before_a_restore_that_is_believed_after_it_is_found() -> None:
    clean = await placed()
    assert broken(clean, "S16") == []
    found = broken(restored(clean, 4), "S16")
    assert any("of incarnation 1" in detail for detail in found)
    back = [*restored(clean, 4)[:-1], clean[-1]]
    assert any("is of incarnation 1, and 2 has begun" in detail for detail in broken(back, "S16"))


# --- S12 -----------------------------------------------------------------------------------------------------------------


async def ran(directory: Path, clock: FakeClock, begin_s: float, lasts_s: float, name: str, supersedes: str = "") -> None:
    """A region whose agent says that an exclusive slot runs, and after so many seconds that it still does."""
    disk = MemoryDisk()
    clock.offset = begin_s
    async with running_plane(MemoryStore(disk), clock=clock) as plane:
        await plane.grant("risk")
        await plane.add_node("n0", cpu=4000)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        workload, _, index = name.rpartition("-")
        request = request_of("risk", workload, int(index), execution="Exclusive", supersedes=supersedes)
        ok(await plane.send(assigner, Put("SchedulingRequest", request, "create")))
        ok(await plane.send(scheduler, bind_of("risk", name, "n0")))
        for state in (SlotState.STARTING, SlotState.READY):
            ok(await plane.send(agent_of("n0"), report_of("risk", name, state, ready=state is SlotState.READY)))
        clock.offset += lasts_s
        ok(await plane.send(agent_of("n0"), report_of("risk", name, None, ready=True, restarts=1)))
    archive = Archive(directory)
    for batch in batches(disk):
        archive.append(batch)
    archive.close()


@pytest.mark.parametrize(("second_s", "code"), [(20.0, CHECK_FAILED), (58.0, OK), (80.0, OK)])
async def test_a_slot_that_two_regions_ran_at_once_is_found_where_all_histories_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second_s: float, code: int
) -> None:
    clock = FakeClock()
    east, west = (tmp_path / "data" / name / "history" for name in ("east", "west"))
    await ran(east, clock, 0.0, 60.0, "api-0")
    await ran(west, clock, second_s, 60.0, "api-35000", "east/api-0@1")
    assert answer(world(), ["audit", "verify", "--state", str(tmp_path), "--json"]) == code
    told = msgspec.json.decode(capsys.readouterr().out)["results"]
    assert told["between"]["S12"]["checked"] == 2
    assert bool(told["between"]["S12"]["violations"]) is (code != OK), "a report may be under way for a moment"
    assert [plane["invariants"]["S12"]["violations"] for plane in told["planes"].values()] == [[], []], "neither shows it alone"
    if code != OK:
        assert answer(world(), ["audit", "verify", "--state", str(tmp_path)]) == code
        assert "risk/api-0 ran on n0" in capsys.readouterr().out
