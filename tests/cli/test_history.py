"""`fairlead timeline`, `export` and `replay` over a history that a real authority wrote."""

from __future__ import annotations

import gzip
import shutil
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.authority import replay as replaying
from fairlead.authority.judge import judge
from fairlead.cli.frame import CHECK_FAILED, ERROR, NOT_FOUND, OK, World, answer
from fairlead.main import archived_batches, decided_again
from fairlead.model.commands import Enqueue, Refused
from fairlead.model.journal import decode_blob
from fairlead.model.lifecycle import Role, SlotState
from fairlead.ports import SystemClock
from fairlead.store import export as exporting
from fairlead.store.archive import Archive
from fairlead.store.export import MAGIC, Plane
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import REGION, agent_of, bind_of, ok, report_of, request_of, running_plane
from tests.cli.test_audit import trimmed

LEASE_S = 15.0  # of nodes, as Settings has it


class Programs:
    """Knows one server, whatever its configuration is called."""

    def __init__(self, history: Path) -> None:
        self._history = history

    def history(self, config: str) -> Plane:
        return Plane("region", REGION, LEASE_S, str(self._history))


async def later(ms: int) -> None:
    """So that batches differ in plane time."""
    clock = SystemClock()
    until_s = clock.monotonic() + ms / 1000
    while clock.monotonic() < until_s:
        await clock.sleep(0)


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    """Beside it lies what an authority committed: a slot that was queued, bound, started and ready."""
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.grant("risk")
        await plane.add_node("n0", cpu=4000)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api", 0), 2)))
        ok(await plane.send(assigner, Enqueue(request_of("risk", "api-other", 0), 1)))
        await later(5)
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n0")))
        await later(5)
        for state in (SlotState.STARTING, SlotState.READY):
            ok(await plane.send(agent_of("n0"), report_of("risk", "api-0", state)))
    archive = Archive(tmp_path / "history")
    for entry in disk.journal:
        archive.append(entry.batch)
    archive.sync()
    archive.close()
    path = tmp_path / "server.json"
    path.write_text("{}")
    return path


def run(config: Path, *words: str) -> int:
    nothing: Any = None
    programs: Any = Programs(config.parent / "history")
    return answer(
        World(
            nothing,
            nothing,
            nothing,
            nothing,
            SystemClock,
            nothing,
            nothing,
            nothing,
            programs=programs,
            archived=archived_batches,
            decided_again=decided_again,
        ),
        words,
    )


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(capsys.readouterr().out)["results"]
    return found


async def test_a_timeline_has_every_step_of_a_slot_with_its_owner(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "timeline", "wl/api", "-n", "risk", "--slot", "0", "--config", str(config), "--json") == OK
    steps = [(step["object"], step["what"].partition(",")[0], step["owner"].partition(" ")[0]) for step in told(capsys)["steps"]]
    assert steps == [
        ("schedulingrequest/api-0", "queued", "assignment-controller"),
        ("binding/api-0", "Bound to n0", "scheduler"),
        ("binding/api-0", "Bound -> Starting on n0", "agent"),
        ("binding/api-0", "Starting -> Ready on n0", "agent"),
    ]


async def test_a_timeline_is_of_one_workload_and_not_of_one_whose_name_begins_alike(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "timeline", "api", "-n", "risk", "--config", str(config), "--json") == OK
    assert {step["object"].rpartition("/")[2] for step in told(capsys)["steps"]} == {"api-0", "api-1"}
    assert run(config, "timeline", "nobody", "-n", "risk", "--config", str(config)) == NOT_FOUND
    assert run(config, "timeline", "api", "-n", "billing", "--config", str(config)) == NOT_FOUND


async def test_a_timeline_of_a_history_whose_oldest_days_are_trimmed_begins_with_what_was_there(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = list(archived_batches(str(config.parent / "history")))
    shutil.rmtree(config.parent / "history")
    trimmed(config.parent / "history", batches, 2)
    assert run(config, "timeline", "api", "-n", "risk", "--config", str(config), "--json") == OK
    steps = [step["what"].partition(",")[0] for step in told(capsys)["steps"]]
    assert steps == ["Bound -> Starting on n0", "Starting -> Ready on n0"]


async def test_an_exported_history_is_judged_again_and_is_the_same(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(config.parent / "all.history")
    assert run(config, "export", file, "--config", str(config)) == OK
    capsys.readouterr()
    assert run(config, "replay", file, "--verify", "--json") == OK
    results = told(capsys)
    assert results["identical"]
    assert results["judged"] > 5
    assert results["decisions_hash"] == results["decisions_hash_now"]
    assert results["state_hash"] == results["state_hash_now"]
    assert run(config, "timeline", "api", "-n", "risk", "--from", file, "--json") == OK
    assert len(told(capsys)["steps"]) == 5


async def test_a_history_exported_from_the_middle_is_judged_on_what_was_there_then(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = list(archived_batches(str(config.parent / "history")))
    times = [decode_blob(batch.blob).header.time_ms for batch in batches]
    middle = max(time_ms for time_ms in times if time_ms < times[-1] - 3)
    monkeypatch.setattr(SystemClock, "wall", lambda self: (middle + 1) / 1000 + 1.0)  # a hair later: it is a float
    file = str(config.parent / "late.history")
    assert run(config, "export", file, "--config", str(config), "--since", "1s", "--json") == OK
    about = told(capsys)
    assert 0 < about["position"] < about["last"]
    assert run(config, "replay", file, "--verify", "--json") == OK
    results = told(capsys)
    assert results["identical"], results
    assert results["judged"] > 0


async def test_another_verdict_than_then_is_found_and_named(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(config.parent / "all.history")
    assert run(config, "export", file, "--config", str(config)) == OK
    real = judge

    def other(ctx: Any, command: Any) -> Any:
        if command.caller.role is Role.SCHEDULER:
            return Refused("DoesNotFit", "this build is stricter")
        return real(ctx, command)

    monkeypatch.setattr(replaying, "judge", other)
    capsys.readouterr()
    assert run(config, "replay", file, "--json") == OK, "without --verify it only tells"
    results = told(capsys)
    assert not results["identical"]
    assert any("this build is stricter" in one["detail"] for one in results["differences"])
    assert results["decisions_hash"] != results["decisions_hash_now"]
    assert run(config, "replay", file, "--verify") == CHECK_FAILED


async def test_other_effects_than_then_are_found_and_named(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(config.parent / "all.history")
    assert run(config, "export", file, "--config", str(config)) == OK

    def other_effects(ctx: Any, command: Any) -> Any:
        judged: Any = judge(ctx, command)
        return msgspec.structs.replace(judged, effects=judged.effects[:-1]) if command.caller.role is Role.SCHEDULER else judged

    monkeypatch.setattr(replaying, "judge", other_effects)
    capsys.readouterr()
    assert run(config, "replay", file, "--verify", "--json") == CHECK_FAILED
    assert any("effects differ" in one["detail"] for one in told(capsys)["differences"])


async def test_a_history_that_ends_in_another_state_than_the_archives_is_not_identical(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(config.parent / "all.history")
    with monkeypatch.context() as other:
        other.setattr(exporting, "state_hash", lambda rows: "0" * 64)
        assert run(config, "export", file, "--config", str(config)) == OK
    capsys.readouterr()
    assert run(config, "replay", file, "--verify", "--json") == CHECK_FAILED
    results = told(capsys)
    assert results["different"] == 0
    assert not results["identical"]


async def test_a_file_that_is_cut_off_or_none_of_ours_is_refused_in_words(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config.parent / "all.history"
    assert run(config, "export", str(file), "--config", str(config)) == OK
    whole = file.read_bytes()
    for damaged in (b"something else", whole[: len(whole) // 2], whole[:40]):
        file.write_bytes(damaged)
        assert run(config, "replay", str(file), "--verify") == ERROR
        assert str(file) in capsys.readouterr().err


async def test_a_damaged_file_is_refused_and_never_said_to_be_judged_otherwise(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config.parent / "all.history"
    assert run(config, "export", str(file), "--config", str(config)) == OK
    whole = file.read_bytes()
    records = unpacked(whole)
    capsys.readouterr()
    refused = 0
    for place in range(20, len(whole), len(whole) // 25):
        damaged = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        if unpacked(damaged) == records:  # a bit of the packing that says nothing: the history is whole
            continue
        refused += 1
        file.write_bytes(damaged)
        assert run(config, "replay", str(file), "--verify") == ERROR
        assert f"{file} is damaged or cut off" in capsys.readouterr().err
    assert refused > 15


def unpacked(whole: bytes) -> bytes | None:
    try:
        return gzip.decompress(whole[len(MAGIC) :])
    except (OSError, EOFError, zlib.error):
        return None


async def test_an_export_that_fails_leaves_the_file_that_was_there(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config.parent / "all.history"
    assert run(config, "export", str(file), "--config", str(config)) == OK
    before = file.read_bytes()
    written = exporting._put

    def full(packed: Any, value: object) -> None:
        if isinstance(value, tuple) and len(value) == 5:
            raise OSError(28, "No space left on device")
        written(packed, value)

    monkeypatch.setattr(exporting, "_put", full)
    assert run(config, "export", str(file), "--config", str(config)) == ERROR
    assert file.read_bytes() == before
    assert sorted(path.name for path in config.parent.iterdir()) == ["all.history", "history", "server.json"]


async def test_what_is_exported_must_be_said_and_must_be_there(config: Path, tmp_path: Path) -> None:
    assert run(config, "export", str(tmp_path / "x")) == ERROR
    assert run(config, "export", str(tmp_path / "x"), "--plane", "us-east", "--state", str(tmp_path / "none")) == NOT_FOUND
