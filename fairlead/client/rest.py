"""A client of the resource API over HTTP: read, list, write, stream. What people's tools use; components use the channel.

Owns requests, retries and the promise that a write is never silently in doubt: every write carries an Idempotency-Key, is
repeated under the same key, and at last asked for by its receipt; only then is its outcome called unknown. Never prints, never
reads a file. Watching is in rest_watch.py. Called by the command line and by tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import msgspec

from fairlead.client.http1 import Http
from fairlead.client.rest_errors import ApiError, Busy, OutcomeUnknown, Unreachable, error_of
from fairlead.client.rest_shapes import (
    APPLY_PATCH,
    JSON,
    MERGE_PATCH,
    PLAIN,
    RECEIPTS,
    TABLE,
    Link,
    Listed,
    Query,
    Resource,
    Tabled,
    Write,
    Written,
    outcome_of,
    refusal_of,
    table_of,
    version_of,
)
from fairlead.client.transport import CannotConnect, Dropped, Response, Transport
from fairlead.ports import Clock, Ids

PAGE: Final = 500  # objects asked for at once, as kubectl does
PAGES_MAX: Final = 20_000  # ten million objects: a server that never ends its list is broken
ATTEMPTS_MAX: Final = 4
PAUSE_S: Final = 0.1  # before the second attempt; doubled each time, spread by jitter
RECEIPT_S: Final = 5.0  # how long a receipt is asked for after the time for the write itself is over
_LATER: Final = frozenset({429, 502, 503, 504})
_IN_DOUBT: Final = frozenset({502, 504})  # whoever answered may have passed the request on
_IN_DOUBT_REASONS: Final = frozenset({"OutcomeUnknown", "Unknown", "Timeout"})


class _Request(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    key: str = ""


class _Answer(NamedTuple):
    status: int
    body: Any
    retry_after: str = ""
    after_doubt: bool = False  # an attempt before this one had no answer: it may still be under way


class _Dropped(Exception):
    """The request may have arrived; its answer did not."""


class RestClient:
    def __init__(
        self,
        link: Link,
        *,
        clock: Clock,
        ids: Ids,
        jitter: Callable[[], float],
        timeout_s: float = 30.0,
        warn: Callable[[str], None] = lambda text: None,
        carry: Callable[[Link, Mapping[str, str]], Transport] = lambda link, headers: Http(link.server, link.tls, headers),
    ) -> None:
        """`carry`: makes the way to the server, on which every request has those headers."""
        self.link = link
        self.clock = clock
        self.jitter = jitter
        self._ids = ids
        self._timeout_s = timeout_s
        self._warn = warn
        self._carry = carry
        self._http: Transport | None = None
        self._dated = ("", 0.0)  # the Date of the last answer, and what the clock here said then

    def server_wall(self) -> float:
        """What the server's clock says, to the second, as far as it has said it: deadlines are kept there, not here."""
        from email.utils import parsedate_to_datetime  # Here, not above: few commands ask, and all of them start.

        text, heard = self._dated
        try:
            ahead_s = parsedate_to_datetime(text).timestamp() - heard if text else 0.0
        except ValueError:
            ahead_s = 0.0
        return self.clock.wall() + ahead_s

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": self.link.user_agent}
        if self.link.token:
            headers["Authorization"] = f"Bearer {self.link.token}"
        try:
            self._http = self._carry(self.link, headers)
        except CannotConnect as error:
            raise self._unreachable(error) from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    # --- reading

    async def get(self, resource: Resource, namespace: str, name: str, *, sub: str = "", at: str = "", region: str = "") -> Any:
        params = {key: value for key, value in (("at", at), ("region", region)) if value}
        return await self.read(resource.path(namespace, name, sub), params)

    async def read(self, path: str, params: Mapping[str, str] = {}, *, accept: str = JSON) -> Any:
        """Any path that answers JSON: an object, a list, discovery."""
        answer = await self._answered(_Request("GET", path, params, accept=accept))
        return answer.body

    async def pages(self, query: Query, *, accept: str = JSON, extra: Mapping[str, str] = {}) -> AsyncIterator[Any]:
        path = query.resource.path(query.namespace)
        params = {**query.params(), **extra, "limit": str(PAGE)}
        for _ in range(PAGES_MAX):
            page = await self.read(path, params, accept=accept)
            yield page
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return
            params["continue"] = more
            params.pop("resourceVersion", None)  # the token knows which version its list is of
            params.pop("resourceVersionMatch", None)
        raise ApiError(500, "ListNeverEnds", f"{path}: the list did not end after {PAGES_MAX} pages")

    async def list(self, query: Query) -> Listed:
        items: list[dict[str, Any]] = []
        version = ""
        async for page in self.pages(query):
            items += page.get("items") or ()
            version = version_of(page)
        return Listed(items, version)

    async def table(self, query: Query, *, whole_objects: bool = False) -> Tabled:
        """As the server's table; from a server without tables, name and age."""
        columns: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        version = ""
        extra = {"includeObject": "Object"} if whole_objects else {}
        async for page in self.pages(query, accept=TABLE, extra=extra):
            tabled = table_of(page)
            columns = columns or tabled.columns
            rows += tabled.rows
            version = tabled.resource_version
        return Tabled(columns, rows, version)

    async def table_of_one(self, resource: Resource, namespace: str, name: str, params: Mapping[str, str] = {}) -> Tabled:
        return table_of(await self.read(resource.path(namespace, name), params, accept=TABLE))

    async def text(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """A stream of text, piece by piece as it comes: logs."""
        async for chunk in self.stream(path, params, accept="text/plain"):
            yield chunk

    async def stream(self, path: str, params: Mapping[str, str], *, accept: str = JSON) -> AsyncIterator[bytes]:
        """The raw pieces of one answer without an end. A drop raises Unreachable; a clean end ends the iteration."""
        try:
            async with self._open(_Request("GET", path, params, accept=accept)) as response:
                if response.status >= 400:
                    raise error_of(response.status, _decoded(await response.read()), response.header("retry-after"))
                self._hear_warnings(response)
                async for chunk in response.pieces():
                    yield chunk
        except (CannotConnect, Dropped) as error:
            raise self._unreachable(error) from error

    # --- writing

    async def create(self, resource: Resource, namespace: str, body: Any, how: Write = PLAIN) -> Written:
        return await self._write("POST", resource.path(namespace), body, JSON, how, _what("create", resource, body))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Any, how: Write = PLAIN, sub: str = ""
    ) -> Written:
        return await self._write(
            "PUT", resource.path(namespace, name, sub), body, JSON, how, f"replace {resource.singular}/{name}"
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        how: Write = PLAIN,
        *,
        kind: str = MERGE_PATCH,
        sub: str = "",
    ) -> Written:
        return await self._write(
            "PATCH", resource.path(namespace, name, sub), body, kind, how, f"patch {resource.singular}/{name}"
        )

    async def apply(self, resource: Resource, namespace: str, name: str, body: Any, how: Write = PLAIN) -> Written:
        how = how if how.force is not None else how._replace(force=False)
        return await self._write(
            "PATCH", resource.path(namespace, name), body, APPLY_PATCH, how, f"apply {resource.singular}/{name}"
        )

    async def delete(
        self, resource: Resource, namespace: str, name: str, how: Write = PLAIN, *, options: Mapping[str, Any] = {}
    ) -> Written:
        body = {"propagationPolicy": "Background", **options}
        if how.dry_run:
            body["dryRun"] = ["All"]
        return await self._write("DELETE", resource.path(namespace, name), body, JSON, how, f"delete {resource.singular}/{name}")

    async def post(self, path: str, body: Any) -> Any:
        """A question that is asked by POST (reviews): answered or not, nothing is stored."""
        answer = await self._answered(_Request("POST", path, {}, msgspec.json.encode(body)))
        return answer.body

    async def receipt(self, key: str) -> dict[str, Any]:
        """What a write came to, by its Idempotency-Key. NotFound: the server has no trace of it."""
        found: dict[str, Any] = await self.read(f"{RECEIPTS}/{quote(key, safe='')}")
        return found

    async def _write(self, method: str, path: str, body: Any, content_type: str, how: Write, what: str) -> Written:
        key = "" if how.dry_run else how.key or self._ids.token()
        request = _Request(method, path, how.params(), msgspec.json.encode(body), content_type, key=key)
        try:
            answer = await self._attempts(request)
        except _Dropped as dropped:
            if not key:
                raise Unreachable(f"{what}: the connection was lost (a dry run, so nothing was changed): {dropped}") from dropped
            return await self._by_receipt(request, what, str(dropped))
        if answer.status >= 400:
            error = error_of(answer.status, answer.body, answer.retry_after)
            error.in_doubt_key = key if answer.after_doubt else ""
            raise error
        return Written(answer.body, answer.status == 201, key)

    async def _by_receipt(self, request: _Request, what: str, detail: str) -> Written:
        """The write's answer is lost. Its receipt decides; without one nobody can say."""
        asked = _Request("GET", f"{RECEIPTS}/{quote(request.key, safe='')}")
        try:
            answer = await self._attempts(asked, within_s=RECEIPT_S)
        except (_Dropped, Unreachable) as error:
            raise OutcomeUnknown(request.key, what, detail) from error
        outcome = outcome_of(answer.body) if answer.status < 400 else ""
        if outcome == "Refused":
            raise error_of(409, refusal_of(answer.body))
        if outcome != "Accepted":
            raise OutcomeUnknown(request.key, what, detail)
        stored: Any = {}
        if request.method in ("PUT", "PATCH"):
            try:
                stored = (await self._answered(_Request("GET", request.path))).body
            except (ApiError, Unreachable):
                stored = {}  # done for certain, and shown another time
        return Written(stored, False, request.key, receipt=True)

    # --- one request, and its repetitions

    async def _answered(self, request: _Request) -> _Answer:
        try:
            answer = await self._attempts(request)
        except _Dropped as dropped:
            raise Unreachable(
                f"{self.link.server} did not answer: {dropped}", "is the server well? see /readyz?verbose"
            ) from dropped
        if answer.status >= 400:
            raise error_of(answer.status, answer.body, answer.retry_after)
        return answer

    async def _attempts(self, request: _Request, within_s: float = 0.0) -> _Answer:
        """The first answer that is one. _Dropped if some attempt may have arrived, else the last trouble."""
        within_s = within_s or self._timeout_s
        end = self.clock.monotonic() + within_s
        trouble: Exception | None = None
        answer: _Answer | None = None
        in_doubt = ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt and not await self._pause(attempt, answer, end):
                break
            try:
                answer, trouble = await self._once(request, min(within_s / 2, end - self.clock.monotonic())), None
            except _Dropped as dropped:
                answer, trouble, in_doubt = None, dropped, str(dropped)
                continue
            except Unreachable as unreachable:
                if not attempt and unreachable.hint:  # nobody listens, or nobody we trust: a repetition changes nothing
                    raise
                answer, trouble = None, unreachable
                continue
            if answer.status not in _LATER or (attempt and _is_region_away(answer)):
                return answer._replace(after_doubt=bool(in_doubt))
            if _is_in_doubt(answer):
                in_doubt = error_of(answer.status, answer.body).message
        if in_doubt:
            raise _Dropped(in_doubt)
        if answer is not None:
            return answer
        assert trouble is not None, "no attempt was made"
        raise trouble

    async def _pause(self, attempt: int, answer: _Answer | None, end: float) -> bool:
        """Waits before a repetition; False when there is no time left for one."""
        asked_s = error_of(answer.status, answer.body, answer.retry_after).retry_after_s if answer is not None else 0.0
        wait_s = max(asked_s, PAUSE_S * 2 ** (attempt - 1)) * (1.0 + self.jitter())
        if self.clock.monotonic() + wait_s >= end:
            return False
        await self.clock.sleep(wait_s)
        return True

    async def _once(self, request: _Request, within_s: float) -> _Answer:
        try:
            async with asyncio.timeout(within_s), self._open(request) as response:
                body = await response.read()
                self._hear_warnings(response)
                self._dated = (response.header("date"), self.clock.wall())
                return _Answer(response.status, _decoded(body), response.header("retry-after"))
        except CannotConnect as error:
            raise self._unreachable(error) from error
        except TimeoutError as error:
            raise _Dropped(f"no answer within {within_s:.3g} s") from error
        except Dropped as error:
            raise _Dropped(str(error)) from error

    def _open(self, request: _Request) -> AbstractAsyncContextManager[Response]:
        assert self._http is not None, "use the client as `async with`"
        headers = {"Accept": request.accept}
        if request.body:
            headers["Content-Type"] = request.content_type
        if request.key:
            headers["Idempotency-Key"] = request.key
        return self._http.request(request.method, request.path, request.params, headers, request.body)

    def _unreachable(self, error: CannotConnect | Dropped) -> Unreachable:
        if isinstance(error, CannotConnect) and error.untrusted:
            hint = "name the CA that signed it: fairlead config set-context NAME --certificate-authority FILE"
            return Unreachable(f"{self.link.server}: its certificate is not trusted: {error}", hint)
        if isinstance(error, CannotConnect):
            hint = "is it running, and is the context right? see `fairlead config get-contexts`"
            if self.link.server.startswith("unix:"):
                hint = "it is break-glass.sock below `data` of a server's configuration, for its user and root while it runs"
            return Unreachable(f"{self.link.server} cannot be reached: {error}", hint)
        return Unreachable(f"{self.link.server}: the connection was lost: {error}")

    def _hear_warnings(self, response: Response) -> None:
        for header in response.headers("warning"):
            text = header.split(" ", 2)[-1].strip()
            self._warn(text[1:-1].replace('\\"', '"') if text.startswith('"') else text)


def _is_in_doubt(answer: _Answer) -> bool:
    error = error_of(answer.status, answer.body)
    if isinstance(error, Busy):
        return error.reason in _IN_DOUBT_REASONS
    return answer.status in _IN_DOUBT and type(error) is ApiError


def _is_region_away(answer: _Answer) -> bool:
    """It was not there a moment ago either: it does not come back while somebody waits."""
    return any(cause.reason == "RegionUnreachable" for cause in error_of(answer.status, answer.body).causes)


def _what(verb: str, resource: Resource, body: Any) -> str:
    return f"{verb} {resource.singular}/{(body.get('metadata') or {}).get('name', '')}"


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        return {"kind": "Text", "text": body[:2000].decode(errors="replace")}
