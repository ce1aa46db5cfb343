"""S12 as far as histories show it: when agents said of an exclusive slot that it ran, and whether two lives of one, or of one
chain of stand-ins, were said to run at once.

A journal knows no true time. It knows when a plane committed what an agent said; a run is what lies between the first and the
last such word, which is less than the true one, never more but for what is under way. So what is found here is a broken promise,
while what is not found may yet be one: the simulator and the drills look at the runs themselves. Planes are compared by their
own times: the histories of one machine, or of machines whose clocks agree. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import SlotState
from fairlead.observe.intervals import Interval, overlaps

LATE_S: Final = 5.0  # a report may be that long under way: an RPC and its repetition, and a clock
Objects = Mapping[str, Mapping[tuple[str, str], Any]]


class RunChecker:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._runs: dict[tuple[str, str, Token], Interval] = {}

    @property
    def intervals(self) -> list[Interval]:
        return list(self._runs.values())

    def reported(self, plural: str, tenant: str, name: str, new: Any, now_ms: int) -> bool:
        """An agent's word of a binding or an instance. True where it says that an exclusive slot runs."""
        if plural == "instances":
            binding = self._objects["bindings"].get((tenant, name))
            runs = new.status.ready and new.status.exit_code is None
            if binding is None or not runs or binding.spec.token != new.spec.token:
                return False
        else:
            binding = new
            if new.status.state is not SlotState.READY:
                return False
        spec = binding.spec
        if spec.execution != "Exclusive":
            return False
        at, now_s = (tenant, name, spec.token), now_ms / 1000
        run = self._runs.get(at)
        if run is None:
            run = self._runs[at] = Interval(
                tenant, name, spec.token, spec.node, now_s, now_s, spec.exclusive, spec.slot.uid, spec.supersedes
            )
        run.end = now_s
        return True


def at_once(intervals: Iterable[Interval]) -> list[str]:
    """Pairs that were said to run at the same time, in words."""
    return overlaps(replace(run, end=max(run.begin, (run.end or run.begin) - LATE_S)) for run in intervals)
