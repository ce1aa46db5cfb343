"""Which seeds nobody has run before: those of this day, in UTC, wherever the tests run; FAIRLEAD_FRESH names others.

Owns the choice and the words that are printed of it, however the tests end. Called by tests/conftest.py and test_fresh.py.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from datetime import UTC, date, datetime
from typing import Final

FROM: Final = "FAIRLEAD_FRESH"
RAN: Final = "fresh seeds"  # the property of a report that says which a test ran
A_DAY: Final = 100_000  # more than one day's tests run


def choose(environ: MutableMapping[str, str] = os.environ) -> None:
    """Once, before any test is asked for: a run that goes on past midnight, and all its workers, have the seeds of one day."""
    environ.setdefault(FROM, str(seed_of(datetime.now(UTC).date())))


def seed_of(day: date) -> int:
    return int(day.strftime("%Y%m%d")) * A_DAY


def first(environ: MutableMapping[str, str] = os.environ) -> int:
    choose(environ)
    return int(environ[FROM])


def header() -> str:
    return f"fresh seeds of the simulator from {first()} on; {FROM}={first()} runs the same ones again"
