"""How busy a service is, as somebody measured it. Pure.

`Loads` is where any metric comes in. Two there are: one line in an annotation, with the time, which a script, an adapter or a
person writes; and what the replicas say themselves when they are asked (fairlead/serving/scraping.py). What is older than a
minute is not believed, nor what is from later than that, nor a time that does not say in which zone.
Also here: how a number is taken over from whoever else manages it, in the form the API keeps that in. Called by the autoscaler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from fairlead.decide.slots import millis
from fairlead.model.kinds.intent import Autoscaler
from fairlead.model.meta import FieldsV1, ManagedFields, Metadata

LOAD: Final = "fairlead.dev/busy"  # PERMILLE@RFC3339, of the mean over those that serve
BELIEVED_MS: Final = 60_000
AHEAD_MS: Final = 60_000  # how far ahead of the plane's clock one who reports may be
PERMILLE_MAX: Final = 100_000  # a hundred times its capacity: beyond it somebody has the unit wrong
_SHAPE: Final = re.compile(r"(\d{1,6})@(\S{1,40})", re.ASCII)
_OWNED: Final = '{"f:spec":{"f:replicas":{}}}'
_ITS_PLACE: Final = re.compile(r'("f:replicas":\{\},)|(,"f:replicas":\{\})|("f:replicas":\{\})')


class Reported(NamedTuple):
    permille: int | None  # None: `silent` says why there is none to go by
    silent: str = ""
    age_s: float = 0.0  # negative where the clock of whoever reports it is ahead


class Loads(Protocol):
    """Where the loads of services come from."""

    def reported(self, scaler: Autoscaler, now_ms: int) -> Reported: ...


class Annotated:
    """Whoever can measure it writes it down."""

    def reported(self, scaler: Autoscaler, now_ms: int) -> Reported:
        return reported(scaler.metadata, now_ms)


class Unasked:
    """Of replicas that would say it, where nobody asks them: in a trial, for instance."""

    def reported(self, scaler: Autoscaler, now_ms: int) -> Reported:
        return Reported(None, "nobody asks its replicas here")


def mean(figures: Sequence[float | None], expected: int, full: float) -> tuple[int | None, str]:
    """Of those that answered, in thousandths of `full`; or why there is none to go by. The load of a few says nothing of how many
    are needed."""
    said = [each for each in figures if each is not None]
    if not said or 2 * len(said) < expected:
        return None, f"{len(said)} of {expected} that serve said how busy they are"
    of_full = 1000 * sum(said) / len(said) / full  # whatever a page says: it may be beyond all numbers, which cannot be rounded
    if of_full > PERMILLE_MAX:
        return None, f"{of_full:g} thousandths is not a load: what is `full`?"
    return round(of_full), ""


def aged(permille: int, age_ms: int, how: str = "reported") -> Reported:
    """A load that was measured so long ago."""
    if age_ms > BELIEVED_MS:
        return Reported(None, f"the load was {how} {age_ms // 1000} s ago")
    return Reported(permille, age_s=age_ms / 1000)


def reported(metadata: Metadata, now_ms: int) -> Reported:
    text = metadata.annotations.get(LOAD, "")
    found = _SHAPE.fullmatch(text)
    if found is None:
        said = f"{text[:60]!r} is not a load" if text else "nobody reports a load"
        return Reported(None, f"{said}: annotation {LOAD}, such as 850@2030-01-01T12:00:00Z")
    try:
        when = datetime.fromisoformat(found[2])
    except ValueError:
        return Reported(None, f"{found[2]!r} is not a time")
    if when.tzinfo is None:
        return Reported(None, f"{found[2]!r} has no time zone: end it with Z, or with an offset such as +02:00")
    if int(found[1]) > PERMILLE_MAX:
        return Reported(None, f"{found[1]} thousandths is not a load")
    age_ms = now_ms - millis(when)
    if age_ms < -AHEAD_MS:
        return Reported(None, f"the load is from {-age_ms // 1000} s ahead: the clock of whoever reports it is wrong")
    return aged(int(found[1]), age_ms)


def taken_over(entries: tuple[ManagedFields, ...], manager: str, api_version: str) -> tuple[ManagedFields, ...]:
    """The managers of a workload after `manager` has set its replicas: nobody else does any more."""
    others = [
        replace(entry, fields_v1=FieldsV1(_ITS_PLACE.sub("", entry.fields_v1.text)))
        for entry in entries
        if entry.manager != manager
    ]
    mine = ManagedFields(manager=manager, api_version=api_version, fields_type="FieldsV1", fields_v1=FieldsV1(_OWNED))
    return (*others, mine)
