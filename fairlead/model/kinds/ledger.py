"""What is written down about the plane itself: leases of roles, events, decisions, and the plane's own record."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.meta import Condition, Metadata, Record


class LeaseSpec(Record, frozen=True):
    """Who acts in a role. `epoch` grows each time the holder changes; every command of the role carries it (S9)."""

    role: str = ""
    holder: str = ""
    epoch: int = 0
    ttl_seconds: float = 10.0
    renewed_time: datetime | None = None
    incarnation: int = 1  # a restore ends every lease: its epochs may be taken again in the new history (S16)
    region: str = ""  # of the plane it is on; `global` for the global one
    # The leader's epoch it is held for, however long that is; its holder is then heard at least every `ttl_seconds`. 0: it is
    # held for `ttl_seconds` from its last renewal.
    term: int = 0


class ZoneNodes(Record, frozen=True):
    """The nodes of a zone that are to take work: neither closed by people nor never heard."""

    zone: str = ""
    nodes: int = 0
    ready: int = 0  # of these, those that are heard
    suspect: int = 0  # of these, those of which the region suspects its own observation


class LeaseStatus(Record, frozen=True):
    """How whoever holds the lease is doing, told with each renewal: what `get controllers` shows."""

    queue_length: int = 0
    oldest_seconds: float = 0.0  # how long the key that waits longest is due
    reconciles: int = 0
    last_reconcile_time: datetime | None = None
    last_error: str = ""
    conditions: tuple[Condition, ...] = ()
    zones: tuple[ZoneNodes, ...] = ()  # of who speaks for a region: its nodes


class Lease(Record, frozen=True):
    """The right to act in a role for a time; what is written under an older epoch is refused."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()
    status: LeaseStatus = LeaseStatus()


class EventSpec(Record, frozen=True):
    regarding: str  # the key of the object it is about
    reason: str
    note: str = ""
    type: Literal["Normal", "Warning"] = "Normal"
    reporter: str = ""
    correlation: str = ""
    count: int = 1  # how often it happened between the two times
    first_time: datetime | None = None
    last_time: datetime | None = None
    uid: str = ""  # of the object, where it is known


class EventStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Event(Record, frozen=True):
    """One kind of thing that happened to one object: how often, when first and last, and the last words."""

    metadata: Metadata
    spec: EventSpec
    status: EventStatus = EventStatus()


class DecisionSpec(Record, frozen=True):
    """One attempt to place; the body grows with the scheduler."""

    slot: str
    outcome: str
    generation: int = 0
    policy_revision: int = 0
    body: dict[str, str] = {}


class DecisionStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Decision(Record, frozen=True):
    """The record of one attempt to place a slot, with its reasons."""

    metadata: Metadata
    spec: DecisionSpec
    status: DecisionStatus = DecisionStatus()


class PlaneSpec(Record, frozen=True):
    """One record a plane, rewritten by every new leader: the epoch-start batch of P4."""

    plane: Literal["global", "region"] = "region"
    region: str = ""
    holder: str = ""
    epoch: int = 0
    incarnation: int = 1
    acquired_time: datetime | None = None
    address: str = ""
    node_lease_seconds: float = 0.0  # what this leader tells agents; 0: it was written before leaders said so
    longest_lease_seconds: float = 0.0  # that an agent may still count on from a leader before it
    incarnation_time: datetime | None = None  # when this incarnation began; none: it was written before leaders said so
    unmeasured_seconds: float = 0.0  # of plane time, that cold starts took from a wall clock


class PlaneStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Plane(Record, frozen=True):
    """One control plane, global or of a region: its epoch and where its leader is reached."""

    metadata: Metadata
    spec: PlaneSpec = PlaneSpec()
    status: PlaneStatus = PlaneStatus()
