"""How slots failed last: found in the events of the regions, of this workload and no other, the youngest of all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from fairlead.api.failing import last_failure
from fairlead.api.moments import NOW as PRESENT
from fairlead.client.resources import Unreachable
from fairlead.model import codec
from fairlead.model.ids import Uid
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.meta import Metadata

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
MADE = Metadata(name="api", namespace="risk", uid=Uid("u-1"), creation_time=NOW - timedelta(hours=1))
WORKLOAD: Any = SimpleNamespace(served=SimpleNamespace(metadata=MADE))


class Region:
    """A plane that knows these events."""

    index = 1

    def __init__(self, name: str, *events: Event, away: bool = False) -> None:
        self.name = name
        self.plane = self
        self._events = {event.metadata.name: event for event in events}
        self._away = away

    def plane_ms(self) -> int:
        return int(NOW.timestamp() * 1000)

    async def ask(self, question: Callable[[], Awaitable[Any]]) -> Any:
        if self._away:
            raise Unreachable(self.name)
        return await question()

    async def get(self, plural: str, tenant: str, name: str, revision: int) -> Any:
        assert (plural, tenant) == ("events", "risk")
        found = self._events.get(name)
        return SimpleNamespace(raw=codec.encode(found)) if found is not None else None


def event(reason: str, age_s: float, uid: str = "u-1", note: str = "slot 0 has failed on n1: exited with code 1") -> Event:
    spec = EventSpec("workloads/risk/api", reason, note, "Warning", count=4, last_time=NOW - timedelta(seconds=age_s), uid=uid)
    return Event(metadata=Metadata(name=f"api.{reason.lower()}", namespace="risk"), spec=spec)


async def found(*regions: Region) -> Any:
    return await last_failure(regions, PRESENT, WORKLOAD)  # type: ignore[arg-type]


async def test_the_youngest_failure_of_all_regions_is_told_with_its_age() -> None:
    here = Region("us-east", event("Failed", 60.0), event("BackOff", 30.0, uid="", note="slot 1: exited with code 2"))
    there = Region("us-west", event("Failed", 45.0))
    got = await found(here, there, Region("eu-central", away=True))
    assert (got["region"], got["reason"], got["note"]) == ("us-east", "BackOff", "slot 1: exited with code 2")
    assert (got["count"], got["ageSeconds"]) == (4, 30.0)


async def test_what_happened_to_another_of_that_name_is_not_its_failure() -> None:
    assert await found(Region("us-east", event("Failed", 60.0, uid="u-0"))) is None
    assert await found(Region("us-east", event("BackOff", 3601.0, uid=""))) is None, "before this one was made"
    assert await found(Region("us-east")) is None
