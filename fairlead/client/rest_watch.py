"""Follows the objects of a query for as long as anybody wants: one stream of changes, whatever happens to the connections.

Owns resuming from the last version seen, listing anew when that version is too old (410), and telling what changed meanwhile as
ordinary events. Never drops a deletion: what was there before a new list and is not in it is told as DELETED. Called by the
command line (`get -w`, `wait`, `rollout status`, `drain`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.client.rest import RestClient
from fairlead.client.rest_errors import ApiError, Busy, Denied, Gone, Invalid, NotFound, Unreachable, error_of
from fairlead.client.rest_shapes import JSON, TABLE, Query, table_of, version_of

LINE_BYTES_MAX: Final = 4 * 1024 * 1024  # one event: an object of 256 KiB, indented and with its table, many times over
QUIET_MAX: Final = 8  # connections in a row that brought nothing at all before the server counts as gone
PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 5.0


class Event(NamedTuple):
    """ADDED, MODIFIED or DELETED, with the object; in a table, its row. SYNCED once all that was there has been told."""

    type: str
    object: dict[str, Any]
    columns: list[dict[str, Any]] = []


class Watch:
    """One watch. `events` may be iterated once; it ends only with an error or when its caller stops."""

    def __init__(self, client: RestClient, query: Query, *, table: bool = False, whole_objects: bool = False) -> None:
        self._client = client
        self._query = query
        self._table = table
        self._extra = {"includeObject": "Object"} if whole_objects else {}
        self._known: dict[str, dict[str, Any]] = {}  # identity -> what was last told
        self._columns: list[dict[str, Any]] = []
        self._version = ""
        self._moved = False  # this connection brought something

    async def events(self) -> AsyncIterator[Event]:
        async for event in self._relisted():
            yield event
        yield Event("SYNCED", {}, self._columns)
        quiet, expired = 0, False
        while True:
            self._moved = False
            trouble: Exception | None = None
            try:
                if expired:
                    async for event in self._relisted():
                        yield event
                    expired = False
                async for event in self._one_stream():
                    yield event
            except Gone as gone:
                # A version that even a list refuses is of a history that is no more (a restore): then any list will do.
                self._version, expired, trouble = ("" if expired else self._version), True, gone
            except (Invalid, Denied, NotFound):
                raise  # a repetition gets the same answer
            except (Unreachable, ApiError) as error:
                trouble = error
            quiet = 0 if self._moved else quiet + 1
            if quiet >= QUIET_MAX:
                raise trouble or Unreachable(f"{self._client.link.server} ended the watch {quiet} times without a word")
            if quiet or trouble:
                await self._pause(quiet, trouble)

    async def _pause(self, quiet: int, error: Exception | None) -> None:
        asked_s = error.retry_after_s if isinstance(error, Busy) else 0.0
        wait_s = max(asked_s, min(PAUSE_S * 2**quiet, PAUSE_MAX_S))
        await self._client.clock.sleep(wait_s * (1.0 + self._client.jitter()))

    async def _relisted(self) -> AsyncIterator[Event]:
        """Everything that is there now, told as what changed since it was last known."""
        query = self._query._replace(not_older_than=self._version)
        if self._table:
            tabled = await self._client.table(query, whole_objects=bool(self._extra))
            self._columns = tabled.columns or self._columns
            found, version = tabled.rows, tabled.resource_version
        else:
            listed = await self._client.list(query)
            found, version = listed.items, listed.resource_version
        self._moved = True
        before, self._known = self._known, {}
        self._version = version
        events = [event for item in found if (event := self._changed(item, before)) is not None]
        for identity, last in before.items():
            if identity not in self._known:
                yield Event("DELETED", last, self._columns)
        for event in events:
            yield event

    def _changed(self, item: dict[str, Any], before: dict[str, dict[str, Any]]) -> Event | None:
        identity, _ = self._identify(item)
        self._known[identity] = item
        old = before.get(identity)
        if old is None:
            return Event("ADDED", item, self._columns)
        # Not by their versions: an event carries the whole vector, a list only the object's own part (P19).
        return Event("MODIFIED", item, self._columns) if _versionless(old) != _versionless(item) else None

    async def _one_stream(self) -> AsyncIterator[Event]:
        params = {**self._query.params(), **self._extra, "watch": "true", "allowWatchBookmarks": "true"}
        params["resourceVersion"] = self._version
        path = self._query.resource.path(self._query.namespace)
        async for line in _lines(self._client.stream(path, params, accept=TABLE if self._table else JSON)):
            event = self._taken(msgspec.json.decode(line))
            if event is not None:
                yield event

    def _taken(self, raw: dict[str, Any]) -> Event | None:
        kind, body = raw["type"], raw["object"]
        if kind == "ERROR":
            raise error_of(int(body.get("code") or 500), body)
        self._moved = True
        if kind == "BOOKMARK":
            self._version = version_of(body) or self._version
            return None
        item = body
        if self._table:
            tabled = table_of(body)
            self._columns = tabled.columns or self._columns
            item = tabled.rows[0]
        identity, version = self._identify(item)
        self._version = version or version_of(body) or self._version
        if kind == "DELETED":
            self._known.pop(identity, None)
            return Event("DELETED", item, self._columns)
        known = identity in self._known
        self._known[identity] = item
        return Event("MODIFIED" if known else "ADDED", item, self._columns)

    def _identify(self, item: dict[str, Any]) -> tuple[str, str]:
        """Which object, and which version of it. A new object under an old name is another one."""
        metadata = ((item.get("object") or {}) if self._table else item).get("metadata") or {}
        name = metadata.get("name") or (str(item["cells"][0]) if self._table else "")
        identity = f"{metadata.get('namespace', '')}/{name}/{metadata.get('uid', '')}"
        return identity, str(metadata.get("resourceVersion") or "")


def _versionless(item: dict[str, Any]) -> dict[str, Any]:
    if "cells" in item:
        return {**item, "object": _versionless(item.get("object") or {})}
    metadata = {name: value for name, value in (item.get("metadata") or {}).items() if name != "resourceVersion"}
    return {**item, "metadata": metadata}


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > LINE_BYTES_MAX:
            raise ApiError(500, "EventTooLarge", f"one event of the watch is larger than {LINE_BYTES_MAX} bytes")
