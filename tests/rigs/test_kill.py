"""Servers killed with SIGKILL while clients write: nothing acknowledged is lost, nothing refused is there, nothing happens twice.

The short version of `make soak`'s runs, and the proof that the rig would see a fault: doctored logs, and servers that are wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.store.memory import MemoryDisk, MemoryStore
from fairlead.store.sqlite import SqliteStore
from tests.authority.planes import ok, running_plane
from tests.rigs.history import read_history
from tests.rigs.kill_rig import REFUSALS, KillRig, Plan, Report, in_flight, proves_too_little, run_rig, takeovers
from tests.rigs.rig_stores import RigStore
from tests.rigs.stories import Line, Story, fold, read_stories
from tests.rigs.traffic import furniture
from tests.rigs.verify import Verdict, judge_stories, verify

SHORT = {
    "sqlite": Plan("sqlite", kills=10, commands=3000),
    "postgres": Plan("postgres", kills=3, commands=900, store_kills=1, ttl_s=1.0),
    "etcd": Plan("etcd", kills=3, commands=600, store_kills=1, ttl_s=1.0),
}


@pytest.mark.parametrize("engine", SHORT)
def test_every_command_has_the_fate_its_client_was_told(engine: str) -> None:
    plan = SHORT[engine]
    report = run_rig(plan)
    verdict = report.verdict
    assert verdict.faults == []
    assert (verdict.lost, verdict.duplicates, verdict.resurrected) == (0, 0, 0)
    assert verdict.acknowledged >= plan.commands
    assert (report.kills, report.store_kills) == (plan.kills, plan.store_kills)
    assert report.kills_in_flight > 0
    assert verdict.unknown > 0
    assert verdict.unknown == verdict.unknown_committed + verdict.unknown_absent == sum(verdict.settled_by.values())
    assert {"AlreadyExists", "Conflict"} <= verdict.refused.keys()
    assert {"NoFit", "GrantExceeded"} & verdict.refused.keys(), "nodes and grants are tight"


@pytest.mark.parametrize("mutant", ["answers-before-commit", "forgets-receipts"])
def test_a_server_that_breaks_its_promise_is_caught(mutant: str) -> None:
    verdict = run_rig(Plan("sqlite", kills=6, commands=600, mutant=mutant)).verdict
    assert verdict.faults
    if mutant == "answers-before-commit":
        assert verdict.lost > 0
    else:
        assert verdict.resurrected + verdict.duplicates > 0


# --- the verifier


@pytest.fixture(scope="module")
def run_of_two_kills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rig")
    KillRig(Plan("sqlite", kills=2, commands=300), folder, RigStore(f"sqlite:{folder / 'plane.db'}")).run()
    return folder


@pytest.fixture
def stories(run_of_two_kills: Path) -> dict[str, Story]:
    """Read anew for each test, which will doctor it."""
    return read_stories(run_of_two_kills)


async def judged(folder: Path, stories: dict[str, Story]) -> Verdict:
    store = SqliteStore(folder / "plane.db")
    await store.open()
    try:
        return await verify(store, stories)
    finally:
        await store.close()


def one(stories: dict[str, Story], event: str, **fields: str) -> Story:
    for story in stories.values():
        assert story.end is not None
        if story.end.event == event and all(getattr(story.sent, name) == value for name, value in fields.items()):
            return story
    raise AssertionError(f"no story ends as {event} with {fields}")


async def test_an_honest_log_has_no_faults(run_of_two_kills: Path, stories: dict[str, Story]) -> None:
    assert (await judged(run_of_two_kills, stories)).faults == []


async def test_an_acknowledgement_of_what_is_not_there_is_reported(run_of_two_kills: Path, stories: dict[str, Story]) -> None:
    story = one(stories, "refused", what="exists")
    assert story.end is not None
    story.end = replace(story.end, event="accepted", revision=(1 << 44) + 7, reason="")
    verdict = await judged(run_of_two_kills, stories)
    assert verdict.lost == 1
    assert any("is not there" in fault for fault in verdict.faults)


async def test_a_refusal_of_what_is_there_is_reported(run_of_two_kills: Path, stories: dict[str, Story]) -> None:
    story = one(stories, "accepted", what="bind")
    assert story.end is not None
    story.end = replace(story.end, event="refused", reason="NoFit")
    verdict = await judged(run_of_two_kills, stories)
    assert verdict.resurrected == 1
    assert len(verdict.faults) == 1


@pytest.mark.parametrize("change", [{"revision": 17592186044999}, {"uid": "local.1.fff"}])
async def test_another_result_than_the_acknowledged_one_is_reported(
    run_of_two_kills: Path, stories: dict[str, Story], change: dict[str, object]
) -> None:
    story = one(stories, "accepted", what="create")
    assert story.end is not None
    story.end = replace(story.end, **change)
    assert (await judged(run_of_two_kills, stories)).lost == 1


async def test_an_acknowledgement_older_than_the_sending_of_what_came_before_it_is_reported(
    run_of_two_kills: Path, stories: dict[str, Story]
) -> None:
    last = max((s for s in stories.values() if s.end is not None and s.end.event == "accepted"), key=lambda s: s.sent.ns)
    assert last.end is not None
    last.end = replace(last.end, ns=1)
    assert any("S14" in fault for fault in (await judged(run_of_two_kills, stories)).faults)


async def test_a_command_nobody_sent_is_reported(run_of_two_kills: Path, stories: dict[str, Story]) -> None:
    del stories["setup-0"]
    assert (await judged(run_of_two_kills, stories)).faults == ["setup-0 is in the journal, and nobody sent it"]


async def test_an_effect_that_came_twice_is_reported() -> None:
    """The same command without an id takes effect as often as it is sent: what a server without receipts would do."""
    store = MemoryStore(MemoryDisk())
    _, command = furniture([])[0]
    async with running_plane(store) as plane:
        for _ in range(2):
            first = ok((await plane.authority.submit([replace(command, id=None)]))[0])
        log = [
            Line("setup-0", "sent", 1, "setup", "accepted"),
            Line("setup-0", "accepted", 2, revision=first.revision, uid=first.uid),
        ]
        verdict = Verdict()
        judge_stories(fold(log), await read_history(store), verdict)
    assert verdict.duplicates == 1


def test_kills_in_flight_and_takeovers_are_told_by_the_clients_logs() -> None:
    second = 1_000_000_000
    log = [
        Line("a", "sent", 1 * second), Line("a", "unknown", 3 * second), Line("a", "left", 3 * second),
        Line("b", "sent", 4 * second), Line("b", "accepted", 5 * second, revision=1),
    ]  # fmt: skip
    kills = [2 * second, 6 * second]
    assert in_flight(kills, fold(log)) == 1
    assert takeovers(kills, fold(log)) == [3.0]


def test_a_run_that_hit_nothing_proves_too_little() -> None:
    report = Report("sqlite", 1, 1.0, 10, 1, 0, 0.0, 0.0, Verdict())
    assert len(proves_too_little(report)) == 3 + len(REFUSALS)
