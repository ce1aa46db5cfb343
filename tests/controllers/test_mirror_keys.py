"""Which changes a mirror looks at: its own copies, as they come back to it, are none of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.mirror import MirrorDown
from fairlead.decide.slot_lease import TTL_S, honoured_ms
from fairlead.model import codec
from fairlead.model.commands import Delete
from fairlead.model.hot import hot_from
from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.work import Assignment, AssignmentSpec, Revision, RevisionSpec, SlotRange
from fairlead.model.meta import Metadata
from tests.controllers.test_repair import Row

KEY = ("revisions/risk", "api.g1")


class Mirrored:
    """A mirror of region `r`, told of both planes change by change."""

    def __init__(self) -> None:
        self.mirror = MirrorDown("r")
        self.view = View(self.mirror.indexes, self.mirror.indexes_other)
        self._position = 0
        self.tell("regions", Region(metadata=Metadata(name="r")), other=True)

    def tell(self, plural: str, value: Any, *, other: bool = False, gone: bool = False) -> set[tuple[str, str]]:
        self._position += 1
        meta = value.metadata
        raw, hot = (None, None) if gone else (codec.encode(value), hot_from(plural, value))
        cache = self.view.other if other else self.view.cache
        old, new = cache.apply(Row(plural, meta.namespace, meta.name, self._position, raw, hot))
        return {key for each in (old, new) if each is not None for key in self.mirror.keys(self.view, each, other)}

    def copy(self) -> Any:
        """What it would write of the revision."""
        (put,) = self.mirror.reconcile(KEY, self.view, 0).bodies
        return put.object  # type: ignore[union-attr]


REVISION = Revision(
    metadata=Metadata(name="api.g1", namespace="risk", uid=Uid("u-1"), generation=1),
    spec=RevisionSpec(workload="api", workload_uid="u", generation=1),
)
ASSIGNMENT = Assignment(
    metadata=Metadata(name="api.r", namespace="risk", uid=Uid("u-2"), generation=1),
    spec=AssignmentSpec(workload="api", workload_uid="u", generation=1, region="r", slots=(SlotRange(first=0, last=0),)),
)


def test_a_revision_is_looked_at_until_its_copy_is_here_and_the_copy_itself_is_nothing_to_look_at() -> None:
    m = Mirrored()
    assert m.tell("revisions", REVISION, other=True) == {KEY}
    assert KEY in m.tell("assignments", ASSIGNMENT, other=True)
    assert m.tell("revisions", m.copy()) == set()


def test_a_copy_that_somebody_changed_or_that_is_gone_is_looked_at() -> None:
    m = Mirrored()
    m.tell("revisions", REVISION, other=True)
    m.tell("assignments", ASSIGNMENT, other=True)
    copy = m.copy()
    m.tell("revisions", copy)
    assert m.tell("revisions", replace(copy, spec=replace(copy.spec, priority=7))) == {KEY}
    assert m.tell("revisions", copy) == set()
    assert m.tell("revisions", copy, gone=True) == {KEY}


def test_a_copy_that_comes_back_when_its_assignment_is_gone_already_is_looked_at_and_deleted() -> None:
    m = Mirrored()
    m.tell("revisions", REVISION, other=True)
    m.tell("assignments", ASSIGNMENT, other=True)
    copy = m.copy()
    m.tell("assignments", ASSIGNMENT, other=True, gone=True)
    assert m.tell("revisions", copy) == {KEY}
    (body,) = m.mirror.reconcile(KEY, m.view, 0).bodies
    assert isinstance(body, Delete)


def test_after_a_restore_orders_for_what_runs_once_in_the_world_wait_until_leases_of_the_history_before_are_over() -> None:
    """A backup may say that a slot is here which another region runs by now, under a lease that this plane knows nothing of."""
    m, key, lease_ms = Mirrored(), ("assignments/risk", "api.r"), honoured_ms(TTL_S)
    alone = replace(ASSIGNMENT, spec=replace(ASSIGNMENT.spec, exclusive="global"))
    m.tell("assignments", alone, other=True)
    (first,) = m.mirror.reconcile(key, m.view, 0).bodies
    m.tell("assignments", first.object)  # type: ignore[union-attr]
    m.view.other_incarnation = 2
    more = replace(alone.spec, slots=(SlotRange(first=0, last=1),))
    m.tell("assignments", replace(alone, metadata=replace(alone.metadata, generation=2), spec=more), other=True)
    assert m.mirror.reconcile(key, m.view, 1000) == ((), 1000 + lease_ms)
    assert m.mirror.reconcile(key, m.view, 999 + lease_ms).bodies == ()
    (second,) = m.mirror.reconcile(key, m.view, 1000 + lease_ms).bodies
    assert second.object.spec == more  # type: ignore[union-attr]
    m.tell("assignments", second.object)  # type: ignore[union-attr]
    m.tell("assignments", replace(alone, metadata=replace(alone.metadata, generation=3)), other=True)
    newer = MirrorDown("r")
    assert len(newer.reconcile(key, m.view, 0).bodies) == 1, "what was copied in this history already follows it at once"
    m.view.other_incarnation = 3
    plain = replace(ASSIGNMENT, metadata=replace(ASSIGNMENT.metadata, name="web.r"))
    m.tell("assignments", plain, other=True)
    assert len(m.mirror.reconcile(("assignments/risk", "web.r"), m.view, 0).bodies) == 1, "replicas do not wait"
