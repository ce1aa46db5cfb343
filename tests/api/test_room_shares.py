"""Who has how much of the room for waiting requests: bodies that do not come, and callers who crowd it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api.identity import PEER_CERTIFICATE
from fairlead.api.room import BACK_MAX, LATE_S, LOOK_S, REQUESTS_MAX, REQUESTS_MIN
from fairlead.ports import Tasks
from tests.api.rooms import GONE, LAST, PIECE, Body, Server, overload, settle


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
