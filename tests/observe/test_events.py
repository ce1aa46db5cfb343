"""Events as people meet them: what happened to a workload and a node, in a trickle that nothing can turn into a flood."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairlead.client.remote_feed import RemoteChange
from fairlead.controllers.garbage import GarbageController
from fairlead.controllers.narrator import _added
from fairlead.controllers.telling import AGAIN_MS, BURST, OFTEN, RATE_PER_S, SELDOM_MS, WAITING_MAX, Sum, Telling
from fairlead.decide.narrating import REASONS, Told
from fairlead.model import codec
from fairlead.model.commands import Delete
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock
from tests.observe.servers import Served, served
from tests.observe.test_metrics import one, scraped
from tests.observe.work import a_node, an_order, report

DOCS = Path(__file__).resolve().parents[2] / "docs" / "observing.md"


async def events(s: Served, token: str, query: str = "") -> dict[str, Any]:
    """By reason, as `kubectl describe` and `kubectl events` read them."""
    code, _, text = await s.get(f"/api/v1/events{query}", token)
    assert code == 200, text
    return {event["reason"]: event for event in json.loads(text)["items"]}


async def wait_event(s: Served, token: str, reason: str, query: str = "") -> Any:
    end = s.clock.monotonic() + 60.0
    while reason not in (found := await events(s, token, query)):
        assert s.clock.monotonic() < end, sorted(found)
        await s.clock.sleep(0.1)
    return found[reason]


async def test_the_way_of_a_slot_is_told_about_its_workload(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        token = await s.token("operator")
        await an_order(s, "api", 2, cpu=3000)
        waits = await wait_event(s, token, "FailedScheduling")
        assert (waits["type"], waits["involvedObject"]["kind"], waits["involvedObject"]["name"]) == ("Warning", "Workload", "api")
        assert re.match(r"\d slots? waits?: \d [A-Z]\w+", waits["message"]), waits
        await a_node(s, "oak")
        bound = await wait_event(s, token, "Scheduled", "?fieldSelector=involvedObject.name=api,involvedObject.kind=Workload")
        assert bound["metadata"]["namespace"] == "risk"
        (slot,) = re.findall(r"^slot (\d) is to run on oak$", bound["message"])
        await report(s, f"api-{slot}", SlotState.STARTING)
        await report(s, f"api-{slot}", SlotState.READY, ready=True, restarts=1, message="exited with code 3")
        await wait_event(s, token, "Started")
        again = await wait_event(s, token, "BackOff")
        assert again["type"] == "Warning"
        assert again["message"] == f"slot {slot}: exited with code 3; started again once on this node"
        await report(s, f"api-{slot}", SlotState.FAILED, restarts=5, message="exited with code 4")
        failed = await wait_event(s, token, "Failed")
        assert failed["message"] == f"slot {slot} has failed on oak: exited with code 4", "the instance that said it goes"
        node = await wait_event(s, token, "NodeReady")
        assert (node["involvedObject"]["name"], node["metadata"]["namespace"]) == ("oak", "fairlead-system")
        found = await scraped(s, token)
        assert one(found, "replica_stage_duration_seconds_count", stage="scheduling") == 1
        assert one(found, "replica_stage_duration_seconds_count", stage="readiness") == 1
        assert one(found, "events_written_total") >= 5
        theirs = await events(s, await s.token("tenant-viewer", ("billing",)))
        assert theirs == {}


async def test_what_happens_again_is_counted_in_the_same_event_across_leaders(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        token = await s.token("operator")
        narrator = s.server.components[-1]
        await a_node(s, "oak")
        await an_order(s, "api", 3)
        first = await wait_event(s, token, "Scheduled")
        await s.until(lambda: s.server.authority.view().get("bindings", "risk", "api-2"))
        narrator._reset()  # as whoever takes over begins
        told = Told("workloads/risk/api", "risk", "Scheduled", "slot 9 is to run on oak")
        narrator.telling._written.clear()  # type: ignore[attr-defined]
        narrator.telling.add(told, s.server.authority.plane_ms())  # type: ignore[attr-defined]
        await an_order(s, "other", 1)  # wakes it
        end = s.clock.monotonic() + 60.0
        while (
            "slot 9" not in (last := (await events(s, token, "?fieldSelector=involvedObject.name=api"))["Scheduled"])["message"]
        ):
            assert s.clock.monotonic() < end, last
            await s.clock.sleep(0.1)
        assert last["count"] > first["count"]
        assert (last["firstTimestamp"], last["metadata"]["uid"]) == (first["firstTimestamp"], first["metadata"]["uid"])


def test_another_object_of_the_same_name_begins_anew() -> None:
    def told(uid: str) -> Sum:
        return Sum(Told("workloads/t/a", "t", "Scheduled", "", uid=uid), 2, 5_000, 6_000)

    first = _added(None, told("u-1"), "narrator")
    assert _added(first, told("u-1"), "narrator").count == _added(first, told(""), "narrator").count == 4
    again = _added(first, told("u-2"), "narrator")
    assert (again.count, again.uid, _added(first, told(""), "narrator").uid) == (2, "u-2", "u-1")


# --- bounds


def told(number: int, *, warning: bool = False, note: str = "") -> Told:
    return Told(f"workloads/t/w{number}", "t", "Scheduled", note, warning)


def test_no_storm_writes_more_than_the_trickle_allows() -> None:
    telling, written, now_ms = Telling(), 0, 1_000_000
    for step in range(200):  # twenty seconds of ten thousand events a second
        for number in range(1_000):
            telling.add(told(step * 1_000 + number), now_ms)
        written += len(telling.take(now_ms))
        now_ms += 100
    assert written <= BURST + RATE_PER_S * 20 + 1
    assert len(telling) <= WAITING_MAX
    assert telling.dropped_total == 200_000 - written - len(telling)


def test_one_object_is_written_about_seldom_however_much_happens_to_it() -> None:
    telling, written, now_ms = Telling(), [], 1_000_000
    for _ in range(10_000):
        telling.add(told(1), now_ms)
        written += [(now_ms, each.times) for each in telling.take(now_ms)]
        now_ms += 100
    gaps = [after - before for (before, _), (after, _) in pairwise(written)]
    assert min(gaps) >= AGAIN_MS
    assert min(gaps[OFTEN:], default=SELDOM_MS) >= SELDOM_MS
    assert sum(times for _, times in written) + sum(each.times for each in telling._others.values()) == 10_000


def test_warnings_go_first_and_the_last_words_count() -> None:
    telling = Telling()
    for number in range(BURST):
        telling.add(told(number), 0)
    telling.add(told(999, warning=True, note="early"), 5)
    telling.add(told(999, warning=True, note="late"), 6)
    first, *rest = telling.take(10)
    assert (first.told.note, first.times, first.first_ms, first.last_ms) == ("late", 2, 5, 6)
    assert len(rest) == BURST - 1
    assert telling.next_due_ms(10) == 10 + 1000 / RATE_PER_S + 1


def test_every_reason_is_documented_and_no_other() -> None:
    written = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE)
    assert written == [(row.reason, "Warning" if row.warning else "Normal", row.meaning) for row in REASONS]


# --- how long they are kept


class Kept:
    """A plane that only lists events."""

    def __init__(self, *last_s: float) -> None:
        self._rows = [_row(number, seconds) for number, seconds in enumerate(last_s)]

    async def list(self, plural: str) -> list[Any]:
        assert plural == "events"
        return self._rows

    def plane_ms(self) -> int:
        return 1_000_000


def _row(number: int, last_s: float) -> Any:
    spec = EventSpec(regarding="workloads/t/a", reason="Scheduled", last_time=datetime.fromtimestamp(last_s, tz=UTC))
    event = Event(metadata=Metadata(name=f"e{number}", namespace="t", creation_time=datetime.fromtimestamp(0, tz=UTC)), spec=spec)
    return RemoteChange("events", "t", f"e{number}", number, codec.encode(event), None)


async def swept(plane: Kept, kept_s: float, most: int) -> list[str]:
    bodies = await GarbageController(kept_s, most).sweep(plane, SystemClock())  # type: ignore[arg-type]
    return [body.name for body in bodies if isinstance(body, Delete)]


async def test_events_go_when_they_have_not_happened_for_long_or_are_too_many() -> None:
    plane = Kept(990.0, 100.0, 995.0, 500.0)  # when each happened last; it is 1000 s now
    assert await swept(plane, 600.0, 10) == ["e1"]
    assert await swept(plane, 400.0, 10) == ["e1", "e3"]
    assert await swept(plane, 10_000.0, 2) == ["e1", "e3"]
    assert await swept(plane, 10_000.0, 10) == []
