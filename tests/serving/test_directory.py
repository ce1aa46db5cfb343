"""One picture of all regions: merged the same whatever the order, kept with an age where a region cannot be reached."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.ports import Tasks
from fairlead.serving.directory import STALE_S, Directory, Table, apply, merge, merge_all, relist
from fairlead.sim.loop import SimLoop, run
from tests.serving.planes import FakePlane, Row, SimClock, endpoints

API = ("risk", "api")


def table(region: str, *found: tuple[str, int, tuple[int, ...]], heard_s: float | None = 0.0) -> Table:
    made = Table(region, heard_s)
    relist(made, [Row("risk", name, 1, endpoints("risk", name, version, slots)) for name, version, slots in found])
    return made


def test_regions_are_merged_in_order_with_their_versions() -> None:
    got = merge([table("west", ("api", 3, (5, 4))), table("east", ("api", 2, (0,)))], API, 1.0)
    assert got is not None
    assert [(m.region, m.slot) for m in got.members] == [("east", 0), ("west", 4), ("west", 5)]
    assert [(s.region, s.state, s.version) for s in got.sources] == [("east", "Current", 2), ("west", "Current", 3)]
    assert got.version == 5


def test_a_region_without_the_workload_is_named_with_no_version_and_an_unknown_workload_has_no_picture() -> None:
    got = merge([table("east", ("api", 1, (0,))), table("west", heard_s=None)], API, 0.0)
    assert got is not None
    assert [(s.region, s.state, s.age_s, s.version) for s in got.sources] == [
        ("east", "Current", 0.0, 1),
        ("west", "Unknown", None, 0),
    ]
    assert merge([table("east", ("api", 1, (0,)))], ("risk", "other"), 0.0) is None


def test_a_silence_is_news_only_after_a_while() -> None:
    tables = [table("east", ("api", 1, (0,)), heard_s=100.0)]
    near, far = merge(tables, API, 100.0 + STALE_S), merge(tables, API, 101.0 + STALE_S)
    assert near is not None
    assert far is not None
    assert (near.sources[0].state, near.sources[0].age_s) == ("Current", 0.0)
    assert (far.sources[0].state, far.sources[0].age_s) == ("Stale", 1.0 + STALE_S)
    assert far.members == near.members


@given(st.permutations(["a", "b", "c"]), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12))
def test_the_order_in_which_regions_come_changes_nothing(order: list[str], slots: list[tuple[str, int]]) -> None:
    tables = {r: table(r, ("api", 1, tuple({s for region, s in slots if region == r}))) for r in "abc"}
    assert merge_all([tables[r] for r in order], 0.0) == merge_all(list(tables.values()), 0.0)


@given(st.lists(st.tuples(st.sampled_from(["api", "web"]), st.booleans(), st.integers(0, 3)), max_size=20))
def test_a_feed_ends_where_a_list_would_and_tells_each_change(steps: list[tuple[str, bool, int]]) -> None:
    plane, followed = FakePlane(), Table("east", 0.0)
    for version, (name, there, slot) in enumerate(steps, 1):
        before = merge(_one(followed), ("risk", name), 0.0)
        if there:
            plane.put(endpoints("risk", name, version, (slot,)))
        else:
            plane.delete("risk", name)
        told = apply(followed, plane.history[-1])
        assert (told is not None) == (merge(_one(followed), ("risk", name), 0.0) != before)
    listed = Table("east", 0.0)
    relist(listed, plane.kept.values())
    assert merge_all(_one(followed), 0.0) == merge_all(_one(listed), 0.0)


def _one(found: Table) -> list[Table]:
    return [found]


def test_what_the_list_already_held_does_not_come_back_from_the_feed() -> None:
    old, new = endpoints("risk", "api", 1, (0,)), endpoints("risk", "api", 2, (1,))
    made = Table("east", 0.0)
    relist(made, [Row("risk", "api", 7, new)])
    assert apply(made, Row("risk", "api", 6, old)) is None
    assert made.endpoints[API] == new
    assert apply(made, Row("risk", "api", 8, old)) == API


# --- following, in virtual time --------------------------------------------------------------------------------------------


def followed(script: Callable[[Directory, dict[str, FakePlane]], Awaitable[None]], seed: int = 1) -> Directory:
    planes = {"east": FakePlane(), "west": FakePlane()}
    planes["east"].put(endpoints("risk", "api", 1, (0, 1)))
    planes["west"].put(endpoints("risk", "api", 1, (2,)))

    async def main(loop: SimLoop) -> Directory:
        directory = Directory(planes, SimClock(loop), random.Random(seed))
        async with Tasks() as tasks:
            tasks.start(directory.run(), "directory")
            await asyncio.sleep(1.0)
            await script(directory, planes)
            tasks.cancel()
        return directory

    return run(main, seed).value


def slots(directory: Directory) -> list[int]:
    found = directory.picture("risk", "api")
    return [] if found is None else [m.slot for m in found.members]


def states(directory: Directory) -> list[str]:
    return [source.state for source in directory.regions()]


def test_changes_arrive_and_a_workload_that_is_gone_everywhere_is_unknown() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        assert slots(directory) == [0, 1, 2]
        planes["west"].put(endpoints("risk", "api", 2, (3,)))
        await asyncio.sleep(0.01)
        assert slots(directory) == [0, 1, 3]
        planes["west"].delete("risk", "api")
        planes["east"].delete("risk", "api")
        await asyncio.sleep(0.01)
        assert directory.picture("risk", "api") is None
        assert not directory.knows_tenant("risk")
        assert directory.pictures() == {}

    followed(script)


def test_an_unreachable_region_keeps_its_endpoints_with_an_age_and_is_current_again_after_a_relist() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        planes["west"].break_()
        await asyncio.sleep(STALE_S - 2)
        assert states(directory) == ["Current", "Current"]
        await asyncio.sleep(30.0)
        assert states(directory) == ["Current", "Stale"]
        assert slots(directory) == [0, 1, 2]
        picture = directory.picture("risk", "api")
        assert picture is not None
        west = picture.source("west")
        assert west is not None
        assert west.age_s is not None
        assert STALE_S + 20 < west.age_s < 36
        planes["west"].put(endpoints("risk", "api", 2, (9,)), quietly=True)
        planes["west"].down = False
        await asyncio.sleep(4.0)
        assert states(directory) == ["Current", "Current"]
        assert slots(directory) == [0, 1, 9]

    followed(script)


def test_what_was_deleted_while_nobody_looked_is_gone_after_a_relist() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        planes["west"].break_()
        planes["west"].delete("risk", "api", quietly=True)
        planes["west"].down = False
        await asyncio.sleep(4.0)
        assert slots(directory) == [0, 1]

    followed(script)


def test_a_plane_that_says_nothing_at_all_grows_stale_though_its_feed_never_ends() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        planes["west"].silent = True
        await asyncio.sleep(20.0)
        assert states(directory) == ["Current", "Stale"]
        assert slots(directory) == [0, 1, 2]

    followed(script)


def test_a_quiet_region_stays_current_without_being_listed_again() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        await asyncio.sleep(120.0)
        assert states(directory) == ["Current", "Current"]
        assert planes["west"].lists_total == 1

    followed(script)


def test_an_expired_feed_is_listed_again_at_a_moment_of_its_own() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        for plane in planes.values():
            plane.put(endpoints("risk", "web", 1, (0,)), quietly=True)
            plane.expire()
        await asyncio.sleep(0.0)
        assert [plane.lists_total for plane in planes.values()] == [1, 1]
        await asyncio.sleep(1.0)
        assert [plane.lists_total for plane in planes.values()] == [2, 2]
        assert directory.picture("risk", "web") is not None
        assert all(len(plane.feeds) == 1 for plane in planes.values())

    followed(script)


def test_attempts_to_reach_a_region_come_slower_and_differ_between_directories() -> None:
    moments: dict[int, list[float]] = {}

    class Down(FakePlane):
        async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Row | None:
            moments[seed].append(asyncio.get_running_loop().time())
            return await super().get(plural, tenant, name, revision)

    async def main(loop: SimLoop) -> None:
        plane = Down()
        plane.down = True
        directory = Directory({"east": plane}, SimClock(loop), random.Random(seed))
        async with Tasks() as tasks:
            tasks.start(directory.run(), "directory")
            await asyncio.sleep(60.0)
            tasks.cancel()
        assert states(directory) == ["Unknown"]

    for seed in (1, 2):
        moments[seed] = []
        run(main, 1)
    gaps = [b - a for a, b in zip(moments[1][:-1], moments[1][1:], strict=True)]
    assert max(gaps[:1]) < 0.35
    assert min(gaps[5:]) >= 1.0
    assert 20 < len(moments[1]) < 60
    assert moments[1] != moments[2]


def test_a_region_whose_endpoints_cannot_be_read_grows_stale_alone_and_is_asked_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        west = planes["west"]
        west.put(endpoints("risk", "api", 2, (3,)), quietly=True)
        west.unreadable = True
        west.expire()
        await asyncio.sleep(30.0)
        assert states(directory) == ["Current", "Stale"]
        planes["east"].put(endpoints("risk", "api", 2, (1,)))
        await asyncio.sleep(0.01)
        assert slots(directory) == [1, 2], "the others go on, and what was known of it is kept"
        before = west.lists_total
        await asyncio.sleep(300.0)
        assert 5 <= west.lists_total - before <= 21
        assert [record.levelname for record in caplog.records if "west" in record.message] == ["ERROR"]
        west.unreadable = False
        await asyncio.sleep(50.0)
        assert states(directory) == ["Current", "Current"]
        assert slots(directory) == [1, 3]
        west.unreadable = True
        west.expire()
        await asyncio.sleep(1.0)
        assert len([record for record in caplog.records if "west" in record.message]) == 2, "it is news again"

    with caplog.at_level("INFO"):
        followed(script)


def test_a_change_that_cannot_be_read_has_its_region_listed_again() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        west = planes["west"]
        west.unreadable = True
        west.put(endpoints("risk", "api", 2, (3,)))
        await asyncio.sleep(0.001)
        west.unreadable = False
        await asyncio.sleep(1.0)
        assert states(directory) == ["Current", "Current"]
        assert slots(directory) == [0, 1, 3]
        assert west.lists_total == 2

    followed(script)


def test_a_listener_is_told_of_what_there_is_and_of_each_change_once() -> None:
    async def script(directory: Directory, planes: dict[str, FakePlane]) -> None:
        listener = directory.listen()
        assert listener.take_nowait() == [API]
        for version in (2, 3):
            planes["east"].put(endpoints("risk", "api", version, (version,)))
        await listener.wait()
        await asyncio.sleep(0.01)
        assert listener.take_nowait() == [API]
        assert listener.take_nowait() == []

    followed(script)
