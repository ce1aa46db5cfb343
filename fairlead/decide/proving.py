"""What counts for a rollout only once it has served for a while: programs without a readiness probe serve when they are started,
and one that cannot live dies a moment later. Without this, each of its short lives would let one more of the old ones go.

Pure; know no clock, they are told the time. One of a controller's own: after a restart what serves is taken as proven.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from fairlead.model.kinds.intent import WorkloadSpec

UNPROBED_SECONDS: Final = 3  # most programs that cannot live are dead by then, and wait longer than that to be tried again


def seconds_to_prove(spec: WorkloadSpec) -> int:
    """What an absent `minReadySeconds` means: a readiness probe has seen the program answer, and needs no more."""
    if spec.rollout.min_ready_seconds is not None:
        return spec.rollout.min_ready_seconds
    return 0 if spec.template.probes.readiness is not None else UNPROBED_SECONDS


class Proof(NamedTuple):
    lacking: int  # serve, and have not long enough
    wake_ms: int | None  # when some of them will have, if nothing happens


class ServedThroughout:
    """The fewest that served at any moment of the last while. Costs by how often their number changes, not by its size."""

    __slots__ = ("_fewest", "generation")

    def __init__(self, generation: int, serving: int, now_ms: int) -> None:
        self.generation = generation
        self._fewest: deque[tuple[int, int]] = deque([(now_ms, serving)])  # from when on at least how many; both rise

    def look(self, serving: int, while_ms: int, now_ms: int) -> Proof:
        fewest, since_ms = self._fewest, now_ms
        while fewest and fewest[-1][1] >= serving:
            since_ms = fewest.pop()[0]
        fewest.append((since_ms, serving))
        while len(fewest) > 1 and fewest[1][0] + while_ms <= now_ms:
            fewest.popleft()
        wake_ms = fewest[1][0] + while_ms if len(fewest) > 1 else None
        return Proof(serving - fewest[0][1], wake_ms)
