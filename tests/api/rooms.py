"""A room for waiting requests before an application that answers when a test tells it to."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from fairlead.api.failures import Failure
from fairlead.api.room import Room
from fairlead.ports import Tasks

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
