"""The room for waiting requests: bursts are taken in, overload is refused early, and some are never turned away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.api.identity import PEER_LOCAL
from fairlead.api.room import LATE_S, LOOK_S, REQUESTS_MAX, REQUESTS_MIN, RETRY_AFTER_MAX_S
from fairlead.ports import Tasks
from fairlead.wire.json_codec import parse_json
from tests.api.rooms import PATH, Server, overload, settle


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
