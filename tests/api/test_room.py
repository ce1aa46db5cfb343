"""The room for waiting requests: bursts are taken in, overload is refused early, and some are never turned away."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from fairlead.api.failures import Failure
from fairlead.api.identity import PEER_CERTIFICATE, PEER_LOCAL
from fairlead.api.room import BACK_MAX, LATE_S, LOOK_S, REQUESTS_MAX, REQUESTS_MIN, RETRY_AFTER_MAX_S, Room
from fairlead.ports import Tasks
from fairlead.wire.json_codec import parse_json

PATH = "/apis/fairlead.dev/v1alpha1/workloads"
Body = asyncio.Queue[Message]
PIECE: Message = {"type": "http.request", "body": b"{", "more_body": True}
LAST: Message = {"type": "http.request", "body": b"}", "more_body": False}
GONE: Message = {"type": "http.disconnect"}
OK = {"type": "http.response.start", "status": 200, "headers": []}


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the room waits for nothing")


class Server:
    """An application that answers when it is told to, behind a room."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.asked: deque[asyncio.Event] = deque()
        self.room = Room(self._app, self.clock, random.Random(7))
        self.answers: list[tuple[int, float]] = []  # (status, how long it took)
        self.after_s: list[int] = []  # what those who were turned away were told
        self.patience_s: float | None = None  # for a body
        self._callers = itertools.count()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            try:
                await self._read(receive)
            except Failure as failure:
                await send({"type": "http.response.start", "status": failure.code, "headers": []})
                return
        turn = asyncio.Event()
        self.asked.append(turn)
        await turn.wait()
        if scope["path"] != "/apis/dies":
            await send(OK)

    async def _read(self, receive: Receive) -> None:
        """As a handler does, with a bound on the time."""
        try:
            async with asyncio.timeout(self.patience_s):
                while (await receive()).get("more_body"):
                    pass
        except TimeoutError:
            raise Failure(408, "the body did not arrive") from None

    async def ask(
        self, path: str = PATH, query: bytes = b"", method: str = "GET", body: Body | None = None, token: str = "", **state: Any
    ) -> None:
        """Of a caller of its own, unless it says whose token it has, or has a certificate."""
        came = self.clock.now_s
        said = token or ("" if state else f"Bearer flt_risk.n{next(self._callers)}.5ec7e7")

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answers.append((message["status"], self.clock.now_s - came))
                self.after_s += [int(value) for name, value in message["headers"] if name == b"retry-after"]
            elif message.get("body"):
                self.body = message["body"]

        async def receive() -> Message:
            assert method == "POST", "nothing of a request is read by the room"
            if body is None:
                return {"type": "http.request", "body": b"{}", "more_body": False}
            return await body.get()

        scope = {"type": "http", "method": method, "path": path, "query_string": query, "state": state}
        scope["headers"] = [(b"accept", b"*/*"), *([(b"authorization", said.encode("latin-1"))] if said else [])]
        await self.room(scope, receive, send)

    def answer(self, count: int) -> None:
        for _ in range(min(count, len(self.asked))):
            self.asked.popleft().set()

    def count(self, status: int) -> int:
        return sum(found == status for found, _ in self.answers)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def overload(server: Server, tasks: Tasks, seconds: int, offered: int, answered: int, take_in: Any = None) -> None:
    """So many requests and so many answers in each tenth of a second."""
    for _ in range(seconds * 10):
        for _ in range(offered):
            tasks.start((take_in or server.ask)(), "request")
        await settle()
        server.clock.now_s += 0.1
        server.answer(answered)
        await settle()


async def test_a_burst_is_taken_in_and_one_more_is_told_to_come_back() -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(REQUESTS_MAX + 1):
            tasks.start(server.ask(), "request")
        await settle()
        assert server.answers == [(429, 0.0)]
        assert server.after_s in ([1], [2])
        told = parse_json(server.body)
        assert isinstance(told, dict)
        assert (told["code"], told["reason"], told["details"]["causes"][0]["reason"]) == (429, "TooManyRequests", "Overloaded")
        server.answer(REQUESTS_MAX)
    assert server.count(200) == REQUESTS_MAX
    assert server.room.waiting == 0


async def test_at_twice_what_a_server_can_do_it_goes_on_doing_as_much_and_answers_in_time() -> None:
    server = Server()
    async with Tasks() as tasks:
        await overload(server, tasks, 40, 20, 10)
        server.answer(REQUESTS_MAX)
    late = [took for status, took in server.answers if status == 200 and took > 5]
    assert late == []
    assert server.count(200) >= 0.95 * 40 * 10 * 10
    assert REQUESTS_MIN <= server.room.most < REQUESTS_MAX


async def test_without_a_room_the_same_server_answers_nobody_in_time_after_a_while() -> None:
    server = Server()

    async def past_the_room() -> None:
        came = server.clock.now_s
        turn = asyncio.Event()
        server.asked.append(turn)
        await turn.wait()
        server.answers.append((200, server.clock.now_s - came))

    async with Tasks() as tasks:
        await overload(server, tasks, 40, 20, 10, past_the_room)
        assert min(took for _, took in server.answers[-100:]) > 5
        server.answer(len(server.asked))


async def test_the_room_is_whole_again_when_answers_are_quick() -> None:
    server = Server()
    async with Tasks() as tasks:
        await overload(server, tasks, 20, 20, 5)
        assert server.room.most < REQUESTS_MAX // 2
        server.answer(REQUESTS_MAX)
        await settle()
        await overload(server, tasks, 30, 1, 1)
        server.answer(REQUESTS_MAX)
    assert server.room.most == REQUESTS_MAX


async def test_one_slow_question_among_quick_ones_costs_nobody_room() -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(REQUESTS_MIN + 5):  # such as evictions, which wait for a ruling
            tasks.start(server.ask(), "slow")
        await settle()
        slow = list(server.asked)
        server.asked.clear()
        for each in slow[:5]:
            await overload(server, tasks, 1, 1, 1)
            each.set()
        assert server.room.most == REQUESTS_MAX
        for each in slow:
            each.set()


async def test_the_more_are_turned_away_the_longer_they_are_told_to_wait_within_reason() -> None:
    server = Server()
    async with Tasks() as tasks:
        await overload(server, tasks, 10, 40, 10)
        few = max(server.after_s)
        await overload(server, tasks, 3, 200, 10)
        server.answer(REQUESTS_MAX)
    assert 1 < few < max(server.after_s) <= 2 * RETRY_AFTER_MAX_S


async def test_a_server_that_answers_nothing_at_all_takes_in_no_more() -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(REQUESTS_MAX):
            tasks.start(server.ask(), "request")
        await settle()
        server.clock.now_s += LOOK_S
        tasks.start(server.ask(), "one more")
        await settle()
        assert server.room.most == REQUESTS_MAX // 2
        server.clock.now_s += LATE_S
        server.answer(REQUESTS_MAX)


@pytest.mark.parametrize(
    ("path", "query", "state"),
    [
        (PATH, b"limit=1&watch=true", {}),
        (PATH, b"watch=1", {}),
        (PATH, b"", {PEER_LOCAL: "root"}),
        ("/livez", b"", {}),
        ("/healthz", b"", {}),
        ("/metrics", b"", {}),
        ("/fairlead/v1/join", b"", {}),
    ],
)
async def test_watches_health_metrics_joining_and_the_local_socket_are_never_turned_away(
    path: str, query: bytes, state: dict[str, Any]
) -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(REQUESTS_MAX):
            tasks.start(server.ask(), "request")
        await settle()
        tasks.start(server.ask(path, query, **state), "one more")
        await settle()
        assert server.answers == []
        assert len(server.asked) == REQUESTS_MAX + 1
        server.answer(REQUESTS_MAX + 1)
    assert server.count(200) == REQUESTS_MAX + 1


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("POST", PATH, b"watch=1"),
        ("DELETE", PATH, b"watch=true"),
        ("HEAD", PATH, b"watch=true"),
        ("GET", f"{PATH}/namespaces/risk", b"watch=1"),
        ("GET", "/apis/fairlead.dev/v1alpha1/namespaces/risk/workloads/api", b"watch=1"),
        ("GET", "/apis/fairlead.dev/v1alpha1/plans", b"watch=1"),
        ("GET", PATH, b"watch=1&watch=0"),
        ("GET", PATH, b"watch=1&watc%68=false"),
    ],
)
async def test_a_word_in_the_query_makes_no_watch_of_anything_else(method: str, path: str, query: bytes) -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(REQUESTS_MAX):
            tasks.start(server.ask(), "request")
        await settle()
        tasks.start(server.ask(path, query, method), "one more")
        await settle()
        refused = server.count(429)
        server.answer(REQUESTS_MAX + 1)
    assert refused == 1


async def test_a_request_that_ends_without_an_answer_leaves_the_room() -> None:
    server = Server()
    async with Tasks() as tasks:
        tasks.start(server.ask("/apis/dies"), "request")
        await settle()
        assert server.room.waiting == 1
        server.answer(1)
    assert server.room.waiting == 0


async def test_requests_whose_bodies_do_not_come_keep_nobody_out_and_the_room_as_large_as_it_is() -> None:
    server, body = Server(), Body()
    async with Tasks() as tasks:
        for _ in range(3 * REQUESTS_MAX):
            tasks.start(server.ask(method="POST", body=body), "slow")
        await settle()
        assert server.room.waiting == 0
        for _ in range(5):
            server.clock.now_s += LOOK_S
            tasks.start(server.ask(), "quick")
            await settle()
            server.answer(1)
            await settle()
        assert (server.count(429), server.count(200), server.room.most) == (0, 5, REQUESTS_MAX)
        tasks.cancel()
    assert server.room.waiting == 0


async def test_the_time_a_body_took_is_not_the_server_s() -> None:
    server, body = Server(), Body()
    async with Tasks() as tasks:
        for _ in range(REQUESTS_MIN):
            tasks.start(server.ask(method="POST", body=body), "slow")
        await settle()
        server.clock.now_s += 20
        for piece in (PIECE, LAST):
            for _ in range(REQUESTS_MIN):
                body.put_nowait(piece)
            await settle()
        assert server.room.waiting == REQUESTS_MIN
        server.answer(REQUESTS_MIN)
        await settle()
        assert server.room.waiting == 0
        tasks.start(server.ask(), "looks")
        await settle()
        server.answer(1)
    assert server.room.most == REQUESTS_MAX


async def test_a_request_that_was_outside_for_its_body_has_its_place_when_the_room_has_filled() -> None:
    server, body = Server(), Body()
    async with Tasks() as tasks:
        tasks.start(server.ask(method="POST", body=body), "slow")
        await settle()
        for _ in range(REQUESTS_MAX):
            tasks.start(server.ask(), "request")
        await settle()
        body.put_nowait(LAST)
        await settle()
        assert (server.answers, server.room.waiting) == ([], REQUESTS_MAX + 1)
        server.answer(REQUESTS_MAX + 1)
    assert (server.count(200), server.room.waiting) == (REQUESTS_MAX + 1, 0)


async def test_bodies_that_are_let_loose_all_at_once_fill_the_room_no_more_than_twice() -> None:
    server, body, more = Server(), Body(), 7
    async with Tasks() as tasks:
        for _ in range(BACK_MAX * REQUESTS_MAX + more):
            tasks.start(server.ask(method="POST", body=body), "slow")
        await settle()
        for _ in range(BACK_MAX * REQUESTS_MAX + more):
            body.put_nowait(LAST)
        await settle()
        assert (server.count(429), server.room.waiting) == (more, BACK_MAX * REQUESTS_MAX)
        server.answer(BACK_MAX * REQUESTS_MAX)
    assert server.room.waiting == 0


@pytest.mark.parametrize(("patience_s", "status"), [(None, 200), (0.0, 408)])
async def test_a_body_that_never_comes_leaves_nothing_behind(patience_s: float | None, status: int) -> None:
    server, body = Server(), Body()
    server.patience_s = patience_s
    async with Tasks() as tasks:
        tasks.start(server.ask(method="POST", body=body), "slow")
        await settle()
        body.put_nowait(GONE)
        await settle()
        server.answer(1)
    assert (server.room.waiting, server.count(status)) == (0, 1)


ONE = "Bearer flt_risk.one.5ec7e7"


@pytest.mark.parametrize(
    "shown",
    [
        lambda n: {"token": ONE},
        lambda n: {"token": ("Bearer", "bearer", "BEARER")[n % 3] + " " * (1 + n % 7) + ONE[7:] + "\xa0" * (n % 2)},
        lambda n: {"token": f"Bearer eyJ.eyJ.{n}"},  # a signature may be spelled in several ways
        lambda n: {PEER_CERTIFICATE: b"der"},
    ],
)
async def test_one_caller_has_half_of_the_room_however_it_spells_its_credential_and_others_the_rest(shown: Any) -> None:
    server = Server()
    async with Tasks() as tasks:
        for n in range(REQUESTS_MAX):
            tasks.start(server.ask(**shown(n)), "flood")
        await settle()
        assert (server.count(429), server.room.waiting) == (REQUESTS_MAX // 2, REQUESTS_MAX // 2)
        for _ in range(10):
            tasks.start(server.ask(token="Bearer flt_risk.quiet.5ec7e7"), "quiet")
        await settle()
        assert (server.count(429), server.room.waiting) == (REQUESTS_MAX // 2, REQUESTS_MAX // 2 + 10)
        server.answer(REQUESTS_MAX)
    assert server.room.waiting == 0


async def test_of_several_who_crowd_the_room_none_keeps_out_a_quiet_one() -> None:
    server = Server()
    async with Tasks() as tasks:
        for n in range(8 * REQUESTS_MAX):
            tasks.start(server.ask(token=f"Bearer flt_risk.{n % 8}.5ec7e7"), "flood")
        await settle()
        refused = server.count(429)
        assert REQUESTS_MAX // 2 < server.room.waiting < REQUESTS_MAX - 8
        for _ in range(8):
            tasks.start(server.ask(token="Bearer flt_risk.quiet.5ec7e7"), "quiet")
        await settle()
        assert server.count(429) == refused
        server.answer(REQUESTS_MAX)


async def test_a_caller_s_share_is_its_own_again_when_it_was_answered() -> None:
    server = Server()
    for _ in range(3):
        async with Tasks() as tasks:
            for _ in range(REQUESTS_MAX // 2):
                tasks.start(server.ask(token=ONE), "burst")
            await settle()
            server.answer(REQUESTS_MAX)
    assert (server.count(429), server.count(200)) == (0, 3 * REQUESTS_MAX // 2)


async def test_bodies_that_are_awaited_count_for_their_own_sender_and_for_nobody_else() -> None:
    server, body, share = Server(), Body(), REQUESTS_MAX // 2
    async with Tasks() as tasks:
        for _ in range(share + 3):
            tasks.start(server.ask(method="POST", body=body, token=ONE), "slow")
        tasks.start(server.ask(token=ONE), "reads")
        for _ in range(share):
            tasks.start(server.ask(method="POST"), "others")
        await settle()
        assert (server.count(429), server.room.waiting) == (4, share)
        for _ in range(share):
            body.put_nowait(LAST)
        await settle()
        assert server.room.waiting == 2 * share
        server.answer(2 * share)
        await settle()
        tasks.start(server.ask(token=ONE), "reads")
        await settle()
        assert (server.count(429), server.room.waiting) == (4, 1)
        server.answer(1)


async def test_one_that_sends_its_bodies_later_gets_no_more_of_the_room_by_that() -> None:
    server, share = Server(), REQUESTS_MAX // 2
    async with Tasks() as tasks:
        for _ in range(10):
            body = Body()
            for _ in range(REQUESTS_MAX):
                tasks.start(server.ask(method="POST", body=body, token=ONE), "slow")
            await settle()
            for _ in range(share // 4):
                body.put_nowait(LAST)
            await settle()
            assert server.room.waiting <= share
        tasks.cancel()


async def test_a_server_that_answers_one_caller_nothing_at_all_gives_it_no_more_room() -> None:
    server = Server()
    async with Tasks() as tasks:
        for _ in range(10):
            for _ in range(REQUESTS_MAX):
                tasks.start(server.ask(token=ONE), "request")
            await settle()
            server.clock.now_s += LOOK_S
        assert server.room.most == REQUESTS_MIN
        server.answer(REQUESTS_MAX)
        await settle()
        server.clock.now_s += LATE_S
        for _ in range(5):
            for _ in range(REQUESTS_MIN):
                tasks.start(server.ask(token=ONE), "request")
            await settle()
            server.clock.now_s += LOOK_S
        assert server.room.most == REQUESTS_MIN
        server.answer(REQUESTS_MAX)


async def test_those_who_are_turned_away_together_are_told_different_times() -> None:
    server = Server()
    async with Tasks() as tasks:
        await overload(server, tasks, 10, 40, 10)
        server.after_s.clear()
        least = max(1, server.room.after_s)
        for _ in range(2 * REQUESTS_MAX):
            tasks.start(server.ask(token=ONE), "request")
        await settle()
        server.answer(2 * REQUESTS_MAX)
    assert least > 1
    assert set(server.after_s) == set(range(least, 2 * least + 1))
