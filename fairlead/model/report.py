"""Collects the faults of one object, and the few checks that every kind's rules are made of.

Owns the wording that rules share and the bound on how much is reported. Never decides what a kind needs. Used by the rules of
decide/admission, and by fairlead/wire to collect what it cannot read.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from fairlead.model.commands import Fault
from fairlead.model.quantity import AMOUNT_MAX
from fairlead.model.resources import Resources

FAULTS_MAX: Final = 100  # Enough to mend a manifest in one go; an object of 256 KiB could otherwise yield thousands.
SECONDS_MAX: Final = 10 * 365 * 86_400  # Ten years: whatever lasts longer is a slip of the pen.
COUNT_MAX: Final = 1 << 31

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

SUBDOMAIN_MAX: Final = 253
LABEL_WORDS: Final = "1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends"
SUBDOMAIN_WORDS: Final = "1 to 253 of a-z, 0-9, '-' and '.', with a letter or digit at both ends of each part"
QUALIFIED_WORDS: Final = "1 to 63 of letters, digits, '-', '_' and '.', with a letter or digit at both ends"


@lru_cache(maxsize=4096)  # tenants, classes and workloads: few, and asked for with every object
def is_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    # Length first: the pattern is only ever tried on text of bounded size.
    return len(text) <= SUBDOMAIN_MAX and _SUBDOMAIN.fullmatch(text) is not None


def is_qualified(text: str) -> bool:
    """A label's value, or the part of its key after the prefix."""
    return _QUALIFIED.fullmatch(text) is not None


def shown(text: str) -> str:
    """A person's text in a message: quoted, escaped and short."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def camel(path: str) -> str:
    """The manifest's spelling of a record's path: `recovery.min_serving` is `recovery.minServing`."""
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), path)


class Ranges:
    """Rows of (attribute path, lowest, highest), compiled: admission stands in the path of every write."""

    def __init__(self, *rows: tuple[str, float, float]) -> None:
        assert len(rows) > 1, "attrgetter gives a tuple only for two or more"
        self.rows = rows
        self.values_of: Callable[[Any], tuple[float, ...]] = operator.attrgetter(*(row[0] for row in rows))


class Report:
    """The faults found so far."""

    def __init__(self) -> None:
        self._found: list[Fault] = []
        self._unreported = 0

    def add(self, path: str, message: str) -> None:
        if self.is_full:
            self._unreported += 1
        else:
            self._found.append(Fault(path, message))

    @property
    def is_full(self) -> bool:
        """Further faults are counted, not listed: nobody needs to say where they are."""
        return len(self._found) >= FAULTS_MAX

    def mentions(self, path: str) -> bool:
        return any(fault.path == path for fault in self._found)

    def faults(self) -> tuple[Fault, ...]:
        if not self._unreported:
            return tuple(self._found)
        return (*self._found, Fault("", f"{self._unreported} more faults are not listed; mend these first"))

    def need(self, holds: bool, path: str, message: str) -> None:
        if not holds:
            self.add(path, message)

    def within(self, path: str, value: float, low: float, high: float) -> None:
        """Written so that NaN fails it."""
        if not low <= value <= high:
            self.add(path, f"must be {low} to {high}, got {value}")

    def ranges(self, path: str, record: Any, table: Ranges) -> None:
        for value, (attribute, low, high) in zip(table.values_of(record), table.rows, strict=True):
            if not low <= value <= high:
                self.within(f"{path}.{camel(attribute)}", value, low, high)

    def label(self, path: str, text: str) -> None:
        if not is_label(text):
            self.add(path, f"must be {LABEL_WORDS}, got {shown(text)}")

    def subdomain(self, path: str, text: str) -> None:
        if not is_subdomain(text):
            self.add(path, f"must be {SUBDOMAIN_WORDS}, got {shown(text)}")

    def label_key(self, path: str, text: str) -> None:
        """PREFIX/NAME or NAME, as Kubernetes has it."""
        prefix, slash, name = text.rpartition("/")
        if slash and not is_subdomain(prefix):
            self.add(path, f"the prefix of {shown(text)} must be {SUBDOMAIN_WORDS}")
        if not is_qualified(name):
            self.add(path, f"the name in {shown(text)} must be {QUALIFIED_WORDS}")

    def label_value(self, path: str, text: str) -> None:
        if text and not is_qualified(text):
            self.add(path, f"must be empty or {QUALIFIED_WORDS}, got {shown(text)}")

    def unique(self, path: str, values: Iterable[Any], field: str = "") -> None:
        """`field` is the part of each item that may not repeat, where the items are records."""
        first: dict[Any, int] = {}
        for index, value in enumerate(values):
            if value in first:
                where = f"{path}[{index}]{'.' + field if field else ''}"
                self.add(where, f"repeats {path}[{first[value]}]; each may stand here once")
            first.setdefault(value, index)

    def labels(self, path: str, values: Iterable[str]) -> None:
        """A list of names, each once."""
        values = tuple(values)
        for index, value in enumerate(values):
            self.label(f"{path}[{index}]", value)
        self.unique(path, values)

    def amounts(self, path: str, amounts: Resources) -> None:
        for name, amount in (("cpu", amounts.cpu), ("memory", amounts.memory), *amounts.scalars):
            if amount < 0:
                self.add(f"{path}.{name}", "must be 0 or more, is negative")
            elif amount > AMOUNT_MAX:
                self.add(f"{path}.{name}", "is too large; the most one amount may be is 2^53 units")
        for name, _ in amounts.scalars:
            self.label_key(f"{path}.{name[:80]}", name)

    def unchanged(self, path: str, new: object, old: object) -> None:
        if new != old:
            self.add(path, f"may not change; it is {shown(str(old))}")
