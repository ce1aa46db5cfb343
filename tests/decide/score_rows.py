"""Rows and needs for the tests of scores: one node as plain ints, or all of them as int64 columns, from the same values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from fairlead.decide.fit import Need
from fairlead.decide.scores import Score
from fairlead.decide.scores.room import scale_of
from fairlead.decide.scores.wishes import NO_WISHES, Wishes

NOW: Any = SimpleNamespace(now_ms=0)

EMPTY: dict[str, int] = {
    "cpu_free": 8000, "cpu_unlent": 8000, "cpu_total": 8000, "memory_free": 8 << 30, "memory_unlent": 8 << 30,
    "memory_total": 8 << 30, "hourly_cost_millis": 0, "recent_failures": 0, "node_class": 0, "number": 0, "image": 0,
}  # fmt: skip


class OneNode:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        for part in ("cpu", "memory"):
            total = values[f"{part}_total"]
            scale = scale_of(total) if isinstance(total, int) else np.array([scale_of(int(one)) for one in total], dtype=np.int64)
            self.__dict__[f"{part}_scale"] = scale

    def has_image(self, image: str) -> Any:
        return self.__dict__["image"] * bool(image)


def node(**values: int) -> Any:
    return OneNode({**EMPTY, **values})


def columns(nodes: list[dict[str, int]]) -> Any:
    whole = [{**EMPTY, **values} for values in nodes]
    return OneNode({name: np.array([values[name] for values in whole], dtype=np.int64) for name in EMPTY})


def need_of(
    cpu: int = 1000, memory: int = 1 << 30, *, borrows: bool = False, wishes: Wishes = NO_WISHES, topology: Any = None
) -> Need:
    tables: Any = None
    return Need(
        cpu=cpu,
        memory=memory,
        slots=1,
        firm_cpu=0 if borrows else cpu,
        firm_memory=0 if borrows else memory,
        scalars=(),
        devices=(),
        max_age_ms=1000,
        classes=tables,
        borrows=borrows,
        wishes=wishes,
        topology=topology,
    )


def rates(score: Score, need: Need, *nodes: dict[str, int]) -> list[int]:
    """Of each node alone; the same from columns is asserted on the way."""
    alone = [score.rate(need, node(**values), NOW) for values in nodes]
    together = np.broadcast_to(score.rate(need, columns(list(nodes)), NOW), (len(nodes),))
    assert together.tolist() == alone
    assert all(type(rate) is int for rate in alone), "one node is rated in plain ints"
    return alone
