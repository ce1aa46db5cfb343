"""watch: a stream of changes from a resourceVersion on, of one or several planes, until client, clock or server end it.

Every event carries a resourceVersion from which the client can go on. An object that leaves the selection is DELETED, one that
enters it is ADDED. History that is gone is an ERROR event with 410; so is a change of which nobody can say what it replaced: no
change is passed over. A region that is away is waited for, the others go on.
Called by the dispatcher. An ASGI response of its own, so that a stream ends with a last chunk and never with a broken one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fairlead.api.calls import JSON, Call, add_warnings
from fairlead.api.failures import Failure, bad_request
from fairlead.api.frontdoor import Listing
from fairlead.api.identity import PEER_LOCAL
from fairlead.api.members import Item, Member
from fairlead.api.reading import accepts_of, components, expired, selection_of
from fairlead.api.sharing import Stretches, Turn, chunked
from fairlead.api.versions import parse, vector_text
from fairlead.api.watches import Watches
from fairlead.client.plane import Change, Expired, Overloaded
from fairlead.client.resources import Unreachable
from fairlead.model.ids import incarnation_of
from fairlead.model.ids import revision as revision_of
from fairlead.ports import Tasks
from fairlead.wire.json_codec import encode

TIMEOUT_S: Final = 1800.0  # where the client names none
TIMEOUT_MAX_S: Final = 3600.0
BOOKMARK_S: Final = 30.0
SEND_S: Final = 30.0  # a client that takes nothing for so long has gone
AWAY_S: Final = 0.5  # between two looks at a plane that is away

log = logging.getLogger(__name__)


async def watch(call: Call, watches: Watches) -> Response:
    rules = call.services.rules
    version = rules.version(call.identity)  # before they are asked: what changes while the stream begins is noticed then
    call.allow("watch")
    if watches.draining:
        raise Failure(503, "this server is shutting down", retry_after_s=1.0)
    if call.query.get("resourceVersionMatch") and not call.query.get("sendInitialEvents"):
        raise bad_request("resourceVersionMatch is forbidden for watch unless sendInitialEvents is set")
    caller = rules.actor(call.identity)
    watches.admit(caller, always=PEER_LOCAL in call.request.scope.get("state", ()))
    try:
        stream = _Stream(call, watches.stretches)
        await stream.begin()
        return WatchResponse(call, stream, watches, caller, version)
    except BaseException:
        watches.left(caller)
        raise


class _Stream:
    """What one watch has shown so far, and how a change becomes an event."""

    def __init__(self, call: Call, stretches: Stretches | None = None) -> None:
        self._call = call
        self._stretches = stretches or Stretches()
        self._form = call.form()
        self._selection = selection_of(call)
        self._accepts = accepts_of(call, self._selection)
        self._tenant = call.target.tenant
        self.members = call.members
        self.seen: dict[int, int] = {}  # member -> the revision up to which everything was told
        self._columns_sent = False
        self._known: set[tuple[int, str, str]] = set()  # of planes that do not say what a change replaced
        self.bookmarks = call.flag("allowWatchBookmarks")
        self.first: list[bytes] = []
        self.failure: Failure | None = None  # why it cannot go on from `seen`
        self._scope = self._scope_of(call)

    def _scope_of(self, call: Call) -> Hashable | None:
        """Streams that have this in common show the same of the same changes. None: what this one shows is its own, because it
        depends on who asks (rows, secrets), on when (ages in tables) or on what it has shown before (their columns)."""
        if call.rows is not None or self._form.is_personal:
            return None
        resource, query = call.resource, call.query
        selectors = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return resource.api_version, resource.plural, self._form.name, self._tenant, call.region, *selectors

    async def begin(self) -> None:
        """Where to start: from the present state, or from what the client has seen. Raises before a stream is promised."""
        call = self._call
        text = call.query.get("resourceVersion", "")
        if text:
            parse(text)
        initial = call.flag("sendInitialEvents")
        if initial or text in ("", "0"):
            not_older = components(call, text) if text else None
            listing = await call.front.list(
                call.info, self._tenant, accepts=self._accepts, not_older=not_older, region=call.region
            )
            self._show(listing, marked=initial and self.bookmarks, silent="sendInitialEvents" in call.query and not initial)
            return
        self.seen = components(call, text)
        for member in self.members:
            if not self.seen[member.index] and member.plane.connected:
                # Of this plane the client has seen nothing: a name alone can be followed from now on, a list cannot.
                if self._selection.fields.name is None and len(self.members) > 1:
                    raise expired("it holds nothing of " + member.name)
                self.seen[member.index] = member.revision()

    def _show(self, listing: Listing, *, marked: bool, silent: bool) -> None:
        self.seen = dict(listing.pins)
        for warning in listing.warnings:
            self._call.warn(warning)
        if not silent:
            self.first = [self._event("ADDED", item, listing.resource_version) for item in listing.items]
            self._known |= {(i.member.index, i.change.tenant, i.change.name) for i in listing.items if not _says_before(i.change)}
        if marked:
            self.first.append(self.bookmark(end_of_initial=True))

    def bookmark(self, *, end_of_initial: bool = False) -> bytes:
        version = vector_text(self.seen)
        return b'{"type":"BOOKMARK","object":' + self._form.bookmark(version, end_of_initial=end_of_initial) + b"}\n"

    def _event(self, word: str, item: Item, version: str) -> bytes:
        text = self._form.one(item, version, with_columns=not self._columns_sent)
        self._columns_sent = True
        return b'{"type":"' + word.encode() + b'","object":' + text + b"}\n"

    async def told(self, member: Member, changes: Sequence[Change], upto: int) -> list[bytes]:
        """The same, ready to be sent; made once for all streams that were told the same up to here."""
        if self._scope is None or not changes or not _says_before(changes[0]):
            return chunked(await self.events(member, changes, upto))
        key = (self._scope, member.index, *self.seen.items(), changes[0].position, len(changes), upto)
        found = self._stretches.find(key)
        if found is None:
            found = chunked(await self.events(member, changes, upto))
            if self.failure is None:
                self._stretches.keep(key, found)
        else:
            self.seen[member.index] = max(self.seen[member.index], upto)
        return found

    async def events(self, member: Member, changes: Sequence[Change], upto: int) -> list[bytes]:
        """Up to the first change that cannot be told, which is then neither told nor seen."""
        out: list[bytes] = []
        incarnation = incarnation_of(upto)
        for change in changes:
            revision = revision_of(incarnation, change.position)
            if revision <= self.seen[member.index]:
                continue
            event = None
            if self._tenant is None or change.tenant == self._tenant:
                try:
                    version = vector_text({**self.seen, member.index: revision})
                    event = await self._of_change(member, change, incarnation, version)
                except Failure as failure:
                    self.failure = failure
                    return out
            self.seen[member.index] = revision
            if event is not None:
                out.append(event)
        self.seen[member.index] = max(self.seen[member.index], upto)
        return out

    async def _of_change(self, member: Member, change: Change, incarnation: int, version: str) -> bytes | None:
        selection = self._selection
        wanted = selection.fields.name
        if wanted is not None and member.outer_name(change.plural, change.name) != wanted:
            return None
        after = Item(member, change, incarnation) if change.raw is not None else None
        is_in = after is not None and (self._accepts is None or self._accepts(after))
        key = (member.index, change.tenant, change.name)
        if is_in and selection.by_name_only and self._call.rows is None and key in self._known:
            assert after is not None
            return self._event("MODIFIED", after, version)
        before: Item | None = None
        try:
            before = await self._before(member, change, incarnation)
            was_in = before is not None and (self._accepts is None or self._accepts(before))
        except (Expired, Unreachable, Failure) as error:
            if after is None or key not in self._known:
                lost = f"what {change.plural} {change.name} was before cannot be read: {error}"
                raise error if isinstance(error, Failure) else expired(lost) from error
            was_in = True  # it was shown, and has not left since
        if is_in:
            assert after is not None
            if not _says_before(change):
                self._known.add(key)
            return self._event("MODIFIED" if was_in else "ADDED", after, version)
        self._known.discard(key)
        if not was_in:
            return None
        last = after or before
        assert last is not None
        return self._event("DELETED", last, version)

    async def _before(self, member: Member, change: Change, incarnation: int) -> Item | None:
        """The version this change replaced: kept beside it in the plane's own process, asked for from afar. Raises Expired or
        Unreachable, and 429 where the plane has too much to do."""
        previous = getattr(change, "previous", None)
        if previous is not None:
            return Item(member, previous, incarnation) if previous.raw is not None else None
        if getattr(change, "change", None) == 0:  # added, so there was none
            return None
        revision = revision_of(incarnation, change.position) - 1
        return await member.get(change.plural, change.tenant, change.name, revision)


def _says_before(change: Change) -> bool:
    """Of the plane's own process: what it replaced is kept beside it."""
    return hasattr(change, "change")


class WatchResponse(Response):
    media_type = JSON

    def __init__(self, call: Call, stream: _Stream, watches: Watches, caller: str, version: int | None) -> None:
        """`caller` was admitted, and has left when this ends; `version`: of the rules by which it was allowed."""
        super().__init__(b"", 200, media_type=JSON)
        del self.headers["content-length"]
        add_warnings(self, call.warnings)
        self._call = call
        self._clock = call.services.clock
        self._stream = stream
        self._watches = watches
        self._caller = caller
        self._version = version
        timeout_s = call.number("timeoutSeconds")
        self._timeout_s = min(float(timeout_s), TIMEOUT_MAX_S) if timeout_s else TIMEOUT_S
        self._endings: asyncio.Queue[Failure | None] = asyncio.Queue()  # None: look at the clock, and whether it is over
        self._over = False
        self._writing = asyncio.Lock()  # several planes, one stream
        self._end_s = 0.0
        self._sending_s: float | None = None  # since when the client has been offered what it has not taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn = self._watches.opened(self)
        self._end_s = self._clock.monotonic() + self._timeout_s
        try:
            async with Tasks() as tasks:
                tasks.start(self._listen(receive), "client")
                tasks.start(self._alarm(), "alarm")
                for member in self._stream.members:
                    tasks.start(self._pump(member, turn, send), member.name)
                try:
                    await self._run(send)
                finally:
                    tasks.cancel()
        except* TimeoutError:
            log.info("a watch of %s was dropped: its client took nothing", self._call.resource.plural)
        finally:
            self._watches.closed(self, turn)
            self._watches.left(self._caller)

    def end(self) -> None:
        """The client went, or the server goes."""
        self._over = True
        self._endings.put_nowait(None)

    def behind_s(self) -> float:
        """For how long the client has not taken what it was offered."""
        return self._clock.monotonic() - self._sending_s if self._sending_s is not None else 0.0

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()

    async def _pump(self, member: Member, turn: Turn, send: Send) -> None:
        """The changes of one plane, for as long as there are any. A broken connection is dialled again by the plane; one
        failure right after another without progress means that the history is gone."""
        failed_at = -1
        while True:
            while not member.plane.connected:
                await self._clock.sleep(AWAY_S)
            after = self._stream.seen[member.index]
            if not after:
                self._endings.put_nowait(expired(f"{member.name} has come back"))
                return
            try:
                await self._follow(member, after, turn, send)
                return
            except Overloaded as error:
                await self._clock.sleep(error.retry_after_s)
            except Expired as error:
                if failed_at == after and member.plane.connected:
                    self._endings.put_nowait(expired(str(error)))
                    return
                failed_at = after

    async def _follow(self, member: Member, after: int, turn: Turn, send: Send) -> None:
        """Until nothing more can be told. What a slow client does not take stays in the plane, whose feed ends where that is
        too much."""
        feed = member.plane.follow([self._call.info.plural], after)
        try:
            while True:
                await feed.wait()
                await turn.wait()
                changes = feed.take_nowait()
                member.saw(feed.revision)
                failure = await self._tell(member, changes, feed.revision, send)
                if failure is not None:
                    self._endings.put_nowait(failure)
                    return
        finally:
            feed.close()

    async def _tell(self, member: Member, changes: Sequence[Change], upto: int, send: Send) -> Failure | None:
        while True:
            refused = self._refused()
            if refused is not None:
                return refused
            if self._version is not None:
                break
            await self._clock.sleep(AWAY_S)  # nobody can say whether it may be told
        async with self._writing:
            if not self._over:
                await self._write(send, await self._stream.told(member, changes, upto))
        return self._stream.failure

    def _refused(self) -> Failure | None:
        """Whether the caller may see no more of it. The credential is looked at each time, the right when a rule has changed."""
        call = self._call
        rules = call.services.rules
        over = rules.ended(call.identity)
        if over:
            return Failure(401, over)
        version = rules.version(call.identity)
        if version != self._version:
            if version is not None and not call.is_still_allowed():
                return call.forbidden()  # and so to whoever asks next, of another plane
            self._version = version
        return None

    async def _alarm(self) -> None:
        """Wakes the stream when something is due without any change. One for its whole life: a timer around every send and every
        wait would cost as much as they do. Raises TimeoutError when the client takes nothing."""
        clock = self._clock
        while True:
            left_s = max(self._end_s - clock.monotonic(), 0.1)
            await clock.sleep(min(left_s, BOOKMARK_S / 3, SEND_S / 3))
            if self.behind_s() > SEND_S:
                raise TimeoutError
            self._endings.put_nowait(None)

    async def _run(self, send: Send) -> None:
        stream, clock = self._stream, self._clock
        async with self._writing:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._write(send, chunked(stream.first))
        stream.first = []
        marked = clock.monotonic()
        failure: Failure | None = None
        while clock.monotonic() < self._end_s and not self._over and failure is None:
            failure = await self._endings.get()
            failure = self._refused() or failure
            now = clock.monotonic()
            if failure is None and now >= marked + BOOKMARK_S:
                marked = now
                async with self._writing:
                    await self._mark(send)
        async with self._writing:
            if failure is not None and not self._over:
                await self._write(send, [b'{"type":"ERROR","object":' + encode(failure.status()) + b"}\n"])
            self._over = True  # nothing is told behind it
            await self._mark(send)
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _mark(self, send: Send) -> None:
        if self._stream.bookmarks:
            await self._write(send, [self._stream.bookmark()])

    async def _write(self, send: Send, chunks: Sequence[bytes]) -> None:
        for chunk in chunks:
            await self._send(send, {"type": "http.response.body", "body": chunk, "more_body": True})

    async def _send(self, send: Send, message: Any) -> None:
        self._sending_s = self._clock.monotonic()
        await send(message)
        self._sending_s = None
