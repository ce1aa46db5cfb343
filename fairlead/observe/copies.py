"""S12 asked of a whole workload: at no true moment do more copies of Exclusive work run than were ever wanted of it until then,
in whatever regions and generations, and under whatever numbers.

Two copies of one slot are found by its name (intervals.py). A copy under another name, such as one that was started beside it for
a while, is found by the count alone. What was wanted once counts for good: a region that is cut off goes on with an old order.
Called by the simulator, which knows true time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fairlead.model.kinds.intent import Workload
from fairlead.observe.intervals import Interval


class Copies:
    def __init__(self) -> None:
        self._most: dict[str, list[tuple[float, int]]] = defaultdict(list)  # of each uid: from when on so many were wanted

    def wanted(self, workload: Workload, now_s: float) -> None:
        spec, known = workload.spec, self._most[workload.metadata.uid]
        count = spec.job.parallelism if spec.job is not None else spec.replicas
        if not known or count > known[-1][1]:
            known.append((now_s, count))

    def too_many(self, intervals: Iterable[Interval]) -> list[str]:
        """Of each workload the first moment at which more ran, in words."""
        runs: dict[str, list[Interval]] = defaultdict(list)
        for run in intervals:
            if run.exclusive and run.uid in self._most:
                runs[run.uid].append(run)
        return [detail for uid, mine in runs.items() if (detail := self._first(uid, mine))]

    def _first(self, uid: str, mine: list[Interval]) -> str:
        there: list[Interval] = []
        for run in sorted(mine, key=lambda run: run.begin):
            there = [one for one in there if one.end is None or one.end > run.begin]
            there.append(run)
            most = max((count for since_s, count in self._most[uid] if since_s <= run.begin), default=0)
            if len(there) > most:
                where = ", ".join(f"{one.name} on {one.where}" for one in there[:5])
                return f"{run.tenant}: at {run.begin:.3f} {len(there)} copies ran of what is to run {most} times at most: {where}"
        return ""
