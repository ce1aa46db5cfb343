"""How many requests may wait in a server at once. One more is told to come back, before anything of it is looked at.

Whatever is taken in beyond what a server can do only makes everybody wait longer, until all are answered too late: so it refuses
early, at a small part of what answering costs. How many that is depends on the machine and on what is asked, so it is found: the
room halves when even the quickest answer of a second came late, and grows back while answers are quick. Owns that number and the
refusal, and how long it says to wait. Watches, health, metrics, joining, the channel of components and agents, and the local
socket are never turned away: leases and break-glass do not wait behind bulk. Knows no caller and no object. Put around the
application by app.py.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.api.failures import Failure
from fairlead.api.identity import PEER_LOCAL
from fairlead.api.meters import is_watch, labels_of
from fairlead.ports import Clock
from fairlead.wire.json_codec import encode

REQUESTS_MAX: Final = 256  # a burst that is over within a second is taken in whole
REQUESTS_MIN: Final = 32  # fewer, and the store would wait for commands to write together
LATE_S: Final = 0.5  # a tenth of what a person's tool waits for an answer
LOOK_S: Final = 1.0  # between two looks: longer than any stall of a sound server
GROWTH: Final = 8  # an eighth of what it is: doubled in six quick seconds
RETRY_AFTER_MAX_S: Final = 8  # whoever is told to stay away for longer may miss that it is over
_TURNED_AWAY: Final = ("/api/", "/apis/")  # objects alone: health, metrics, joining and the channel have other paths


def _refusal(after_s: int) -> tuple[Message, Message]:
    """Made once for every time to wait, so that saying it costs next to nothing."""
    failure = Failure(
        429, "as many requests as this server can answer in time wait already", retry_after_s=after_s,
        causes=[{"reason": "Overloaded", "message": "nothing of this request was done", "field": ""}],
    )  # fmt: skip
    body = encode(failure.status())
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *failure.headers()]
    said = [(name.lower().encode(), value.encode()) for name, value in headers]
    start: Message = {"type": "http.response.start", "status": failure.code, "headers": said}
    return start, {"type": "http.response.body", "body": body, "more_body": False}


_REFUSALS: Final = tuple(_refusal(after_s) for after_s in range(1, RETRY_AFTER_MAX_S + 1))


class Room:
    """A request has left it once its answer begins: what is then sent takes as long as the client likes."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._looked = clock.monotonic()
        self._quickest: float | None = None  # of the answers since then; one slow question says nothing about the server
        self._answers = 0  # since then
        self._refusals = 0
        self._refusal = _REFUSALS[0]
        self.most = REQUESTS_MAX
        self.waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _may_be_turned_away(scope):
            await self._app(scope, receive, send)
            return
        came = self._clock.monotonic()
        if came - self._looked >= LOOK_S:
            self._look(came)
        if self.waiting >= self.most:
            self._refusals += 1
            for message in self._refusal:
                await send(message)
            return
        self.waiting += 1
        waits = True

        async def begun(message: Message) -> None:
            nonlocal waits
            if waits:
                waits = False
                self._answered(self._clock.monotonic() - came)
            await send(message)

        try:
            await self._app(scope, receive, begun)
        finally:
            self.waiting -= waits  # where it ended without an answer

    def _answered(self, took_s: float) -> None:
        self.waiting -= 1
        self._answers += 1
        if self._quickest is None or took_s < self._quickest:
            self._quickest = took_s

    def _look(self, now: float) -> None:
        late = self.waiting >= REQUESTS_MIN if self._quickest is None else self._quickest > LATE_S
        if late:
            self.most = max(REQUESTS_MIN, min(self.most, self.waiting) // 2)
        else:
            self.most = min(REQUESTS_MAX, self.most + self.most // GROWTH)
        # For each that is answered so many come back: it takes about as many seconds until all who obey had their turn.
        share = self._refusals // max(self._answers, 1)
        self._refusal = _REFUSALS[min(share, RETRY_AFTER_MAX_S - 1)]
        self._looked, self._quickest, self._answers, self._refusals = now, None, 0, 0


def _may_be_turned_away(scope: Scope) -> bool:
    if scope["type"] != "http" or not scope["path"].startswith(_TURNED_AWAY):
        return False
    return not _watches(scope) and PEER_LOCAL not in scope.get("state", ())


def _watches(scope: Scope) -> bool:
    """A word in the query makes no watch of anything else."""
    query = scope.get("query_string", b"")
    return scope["method"] == "GET" and is_watch(query) and labels_of("GET", scope["path"], query)[0] == "watch"
