"""One thing that is not as it is wanted, as data. Said by agreement.py and left.py, judged by whoever asked them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Objects = Mapping[str, Mapping[tuple[str, str], Any]]  # plural -> (tenant, name) -> object


class Difference(NamedTuple):
    """One thing that is not as it is wanted, and the workload it is of where that is known."""

    detail: str
    uid: str = ""
    request: Any = None  # of a slot that waits: the request, and where
    region: str = ""
    short: int = 0  # of a workload too few of whose slots serve: how many serve in no generation at all
    serves: bool = False  # it is about how many serve
    orphan: str = ""  # it is there and should not be (L6): what, whatever else is said of it
