"""How a workload's slots failed last: read off the events that the narrator of each region writes, because the binding and the
instance that showed it are gone by then.

Soft, as events are: nothing is said where nothing was written down. Reads only. Called by explaining.py for `/why`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from fairlead.api import served
from fairlead.api.members import Item, Member
from fairlead.api.moments import Moment
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable
from fairlead.decide.narrating import event_name

REASONS: Final = ("Failed", "BackOff", "Unhealthy")
SHOWN_S: Final = 3_600.0  # what happened before is history: see `fairlead events`


async def last_failure(members: Iterable[Member], moment: Moment, workload: Item) -> dict[str, Any] | None:
    """Of all these regions the youngest. Those that cannot be asked are passed over."""
    metadata = workload.served.metadata
    found: list[dict[str, Any]] = []
    for member in members:
        for reason in REASONS:
            name = event_name(f"workloads/{metadata.namespace}/{metadata.name}", reason)
            try:
                change = await member.ask(partial(member.plane.get, "events", metadata.namespace, name, moment.at(member)))
            except (Unreachable, Expired):
                break
            if change is not None and change.raw is not None:
                found += _told(member, moment, metadata, served.decode("events", change.raw).spec)
    return min(found, key=lambda one: one["ageSeconds"], default=None)


def _told(member: Member, moment: Moment, metadata: Any, event: Any) -> list[dict[str, Any]]:
    last = event.last_time
    another = event.uid and event.uid != metadata.uid
    if last is None or another or (metadata.creation_time is not None and last < metadata.creation_time):
        return []  # of one that had this name before
    age_s = max(0.0, moment.now_ms(member) / 1000 - last.timestamp())
    told = {"region": member.name, "reason": event.reason, "note": event.note, "count": event.count, "time": last}
    return [{**told, "ageSeconds": round(age_s, 1)}]
