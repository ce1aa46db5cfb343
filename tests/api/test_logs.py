"""Logs over HTTP, of a real process that was restarted: every parameter Kubernetes knows, and what is said when one is wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from fairlead.api.rules import PlainRules
from fairlead.client.decisions import DecisionQuery, Explained, ExplainedPage
from fairlead.client.plane import Change, Overloaded
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.compose import log_slots
from fairlead.compose import logs as followed
from fairlead.compose.log_spans import Lines, Mark, Span, Wanted, marks_of, pieces_of, span_of, tail_from
from fairlead.compose.logs import log_route
from fairlead.model.decision import Attempt, Decided, Result
from fairlead.model.lifecycle import SlotState
from fairlead.ports import SystemClock, Tasks, system_random
from tests.agent.processes import Driven, driven, instance, sh
from tests.api.doors import Answer, Bare, Door, Stream, allow_all, authenticate, call, own_tenant_only, scope_of

PATH = "/apis/fairlead.dev/v1alpha1/namespaces/risk/workloads/api/log"
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


def bound(name: str, state: SlotState = SlotState.SERVING) -> Bare:
    return Bare("bindings", "risk", name, 1, b"", SimpleNamespace(state=state))


class OneRegion:
    """A plane with the slot api-0, whose agent is a process driver right here."""

    def __init__(self, made: Driven) -> None:
        self._made = made
        self.connected = True
        self.away = False
        self.bound = True
        self.busy = 0  # the question that is turned away, counted from now

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None:
        return bound("api-0") if self.bound and (tenant, name) == ("risk", "api-0") else None

    async def page(self, plural: str, tenant: str | None = None, **_: Any) -> ChangePage:
        return ChangePage([bound("api-0")] if self.bound and tenant == "risk" else [], 1)

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]:
        if self.away:
            raise Unreachable("the agent of n1 does not answer")
        self.busy -= 1
        if self.busy == 0:
            raise Overloaded("as many questions as may be are under way")
        chunk = await self._made.driver.logs(instance(), stream, offset, limit)  # type: ignore[arg-type]
        return chunk.offset, chunk.data, chunk.next

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        if query.workload != "api" or query.slot not in ("", "api-0") or query.outcome != "Bound":
            return ExplainedPage()
        decided = Decided("s", 1, 1, 1, 0, "spread", {}, 1, 1, attempts=(Attempt("risk", "api-0", 1, 1, 0, "n1"),))
        return ExplainedPage((Explained("d", decided, Result("Bound")),))


class Logs:
    def __init__(self, made: Driven, authorise: Any = allow_all, others: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.made = made
        self.source = OneRegion(made)
        sources = {**others, "us": self.source}
        app = Starlette(routes=[log_route(sources, authenticate, authorise, SystemClock(), system_random())])
        self.door = Door({}, {}, app)

    async def get(self, query: str = "", **more: Any) -> Answer:
        return await call(self.door, "GET", f"{PATH}?{query}", **more)

    async def text(self, query: str = "") -> bytes:
        got = await self.get(query)
        assert got.status == 200, got.body
        return got.body


@asynccontextmanager
async def following(logs: Logs, query: str, token: str = "ada-token") -> AsyncIterator[Stream]:
    stream = Stream()
    scope = scope_of("GET", PATH, query, {"authorization": f"Bearer {token}"})
    async with asyncio.timeout(30), Tasks() as tasks:
        tasks.start(logs.door.app(scope, stream.receive, stream.send), "logs")
        yield stream
        stream.leave()


@asynccontextmanager
async def two_runs(folder: Path) -> AsyncIterator[Logs]:
    async with driven(folder) as made:
        await made.start(sh("echo one; echo two; echo oops >&2"))
        await made.end(1)
        await made.start(sh("echo three; printf 'four\\rfive\\n'", run=2))
        await made.end(2)
        yield Logs(made)


async def test_what_is_wanted_is_what_comes(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as logs:
        whole = b"one\ntwo\noops\nthree\nfour\rfive\n"
        assert await logs.text() == whole, "both streams, each run after the one before"
        assert await logs.text("stream=stdout") == b"one\ntwo\nthree\nfour\rfive\n"
        assert await logs.text("slot=0&region=us") == whole
        assert await logs.text("tailLines=2") == b"three\nfour\rfive\n"
        assert await logs.text("tailLines=0") == b""
        assert await logs.text("tailLines=3") == b"oops\nthree\nfour\rfive\n"
        assert await logs.text("previous=true") == b"one\ntwo\noops\n"
        assert await logs.text("previous=true&tailLines=1") == b"oops\n"
        assert await logs.text("previous=true&tailLines=1&stream=stdout") == b"two\n"
        assert await logs.text("limitBytes=5") == b"one\nt"
        assert await logs.text("stream=stderr") == b"oops\n"
        assert await logs.text("sinceSeconds=3600") == whole
        stamped = await logs.text("timestamps=true")
        assert STAMP.sub(b"", stamped) == whole
        assert len(STAMP.findall(stamped)) == 5, "every line has one, and only a line feed ends a line"
        assert len(await logs.text("timestamps=true&limitBytes=40")) == 40


async def test_a_stream_is_followed_with_times(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo again >&2; sleep 300"))
        await made.output(wanted=b"begun")
        async with following(Logs(made), "follow=true&timestamps=true") as stream:
            assert (await stream.line()).endswith(b"Z begun")
            (made.work() / "go").touch()
            again = await stream.line()
            assert STAMP.match(again)
            assert again.endswith(b"Z again")


async def test_what_is_followed_ends_when_its_reader_may_not_read_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "LOOK_S", 0.02)
    looked: list[bool] = []  # the rules are read anew for a moment, and later taken away
    taken: list[bool] = []

    def authorise(*_: Any) -> bool:
        looked.append(True)
        return len(looked) != 2 and not taken

    async with driven(tmp_path) as made:
        await made.start(sh("echo begun; sleep 300"))
        await made.output(wanted=b"begun")
        async with following(Logs(made, authorise), "follow=true") as stream:
            assert await stream.line() == b"begun"
            while len(looked) < 6:
                await asyncio.sleep(0.01)
            assert not stream.ended.is_set(), "one refusal is none"
            taken.append(True)
            await stream.ended.wait()


async def test_what_is_followed_ends_with_the_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "LOOK_S", 0.02)
    rules = PlainRules(allow_all)
    async with driven(tmp_path) as made:
        await made.start(sh("echo begun; sleep 300"))
        await made.output(wanted=b"begun")
        async with following(Logs(made, rules), "follow=true") as stream:
            assert await stream.line() == b"begun"
            monkeypatch.setattr(rules, "ended", lambda _: "the token was revoked")
            await stream.ended.wait()


async def test_nothing_is_followed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "FOLLOW_S", 0.3)
    async with driven(tmp_path) as made:
        await made.start(sh("echo begun; sleep 300"))
        await made.output(wanted=b"begun")
        async with following(Logs(made), "follow=true") as stream:
            await stream.ended.wait()


async def test_so_many_are_followed_at_once_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "FOLLOWING_MAX", 1)
    monkeypatch.setattr(followed, "FOLLOWERS_MAX", 2)
    async with driven(tmp_path) as made:
        await made.start(sh("echo begun; sleep 300"))
        await made.output(wanted=b"begun")
        logs = Logs(made)
        async with following(logs, "follow=true") as first:
            await first.line()
            assert (await logs.get("follow=true")).status == 429
            async with following(logs, "follow=true", "eve-token") as second:
                await second.line()
                assert (await logs.get("follow=true", token="node-token")).status == 429
                assert (await logs.get(token="node-token")).status == 200, "what is not followed comes to an end"
        async with following(logs, "follow=true") as third:
            assert await third.line() == b"begun"


class TwoPages:
    """A plane with more slots than a page holds."""

    connected = True

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self._pages = [
            ChangePage([bound("api-1", SlotState.BOUND), bound("api-10"), bound("api-2")], 1, "risk", "api-2"),
            ChangePage([bound("api-3"), bound("api-x-0"), bound("apis-0")], 1, "risk", "apis-0"),
        ]

    async def page(self, plural: str, tenant: str | None = None, *, after: tuple[str, str], **_: Any) -> ChangePage:
        self.asked.append((plural, tenant, after))
        return self._pages[len(self.asked) - 1]


async def test_the_lowest_slot_that_runs_is_looked_for_in_its_tenant_alone() -> None:
    source: Any = TwoPages()
    assert await log_slots._lowest(source, "risk", "api") == 2
    assert source.asked == [("bindings", "risk", ("risk", "api-")), ("bindings", "risk", ("risk", "api-2"))]


async def test_the_slots_that_are_there_are_told_from_every_page_whether_or_not_they_run() -> None:
    source: Any = TwoPages()
    assert (await log_slots.Search({"us": source}, "", "risk", "api", 7)._no_such()).endswith("; its slots are 1, 2, 3, 10")
    assert source.asked == [("bindings", "risk", ("risk", "api-")), ("bindings", "risk", ("risk", "api-2"))]


@pytest.mark.parametrize(
    ("query", "code", "word"),
    [
        ("slot=x", 400, "slot"), ("tailLines=-1", 400, "tailLines"), ("sinceSeconds=0", 400, "sinceSeconds"),
        ("limitBytes=0", 400, "limitBytes"), ("follow=perhaps", 400, "follow"), ("stream=stdin", 400, "stream"),
        ("timestamps=2", 400, "timestamps"), ("previous=true&follow=true", 400, "follow"), ("region=mars", 400, "region"),
        ("slot=7", 404, "slot 7"), ("previous=true", 404, "previous"),
    ],
)  # fmt: skip
async def test_a_wrong_parameter_is_named(tmp_path: Path, query: str, code: int, word: str) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("echo one"))
        await made.end()
        got = await Logs(made).get(query)
        assert (got.status, got.json["kind"]) == (code, "Status")
        assert got.json["message"].startswith(word)


async def test_who_may_not_read_them_and_who_cannot_be_reached(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        logs = Logs(made, own_tenant_only)
        assert (await logs.get(token="wrong")).status == 401
        other = await call(logs.door, "GET", PATH.replace("/risk/", "/ads/"), token="eve-token")
        assert (other.status, other.json["reason"]) == (403, "Forbidden")
        assert (await logs.get()).status == 404, "it never wrote anything"
        logs.source.away = True
        got = await logs.get()
        assert (got.status, got.headers["retry-after"]) == (503, "2")
        assert got.json["message"] == "us: the agent of n1 does not answer"


class CutOff:
    """A region behind a cut: `connected` until somebody has noticed, and in any case without an answer, for ever."""

    def __init__(self, connected: bool) -> None:
        self.connected = connected
        self.asked = 0

    async def _wait(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        await asyncio.Event().wait()

    get = page = logs = decisions = _wait


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_region_that_is_cut_off_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    monkeypatch.setattr(log_slots, "PATIENCE_S", 0.01)
    async with two_runs(tmp_path) as made, asyncio.timeout(10):
        eu = CutOff(connected=not noticed)
        logs = Logs(made.made, others={"eu": eu})
        for query in ("slot=7", "region=eu", "region=eu&slot=0"):
            got = await logs.get(query)
            assert (got.status, got.json["kind"], got.headers["retry-after"]) == (503, "Status", "2"), query
            assert got.json["message"].startswith("eu cannot be reached, and may have slot")
            assert "ask again when eu is back (`fairlead get regions`), or ask a server of that region" in got.json["message"]
            assert got.json["details"]["causes"] == [{"reason": "RegionUnreachable", "message": "eu", "field": ""}]
            assert got.json["details"]["name"] == "api"
        assert eu.asked == (0 if noticed else 3), "once a request"
        for query in ("", "slot=0"):
            got = await logs.get(query)
            assert (got.status, b"three" in got.body) == (200, True), "regions that answer are searched"
            assert got.headers["warning"] == '299 - "eu is unreachable; what runs there was not looked at"'
        logs.source.bound = False
        logs.source.away = True
        assert (await logs.get()).json["message"] == "us: the agent of n1 does not answer"


async def test_what_is_kept_nowhere_may_be_where_a_region_is_cut_off(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        got = await Logs(made, others={"eu": CutOff(connected=False)}).get()
        assert (got.status, got.json["details"]["causes"][0]["message"]) == (503, "eu"), "it never wrote anything here"


async def test_a_region_that_is_cut_off_before_it_has_brought_anything_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "ANSWER_S", 0.01)
    async with two_runs(tmp_path) as logs, asyncio.timeout(10):

        async def cut(*_: Any) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr(logs.source, "logs", cut)
        assert (await logs.get()).json["message"] == "us: there is no answer within 0 seconds"
        monkeypatch.setattr(followed, "ANSWER_S", 6.0)

        async def noticed(*_: Any) -> Any:
            logs.source.connected = False
            raise Unreachable("the connection broke")

        monkeypatch.setattr(logs.source, "logs", noticed)
        got = await logs.get("slot=0")
        assert (got.status, got.json["details"]["causes"][0]["reason"]) == (503, "RegionUnreachable")


async def test_what_has_ended_is_found_where_it_ran_though_nothing_is_bound_any_more(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as logs:
        logs.source.bound = False
        assert b"three" in await logs.text()
        assert b"three" in await logs.text("slot=0")
        got = await logs.get("slot=7")
        assert got.status == 404
        assert "slot 7 of risk/api is not bound" in got.json["message"]


async def test_a_slot_that_is_not_there_is_told_with_those_that_are_and_what_is_over_is_called_so(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        logs = Logs(made)
        got = await logs.get("slot=2")
        assert (got.status, got.json["message"].rpartition("; ")[2]) == (404, "its slots are 0")
        assert "ended more than 10 minutes ago" in (await logs.get()).json["message"]


async def test_a_region_with_too_much_to_do_is_429_and_in_the_middle_of_it_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.compose.logs.CHUNK", 4)
    monkeypatch.setattr("fairlead.compose.logs.POLL_S", 0)
    async with two_runs(tmp_path) as logs:
        scope = scope_of("GET", PATH, "stream=stdout&timestamps=true")
        for question in range(3, 9):
            logs.source.busy, stream = question, Stream()
            async with asyncio.timeout(30):
                await logs.door.app(scope, stream.receive, stream.send)
            got = [await stream.line() for _ in range(4)]
            assert [STAMP.sub(b"", line) for line in got] == [b"one", b"two", b"three", b"four\rfive"], question
        logs.source.busy = 1
        got_nothing = await logs.get()
        assert got_nothing.status == 429, "before anything is promised"
        assert got_nothing.headers["retry-after"] in ("1", "2")

        async def refused(*arguments: Any, **more: Any) -> Any:
            raise Overloaded("as many questions as may be are under way")

        with monkeypatch.context() as patched:
            patched.setattr(logs.source, "page", refused)
            assert (await logs.get()).status == 429
        logs.source.bound = False
        for query in ("", "slot=0"):
            with monkeypatch.context() as patched:
                patched.setattr(logs.source, "decisions", refused)
                assert (await logs.get(query)).status == 429, "what has ended is not said to be unknown"
        with monkeypatch.context() as patched:
            patched.setattr(logs.source, "page", refused)
            assert (await logs.get("slot=7")).status == 429


# --- which part of a stream ------------------------------------------------------------------------------------------------

MARKS = [Mark(0, 1_000, True), Mark(10, 2_000, False), Mark(20, 9_000, True), Mark(30, 20_000, False)]


@pytest.mark.parametrize(
    ("wanted", "span"),
    [
        (Wanted(), Span(0, None)),
        (Wanted(previous=True), Span(0, 20)),
        (Wanted(since_s=5), Span(30, None)),
        (Wanted(since_s=12), Span(20, None)),
        (Wanted(since_s=100), Span(0, None)),
        (Wanted(since_s=18, previous=True), Span(10, 20)),
    ],
)
def test_the_part_that_is_wanted(wanted: Wanted, span: Span) -> None:
    assert span_of(wanted, MARKS, 20_500) == span


def test_nothing_young_begins_at_the_end_and_times_nobody_kept_leave_nothing_out() -> None:
    assert span_of(Wanted(since_s=5), MARKS, 90_000) == Span(None, None)
    assert span_of(Wanted(since_s=5), [], 90_000) == Span(0, None)


def test_a_mark_that_is_half_written_is_not_read() -> None:
    record = b"000000000000010 0000000002000 W\n"
    assert marks_of(record + record[:-5]) == [Mark(10, 2_000, False)]
    for cut in range(len(record)):
        assert marks_of(record + record[:cut] + record * 2) == [Mark(10, 2_000, False)] * 3, "nor does it hide those after it"


def test_the_last_lines_begin_after_a_line_feed() -> None:
    assert tail_from(100, b"a\nb\nc", 2) == 102
    assert tail_from(100, b"a\nb\n", 1) == 102
    assert tail_from(100, b"a\n", 9) == 100


def test_what_was_written_is_cut_where_a_mark_says_another_time_and_a_line_ends() -> None:
    data = b"123456789\n" * 2 + b"12345678901234"
    assert pieces_of(0, data, MARKS) == [(1_000, b"123456789\n"), (2_000, b"123456789\n"), (9_000, b"12345678901234")]
    assert pieces_of(5, b"\nabc", MARKS) == [(1_000, b"\nabc")]
    assert pieces_of(5, b"67890abc", MARKS) == [(1_000, b"67890abc")], "in the middle of a line"
    assert pieces_of(0, b"ab\n", []) == [(0, b"ab\n")]
    assert pieces_of(0, b"", MARKS) == []


def test_a_line_in_two_pieces_has_one_time() -> None:
    lines = Lines(0)
    assert lines.stamped(0, b"ab", MARKS) == b"1970-01-01T00:00:01.000Z ab"
    assert lines.stamped(2, b"c\nd\n", MARKS) == b"c\n1970-01-01T00:00:01.000Z d\n"
    assert lines.stamped(20, b"e\n", MARKS) == b"1970-01-01T00:00:09.000Z e\n"
