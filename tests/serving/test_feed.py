"""The endpoints document: its form, and files that are always whole and true."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.ports import Tasks
from fairlead.serving.directory import Directory
from fairlead.serving.feed import Files, document, members_in
from fairlead.sim.loop import SimLoop, run
from tests.serving.planes import FakePlane, SimClock, endpoints, member, picture

Planes = dict[str, FakePlane]


def test_the_document_has_every_field_in_its_stable_form() -> None:
    got = document(picture(member("east", 0, http=80), regions={"west": 12.34, "north": None}), 1_700_000_000.5)
    assert got == {
        "format": 1,
        "tenant": "risk",
        "workload": "api",
        "version": 3,
        "time": "2023-11-14T22:13:20.500Z",
        "regions": {
            "east": {"state": "Current", "ageSeconds": 0.0, "version": 1},
            "north": {"state": "Unknown", "ageSeconds": None, "version": 1},
            "west": {"state": "Stale", "ageSeconds": 12.3, "version": 1},
        },
        "endpoints": [{"region": "east", "slot": 0, "node": "east-n0", "address": "10.0.0.1", "ports": {"http": 80}}],
    }


def test_a_document_gives_back_the_members_it_was_made_of() -> None:
    made = picture(member("east", 0, http=80, admin=81), member("west", 7, "fd00::1"))
    assert tuple(members_in(json.dumps(document(made, 0.0)).encode())) == made.members


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[]", "{}", '{"format": 2, "endpoints": []}', '{"format": 1}', '{"format": 1, "endpoints": [3]}',
     '{"format": 1, "endpoints": [{"region": "a", "slot": "x", "node": "", "address": "", "ports": {}}]}',
     '{"format": 1, "endpoints": [{"region": "a", "slot": 1, "node": "", "address": "", "ports": []}]}',
     '{"format": 1, "endpoints": 7}'],
)  # fmt: skip
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"endpoints document|invalid literal"):
        members_in(text.encode())


def written(tmp_path: Path, script: Callable[[Files, Planes], Awaitable[None]]) -> Files:
    planes = {"east": FakePlane(), "west": FakePlane()}
    planes["east"].put(endpoints("risk", "api", 1, (0, 1)))

    async def main(loop: SimLoop) -> Files:
        clock = SimClock(loop)
        directory = Directory(planes, clock, random.Random(1))
        files = Files(directory, tmp_path / "endpoints", clock)
        async with Tasks() as tasks:
            tasks.start(directory.run(), "directory")
            tasks.start(files.run(), "files")
            await asyncio.sleep(6.0)
            await script(files, planes)
            tasks.cancel()
        return files

    return run(main, 1).value


def read(tmp_path: Path, name: str) -> Any:
    return json.loads((tmp_path / "endpoints" / name).read_bytes())


def slots(tmp_path: Path) -> list[int]:
    return [row["slot"] for row in read(tmp_path, "risk/api.json")["endpoints"]]


def test_a_change_is_written_soon_and_bursts_are_gathered(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        assert slots(tmp_path) == [0, 1]
        await asyncio.sleep(10.0)
        before = files.writes_total
        for version in range(2, 52):
            planes["east"].put(endpoints("risk", "api", version, (version,)))
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.5)
        assert slots(tmp_path) == [51]
        assert files.writes_total - before <= 4

    written(tmp_path, script)


def test_an_unchanged_workload_is_not_written_again_and_the_index_shows_life(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        first = (tmp_path / "endpoints/risk/api.json").stat().st_ino
        index, before = read(tmp_path, "directory.json"), files.writes_total
        await asyncio.sleep(60.0)
        assert (tmp_path / "endpoints/risk/api.json").stat().st_ino == first
        assert read(tmp_path, "directory.json")["time"] > index["time"]
        assert 10 <= files.writes_total - before <= 14
        assert index["workloads"] == ["risk/api"]

    written(tmp_path, script)


def test_the_age_of_a_silent_region_is_kept_true(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        planes["east"].break_()
        await asyncio.sleep(60.0)
        east = read(tmp_path, "risk/api.json")["regions"]["east"]
        assert east["state"] == "Stale"
        assert east["ageSeconds"] > 50
        assert slots(tmp_path) == [0, 1]
        assert read(tmp_path, "directory.json")["regions"]["east"]["state"] == "Stale"

    written(tmp_path, script)


def test_a_region_that_is_heard_again_is_told_as_current_though_nothing_changed_there(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        planes["east"].break_()
        await asyncio.sleep(40.0)
        planes["east"].down = False
        await asyncio.sleep(15.0)
        assert read(tmp_path, "risk/api.json")["regions"]["east"]["state"] == "Current"
        before = files.writes_total
        await asyncio.sleep(30.0)
        assert files.writes_total - before <= 7, "the index alone"

    written(tmp_path, script)


def test_a_silence_between_two_refreshes_is_taken_back_where_a_document_was_written_meanwhile(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        between = 0
        for _ in range(10):  # at moments that differ by how far off the next refresh is
            planes["east"].break_()
            while read(tmp_path, "risk/api.json")["regions"]["east"]["state"] != "Stale":
                planes["west"].put(endpoints("risk", "api", planes["west"].revision() + 1, (7,)))
                await asyncio.sleep(0.2)
            between += read(tmp_path, "directory.json")["regions"]["east"]["state"] == "Current"
            planes["east"].down = False
            await asyncio.sleep(15.7)
            assert read(tmp_path, "risk/api.json")["regions"]["east"]["state"] == "Current"
        assert between

    written(tmp_path, script)


def test_a_workload_that_is_gone_has_no_file(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        planes["east"].delete("risk", "api")
        await asyncio.sleep(0.5)
        assert not (tmp_path / "endpoints/risk/api.json").exists()

    written(tmp_path, script)


def test_what_an_earlier_run_left_is_removed_only_once_every_region_was_heard(tmp_path: Path) -> None:
    left = tmp_path / "endpoints" / "old" / "gone.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    planes = {"east": FakePlane(), "west": FakePlane()}
    planes["west"].down = True

    async def main(loop: SimLoop) -> None:
        directory = Directory(planes, SimClock(loop), random.Random(1))
        async with Tasks() as tasks:
            tasks.start(directory.run(), "directory")
            tasks.start(Files(directory, tmp_path / "endpoints", SimClock(loop)).run(), "files")
            await asyncio.sleep(30.0)
            assert left.exists()
            planes["west"].down = False
            await asyncio.sleep(30.0)
            assert not left.exists()
            tasks.cancel()

    run(main, 1)


def test_a_reader_never_sees_half_a_document(tmp_path: Path) -> None:
    """The file a reader has open stays as it was: it is replaced, not written over; nothing else is left behind."""

    async def script(files: Files, planes: Planes) -> None:
        with (tmp_path / "endpoints/risk/api.json").open() as held:
            planes["east"].put(endpoints("risk", "api", 2, range(500)))
            await asyncio.sleep(0.5)
            assert [row["slot"] for row in json.load(held)["endpoints"]] == [0, 1]
        assert len(slots(tmp_path)) == 500
        assert sorted(path.name for path in (tmp_path / "endpoints").rglob("*")) == ["api.json", "directory.json", "risk"]

    written(tmp_path, script)


def test_a_disk_that_is_full_for_a_while_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    async def script(files: Files, planes: Planes) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", full)
            planes["east"].put(endpoints("risk", "api", 2, (5,)))
            await asyncio.sleep(8.0)
            assert slots(tmp_path) == [0, 1]
        await asyncio.sleep(8.0)
        assert slots(tmp_path) == [5]

    written(tmp_path, script)


def test_a_name_that_leads_elsewhere_is_written_nowhere(tmp_path: Path) -> None:
    async def script(files: Files, planes: Planes) -> None:
        planes["east"].put(endpoints("..", "evil", 1, (0,)))
        planes["east"].put(endpoints("risk", "../../evil", 1, (0,)))
        await asyncio.sleep(8.0)
        assert not list(tmp_path.rglob("*evil*"))

    written(tmp_path, script)
