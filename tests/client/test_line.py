"""The line to a plane, and an other end that says what makes no sense: it loses its connection, and nobody loses more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.client.channel import ANSWER, ASKED, CHANGES, ENDED, REFUSAL, Channel, Closed, Row, decode, encode
from fairlead.client.line import BACKOFF_S, STEADY_S
from fairlead.client.plane import Expired
from fairlead.client.remote import RemotePlane
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Command, Delete, Unknown
from fairlead.ports import SystemClock, Tasks
from tests.authority.planes import OPERATOR
from tests.client.queues import QueueChannel

HELLO = {"leading": True, "leader": "", "epoch": 1, "revision": 7, "plane_ms": 1000, "version": 1}
Frames = list[list[Any]]


class OtherEnd:
    """A server in a script: what it answers to each operation, and what it says by itself after the greeting."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[int], Frames]] = {"hello": lambda number: [[number, ANSWER, HELLO]]}
        self.unasked: Frames = []
        self.heard: Frames = []
        self.dialled_total = 0
        self.hangs_up = False  # as soon as it has answered
        self._tasks: Tasks | None = None

    async def dial(self, address: str) -> Channel:
        assert self._tasks is not None
        self.dialled_total += 1
        there: asyncio.Queue[bytes | None] = asyncio.Queue()
        back: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tasks.start(self._serve(QueueChannel(there, back)), "other end")
        return QueueChannel(back, there)

    async def _serve(self, channel: QueueChannel) -> None:
        try:
            while True:
                frame = decode(await channel.receive())
                self.heard.append(frame)
                answer = self.answers.get(frame[1])
                frames = answer(frame[0]) if answer is not None else []
                for one in frames + (self.unasked if frame[1] == "hello" else []):
                    await channel.send(encode(one))
                if self.hangs_up:
                    await channel.close()
        except Closed:
            return

    @asynccontextmanager
    async def called(self) -> AsyncIterator[RemotePlane]:
        async with Tasks() as tasks:
            self._tasks = tasks
            remote = RemotePlane(["there"], self.dial, SystemClock(), random.Random(1), "test")
            running = tasks.start(remote.run(), "remote")
            yield remote
            assert not running.done(), "it goes on, whatever it was told"
            tasks.cancel()

    async def dialled(self, times: int) -> None:
        async with asyncio.timeout(30):
            while self.dialled_total < times:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "hello", [{}, None, 7, [], {"leading": "perhaps"}, {**HELLO, "revision": "new"}, {**HELLO, "leader": ["a"]}], ids=repr
)
async def test_a_greeting_that_makes_no_sense_is_dialled_again(hello: Any, caplog: pytest.LogCaptureFixture) -> None:
    end = OtherEnd()
    end.answers["hello"] = lambda number: [[number, ANSWER, hello]]
    async with end.called() as remote:
        await end.dialled(3)
        assert not remote.connected
        assert "makes no sense" in caplog.text
        end.answers["hello"] = lambda number: [[number, ANSWER, HELLO]]
        async with asyncio.timeout(30):
            await remote.wait_connected()


@pytest.mark.parametrize(
    "frame",
    [
        [1, CHANGES], [1, CHANGES, "new", []], [1, CHANGES, 8, [["nodes"]]], [1, CHANGES, 8, 9], [1, ENDED], [1, ENDED, 7],
        [0, ASKED], [0, ASKED, 1, "logs"], [0, ASKED, 1, ["logs"], []], [1, REFUSAL], [1, REFUSAL, 7],
    ],
    ids=repr,
)  # fmt: skip
async def test_a_frame_that_makes_no_sense_ends_its_connection_and_feeds_and_nothing_else(
    frame: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    end = OtherEnd()
    end.answers["follow"] = lambda number: [[number if frame[0] else 0, *frame[1:]]]
    async with end.called() as remote:
        await remote.wait_connected()
        feed = remote.follow(("nodes",), 7)
        async with asyncio.timeout(30):
            await feed.wait()
            await end.dialled(2)
        with pytest.raises(Expired):
            feed.take_nowait()
        assert "makes no sense" in caplog.text
        async with asyncio.timeout(30):
            await remote.wait_connected()


@pytest.mark.parametrize(
    "answer", [[], None, {}, [["accepted", 7]], [["perhaps", {}]], [["unknown", {"detail": "a"}]] * 2], ids=repr
)
async def test_commands_answered_with_nonsense_have_an_unknown_outcome(answer: Any) -> None:
    end = OtherEnd()
    end.answers["submit"] = lambda number: [[number, ANSWER, answer]]
    async with end.called() as remote:
        await remote.wait_connected()
        (outcome,) = await remote.submit([Command(OPERATOR, Delete("Node", "", "n1"))])
        assert isinstance(outcome, Unknown)
        await end.dialled(2)


async def test_a_read_answered_with_nonsense_is_as_good_as_none() -> None:
    end = OtherEnd()
    for operation in ("page", "get", "heartbeat", "now"):
        end.answers[operation] = lambda number: [[number, ANSWER, ["heard", "of"]]]
    async with end.called() as remote:
        for times, read in enumerate((remote.page("nodes"), remote.get("nodes", "", "n1")), start=2):
            await remote.wait_connected()
            with pytest.raises((Unreachable, Expired)):
                await read
            await end.dialled(times)
        await remote.wait_connected()
        assert await remote.heartbeat([("n1", 1)]) is None
        await end.dialled(4)
        await remote.wait_connected()
        assert await remote.now() == 0


class Counting(SystemClock):
    """Sleeps for no time, and goes by as much as it is told to between two looks at it."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.paused: list[float] = []
        self._step_s = step_s
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._step_s * self._looks

    async def sleep(self, seconds: float) -> None:
        self.paused.append(seconds)
        await super().sleep(0)


async def pauses_of(end: OtherEnd, clock: Counting) -> list[float]:
    """Between eight connections, all of which were greeted well."""
    async with Tasks() as tasks:
        end._tasks = tasks
        remote = RemotePlane(["there"], end.dial, clock, random.Random(1), "test")
        tasks.start(remote.run(), "remote")
        await end.dialled(8)
        tasks.cancel()
    assert remote.connects_total >= 7, "the greeting itself was good"
    return clock.paused


async def test_one_that_says_nonsense_again_and_again_is_dialled_less_and_less_often() -> None:
    end = OtherEnd()
    end.unasked = [[0, ASKED]]
    assert max(await pauses_of(end, Counting())) > BACKOFF_S[-1] / 2


async def test_one_that_greets_and_hangs_up_is_dialled_less_and_less_often_and_one_that_stayed_is_at_once() -> None:
    async def pauses(step_s: float) -> list[float]:
        end = OtherEnd()
        end.hangs_up = True
        return await pauses_of(end, Counting(step_s))

    assert max(await pauses(0.0)) > BACKOFF_S[-1] / 2
    assert max(await pauses(STEADY_S)) < 2 * BACKOFF_S[0]


async def test_whoever_attends_to_nothing_says_so_and_a_question_that_cannot_be_answered_ends_nothing() -> None:
    async def answer(operation: str, arguments: Any) -> Any:
        raise RuntimeError("out of order")

    end = OtherEnd()
    end.answers["now"] = lambda number: [[0, ASKED, 1, "logs", []], [number, ANSWER, [7, 1000]]]
    for attending, said in ((False, "nobody attends here"), (True, "out of order")):
        end.heard.clear()
        async with end.called() as remote:
            if attending:
                remote.attend(["n1"], answer)
            await remote.wait_connected()
            await remote.now()
            async with asyncio.timeout(30):
                while not any(frame[1] == "answered" for frame in end.heard):
                    await asyncio.sleep(0.001)
            (told,) = [frame for frame in end.heard if frame[1] == "answered"]
            assert told[2:] == [1, False, said]
            assert remote.connected


async def test_what_a_newer_server_adds_at_the_end_is_passed_over() -> None:
    end = OtherEnd()
    end.answers["hello"] = lambda number: [[number, ANSWER, {**HELLO, "mood": "good"}]]
    end.answers["page"] = lambda number: [[number, ANSWER, [7, [["nodes", "", "n1", 3, None, "more"]], "", "", "more"], "more"]]
    end.answers["heartbeat"] = lambda number: [[number, ANSWER, ["heard", 1, 2, [], [], None, None, 15.0, 15.0, "more"]]]
    async with end.called() as remote:
        await remote.wait_connected()
        assert [change.name for change in (await remote.page("nodes")).items] == ["n1"]
        assert await remote.heartbeat([("n1", 1)]) is not None
        assert end.dialled_total == 1


async def test_a_feed_that_is_refused_ends() -> None:
    end = OtherEnd()
    end.answers["follow"] = lambda number: [[number, REFUSAL, "Invalid", "there is no such kind"]]
    async with end.called() as remote:
        await remote.wait_connected()
        feed = remote.follow(("unicorns",), 7)
        async with asyncio.timeout(30):
            await feed.wait()
        with pytest.raises(Expired, match="no such kind"):
            feed.take_nowait()
        assert end.dialled_total == 1


def test_rows_are_arrays_whose_end_may_grow() -> None:
    assert decode(encode([1, CHANGES, Row("nodes", "", "n1", 3)]))[2] == ["nodes", "", "n1", 3, None]


async def test_a_leader_that_is_behind_what_was_shown_before_is_not_believed() -> None:
    """It stood still while somebody else took over, and has yet to find out."""
    end = OtherEnd()
    revisions = [9, 8, 9]  # of the servers that are dialled, in turn
    end.answers["hello"] = lambda number: [[number, ANSWER, {**HELLO, "revision": revisions[min(end.dialled_total, 3) - 1]}]]
    end.hangs_up = True
    async with end.called() as remote:
        await end.dialled(3)
        async with asyncio.timeout(30):
            while remote.connects_total < 2:
                await asyncio.sleep(0.001)
        assert remote.revision() == 9
        assert end.dialled_total == remote.connects_total + 1, "one of them was left again"
