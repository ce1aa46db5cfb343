"""`fairlead audit verify` over an archive that a plane wrote: clean where it is clean, exit code 8 where a promise is broken."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.cli.frame import CHECK_FAILED, NOT_FOUND, OK, World, answer
from fairlead.main import archived_batches
from fairlead.model.commands import Caller, Delete, Enqueue, Put
from fairlead.model.journal import Header, chain_hash, decode_blob, encode_blob
from fairlead.model.kinds.intent import Quota, QuotaSpec, Tenant
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.evidence import Evidence
from fairlead.store.archive import Archive, Point
from fairlead.store.contract import Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, agent_of, bind_of, ok, report_of, request_of, running_plane
from tests.store.archive_model import SMALL


class Moment:
    """A clock whose sleep is nothing but a chance for others to act."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.slept_s = 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.meanwhile()


def world(clock: Moment | None = None, evidence: Path | None = None) -> World:
    nothing: Any = None
    moment: Any = clock or Moment()
    kept = (lambda: Evidence(evidence, "fairlead audit verify", lambda: 1.0, lambda: "b")) if evidence else None
    return World(
        nothing, nothing, nothing, nothing, lambda: moment, nothing, _stepped, nothing, archived=archived_batches, evidence=kept
    )


def _stepped(work: Coroutine[Any, Any, None]) -> None:
    """Inside a running loop no other can run, and nothing here waits."""
    with pytest.raises(StopIteration):
        work.send(None)


async def history(directory: Path, change: Callable[[list[Batch]], list[Batch]] = lambda batches: batches) -> None:
    """What a real authority committed, in an archive."""
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        for number in range(3):
            await plane.add_node(f"n{number}")
    archive = Archive(directory)
    for batch in change([entry.batch for entry in disk.journal]):
        archive.append(batch)
    archive.sync()
    archive.close()


def under_an_older_term(batches: list[Batch]) -> list[Batch]:
    """The last batch as a deposed leader would have written it."""
    last = batches[-1]
    blob = decode_blob(last.blob)
    header = msgspec.structs.replace(blob.header, epoch=0)
    assert isinstance(header, Header)
    raw = encode_blob(header, [msgspec.msgpack.encode(entry) for entry in blob.entries])
    return [*batches[:-1], Batch(last.first, last.last, last.previous, chain_hash(last.previous, raw), raw)]


async def test_a_clean_history_is_said_to_be_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path / "history")
    assert answer(world(), ["audit", "verify", str(tmp_path / "history"), "--json"]) == OK
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["name"] == "audit verify"
    assert told["results"]["revisions"] > 3
    assert told["results"]["invariants"]["S18"]["checked"] > 0
    assert not any(row["violations"] for row in told["results"]["invariants"].values())


async def test_every_change_of_an_override_is_listed_with_who_made_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = MemoryDisk()
    scope = OverrideScope(workloads=("api",))
    spec = OverrideSpec(kind="hold", reason="incident 7", ttl_seconds=60, requester="ada", scope=scope)
    made = Override(metadata=Metadata(name="o", namespace="risk"), spec=spec)
    async with running_plane(MemoryStore(disk)) as plane:
        for changed in (spec, replace(spec, ttl_seconds=90), replace(spec, ttl_seconds=90, approver="bob")):
            ok(await plane.send(OPERATOR, Put("Override", replace(made, spec=changed))))
        ok(await plane.send(Caller("eve", Role.OPERATOR), Delete("Override", "risk", "o")))
    archive = Archive(tmp_path / "history")
    for entry in disk.journal:
        archive.append(entry.batch)
    archive.sync()
    archive.close()
    assert answer(world(), ["audit", "overrides", str(tmp_path / "history"), "--json"]) == OK
    told = msgspec.json.decode(capsys.readouterr().out)["results"]["overrides"]
    assert [(each["what"], each["who"]) for each in told] == [
        ("created", "ada"), ("extended", "ada"), ("approved", "ada"), ("revoked", "eve"),
    ]  # fmt: skip
    assert answer(world(), ["audit", "overrides", str(tmp_path / "history")]) == OK
    assert "incident 7" in capsys.readouterr().out
    assert answer(world(), ["audit", "overrides", str(tmp_path / "nowhere")]) == NOT_FOUND


async def test_a_broken_promise_is_named_with_its_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path / "history", under_an_older_term)
    assert answer(world(), ["audit", "verify", str(tmp_path / "history"), "--json"]) == CHECK_FAILED
    told = msgspec.json.decode(capsys.readouterr().out)
    (violation,) = told["results"]["invariants"]["S9"]["violations"]
    assert "term" in violation["detail"]
    assert violation["position"] > 0


def test_a_directory_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert answer(world(), ["audit", "verify", str(tmp_path / "none")]) == NOT_FOUND


async def test_without_a_directory_the_local_platform_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for plane in ("global", "us-east"):
        await history(tmp_path / "data" / plane / "history")
    state = ["--state", str(tmp_path)]
    assert answer(world(), ["audit", "verify", *state, "--json"]) == OK
    planes = msgspec.json.decode(capsys.readouterr().out)["results"]["planes"]
    assert [Path(path).parent.name for path in planes] == ["global", "us-east"]
    assert answer(world(), ["audit", "verify", *state]) == OK
    said = capsys.readouterr().out
    assert said.count("INVARIANT") == 3, "of each plane, and of what only all of them show"
    assert all(f"{name} is in no history" in said for name in ("S13", "S14", "S15", "S17"))
    for what in ("budgets", "overrides"):
        assert answer(world(), ["audit", what, *state, "--json"]) == OK
        assert msgspec.json.decode(capsys.readouterr().out)["params"]["directory"] == str(tmp_path / "data/global/history")
        assert answer(world(), ["audit", what, "--state", str(tmp_path / "none")]) == NOT_FOUND
    assert answer(world(), ["audit", "verify", "--state", str(tmp_path / "none")]) == NOT_FOUND


# --- a history whose oldest days are gone ----------------------------------------------------------------------------------


def trimmed(directory: Path, batches: list[Batch], kept: int) -> None:
    """What an archive keeps after thirty days: the last so many batches, and every object as it was before them."""
    archive = Archive(directory, SMALL)
    for number, batch in enumerate(batches):
        if number == len(batches) - kept:
            rows = list(archive.state_at(archive.last()))
            archive.write_checkpoint(archive.last(), decode_blob(batch.blob).header.time_ms, rows)
        archive.append(batch)
    archive.seal()
    while archive.close_segment():
        pass
    assert archive.trim(1 << 50, 0).segments
    archive.close()


async def placed(change: Callable[[list[Batch]], list[Batch]] = lambda batches: batches) -> list[Batch]:
    """A history at whose end something is placed: on a node, under a grant, for a request and by a lease from its beginning."""
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        for number in range(8):
            await plane.add_node(f"n{number}", cpu=4000)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 2)))
        for index in (0, 1):
            ok(await plane.send(scheduler, bind_of("risk", f"api-{index}", "n0")))
        for state in (SlotState.STARTING, SlotState.READY):
            ok(await plane.send(agent_of("n0"), report_of("risk", "api-0", state)))
    return change([entry.batch for entry in disk.journal])


async def test_a_history_whose_oldest_days_are_trimmed_is_asked_from_where_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = await placed()
    trimmed(tmp_path / "h", batches, 4)
    code, told = verified(tmp_path / "h", capsys, world(evidence=tmp_path / "evidence"))
    assert (code, told["unread"]) == (OK, [])
    assert (told["begins"], told["reaches"]) == (f"1:{batches[-5].last}", f"1:{batches[-1].last}")
    assert told["revisions"] == batches[-1].last - batches[-5].last
    assert told["invariants"]["S2"]["checked"] == 2
    (record,) = (tmp_path / "evidence").glob("*.json")
    assert msgspec.json.decode(record.read_bytes())["figures"]["revisions"] == told["revisions"]
    assert answer(world(), ["audit", "verify", str(tmp_path / "h")]) == OK
    assert f"read after revision {told['begins']}, which is as far as it is kept, up to" in capsys.readouterr().out


async def test_a_promise_broken_after_the_oldest_days_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trimmed(tmp_path / "h", await placed(under_an_older_term), 4)
    code, told = verified(tmp_path / "h", capsys)
    assert (code, len(told["invariants"]["S9"]["violations"])) == (CHECK_FAILED, 1)


async def test_a_hole_is_told_and_what_lies_after_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = await placed()
    whole = Archive(tmp_path / "whole")
    archive = Archive(tmp_path / "h", SMALL)
    for batch in batches:
        whole.append(batch)
    for batch in batches[:4]:
        archive.append(batch)
    mark = Point(1, batches[-5].last)
    archive.write_checkpoint(mark, 1, whole.state_at(mark))
    archive.append(batches[-4], after_gap=True)
    for batch in batches[-3:]:
        archive.append(batch)
    archive.close()
    whole.close()
    code, told = verified(tmp_path / "h", capsys)
    assert (code, told["begins"]) == (CHECK_FAILED, str(mark))
    assert told["invariants"]["S2"]["checked"] == 2
    assert not any(row["violations"] for row in told["invariants"].values())
    assert f"what led from there to {mark} is not archived" in told["unread"][0]


async def test_a_damaged_checkpoint_at_the_beginning_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trimmed(tmp_path, await placed(), 4)
    (path,) = tmp_path.glob("*.checkpoint")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    code, told = verified(tmp_path, capsys)
    assert (code, told["revisions"]) == (CHECK_FAILED, 0)
    assert not any(row["violations"] for row in told["invariants"].values()), "what could not be read accuses nobody"
    assert path.name in told["unread"][0]


async def test_what_was_ordered_before_the_oldest_days_is_not_said_to_be_made_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = MemoryDisk()
    spec = OverrideSpec(kind="hold", reason="a flood", ttl_seconds=60, requester="ada", scope=OverrideScope(tenants=("risk",)))
    made = Override(metadata=Metadata(name="o", namespace="risk"), spec=spec)
    quota = Quota(Metadata(name="all", namespace="risk"), QuotaSpec(limits=Resources(6000)))
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global", region="global")) as plane:
        ok(await plane.send(OPERATOR, Put("Quota", quota)))
        ok(await plane.send(OPERATOR, Put("Override", made)))
        for number in range(8):
            ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=f"t{number}")))))
        ok(await plane.send(OPERATOR, Put("Quota", replace(quota, metadata=replace(quota.metadata, labels={"a": "b"})))))
        ok(await plane.send(OPERATOR, Put("Override", replace(made, spec=replace(spec, ttl_seconds=90)))))
    trimmed(tmp_path / "h", [entry.batch for entry in disk.journal], 2)
    assert answer(world(), ["audit", "overrides", str(tmp_path / "h"), "--json"]) == OK
    told = msgspec.json.decode(capsys.readouterr().out)["results"]["overrides"]
    assert [each["what"] for each in told] == ["extended"]
    assert answer(world(), ["audit", "budgets", str(tmp_path / "h"), "--json"]) == OK
    assert msgspec.json.decode(capsys.readouterr().out)["results"]["changes"] == []


# --- a history that is not all there ---------------------------------------------------------------------------------------


def verified(directory: Path, capsys: pytest.CaptureFixture[str], within: World | None = None) -> tuple[int, dict[str, Any]]:
    code = answer(within or world(), ["audit", "verify", str(directory), "--json"])
    return code, msgspec.json.decode(capsys.readouterr().out)["results"]


def open_segment(directory: Path) -> Path:
    (found,) = directory.glob("*.open")
    return found


async def test_says_up_to_which_revision_it_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path)
    code, told = verified(tmp_path, capsys)
    assert (code, told["reaches"], told["unread"]) == (OK, f"1:{told['revisions']}", [])
    assert answer(world(), ["audit", "verify", str(tmp_path)]) == OK
    assert f"read up to revision 1:{told['revisions']}\n" in capsys.readouterr().out


@pytest.mark.parametrize("place", [0.3, 0.6, 0.99])
async def test_a_flipped_bit_fails_the_check_wherever_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: float
) -> None:
    await history(tmp_path / "h")
    whole = verified(tmp_path / "h", capsys)[1]["revisions"]
    data = bytearray(open_segment(tmp_path / "h").read_bytes())
    data[int(len(data) * place)] ^= 1
    open_segment(tmp_path / "h").write_bytes(data)
    code, told = verified(tmp_path / "h", capsys, world(evidence=tmp_path / "evidence"))
    assert code == CHECK_FAILED
    assert told["revisions"] < whole
    assert f"after revision 1:{told['revisions']} are damaged" in told["unread"][0]
    (kept,) = (tmp_path / "evidence").glob("*.json")
    record = msgspec.json.decode(kept.read_bytes())
    assert (record["passed"], record["figures"]["revisions"]) == (False, 0)


async def test_a_beginning_that_cannot_be_read_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path)
    data = bytearray(open_segment(tmp_path).read_bytes())
    data[20] ^= 1
    open_segment(tmp_path).write_bytes(data)
    code, told = verified(tmp_path, capsys)
    assert (code, told["reaches"]) == (CHECK_FAILED, "")
    assert "its beginning is torn, and nothing after it" in told["unread"][0]


async def test_the_record_that_is_being_written_fails_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path)
    whole = verified(tmp_path, capsys)[1]["revisions"]
    data = open_segment(tmp_path).read_bytes()
    for less in (1, 40):
        open_segment(tmp_path).write_bytes(data[:-less])
        code, told = verified(tmp_path, capsys)
        assert (code, told["unread"]) == (OK, [])
        assert 0 < told["revisions"] < whole
    for more in (b"", data[-30:]):  # nothing, or a part of the next one's head
        open_segment(tmp_path).write_bytes(data + more)
        assert verified(tmp_path, capsys)[0] == OK
    (tmp_path / "0000001-00000000009999.open").write_bytes(data[:30])
    assert verified(tmp_path, capsys)[0] == OK, "a segment that was only just begun"


async def test_a_checkpoint_beyond_the_last_segment_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path)
    archive = Archive(tmp_path)
    archive.write_checkpoint(archive.last(), 1, [])
    archive.close()
    assert verified(tmp_path, capsys)[0] == OK
    data = open_segment(tmp_path).read_bytes()
    open_segment(tmp_path).write_bytes(data[: len(data) // 2])
    code, told = verified(tmp_path, capsys)
    assert code == CHECK_FAILED
    assert any("segments end at 1:" in said for said in told["unread"])
    open_segment(tmp_path).unlink()
    assert answer(world(), ["audit", "verify", str(tmp_path)]) == CHECK_FAILED
    assert "read up to revision 0, and not all there is" in capsys.readouterr().out


async def test_a_checkpoint_that_its_segment_reaches_in_a_moment_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server writes the state of its head, and feeds its history a little later."""
    later: list[Batch] = []
    await history(tmp_path, lambda batches: later.append(batches[-1]) or batches[:-1])  # type: ignore[func-returns-value]
    archive = Archive(tmp_path)
    archive.write_checkpoint(Point(1, later[0].last), 1, [])
    clock = Moment(lambda: archive.append(later[0]))
    assert verified(tmp_path, capsys, world(clock))[0] == OK
    assert clock.slept_s
    archive.close()


async def test_a_damaged_closed_segment_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await history(tmp_path)
    archive = Archive(tmp_path)
    archive.seal()
    closed = archive.close_segment()
    archive.close()
    assert closed is not None
    data = bytearray(closed.read_bytes())
    for place in (-20, 20):  # its footer; a frame
        damaged = bytearray(data)
        damaged[place] ^= 1
        closed.write_bytes(damaged)
        code, told = verified(tmp_path, capsys)
        assert (code, told["revisions"]) == (CHECK_FAILED, 0)
        assert closed.name in told["unread"][0]


def test_a_directory_without_history_is_not_found_and_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h").mkdir()
    assert answer(world(evidence=tmp_path / "evidence"), ["audit", "verify", str(tmp_path / "h")]) == NOT_FOUND
    assert "there is no history in" in capsys.readouterr().err
    assert not (tmp_path / "evidence").exists()
