"""`get controllers`: every controller and scheduler of every plane, as its lease shows it: who holds it, how far it is, whether
it gets on, and if not, why.

A view of Leases under another name; nothing is stored for it. What a component says of itself comes with each renewal; that it
says nothing any more is seen here. Called through the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairlead.api import served
from fairlead.api.columns import Column
from fairlead.api.members import Item
from fairlead.model.meta import Condition

KIND: Final = "Controller"
MISSED: Final = 1.5  # lifetimes of a lease without renewal, after which its holder is taken to hang


class Standing(NamedTuple):
    word: str  # no, yes, or unheld
    reason: str = ""
    message: str = ""


def standing(lease: Any, now_ms: int) -> Standing:
    spec = lease.spec
    if not spec.holder:
        return Standing("unheld", "NotHeld", "nobody acts under it")
    silent_s = _since_s(spec.renewed_time, now_ms)
    if silent_s > MISSED * spec.ttl_seconds:
        return Standing("yes", "NotRenewed", f"{spec.holder} has not renewed its lease for {silent_s:.0f} s")
    working = next((c for c in lease.status.conditions if c.type == "Working"), None)
    if working is not None and working.status == "False":
        return Standing("yes", working.reason, working.message)
    return Standing("no")


def _since_s(when: datetime | None, now_ms: int) -> float:
    return max(0.0, now_ms / 1000 - when.timestamp()) if when is not None else 0.0


def _now(of: Callable[[Standing], str]) -> Callable[[Any], Callable[[int], str]]:
    """A cell that depends on the time it is shown at."""
    return lambda lease: lambda now_ms: of(standing(lease, now_ms))


def _oldest(lease: Any) -> str:
    return f"{lease.status.oldest_seconds:.0f}s" if lease.status.queue_length else ""


COLUMNS: Final = (
    Column("Plane", lambda o: o.spec.region, "The global plane, or which region's."),
    Column("Holder", lambda o: o.spec.holder or "<none>", "Which server acts."),
    Column("Epoch", lambda o: o.spec.epoch, "Counts its holders.", "integer"),
    Column("Queue", lambda o: o.status.queue_length, "What waits for a look.", "integer"),
    Column("Oldest", _oldest, "How long what waits longest is due."),
    Column("Progress", lambda o: o.status.last_reconcile_time or "<none>", "Since its last look ended."),
    Column("Stalled", _now(lambda s: s.word), "Whether it does not get on."),
    Column("Why", _now(lambda s: f"{s.reason}: {s.message}" if s.reason else ""), "Why it does not."),
    Column("Role", lambda o: o.spec.role, "As whom it writes.", wide=True),
    Column("Looks", lambda o: o.status.reconciles, "How many looks it has taken.", "integer", True),
    Column("Renewed", lambda o: o.spec.renewed_time or "<none>", "Since its holder was heard.", wide=True),
    Column("Last-Error", lambda o: o.status.last_error, "What went wrong last.", wide=True),
)


def render(item: Item, version: str) -> bytes:
    """The lease, with condition Working as whoever looks on sees it."""
    lease, found = item.served, standing(item.served, item.member.plane.plane_ms())
    if found.reason in ("NotRenewed", "NotHeld"):
        status = "Unknown" if found.word == "unheld" else "False"
        working = served.twin(Condition)(type="Working", status=status, reason=found.reason, message=found.message)
        others = tuple(c for c in lease.status.conditions if c.type != "Working")
        lease = replace(lease, status=replace(lease.status, conditions=(working, *others)))
    return served.text(served.body_of(lease), KIND, version)
