"""Answers in the form a client asked for: objects, Table rows, or metadata alone; single, as a list, or as watch events.

Owns the shapes. Never reads a plane. Called by reading.py and watching.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.api.catalogue import Resource
from fairlead.api.columns import Column, age, age_of
from fairlead.api.frontdoor import Listing
from fairlead.api.members import Item
from fairlead.api.negotiation import As
from fairlead.wire.json_codec import encode

_NAME: Final = {"name": "Name", "type": "string", "format": "name", "description": "Its name.", "priority": 0}
_AGE: Final = {"name": "Age", "type": "string", "format": "", "description": "Since it was created.", "priority": 0}
_TABLE: Final = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


class Form:
    """How one request wants its objects. `include` is of tables only: Object, Metadata or None."""

    def __init__(
        self, resource: Resource, form: As, include: str, now: Callable[[], int], opener: Callable[[Item], Item] | None = None
    ) -> None:
        """`opener` shows an item as this caller may see it."""
        self._resource = resource
        self._opener = opener
        self._form = form
        self._include = include
        self._now = now

    @property
    def name(self) -> str:
        return self._form

    @property
    def is_table(self) -> bool:
        return self._form == "Table"

    @property
    def is_personal(self) -> bool:
        """The same object may look otherwise to another caller, or a second later."""
        return self.is_table or self._opener is not None

    def one(self, item: Item, version: str, *, with_columns: bool = True) -> bytes:
        match self._form:
            case "Table":
                columns = self._columns() if with_columns else []
                return encode({**_TABLE, "metadata": {"resourceVersion": version}, "columnDefinitions": columns,
                               "rows": [self._row(item, version)]})  # fmt: skip
            case "PartialObjectMetadata":
                return encode(_partial(item, version))
        return self._whole(item, version)

    def many(self, listing: Listing, token: str) -> bytes:
        metadata = {"resourceVersion": listing.resource_version}
        if token:
            metadata["continue"] = token
        if self._form == "Table":
            rows = [self._row(item, item.resource_version) for item in listing.items]
            return encode({**_TABLE, "metadata": metadata, "columnDefinitions": self._columns(), "rows": rows})
        kind, api_version = f"{self._resource.kind}List", self._resource.api_version
        if self._form == "PartialObjectMetadata":
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        head = f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":'.encode() + encode(metadata) + b',"items":['
        return head + b",".join(self.one(item, item.resource_version) for item in listing.items) + b"]}"

    def _whole(self, item: Item, version: str) -> bytes:
        made = self._resource.render(item if self._opener is None else self._opener(item), version)
        return made if item.age_s is None else made[:-1] + b',"evidence":' + encode(_evidence(item, item.age_s)) + b"}"

    def bookmark(self, version: str, *, end_of_initial: bool) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": version}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind, api_version = self._resource.kind, self._resource.api_version
        if self._form == "PartialObjectMetadata":
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
        elif self._form == "Table":
            row = {"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}
            return encode({**_TABLE, "metadata": metadata, "columnDefinitions": [], "rows": [row]})
        return encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})

    def _columns(self) -> list[dict[str, Any]]:
        middle = [
            {"name": c.name, "type": c.type, "format": "", "description": c.description, "priority": int(c.wide)}
            for c in self._resource.columns
        ]
        narrow = [column for column in middle if not column["priority"]]
        return [_NAME, *narrow, _AGE, *(column for column in middle if column["priority"])]

    def _row(self, item: Item, version: str) -> dict[str, Any]:
        o = item.served
        now_ms, columns = self._now(), self._resource.columns
        shown = [_shown(column.cell(o) if not column.of_plane else item.member.name, now_ms) for column in columns]
        if item.age_s is not None:
            shown = _aged(columns, shown, age_of(item.age_s))
        cells = [cell for cell, column in zip(shown, columns, strict=True) if not column.wide]
        wide = [cell for cell, column in zip(shown, columns, strict=True) if column.wide]
        row: dict[str, Any] = {"cells": [o.metadata.name, *cells, age(o.metadata.creation_time, now_ms), *wide]}
        if self._include == "Object":
            row["object"] = msgspec.Raw(self._whole(item, version))
        elif self._include != "None":
            row["object"] = _partial(item, version)
        return row


def _shown(cell: Any, now_ms: int) -> Any:
    if callable(cell):
        return cell(now_ms)
    return age(cell, now_ms) if isinstance(cell, datetime) else cell


def _aged(columns: Sequence[Column], cells: list[Any], old: str) -> list[Any]:
    """The row of a copy: how things stand there now nobody knows. A kind that shows no state says how old the row is."""
    live = [number for number, column in enumerate(columns) if column.live]
    if live or not cells:
        return [f"Unknown ({old} old)" if number in live else cell for number, cell in enumerate(cells)]
    return [f"{cells[0]} ({old} old)", *cells[1:]]


def _evidence(item: Item, age_s: float) -> dict[str, Any]:
    """Says of a copy whose it is and how old: what it tells may no longer be so."""
    return {"plane": item.member.name, "observedRevision": str(item.revision), "ageSeconds": round(age_s, 1)}


_PARTIAL: Final = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"'


def _partial(item: Item, version: str) -> msgspec.Raw:
    return msgspec.Raw(_PARTIAL + version.encode() + b'",' + item.metadata + b"}")
