"""Writes that name what they change, asked of a journal: the version was the newest, and the object the one that was meant (S7).

Whoever read an object, decided, and named what was read must not undo what others wrote meanwhile: a stale picture, a controller
that runs twice, two people. Remembers where each object was written last, and nothing else. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.ids import revision
from fairlead.model.registry import BY_KIND
from fairlead.store.contract import ObjectRow

Found = Callable[[str, str], None]


class VersionChecker:
    def __init__(self, found: Found) -> None:
        self._found = found
        self._written: dict[str, int] = {}  # key -> position

    def begun(self, rows: Iterable[ObjectRow]) -> None:
        """What was there before the first batch."""
        self._written = {key: position for key, position, _ in rows}

    def asks(self, body: Body | None) -> str:
        """The plural of what the command names a version of; empty: of nothing."""
        if isinstance(body, Put | PutStatus | Delete) and (body.expected_revision or _uid(body)):
            return BY_KIND[body.kind].plural
        return ""

    def named(self, body: Any, key: str, old: Any, incarnation: int) -> None:
        """The object of such a command is about to change."""
        expected, uid = body.expected_revision, _uid(body)
        if expected and expected != revision(incarnation, self._written.get(key, 0)):
            self._found("S7", f"{key} was written as of revision {expected}, and had changed since")
        if uid and (old is None or old.metadata.uid != uid):
            self._found("S7", f"{key} was changed in place of {uid}, which it is not")

    def wrote(self, key: str, position: int, gone: bool) -> None:
        if gone:
            self._written.pop(key, None)
        else:
            self._written[key] = position


def _uid(body: Put | PutStatus | Delete) -> str:
    return "" if isinstance(body, Put) else body.uid
