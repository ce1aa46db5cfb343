"""Places for questions: never more under way than the other end takes, in turn, and none lost by whoever goes away."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fairlead.client import places as places_module
from fairlead.client.channel import ANSWER, REFUSAL, REQUESTS_MAX
from fairlead.client.places import READS_MAX, SYSTEM_MAX, WRITES_MAX, Places
from fairlead.client.plane import Overloaded
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Caller, Command, Delete, Refused
from fairlead.model.lifecycle import Role
from fairlead.ports import Tasks
from tests.authority.planes import OPERATOR
from tests.client.test_line import OtherEnd

DELETE = Delete("Node", "", "n1")
LEASED = Caller("mirror", Role.MIRROR)


async def test_those_who_wait_are_served_in_turn() -> None:
    places, served = Places(1, 30.0), list[int]()

    async def wait(number: int) -> None:
        await places.take()
        served.append(number)
        places.give_back()

    await places.take()
    async with Tasks() as tasks:
        for number in range(3):
            tasks.start(wait(number), "wait")
        await asyncio.sleep(0)
        assert served == []
        places.give_back()
    assert served == [0, 1, 2]


async def test_a_place_given_to_one_who_went_away_is_the_next_ones() -> None:
    places = Places(1, 30.0)
    await places.take()
    async with Tasks() as tasks:
        first, second = tasks.start(places.take(), "first"), tasks.start(places.take(), "second")
        await asyncio.sleep(0)
        places.give_back()
        first.cancel()
        async with asyncio.timeout(30):
            await second
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await places.take()  # and there is still only one


async def test_who_waits_too_long_or_behind_too_many_hears_that_there_is_too_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "WAITING_MAX", 1)
    places = Places(1, 0.01)
    await places.take()
    with pytest.raises(Overloaded, match="none was answered in time"):
        await places.take()
    async with Tasks() as tasks:
        waiting = tasks.start(Places.take(places), "waits")
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="1 wait already"):
            await places.take()
        places.give_back()
        await waiting


def test_all_together_are_fewer_than_the_other_end_takes() -> None:
    assert READS_MAX + WRITES_MAX + SYSTEM_MAX < REQUESTS_MAX - 4, "and there is room for heartbeats"


async def test_neither_leases_nor_heartbeats_nor_commands_wait_behind_what_people_read() -> None:
    end = OtherEnd()
    end.answers["submit"] = lambda number: [[number, ANSWER, [["unknown", {"detail": "heard"}]]]]
    end.answers["heartbeat"] = lambda number: [[number, ANSWER, ["heard", 1, 2]]]
    async with end.called() as remote, Tasks() as tasks:
        await remote.wait_connected()
        reading = [tasks.start(remote.get("nodes", "", f"n{n}"), "get") for n in range(READS_MAX + 100)]
        async with asyncio.timeout(30):
            while sum(frame[1] == "get" for frame in end.heard) < READS_MAX:
                await asyncio.sleep(0.001)
            assert await remote.heartbeat([("n1", 1)]) is not None
            for caller in (LEASED, OPERATOR):
                await remote.submit([Command(caller, DELETE)])
        assert sum(frame[1] == "get" for frame in end.heard) == READS_MAX
        for each in reading:
            each.cancel()


async def test_a_question_that_was_given_up_holds_its_place_until_it_is_answered() -> None:
    end = OtherEnd()
    async with end.called() as remote:
        await remote.wait_connected()
        for _ in range(READS_MAX):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await remote.page("nodes")
        async with Tasks() as tasks:
            waiting = tasks.start(remote.page("nodes"), "page")
            await asyncio.sleep(0.02)
            assert sum(frame[1] == "page" for frame in end.heard) == READS_MAX
            answered = next(frame[0] for frame in end.heard if frame[1] == "page")
            end.answers["now"] = lambda number: [[answered, ANSWER, None], [number, ANSWER, [7, 1]]]
            end.answers["page"] = lambda number: [[number, ANSWER, [7, [], "", ""]]]
            await remote.now()
            async with asyncio.timeout(30):
                assert (await waiting).revision == 7


async def test_a_break_gives_all_places_back_and_what_waited_was_never_sent() -> None:
    end = OtherEnd()
    end.answers["now"] = lambda number: [[number, ANSWER, "nonsense"]]
    async with end.called() as remote, Tasks() as tasks:
        await remote.wait_connected()
        sent = [tasks.start(remote.submit([Command(OPERATOR, DELETE)]), "submit") for _ in range(WRITES_MAX + 1)]
        await asyncio.sleep(0.02)
        await remote.now()
        async with asyncio.timeout(30):
            outcomes = [(await each)[0] for each in sent]
        assert [type(each).__name__ for each in outcomes] == ["Unknown"] * WRITES_MAX + ["Refused"]
        end.answers["submit"] = lambda number: [[number, ANSWER, [["unknown", {"detail": "heard"}]]]]
        await remote.wait_connected()
        for _ in range(WRITES_MAX + 1):
            async with asyncio.timeout(30):
                await remote.submit([Command(OPERATOR, DELETE)])


async def test_a_refusal_for_want_of_room_says_when_to_come_back_and_is_nothing_else() -> None:
    end = OtherEnd()
    for operation in ("get", "page", "submit", "list", "logs", "heartbeat", "now"):
        end.answers[operation] = lambda number: [[number, REFUSAL, "Overloaded", "128 requests are under way already"]]
    async with end.called() as remote:
        await remote.wait_connected()
        for read in (remote.get("nodes", "", "n1"), remote.page("nodes"), remote.list("nodes"), remote.logs("t", "s", "", 0, 1)):
            with pytest.raises(Overloaded) as raised:
                await read
            assert raised.value.retry_after_s > 0
            assert not isinstance(raised.value, Unreachable)
        (outcome,) = await remote.submit([Command(OPERATOR, DELETE)])
        assert isinstance(outcome, Refused)
        assert (outcome.reason, outcome.retry_after_s) == ("Overloaded", 1.0)
        assert await remote.heartbeat([("n1", 1)]) is None
        assert await remote.now() == 0
