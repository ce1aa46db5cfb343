"""The client of the resource API against a server that loses connections, cuts history and answers late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.client.rest import RestClient
from fairlead.client.rest_errors import (
    Busy,
    Conflict,
    Denied,
    Gone,
    Invalid,
    NotFound,
    OutcomeUnknown,
    TooStale,
    Unreachable,
    error_of,
)
from fairlead.client.rest_shapes import Link, Query, Resource, Write
from fairlead.client.rest_watch import Event, Watch
from fairlead.ports import SystemClock, SystemIds
from tests.client.fake_api import FakeApi, running

WORKLOADS = Resource("workloads", "Workload")


class NoWait(SystemClock):
    """Real time, but nobody waits for it; remembers how long somebody would have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with running() as api:
        yield api


@asynccontextmanager
async def connected(api: FakeApi, **more: Any) -> AsyncIterator[RestClient]:
    settings: dict[str, Any] = {"clock": NoWait(), "ids": SystemIds(), "jitter": random.Random(1).random, "timeout_s": 10.0}
    async with RestClient(Link(api.url, token=api.token), **(settings | more)) as client:
        yield client


def manifest(name: str, replicas: int = 2) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"replicas": replicas}}


# --- reading


async def test_a_list_of_many_pages_comes_whole(api: FakeApi) -> None:
    api.page_max = 3
    for number in range(10):
        api.put("workloads", f"w{number}", "risk", spec={})
    async with connected(api) as client:
        listed = await client.list(Query(WORKLOADS, "risk"))
    assert [item["metadata"]["name"] for item in listed.items] == [f"w{number}" for number in range(10)]
    assert listed.resource_version == str(api.revision)
    assert len(api.sent("GET")) == 4


async def test_a_table_is_the_servers_and_its_pages_are_joined(api: FakeApi) -> None:
    api.page_max = 1
    api.put("workloads", "a", "risk", spec={"replicas": 3})
    api.put("workloads", "b", "risk", spec={})
    async with connected(api) as client:
        table = await client.table(Query(WORKLOADS, "risk"))
    assert [column["name"] for column in table.columns] == ["Name", "Tenant", "Desired", "Gen"]
    assert [row["cells"][:3] for row in table.rows] == [["a", "risk", 3], ["b", "risk", 1]]


async def test_a_lost_read_is_repeated(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", spec={})
    api.drop_reads = 2
    clock = NoWait()
    async with connected(api, clock=clock) as client:
        assert (await client.get(WORKLOADS, "risk", "a"))["metadata"]["name"] == "a"
    assert clock.slept == sorted(clock.slept), "each pause is longer than the one before"
    assert clock.slept


@pytest.mark.parametrize(("code", "kind"), [(429, Busy), (503, Busy)])
async def test_a_busy_server_is_asked_again_and_then_believed(api: FakeApi, code: int, kind: type[Exception]) -> None:
    api.put("workloads", "a", "risk", spec={})
    api.answers = [("GET", code, {})] * 2
    async with connected(api) as client:
        await client.get(WORKLOADS, "risk", "a")
        api.answers = [("GET", code, {})] * 10
        with pytest.raises(kind):
            await client.get(WORKLOADS, "risk", "a")
    assert len(api.answers) == 6


async def test_a_region_that_is_away_is_asked_for_once_more_and_no_longer_waited_for(api: FakeApi) -> None:
    api.away = "eu"
    async with connected(api) as client:
        with pytest.raises(Busy, match="eu cannot be reached"):
            await client.get(WORKLOADS, "risk", "a")
    assert len(api.requests) == 2


async def test_nobody_there_is_told_at_once_with_what_to_look_at() -> None:
    with running() as api:
        pass
    clock = NoWait()
    async with connected(api, clock=clock) as client:
        with pytest.raises(Unreachable) as raised:
            await client.create(WORKLOADS, "risk", manifest("a"))
    assert "cannot be reached" in str(raised.value)
    assert "get-contexts" in raised.value.hint
    assert clock.slept == []


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (400, {}, Invalid),
        (401, {}, Denied),
        (403, {"details": {"causes": [{"reason": "FencedOut", "message": "m", "field": ""}]}}, Denied),
        (404, {}, NotFound),
        (409, {}, Conflict),
        (409, {"details": {"causes": [{"reason": "StaleEvidence", "message": "observe again"}]}}, TooStale),
        (410, {}, Gone),
        (422, {}, Invalid),
        (429, {}, Busy),
        (504, {"reason": "Timeout", "details": {"causes": [{"message": "ResourceVersionTooLarge"}]}}, TooStale),
    ],
)
def test_a_status_becomes_the_error_of_its_class(code: int, status: dict[str, Any], kind: type[Exception]) -> None:
    error = error_of(code, {"kind": "Status", "message": "no", **status}, "7")
    assert type(error) is kind
    assert (error.message, error.retry_after_s) == ("no", 7.0)


@pytest.mark.parametrize("body", [None, [], "text", {"kind": "Text", "text": "<html>"}, {"kind": "Status", "details": None}])
def test_whatever_a_proxy_answers_is_an_error_and_no_crash(body: Any) -> None:
    assert error_of(502, body, "soon").retry_after_s == 0.0


async def test_the_token_goes_with_every_request_and_warnings_are_heard(api: FakeApi) -> None:
    api.token = "secret"
    async with connected(api) as client:
        await client.list(Query(WORKLOADS, "risk"))
    api.token = "another"
    async with RestClient(Link(api.url, token="old"), clock=NoWait(), ids=SystemIds(), jitter=lambda: 0.0) as client:
        with pytest.raises(Denied):
            await client.list(Query(WORKLOADS, "risk"))


# --- writing: once, whatever happens


async def test_every_write_carries_a_key_of_its_own_and_a_dry_run_none(api: FakeApi) -> None:
    async with connected(api) as client:
        first = await client.create(WORKLOADS, "risk", manifest("a"))
        second = await client.create(WORKLOADS, "risk", manifest("b"))
        await client.create(WORKLOADS, "risk", manifest("c"), Write(dry_run=True))
    keys = [headers.get("Idempotency-Key") for _, _, headers in api.sent("POST")]
    assert keys == [first.key, second.key, None]
    assert first.key != second.key
    assert ("workloads", "risk", "c") not in api.objects


async def test_a_lost_answer_is_found_by_repeating_under_the_same_key(api: FakeApi) -> None:
    api.drop_writes = 1
    async with connected(api) as client:
        written = await client.create(WORKLOADS, "risk", manifest("a"))
    keys = {headers["Idempotency-Key"] for _, _, headers in api.sent("POST")}
    assert keys == {written.key}
    assert len(api.sent("POST")) == 2
    assert len([entry for entry in api.history if entry[1] == "ADDED"]) == 1, "done once"


async def test_when_no_repetition_is_answered_the_receipt_decides(api: FakeApi) -> None:
    api.drop_writes = 1
    api.put("workloads", "a", "risk", spec={"replicas": 1})

    def lose_the_rest(method: str, plural: str, name: str) -> None:
        api.answers = [("PATCH", 504, {})] * 9

    api.on_write = lose_the_rest
    async with connected(api) as client:
        written = await client.patch(WORKLOADS, "risk", "a", {"spec": {"replicas": 5}})
    assert written.receipt
    assert written.object["spec"]["replicas"] == 5


async def test_without_a_receipt_the_outcome_is_unknown_and_the_key_is_told(api: FakeApi) -> None:
    api.lose_receipts = True
    api.drop_writes = 1
    api.on_write = lambda *_: api.answers.extend([("POST", 504, {})] * 9)
    async with connected(api) as client:
        with pytest.raises(OutcomeUnknown) as raised:
            await client.create(WORKLOADS, "risk", manifest("a"), Write(key="mine"))
    assert raised.value.key == "mine"
    assert ("workloads", "risk", "a") in api.objects, "it had been done"


async def test_a_refusal_after_an_attempt_without_an_answer_names_the_key_that_may_still_be_carried_out(api: FakeApi) -> None:
    api.put("workloads", "w", "risk", spec={})
    async with connected(api) as client:
        with pytest.raises(Conflict) as at_once:
            await client.create(WORKLOADS, "risk", manifest("w"), Write(key="first"))
        assert at_once.value.in_doubt_key == ""
        api.answers = [("POST", 504, {})]
        with pytest.raises(Conflict) as after_doubt:
            await client.create(WORKLOADS, "risk", manifest("w"), Write(key="second"))
    assert after_doubt.value.in_doubt_key == "second"


async def test_a_refusal_found_by_receipt_is_told_as_that_refusal(api: FakeApi) -> None:
    refused = {"outcome": "Refused", "reason": "NoGrant", "message": "ask for a grant", "code": 409}
    api.receipts["k"] = {"kind": "Receipt", "status": refused}
    api.answers = [("POST", 504, {})] * 9
    async with connected(api) as client:
        with pytest.raises(Conflict, match="ask for a grant"):
            await client.create(WORKLOADS, "risk", manifest("a"), Write(key="k"))


async def test_a_definite_no_is_never_in_doubt(api: FakeApi) -> None:
    """503 means that nothing was written: no receipt is asked for."""
    api.answers = [("POST", 503, {})] * 9
    async with connected(api) as client:
        with pytest.raises(Busy):
            await client.create(WORKLOADS, "risk", manifest("a"))
    assert api.sent("GET") == []


# --- watching


async def collect(watch: Watch, count: int) -> list[Event]:
    got: list[Event] = []
    async with asyncio.timeout(60):
        async for event in watch.events():
            got.append(event)
            if len(got) == count:
                break
    return got


def words(events: list[Event]) -> list[str]:
    return [f"{event.type} {event.object['metadata']['name']}" if event.object else event.type for event in events]


async def test_a_watch_goes_on_after_the_server_ended_it(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", spec={})
    api.end_after = [1, 1]
    api.on_watch = {1: lambda: api.put("workloads", "b", "risk", spec={}), 2: lambda: api.remove("workloads", "a", "risk"),
                    3: lambda: api.put("workloads", "b", "risk", spec={"replicas": 9})}  # fmt: skip
    async with connected(api) as client:
        got = await collect(Watch(client, Query(WORKLOADS, "risk")), 5)
    assert words(got) == ["ADDED a", "SYNCED", "ADDED b", "DELETED a", "MODIFIED b"]
    lists = [query for _, query, _ in api.sent("GET") if "watch" not in query]
    assert len(lists) == 1, "resumed, not listed again"


async def test_expired_history_is_listed_anew_and_no_deletion_is_lost(api: FakeApi) -> None:
    for name in ("a", "b", "c"):
        api.put("workloads", name, "risk", spec={})
    api.end_after = [1]

    def meanwhile() -> None:
        api.remove("workloads", "a", "risk")
        api.put("workloads", "b", "risk", spec={"replicas": 4})
        api.put("workloads", "d", "risk", spec={})
        api.compact()

    api.on_watch = {1: lambda: api.put("workloads", "c", "risk", spec={"replicas": 2}), 2: meanwhile}
    clock = NoWait()
    async with connected(api, clock=clock) as client:
        got = await collect(Watch(client, Query(WORKLOADS, "risk")), 8)
    assert words(got)[:5] == ["ADDED a", "ADDED b", "ADDED c", "SYNCED", "MODIFIED c"]
    assert sorted(words(got)[5:]) == ["ADDED d", "DELETED a", "MODIFIED b"], "c did not change, so nothing is said of it"
    lists = [query for _, query, _ in api.sent("GET") if "watch" not in query]
    assert lists[1]["resourceVersionMatch"] == "NotOlderThan"
    assert clock.slept, "a new list is not asked for by everybody at once"


async def test_a_table_is_watched_row_by_row(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", spec={})
    api.on_watch = {1: lambda: api.put("workloads", "a", "risk", spec={"replicas": 7})}
    async with connected(api) as client:
        got = await collect(Watch(client, Query(WORKLOADS, "risk"), table=True), 3)
    assert [event.type for event in got] == ["ADDED", "SYNCED", "MODIFIED"]
    assert got[2].object["cells"][2] == 7
    assert got[2].columns[0]["name"] == "Name"


async def test_a_recreated_object_is_another_one(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", spec={})

    def again() -> None:
        api.remove("workloads", "a", "risk")
        api.put("workloads", "a", "risk", spec={})

    api.on_watch = {1: again}
    async with connected(api) as client:
        got = await collect(Watch(client, Query(WORKLOADS, "risk")), 4)
    assert words(got) == ["ADDED a", "SYNCED", "DELETED a", "ADDED a"]


async def test_a_watch_that_is_denied_ends_and_one_that_stays_empty_gives_up(api: FakeApi) -> None:
    api.watches_allowed = 0
    async with connected(api) as client:
        with pytest.raises(Denied):
            await collect(Watch(client, Query(WORKLOADS, "risk")), 2)
        api.watches_allowed = 1_000_000
        api.end_after = [0] * 100
        with pytest.raises(Unreachable, match="without a word"):
            await collect(Watch(client, Query(WORKLOADS, "risk")), 2)
    assert api.watches == 9
