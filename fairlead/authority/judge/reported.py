"""Which of a region's reports stands in the global plane: the one that was said last, whatever arrives last.

Each carries the revision of the region's plane it was said at (`asOf`), which only grows, also in a new incarnation (P6). So the
same reports come to the same statuses in whatever order, and however often, they arrive. Called by objects.py.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.model.commands import Refused


def refuse_stale_report(old: Any, status: Any) -> Refused | None:
    """Equal ones are the same word, perhaps about a later generation of the spec."""
    stands, said = getattr(old.status, "as_of", 0), getattr(status, "as_of", 0)
    if not said or said >= stands:  # 0: nobody reports, or a mirror of an earlier version does
        return None
    detail = f"the status of {old.metadata.name} was said at revision {stands} of its region, and this at {said}"
    return Refused("StaleReport", detail, {"asOf": stands})


def in_order(old: Any, status: Any) -> Any:
    """The status; one that does not say since when it is so takes nothing back of what is known of that."""
    stands = getattr(old.status, "as_of", 0)
    return replace(status, as_of=stands) if stands and not status.as_of else status
