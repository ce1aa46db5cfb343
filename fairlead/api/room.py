"""How many requests may wait in a server at once. One more is told to come back, before anything of it is looked at.

Whatever is taken in beyond what a server can do only makes everybody wait longer, until all are answered too late: so it refuses
early, at a small part of what answering costs. How many that is depends on the machine and on what is asked, so it is found: the
room halves when even the quickest answer of a second came late, and grows back while answers are quick. Owns that number and the
refusal, and how long it says to wait. Watches, health, metrics, joining, the channel of components and agents, and the local
socket are never turned away: leases and break-glass do not wait behind bulk. No caller has more of the room than it leaves to
others. Of a caller it knows no more than that the credential is the same, and of an object nothing. Put around the application
by app.py.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.api.failures import Failure, spread
from fairlead.api.identity import PEER_CERTIFICATE, PEER_LOCAL
from fairlead.api.meters import is_watch, labels_of
from fairlead.ports import Clock, Random
from fairlead.wire.json_codec import encode

REQUESTS_MAX: Final = 256  # a burst that is over within a second is taken in whole
REQUESTS_MIN: Final = 64  # one caller has half of it: with fewer, the store would wait for commands to write together
LATE_S: Final = 0.5  # a tenth of what a person's tool waits for an answer
LOOK_S: Final = 1.0  # between two looks: longer than any stall of a sound server
GROWTH: Final = 8  # an eighth of what it is: doubled in six quick seconds
BACK_MAX: Final = 2  # times the room: so full may it be with requests that were outside for their bodies
RETRY_AFTER_MAX_S: Final = 8  # up to twice that is told: whoever stays away for longer may miss that it is over
_TURNED_AWAY: Final = ("/api/", "/apis/")  # objects alone: health, metrics, joining and the channel have other paths


def _full(after_s: int) -> Failure:
    return Failure(
        429, "as many requests as this server can answer in time wait already", retry_after_s=after_s,
        causes=[{"reason": "Overloaded", "message": "nothing of this request was done", "field": ""}],
    )  # fmt: skip


def _refusal(after_s: int) -> tuple[Message, Message]:
    """Made once for every time to wait, so that saying it costs next to nothing."""
    failure = _full(after_s)
    body = encode(failure.status())
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *failure.headers()]
    said = [(name.lower().encode(), value.encode()) for name, value in headers]
    start: Message = {"type": "http.response.start", "status": failure.code, "headers": said}
    return start, {"type": "http.response.body", "body": body, "more_body": False}


_REFUSALS: Final = tuple(_refusal(after_s) for after_s in range(1, 2 * RETRY_AFTER_MAX_S + 1))


class _Caller:
    """What one credential has here."""

    __slots__ = ("bodies", "inside", "requests")

    def __init__(self) -> None:
        self.requests = 0  # not ended yet
        self.inside = 0  # of those
        self.bodies = 0  # of those: awaited


class Room:
    """A request has left it once its answer begins: what is then sent takes as long as the client likes. It is outside, too,
    while its body is awaited: a client that sends none keeps nobody else out, and says nothing about how quick the server is."""

    def __init__(self, app: ASGIApp, clock: Clock, random: Random) -> None:
        self._app = app
        self._clock = clock
        self._random = random
        self._looked = clock.monotonic()
        self._quickest: float | None = None  # of the answers since then; one slow question says nothing about the server
        self._answers = 0  # since then
        self._refusals = 0
        self.after_s = 1  # what those who are turned away are told, at least
        self.most = REQUESTS_MAX
        self.waiting = 0
        self._of: dict[int, _Caller] = {}  # those that have something here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _may_be_turned_away(scope):
            await self._app(scope, receive, send)
            return
        came = self._clock.monotonic()
        if came - self._looked >= LOOK_S:
            self._look(came)
        credential = _credential(scope)
        caller = self._of.get(credential) or _Caller()
        if not self._has_room(caller):
            self._refusals += 1
            for message in _REFUSALS[spread(self.after_s, self._random) - 1]:
                await send(message)
            return
        self._of[credential] = caller
        visit = _Visit(self, caller, came, receive, send)
        try:
            await self._app(scope, visit.receive, visit.send)
        finally:
            visit.leave()  # where it ended without an answer
            caller.requests -= 1
            if not caller.requests:
                del self._of[credential]

    def _has_room(self, caller: _Caller) -> bool:
        """For no more than it leaves free: one that crowds the room gets half of it, of two each a third. Some is always left.
        Bodies that are awaited are counted as inside, but for their own sender only."""
        return caller.inside + caller.bodies < self.most - self.waiting - caller.bodies

    def now(self) -> float:
        return self._clock.monotonic()

    def come_back(self) -> None:
        """Of one that was outside for its body. It had its place, so it is let in beyond the number, but not without end: else
        whoever holds back many bodies could let them all loose at once. Raises 429."""
        if self.waiting >= BACK_MAX * self.most:
            self._refusals += 1
            raise _full(self.after_s)
        self.waiting += 1

    def answered(self, took_s: float) -> None:
        self._answers += 1
        if self._quickest is None or took_s < self._quickest:
            self._quickest = took_s

    def _look(self, now: float) -> None:
        late = self.waiting >= REQUESTS_MIN // 2 if self._quickest is None else self._quickest > LATE_S
        if late:
            self.most = max(REQUESTS_MIN, min(self.most, self.waiting) // 2)
        else:
            self.most = min(REQUESTS_MAX, self.most + self.most // GROWTH)
        # For each that is answered so many come back: it takes about as many seconds until all who obey had their turn.
        share = self._refusals // max(self._answers, 1)
        self.after_s = min(share + 1, RETRY_AFTER_MAX_S)
        self._looked, self._quickest, self._answers, self._refusals = now, None, 0, 0


class _Visit:
    """One request, from its head until its answer begins."""

    __slots__ = ("_began", "_caller", "_came", "_inside", "_left", "_receive", "_room", "_send", "_whole")

    def __init__(self, room: Room, caller: _Caller, came: float, receive: Receive, send: Send) -> None:
        self._room = room
        self._caller = caller
        self._came = came  # later by the time it was outside
        self._left = came
        self._receive = receive
        self._send = send
        self._inside = True
        self._whole = False  # nothing more of its body is awaited; what comes then is that the client went
        self._began = False  # its answer
        caller.requests += 1
        caller.inside += 1
        room.waiting += 1

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._caller.inside -= 1
            self._room.waiting -= 1

    async def receive(self) -> Message:
        if self._whole or self._began:
            return await self._receive()
        if self._inside:
            self._left = self._room.now()
            self.leave()
        self._caller.bodies += 1
        try:
            message = await self._receive()  # if that is given up, it stays outside: all that is left to do is to say so
        finally:
            self._caller.bodies -= 1
        if message["type"] == "http.request" and not (self._began or self._inside):
            self._room.come_back()
            self._caller.inside += 1
            self._inside = True
            self._came += self._room.now() - self._left
            self._whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if not self._began:
            self._began = True
            if self._inside:
                self._room.answered(self._room.now() - self._came)
                self.leave()
        await self._send(message)


def _credential(scope: Scope) -> int:
    """The same number for whoever shows the same, however it is spelled. A token counts without its last part, the secret or the
    signature: that may be spelled in several ways, and who sends a wrong one is gone before anything is waited for."""
    for name, value in scope.get("headers", ()):
        if name == b"authorization":
            token = value.decode("latin-1").partition(" ")[2].strip()
            return hash(token.rpartition(".")[0] or token)
    return hash(scope.get("state", {}).get(PEER_CERTIFICATE))


def _may_be_turned_away(scope: Scope) -> bool:
    if scope["type"] != "http" or not scope["path"].startswith(_TURNED_AWAY):
        return False
    return not _watches(scope) and PEER_LOCAL not in scope.get("state", ())


def _watches(scope: Scope) -> bool:
    """A word in the query makes no watch of anything else."""
    query = scope.get("query_string", b"")
    return scope["method"] == "GET" and is_watch(query) and labels_of("GET", scope["path"], query)[0] == "watch"
