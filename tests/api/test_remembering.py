"""What a front door remembers of a region: lists read in pages too, whole ones only, of the present, and not too many."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlead.api.remembering import READING_LISTS_MAX, READING_MAX, REMEMBERED_MAX, Memory
from fairlead.client.resources import ChangePage
from tests.api.doors import GROUP, Answer, Door, call, node, open_door

NODES = f"{GROUP}/nodes"
LIMIT = 500  # what kubectl and our own client ask for
START = ("", "")


async def paged(door: Door, path: str, limit: int = LIMIT, pages_max: int = 100) -> list[Answer]:
    """As clients read a list."""
    token, got = "", list[Answer]()
    while len(got) < pages_max:
        joined = "&" if "?" in path else "?"
        got.append(await call(door, "GET", f"{path}{joined}limit={limit}" + (f"&continue={token}" if token else "")))
        assert got[-1].status == 200
        token = got[-1].json["metadata"].get("continue", "")
        if not token:
            break
    return got


def names(pages: list[Answer]) -> list[str]:
    return [item["metadata"]["name"] for page in pages for item in page.json["items"]]


async def test_a_list_that_is_read_in_pages_is_remembered_whole() -> None:
    async with open_door("us", "eu") as door:
        made = [f"eu-n{n:03}" for n in range(LIMIT + 20)]
        for name in ("us-n1", *made):
            assert (await call(door, "POST", NODES, node(name, name[:2]))).status == 201
        assert len(await paged(door, NODES)) == 2
        door.cuttable["eu"].cut()
        shown = await paged(door, NODES)
        assert names(shown) == ["us-n1", *made]
        assert "eu is unreachable; its nodes are shown as of 0 seconds ago" in shown[0].warnings[0]
        one = await call(door, "GET", f"{NODES}/{made[-1]}")
        assert (one.status, len(one.warnings)) == (200, 1)


async def test_a_list_whose_end_was_not_read_is_not_remembered() -> None:
    async with open_door("us", "eu") as door:
        for name in ("eu-n1", "eu-n2", "eu-n3"):
            await call(door, "POST", NODES, node(name, "eu"))
        await paged(door, NODES, 1, pages_max=2)
        door.cuttable["eu"].cut()
        assert names(await paged(door, NODES, 1)) == []


async def test_a_selection_read_in_pages_leaves_the_whole_list_remembered() -> None:
    async with open_door("us", "eu") as door:
        for name in ("eu-n1", "eu-n2", "eu-n3"):
            await call(door, "POST", NODES, node(name, "eu"))
        assert names(await paged(door, f"{NODES}?fieldSelector=metadata.name=eu-n2", 1)) == ["eu-n2"]
        door.cuttable["eu"].cut()
        assert names(await paged(door, NODES)) == ["eu-n1", "eu-n2", "eu-n3"]


async def test_pages_of_the_past_are_not_taken_for_what_is() -> None:
    async with open_door("us", "eu") as door:
        for name in ("eu-n1", "eu-n2", "eu-n3"):
            await call(door, "POST", NODES, node(name, "eu"))
        version = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        await call(door, "DELETE", f"{NODES}/eu-n2")
        await paged(door, NODES, 1)
        assert names(await paged(door, f"{NODES}?resourceVersion={version}&resourceVersionMatch=Exact", 3)) == [
            "eu-n1",
            "eu-n2",
            "eu-n3",
        ]
        first = await call(door, "GET", f"{NODES}?resourceVersion={version}&resourceVersionMatch=Exact&limit=1")
        token = first.json["metadata"]["continue"]
        assert names([await call(door, "GET", f"{NODES}?continue={token}")]) == ["eu-n2", "eu-n3"]
        door.cuttable["eu"].cut()
        assert names(await paged(door, NODES)) == ["eu-n1", "eu-n3"]


async def test_what_every_plane_has_of_its_own_is_remembered_under_the_name_it_is_shown_by() -> None:
    async with open_door("us", "eu") as door:
        assert "us.self" in names(await paged(door, f"{GROUP}/planes"))
        door.cuttable["us"].cut()
        got = await call(door, "GET", f"{GROUP}/planes/us.self")
        assert (got.status, got.json["metadata"]["name"], got.json["spec"]["region"]) == (200, "us.self", "us")
        assert "us is unreachable" in got.warnings[0]


class Row(NamedTuple):
    """As much of a change as is looked at."""

    name: str
    tenant: str = ""


def page(first: int, end: int, more: bool = True) -> Any:
    rows: Any = [Row(f"n{n:06}") for n in range(first, end)]
    return ChangePage(rows, 7, "", rows[-1].name if more else "")


def kept(memory: Memory) -> int:
    found = memory.find("nodes", "")
    return -1 if found is None else len(found.changes)


def read(memory: Memory, first: int, end: int, *, more: bool = True, revision: int = 7) -> None:
    after = ("", f"n{first - 1:06}") if first else START
    memory.read("nodes", "", revision, after, page(first, end, more))


def test_pages_of_two_readers_of_one_list_make_one_list() -> None:
    memory = Memory()
    memory.begin("nodes", "", 7, 1.0)
    read(memory, 0, 10)
    read(memory, 0, 10)
    read(memory, 5, 15)
    memory.begin("nodes", "", 7, 1.5)
    read(memory, 0, 5)
    read(memory, 15, 20, more=False)
    found = memory.find("nodes", "")
    assert found is not None
    assert [row.name for row in found.changes] == [f"n{n:06}" for n in range(20)]
    assert (found.at_s, found.revision) == (1.0, 7)


def test_a_page_behind_a_gap_or_of_a_list_that_never_began_is_nothing() -> None:
    memory = Memory()
    read(memory, 0, 10, more=False)
    memory.begin("nodes", "", 7, 1.0)
    read(memory, 0, 5)
    read(memory, 10, 15, more=False)
    read(memory, 5, 10, more=False, revision=6)
    assert kept(memory) == -1


def test_who_takes_longer_replaces_nothing_newer() -> None:
    memory = Memory()
    memory.begin("nodes", "", 7, 1.0)
    memory.begin("nodes", "", 8, 2.0)
    read(memory, 0, 3, more=False, revision=8)
    read(memory, 0, 4, more=False)
    assert kept(memory) == 3


def test_a_list_that_is_too_long_is_not_remembered_nor_is_what_it_was_before() -> None:
    memory = Memory()
    memory.begin("nodes", "", 6, 1.0)
    read(memory, 0, 3, more=False, revision=6)
    assert kept(memory) == 3
    memory.begin("nodes", "", 7, 2.0)
    read(memory, 0, REMEMBERED_MAX)
    read(memory, REMEMBERED_MAX, REMEMBERED_MAX + 1)
    read(memory, REMEMBERED_MAX + 1, REMEMBERED_MAX + 2, more=False)
    assert kept(memory) == -1


def test_lists_whose_end_nobody_asks_for_do_not_pile_up() -> None:
    memory = Memory()
    for revision in range(1, 3 * READING_LISTS_MAX):
        memory.begin("nodes", "", revision, float(revision))
        read(memory, 0, 1000, revision=revision)
        assert memory._objects == sum(len(each.changes) for each in memory._reading.values()) <= READING_MAX
    assert len(memory._reading) <= READING_LISTS_MAX
    last = 3 * READING_LISTS_MAX - 1
    read(memory, 1000, 1001, more=False, revision=last)
    assert kept(memory) == 1001
