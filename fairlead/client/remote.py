"""A plane in another process: the calls of plane.py over a channel that is dialled again whenever it breaks.

What was under way when a connection broke has an unknown outcome, and says so; feeds end and their owners list again. Several
addresses may be given: the leader is looked for among them. Called by schedulers, controllers, agents and front doors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from fairlead.client.channel import ANSWER, ASKED, CHANGES, ENDED, VERSION, Channel, Closed, decode, encode, rows_of
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.outcomes import decode_outcomes, encode_commands
from fairlead.client.plane import Expired
from fairlead.client.remote_feed import Heard, RemoteChange, RemoteFeed, change_of
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model import codec
from fairlead.model.commands import Command, Outcome, Refused, Unknown
from fairlead.observe.timeline import Step
from fairlead.ports import Clock, Random, Tasks

log = logging.getLogger(__name__)

Answerer = Callable[[str, Sequence[Any]], Awaitable[Any]]  # operation, arguments -> something that fits a frame
Dial = Callable[[str], Awaitable[Channel]]  # an address in, an open channel out; raises OSError or Closed

WAIT_S: Final = 5.0  # how long a call waits for a connection before it gives up
BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # between attempts, with jitter; the last one repeats


class Ask(Exception):
    """The plane refused a question."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class RemotePlane:
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
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._feeds: dict[int, RemoteFeed] = {}
        self._attended: tuple[str, ...] = ()
        self._answerer: Answerer | None = None
        self._tasks: Tasks | None = None
        self._revision = 0
        self._plane_ms = 0
        self._at = 0.0
        self.connects_total = 0

    # --- the connection --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps a connection to the leader, for as long as its owner lets it run."""
        tries = 0
        while True:
            for address in list(self._addresses):
                if await self._connect(address):
                    tries = 0
            pause_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
            tries += 1
            await self._clock.sleep(pause_s * (0.5 + self._random.random()))

    async def _connect(self, address: str) -> bool:
        """One connection, from its dialling to its end. False: it never served."""
        try:
            channel = await self._dial(address)
        except (OSError, Closed) as error:
            log.debug("%s cannot reach %s: %s", self._name, address, error)
            return False
        served, broken = False, asyncio.Event()
        try:
            async with Tasks() as tasks:
                outgoing: asyncio.Queue[bytes] = asyncio.Queue()
                self._channel, self._outgoing = channel, outgoing
                tasks.start(self._carry(self._read(channel), channel, broken), "read")
                tasks.start(self._carry(self._write(channel, outgoing), channel, broken), "write")
                served = await self._greet(tasks)
                if served:
                    await broken.wait()
                tasks.cancel()
        finally:
            self._drop(channel)
            await channel.close()
        return served

    async def _carry(self, work: Coroutine[Any, Any, None], channel: Channel, broken: asyncio.Event) -> None:
        """Until the connection breaks. Says so instead of raising it: of a group in which a task has failed, a cancellation from
        outside at the same moment is lost, and whoever told us to stop would wait for ever."""
        try:
            await work
        except (Closed, ValueError) as error:
            log.debug("%s: %s", self._name, error)
        finally:
            self._drop(channel)
            broken.set()

    async def _greet(self, tasks: Tasks) -> bool:
        """False: whoever is there does not lead."""
        try:
            hello = await self._ask("hello", VERSION, self._name)
        except (Closed, Ask):
            return False
        if not hello["leading"]:
            self._prefer(hello.get("leader", ""))
            return False
        self._note(hello["revision"], hello["plane_ms"])
        self.connects_total += 1
        self._tasks = tasks
        self._connected.set()
        self._tell_attendance()
        return True

    def _prefer(self, address: str) -> None:
        if address and address in self._addresses:
            self._addresses.remove(address)
            self._addresses.insert(0, address)

    def _drop(self, channel: Channel) -> None:
        """Whoever waits learns that nobody knows; whoever follows must list again."""
        if self._channel is not channel:
            return
        self._channel = None
        self._connected.clear()
        asked, self._asked = self._asked, {}
        for future in asked.values():
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
            if kind in (CHANGES, ENDED):
                self._told(number, kind, rest)
                continue
            if kind == ASKED and self._tasks is not None:
                self._tasks.start(self._answer(*rest[:3]), "answer")
                continue
            future = self._asked.pop(number, None)
            if future is None or future.done():
                continue
            if kind == ANSWER:
                future.set_result(rest[0])
            else:
                future.set_exception(Ask(*rest[:2]))

    def _told(self, number: int, kind: int, rest: Sequence[Any]) -> None:
        feed = self._feeds.get(number)
        if feed is None:
            return
        if kind == ENDED:
            del self._feeds[number]
            feed.end(Expired(rest[0], rest[1]))
            return
        if rest[0]:
            self._revision = max(self._revision, rest[0])
        feed.told(rest[0], rows_of(rest[1]))

    def attend(self, nodes: Sequence[str], answerer: Answerer) -> None:
        """From now on, over whatever connection stands, the plane may ask about these nodes."""
        self._attended, self._answerer = tuple(nodes), answerer
        self._tell_attendance()

    def _tell_attendance(self) -> None:
        if self._attended and self._connected.is_set():
            self._number += 1
            self._outgoing.put_nowait(encode([self._number, "attend", [*self._attended]]))

    async def _answer(self, question: int, operation: str, arguments: Sequence[Any]) -> None:
        assert self._answerer is not None
        try:
            good, result = True, await self._answerer(operation, arguments)
        except (OSError, ValueError, TypeError, KeyError) as error:
            good, result = False, str(error)
        try:
            await self._ask("answered", question, good, result)
        except (Closed, Ask):
            return

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]:
        """(offset, text, where to go on) of what a slot wrote. Raises FileNotFoundError or Unreachable."""
        try:
            await self._connection()
            found = await self._ask("logs", tenant, name, stream, offset, limit)
        except Ask as error:
            raise FileNotFoundError(str(error)) if error.reason in ("NotFound", "Invalid") else Unreachable(str(error)) from error
        except Closed as error:
            raise Unreachable(str(error)) from error
        return found[0], found[1], found[2]

    async def _ask(self, operation: str, *arguments: Any) -> Any:
        if self._channel is None:
            raise Closed("there is no connection")
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._outgoing.put_nowait(encode([number, operation, *arguments]))
        return await future

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

    # --- the plane -------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        await self._connected.wait()

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        if not commands:
            return []
        if not await self._connection():
            no = Refused("NotLeader", "no leader of this plane can be reached", retry_after_s=1.0)
            return [no for _ in commands]
        try:
            return decode_outcomes(await self._ask("submit", encode_commands(commands)))
        except Closed as error:
            return [Unknown(str(error)) for _ in commands]
        except Ask as error:
            return [Refused(error.reason, str(error)) for _ in commands]

    async def list(self, plural: str) -> Sequence[RemoteChange]:
        out: list[RemoteChange] = []
        tenant = name = ""
        while True:
            try:
                await self._connection()
                revision, rows, tenant, name = await self._ask("list", plural, tenant, name)
            except (Closed, Ask) as error:
                raise Expired(f"{plural} could not be listed: {error}", 0) from error
            self._revision = max(self._revision, revision)
            out += [change_of(row) for row in rows_of(rows)]
            if not name:
                return out

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> RemoteChange | None:
        try:
            await self._connection()
            found = await self._ask("get", plural, tenant, name, revision)
        except (Closed, Ask) as error:
            raise Expired(f"{plural}/{tenant}/{name} could not be read: {error}", 0) from error
        return None if found is None else change_of(rows_of([found])[0])

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> RemoteFeed:
        self._number += 1
        feed = RemoteFeed(self.forget, self._number, after)
        if self._channel is None or not self._connected.is_set():
            feed.end(Expired("there is no connection", 0))
            return feed
        self._feeds[self._number] = feed
        self._outgoing.put_nowait(encode([self._number, "follow", [*plurals], after, [*nodes]]))
        return feed

    def forget(self, number: int) -> None:
        self._feeds.pop(number, None)

    def revision(self) -> int:
        return self._revision

    def plane_ms(self) -> int:
        return self._plane_ms + int((self._clock.monotonic() - self._at) * 1000)

    async def now(self) -> int:
        """How far the plane has come, as it says itself; 0: it cannot be asked just now."""
        try:
            revision, plane_ms = await self._ask("now")
        except (Closed, Ask):
            return 0
        self._note(revision, plane_ms)
        return int(revision)

    async def heard(self, since_ms: int) -> Sequence[tuple[str, int]]:
        try:
            revision, plane_ms = await self._ask("now")
            self._note(revision, plane_ms)
            return [(name, when) for name, when in await self._ask("heard", since_ms)]
        except (Closed, Ask):
            return []  # soft: nothing was heard

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Heard | None:
        """None where no leader vouches for it."""
        try:
            word, *rest = await self._ask("heartbeat", [*nodes])
        except (Closed, Ask):
            return None
        return msgspec.convert(rest, Heard) if word == "heard" else None

    async def tell(self, figures: dict[str, float]) -> None:
        """What this end counts of itself. Soft: told again later."""
        with contextlib.suppress(Closed, Ask):
            await self._ask("figures", figures)

    async def bound_to(self, nodes: Sequence[str]) -> tuple[int, Sequence[RemoteChange]]:
        """(revision, the bindings on those nodes as they stood then)."""
        revision, rows = await self._read_answer("bound_to", [*nodes])
        return revision, [change_of(row) for row in rows_of(rows)]

    async def named(self, plural: str, tenant: str, names: Sequence[str]) -> tuple[int, Sequence[RemoteChange]]:
        """(revision, the objects there are of these names)."""
        revision, rows = await self._read_answer("named", plural, tenant, [*names])
        return revision, [change_of(row) for row in rows_of(rows)]

    async def _read_answer(self, operation: str, *arguments: Any) -> Any:
        try:
            await self._connection()
            return await self._ask(operation, *arguments)
        except (Closed, Ask) as error:
            raise Expired(f"{operation}: {error}", 0) from error

    # --- what the resource API asks beyond that (fairlead/client/resources.py) -------------------------------------------

    async def page(
        self,
        plural: str,
        tenant: str | None = None,
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = 500,
        revision: int = 0,
    ) -> ChangePage:
        at, rows, next_tenant, next_name = await self._resource("page", plural, tenant, [*after], limit, revision)
        self._revision = max(self._revision, at)
        return ChangePage([change_of(row) for row in rows_of(rows)], at, next_tenant, next_name)

    async def receipt(self, actor: str, key: str) -> Outcome | None:
        found = await self._resource("receipt", actor, key)
        return None if found is None else decode_outcomes([found])[0]

    async def revision_at(self, time_ms: int) -> int:
        return int(await self._resource("revision_at", time_ms))

    async def time_at(self, revision: int) -> int:
        return int(await self._resource("time_at", revision))

    async def steps(self, tenant: str, workload: str, since_ms: int) -> Sequence[Step]:
        return [Step(*row) for row in await self._resource("steps", tenant, workload, since_ms)]

    async def exported(self, since_ms: int, token: str = "", offset: int = 0) -> tuple[str, int, bytes]:
        token, size, piece = await self._resource("exported", since_ms, token, offset)
        return token, size, piece

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        asked = msgspec.structs.asdict(query)
        return codec.convert(await self._resource("decisions", asked), ExplainedPage)

    async def _resource(self, operation: str, *arguments: Any) -> Any:
        if not await self._connection():
            raise Unreachable("no leader of this plane can be reached")
        try:
            return await self._ask(operation, *arguments)
        except Closed as error:
            raise Unreachable(str(error)) from error
        except Ask as error:
            if error.reason == "Expired":
                raise Expired(str(error), 0) from error
            raise Unreachable(str(error)) from error
