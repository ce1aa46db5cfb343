"""The line to whoever leads a plane: dialled, greeted, and dialled again whenever it breaks.

Owns the connection, the questions and feeds under way on it, and the questions the other end puts to whoever attends. The other
end is not believed: a frame that makes no sense ends the connection and nothing else. Knows nothing of what is asked: that is
remote.py, which builds on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from fairlead.client.answers import Ended, Hello, Question, Refusal, Told, as_a, nothing
from fairlead.client.channel import ANSWER, ASKED, CHANGES, ENDED, UNFOLLOWS, VERSION, Channel, Closed, decode, encode
from fairlead.client.places import READS_MAX, READS_S, SYSTEM_MAX, SYSTEM_S, WRITES_MAX, WRITES_S, Places
from fairlead.client.plane import Expired, Overloaded
from fairlead.client.remote_feed import RemoteFeed
from fairlead.model import codec
from fairlead.ports import Clock, Random, Tasks

log = logging.getLogger(__name__)

Answerer = Callable[[str, Sequence[Any]], Awaitable[Any]]  # operation, arguments -> something that fits a frame
Dial = Callable[[str], Awaitable[Channel]]  # an address in, an open channel out; raises OSError or Closed

WAIT_S: Final = 5.0  # how long a call waits for a connection before it gives up
BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # between attempts, with jitter; the last one repeats
STEADY_S: Final = 5.0  # a connection that lasts so long was a good one: after it, attempts begin anew

T = TypeVar("T")


class Ask(Exception):
    """The plane refused a question."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class NotSent(Closed):
    """There is no connection to send it over, so nothing has come of it."""


NO_ANSWER: Final = (Closed, Ask, Overloaded)


class Line:
    def __init__(self, addresses: Sequence[str], dial: Dial, clock: Clock, random: Random, name: str = "component") -> None:
        assert addresses, "a plane has at least one address"
        self._addresses = list(addresses)
        self._dial = dial
        self._clock = clock
        self._random = random
        self._name = name
        self._channel: Channel | None = None
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._connected = asyncio.Event()
        self._broken = asyncio.Event()
        self._distrusted = False  # the other end of this connection said what makes no sense
        self._number = 0
        self._asked: dict[int, tuple[asyncio.Future[Any], Places | None]] = {}
        self._reads = Places(READS_MAX, READS_S)
        self._writes = Places(WRITES_MAX, WRITES_S)
        self._system = Places(SYSTEM_MAX, SYSTEM_S)
        self._feeds: dict[int, RemoteFeed] = {}
        self._unfollows = False
        self._attended: tuple[str, ...] = ()
        self._answerer: Answerer | None = None
        self._tasks: Tasks | None = None
        self._revision = 0
        self._plane_ms = 0
        self._at = 0.0
        self.connects_total = 0
        self.calls_total = 0  # sent to the other end: each question, and each command of those that go together

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        await self._connected.wait()

    # --- the connection --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps a connection to the leader, for as long as its owner lets it run."""
        tries = 0
        while True:
            for address in list(self._addresses):
                began = self._clock.monotonic()
                if await self._connect(address) and self._clock.monotonic() - began >= STEADY_S:
                    tries = 0
            pause_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
            tries += 1
            await self._clock.sleep(pause_s * (0.5 + self._random.random()))

    async def _connect(self, address: str) -> bool:
        """One connection, from its dialling to its end. False: it never served, or served nonsense."""
        try:
            channel = await self._dial(address)
        except (OSError, Closed) as error:
            log.debug("%s cannot reach %s: %s", self._name, address, error)
            return False
        served, self._broken, self._distrusted = False, asyncio.Event(), False
        try:
            async with Tasks() as tasks:
                outgoing: asyncio.Queue[bytes] = asyncio.Queue()
                self._channel, self._outgoing = channel, outgoing
                tasks.start(self._carry(self._read(channel), channel, self._broken), "read")
                tasks.start(self._carry(self._write(channel, outgoing), channel, self._broken), "write")
                served = await self._greet(tasks)
                if served:
                    await self._broken.wait()
                tasks.cancel()
        finally:
            self._drop(channel)
            await channel.close()
        return served and not self._distrusted

    async def _carry(self, work: Coroutine[Any, Any, None], channel: Channel, broken: asyncio.Event) -> None:
        """Until the connection breaks. Says so instead of raising it: of a group in which a task has failed, a cancellation from
        outside at the same moment is lost, and whoever told us to stop would wait for ever."""
        try:
            await work
        except Closed as error:
            log.debug("%s: %s", self._name, error)
        except Exception as error:  # whatever the other end sent, it ends its own connection and nothing of ours
            self._distrust(error)
        finally:
            self._drop(channel)
            broken.set()

    def _distrust(self, error: Exception) -> None:
        """What came makes no sense, so nothing else that comes over this connection is believed."""
        log.warning("%s hangs up, because what it was sent makes no sense: %s: %s", self._name, type(error).__name__, error)
        self._distrusted = True
        self._broken.set()

    async def _greet(self, tasks: Tasks) -> bool:
        """False: whoever is there does not lead."""
        try:
            hello = await self._ask("hello", VERSION, self._name, read=as_a(Hello))
        except NO_ANSWER:
            return False
        if not hello.leading:
            self._prefer(hello.leader)
            return False
        if self._is_behind(hello):
            return False
        self._unfollows = hello.version >= UNFOLLOWS
        self._note(hello.revision, hello.plane_ms)
        self.connects_total += 1
        self._tasks = tasks
        self._connected.set()
        self._tell_attendance()
        return True

    def _is_behind(self, hello: Hello) -> bool:
        """It was deposed while it stood still, and has yet to find out: what it shows is older than what was shown here (S15)."""
        return hello.revision < self._revision

    def _prefer(self, address: str) -> None:
        if address and address in self._addresses:
            self._addresses.remove(address)
            self._addresses.insert(0, address)

    def _drop(self, channel: Channel) -> None:
        """Whoever waits learns that nobody knows; whoever follows must list again."""
        if self._channel is not channel:
            return
        self._channel = self._tasks = None
        self._connected.clear()
        asked, self._asked = self._asked, {}
        for future, places in asked.values():
            if places is not None:
                places.give_back()
            if not future.done():
                future.set_exception(Closed("the connection broke"))
        feeds, self._feeds = self._feeds, {}
        for feed in feeds.values():
            feed.end(Expired("the connection broke; list again", 0))

    @staticmethod
    async def _write(channel: Channel, outgoing: asyncio.Queue[bytes]) -> None:
        while True:
            await channel.send(await outgoing.get())

    async def _read(self, channel: Channel) -> None:
        while True:
            number, kind, *rest = decode(await channel.receive())
            if kind == ASKED:
                self._put_to_us(codec.convert(rest, Question))
            elif kind in (CHANGES, ENDED) or number in self._feeds:
                self._told(number, kind, rest)
            else:
                self._answered(number, kind, rest)

    def _answered(self, number: int, kind: int, rest: Sequence[Any]) -> None:
        future, places = self._asked.pop(number, (None, None))
        if places is not None:
            places.give_back()
        if future is None or future.done():
            return
        if kind == ANSWER:
            future.set_result(rest[0])
        else:
            future.set_exception(_refused(codec.convert(rest, Refusal)))

    def _told(self, number: int, kind: int, rest: Sequence[Any]) -> None:
        feed = self._feeds.get(number)
        if feed is None:
            return
        if kind == CHANGES:
            told = codec.convert(rest, Told)
            self._revision = max(self._revision, told.revision)
            feed.told(told.revision, told.rows)
            return
        feed.end(_end_of(kind, rest))
        del self._feeds[number]

    async def _ask(
        self, operation: str, *arguments: Any, read: Callable[[Any], T], places: Places | None = None, calls: int = 1
    ) -> T:  # fmt: skip
        """Raises Ask, Overloaded or Closed; Closed also for an answer that cannot be read. Without places, for what the other end
        answers at once. `calls`: as how many it counts."""
        if self._channel is None:
            raise NotSent("there is no connection")
        number, frame = self._numbered(operation, arguments)
        if places is not None:
            await places.take()
            if not self._connected.is_set():  # it broke meanwhile
                places.give_back()
                raise NotSent("there is no connection")
        self.calls_total += calls
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = (future, places)
        self._outgoing.put_nowait(frame)
        answer = await future
        try:
            return read(answer)
        except Exception as error:
            self._distrust(error)
            raise Closed(f"{operation} was answered with what makes no sense") from error

    def _numbered(self, operation: str, arguments: Sequence[Any]) -> tuple[int, bytes]:
        self._number += 1
        return self._number, encode([self._number, operation, *arguments])

    async def _connection(self) -> bool:
        if self._channel is not None and self._connected.is_set():
            return True
        try:
            async with asyncio.timeout(WAIT_S):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    def _note(self, revision: int, plane_ms: int) -> None:
        self._revision = max(self._revision, revision)
        self._plane_ms, self._at = plane_ms, self._clock.monotonic()

    # --- questions that are put to this end ------------------------------------------------------------------------------

    def attend(self, nodes: Sequence[str], answerer: Answerer) -> None:
        """From now on, over whatever connection stands, the plane may ask about these nodes."""
        self._attended, self._answerer = tuple(nodes), answerer
        self._tell_attendance()

    def _tell_attendance(self) -> None:
        if self._attended and self._connected.is_set():
            self._outgoing.put_nowait(self._numbered("attend", [[*self._attended]])[1])

    def _put_to_us(self, question: Question) -> None:
        if self._tasks is not None:
            self._tasks.start(self._answer(question), "answer")

    async def _answer(self, question: Question) -> None:
        try:
            if self._answerer is None:
                raise LookupError("nobody attends here")
            good, result = True, await self._answerer(question.operation, question.arguments)
        except Exception as error:  # what is asked is the other end's to choose, and ends nothing here
            good, result = False, str(error)
        with contextlib.suppress(*NO_ANSWER):
            await self._ask("answered", question.number, good, result, read=nothing)


def _end_of(kind: int, rest: Sequence[Any]) -> Expired:
    """Why a feed is over, or never was one."""
    if kind == ENDED:
        ended = codec.convert(rest, Ended)
        return Expired(ended.detail, ended.oldest)
    refused = _refused(codec.convert(rest, Refusal))
    return refused if isinstance(refused, Expired) else Expired(str(refused), 0)


def _refused(refusal: Refusal) -> Ask | Overloaded:
    return Overloaded(refusal.detail) if refusal.reason == "Overloaded" else Ask(refusal.reason, refusal.detail)
