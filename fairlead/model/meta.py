"""What every object has: metadata and conditions. Kubernetes' names and meanings on the wire, Python's in code."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from fairlead.model.ids import Uid

MIRRORED_UID: Final = "fairlead.dev/mirrored-uid"  # annotation on a copy of anything in another plane: the original's
MIRRORED_GENERATION: Final = "fairlead.dev/mirrored-generation"  # the same of its generation
HISTORY: Final = "fairlead.dev/history"  # on what runs once in the world: the incarnation of the global plane it was copied in


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", kw_only=True):
    """Base of all records that are stored or sent. gc=False: records never form cycles, and a collection over a million
    tracked ones takes seconds."""


class OwnerReference(Record, frozen=True):
    kind: str
    name: str
    uid: Uid
    controller: bool = False
    block_owner_deletion: bool = False


class FieldsV1:
    """A set of field paths in Kubernetes' form, kept as the JSON text it is sent as: nobody but the API looks inside, and as a
    tree of dicts it would weigh twenty times as much. Immutable, compared by text."""

    __slots__ = ("text",)

    text: str

    def __init__(self, text: str = "{}") -> None:
        object.__setattr__(self, "text", text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("FieldsV1 is immutable")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldsV1) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"FieldsV1({self.text})"


class ManagedFields(Record, frozen=True):
    """Which fields one manager has set, and by which kind of write. `time` None: now, filled in by the authority."""

    manager: str
    operation: Literal["Apply", "Update"] = "Update"
    api_version: str = ""
    time: datetime | None = None
    fields_type: str = ""
    fields_v1: FieldsV1 = msgspec.field(name="fieldsV1", default=FieldsV1())
    subresource: str = ""


class Metadata(Record, frozen=True):
    """resourceVersion is not here: it is the position that wrote the object, kept beside it and added when it is read."""

    name: str
    namespace: str = ""
    uid: Uid = Uid("")
    generation: int = 1
    creation_time: datetime | None = msgspec.field(name="creationTimestamp", default=None)
    deletion_time: datetime | None = msgspec.field(name="deletionTimestamp", default=None)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[ManagedFields, ...] = ()


class Condition(Record, frozen=True):
    type: str
    status: Literal["True", "False", "Unknown"]
    observed_generation: int = 0
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class Evidence(Record, frozen=True):
    """What a decision was made on: the revision its cache had reached and how old that was."""

    observed_revision: int = 0
    age_seconds: float = 0.0


def set_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """Replaces the condition of that type; its transition time moves only when its status does."""
    old = next((c for c in conditions if c.type == new.type), None)
    if old is None:
        return (*conditions, new)
    if old.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return tuple(new if c.type == new.type else c for c in conditions)
