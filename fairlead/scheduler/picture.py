"""A scheduler's picture rebuilt from the history of its plane, and one slot decided on it as the scheduler would.

Owns what a picture consists of: the same observer, snapshot, shapes and cycle that a scheduler runs with. It never keeps a
decision: what was assumed is taken back at once. Called by forking.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.meta import Metadata
from fairlead.scheduler.cycle import Cycle, Failure
from fairlead.scheduler.observer import Observer
from fairlead.scheduler.partition import Partition, Parts
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.shapes import Shape, ShapeBook
from fairlead.scheduler.snapshot import Snapshot
from fairlead.scheduler.units import Item, amounts_of, deadline_of, to_ms

_HEARD_MS: Final = 2_000  # of plane time, between two times that every node counts as heard
_OF_POLICY: Final = frozenset({"schedulerpolicies", "policychannels"})


class _NoChance:
    """In place of draws: the queue's are about when to try again, those of the strategy `probe` are not compared."""

    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int | None = None, step: int = 1, /) -> int:
        return 0 if stop is None else start


class Seen(msgspec.Struct, gc=False):
    """One change as a feed would have told it (fairlead/client/plane.py: Change)."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A node, with whoever has to leave it first; or why there is none."""

    node: str = ""
    victims: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""

    @property
    def is_same(self) -> tuple[str, tuple[str, ...], str]:
        """What two equal choices have in common: details count nodes and differ from one moment to the next."""
        return self.node, self.victims, self.reason


class Picture:
    def __init__(self, region: str, registry: Registry = BUILT_INS) -> None:
        self.snapshot = Snapshot()
        self._fixed = False  # one policy, whatever the history says
        self._policies = Policies(registry, region)
        self._shapes = ShapeBook(self.snapshot, self._policies)
        preempting = Preempting(self.snapshot)
        draws = _NoChance()
        self._cycle = Cycle(self.snapshot, self._shapes, self._policies, preempting, draws)
        queue = Queue(draws)
        self._observer = Observer(
            self.snapshot, queue, self._policies, region, Parts(Partition()), preempting.seen, self._shapes.ended
        )
        self._heard_ms = -_HEARD_MS
        self._nodes_changed: dict[str, None] = {}  # since they counted as heard; in order

    def fix(self, policy: SchedulerPolicy | None) -> None:
        """This revision decides for everybody, whatever the history's channel says; None: the built-in one."""
        self._fixed = True
        if policy is not None:
            self._policies.set_revision(policy.metadata.name, policy)
            spec = PolicyChannelSpec(current=policy.spec.revision)
            self._policies.set_channel(PolicyChannel(metadata=Metadata(name="default"), spec=spec))

    def observe(self, changes: Sequence[Seen]) -> None:
        for one in changes if self._fixed else ():
            if one.plural == "policychannels" and one.raw is not None:  # which version was installed, and so leased, is history
                self.snapshot.grants.channel = one.hot.metadata
        self._observer.observe([one for one in changes if not (self._fixed and one.plural in _OF_POLICY)])
        self._nodes_changed |= {one.name: None for one in changes if one.plural == "nodes" and one.raw is not None}

    def decide(self, request: SchedulingRequest, now_ms: int) -> tuple[Choice, Shape | None]:
        """Every node whose status is in order counts as heard: how old observations were is not in a history."""
        snapshot = self.snapshot
        snapshot.now_ms = now_ms
        snapshot.forget_failures()
        self._observer.holding.ended(now_ms)
        all_again = now_ms - self._heard_ms >= _HEARD_MS
        if all_again or self._nodes_changed:
            snapshot.heard([(name, now_ms) for name in (snapshot.names if all_again else self._nodes_changed)], 0)
            self._heard_ms = now_ms if all_again else self._heard_ms
            self._nodes_changed.clear()
        (run,) = self._cycle.decide([_item(request, now_ms)])
        if not run.placements:
            failure: Failure = run.failures[0]
            return Choice(reason=failure.reason, detail=failure.detail), failure.shape
        (placement,) = run.placements
        self._cycle.take_back(placement)
        snapshot.trim_changes()
        return Choice(placement.node, tuple(sorted(placement.victims))), placement.shape

    def is_drawn(self, shape: Shape | None) -> bool:
        """Whether chance had a part in it."""
        return shape is not None and shape.rules.strategy == "probe" and self.snapshot.fleet.rows > 2 * shape.rules.probe_size


def _item(request: SchedulingRequest, now_ms: int) -> Item:
    metadata, spec = request.metadata, request.spec
    created_ms = now_ms if metadata.creation_time is None else to_ms(metadata.creation_time)
    amounts = amounts_of(spec.ask.requests, spec.ask.devices)
    return Item(
        metadata.namespace, metadata.name, spec.slot.workload, spec.slot.uid, spec.priority, deadline_of(request, created_ms),
        created_ms, amounts, amounts, now_ms, now_ms, request=request, gang=spec.gang,
    )  # fmt: skip
