"""What an authority can be asked to do, and what it answers. Commands are values: the same bytes judged on the same state give
the same verdict.

A command has a caller (who, in which role, under which lease), an optional id (so that it takes effect once), the evidence it
was decided on, and a body. Bodies are a closed union.
"""

from __future__ import annotations

from typing import Any, Final, Literal, final

import msgspec

from fairlead.model.kinds.ledger import LeaseStatus
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import InstanceStatus, SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Evidence


class _Wire(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Commands are kept as arrays: a field may only ever be added at the end, with a default."""


class Caller(_Wire, frozen=True):
    actor: str
    role: Role
    tenant: str = ""  # the only tenant this caller may touch; empty: all
    node: str = ""  # the only node an agent may speak for
    lease: str = ""  # the lease a leased role acts under
    fencing_epoch: int = 0


class SessionId(_Wire, frozen=True, tag="s"):
    """For components: commands of one client in sequence. Nothing below `floor` will be sent again (P7)."""

    client: str
    sequence: int
    floor: int = 0


class IdempotencyKey(_Wire, frozen=True, tag="k"):
    """For people and CI: remembered for 24 hours."""

    key: str
    # What was asked, hashed, where the command is made anew on the present state each time: then a repetition is known by this,
    # not by the command's own bytes.
    request: bytes = b""


CommandId = SessionId | IdempotencyKey


class Put(_Wire, frozen=True, tag="put"):
    """Creates or replaces metadata and spec. Status is kept: it is written by its owner only."""

    kind: str
    object: Any
    mode: Literal["create", "update", "upsert"] = "upsert"
    expected_revision: int = 0  # 0: whatever is there
    dry_run: bool = False


class PutStatus(_Wire, frozen=True, tag="status"):
    kind: str
    tenant: str
    name: str
    status: Any
    expected_revision: int = 0
    uid: str = ""
    dry_run: bool = False


class Delete(_Wire, frozen=True, tag="delete"):
    kind: str
    tenant: str
    name: str
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    expected_revision: int = 0
    uid: str = ""
    dry_run: bool = False


class Reserve(_Wire, frozen=True, tag="reserve"):
    """Pending -> Reserved. What it was decided on comes along; each stale part has its own refusal."""

    tenant: str
    name: str  # of the slot's objects: WORKLOAD-INDEX
    epoch: int
    generation: int
    node: str
    policy_revision: int
    grant_version: int
    ttl_s: float = 30.0


class Bind(_Wire, frozen=True, tag="bind"):
    """Pending -> Bound in one entry, or Reserved -> Bound when the slot is reserved."""

    tenant: str
    name: str
    epoch: int
    generation: int
    node: str
    policy_revision: int
    grant_version: int
    victims: tuple[str, ...] = ()  # TENANT/NAME of bindings this one replaces (P12)
    unused: float = 0.0  # until when it was provisional; the grant says that (P13), and an array keeps the place of what has gone
    decision: str = ""
    devices: tuple[str, ...] = ()  # ids the scheduler would like; a hint: the authority takes others if these do not fit
    claims: str = ""  # the standing reservation, of the same tenant, whose room it takes (P12)


class BindGang(_Wire, frozen=True, tag="gang"):
    """All of these, or none."""

    binds: tuple[Bind, ...]


class BindMany(_Wire, frozen=True, tag="binds"):
    """Each of these judged alone, on the state those before it leave: what one scheduling cycle proposes. The answer names the
    ones that were refused; the others are bound."""

    binds: tuple[Bind, ...]


class Enqueue(_Wire, frozen=True, tag="enqueue"):
    """new -> Pending for a range of slots that differ in their index only. `request` is the first of them; a slot that waits
    already, just so, is left as it is."""

    request: SchedulingRequest
    count: int = 1


class ReleaseReservation(_Wire, frozen=True, tag="unreserve"):
    """Reserved -> Pending. Releasing what is not reserved any more under that token changes nothing and is no error."""

    tenant: str
    name: str
    token: Token


class Move(_Wire, frozen=True, tag="move"):
    """A controller's step of a bound slot: to Serving, Draining, Unknown, Released, or back from Unknown."""

    tenant: str
    name: str
    token: Token
    to: SlotState
    reason: str = ""
    deadline_s: float = 0.0


class Report(_Wire, frozen=True, tag="report"):
    """What an agent says of one of its instances; `to` None means the state stands and only facts changed."""

    tenant: str
    name: str
    token: Token
    to: SlotState | None = None
    status: InstanceStatus | None = None
    session: int = 0  # the agent's, of its node; 0: it does not say


class LeaseAcquire(_Wire, frozen=True, tag="lease"):
    name: str
    role: Role
    ttl_s: float = 10.0
    of_term: bool = False  # for as long as this leader leads; of those who run in its process, and end with it


class LeaseRenew(_Wire, frozen=True, tag="renew"):
    name: str
    epoch: int
    status: LeaseStatus | None = None  # how its holder is doing; None leaves what was said before


class LeaseRelease(_Wire, frozen=True, tag="unlease"):
    name: str
    epoch: int


SlotBody = Reserve | Bind | BindGang | BindMany | Enqueue | ReleaseReservation | Move | Report
LeaseBody = LeaseAcquire | LeaseRenew | LeaseRelease
Body = Put | PutStatus | Delete | SlotBody | LeaseBody


class Command(_Wire, frozen=True):
    caller: Caller
    body: Body
    id: CommandId | None = None
    evidence: Evidence | None = None
    correlation: str = ""
    # The leader's epoch this is meant for; 0: any. A refusal leaves no trace in the journal, so a copy that strays to the
    # next leader could be accepted after its sender was told no; one that names its term is turned away there.
    term: int = 0


class Fault(msgspec.Struct, frozen=True, gc=False):
    """One thing wrong with an object, and where."""

    path: str
    message: str


MISSING: Final = "missing"  # among the facts of NotFound: the key of the object that is not there, where it is another one


@final  # so that `type(x) is Refused` tells it from what else a judge may answer with; isinstance takes five times as long
class Refused(msgspec.Struct, frozen=True, gc=False):
    """A definite no: nothing was changed. `facts` is what the authority saw, so that the caller can go again at once."""

    reason: str
    detail: str
    facts: dict[str, Any] = {}
    faults: tuple[Fault, ...] = ()
    retry_after_s: float = 0.0


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Durable. `revision` is where the last of its effects stands; `replayed` says this answer is a repetition."""

    revision: int
    key: str = ""
    uid: str = ""
    epoch: int = 0  # of a lease
    token: Token | None = None
    replayed: bool = False
    refused: tuple[tuple[int, Refused], ...] = ()  # of a command with parts: which were refused, by index, and why
    request: bytes = b""  # of a receipt that was looked up: the hash of what it answers


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """Nobody can say yet: leadership was lost with the command in flight. Ask for its receipt, or send the same id again."""

    detail: str


Outcome = Accepted | Refused | Unknown
