"""A disruption budget that a refusal has told of: others are named as victims, until it is time to ask again."""

from __future__ import annotations

import random

from fairlead.model.commands import Refused
from fairlead.model.resources import Resources
from fairlead.scheduler.floors import KEPT_MS, Floors
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.snapshot import FIRM, Snapshot, Use
from tests.scheduler.fleets import GI, NOW_MS, node, request, snapshot_of


class Claims:
    def __init__(self, snapshot: Snapshot) -> None:
        self._preempting, policies, queue = Preempting(snapshot), Policies(), Queue(random.Random(1))
        self.floors = Floors(snapshot, self._preempting)
        queue.upsert(request("a-0", priority=500), NOW_MS)
        (self._item,) = queue.take(1, NOW_MS)
        policy = policies.policy_for("risk")
        assert policy is not None
        shape = ShapeBook(snapshot, policies).shape_of(self._item.request, policy)
        assert shape is not None
        self._shape = shape

    def victims(self) -> tuple[str, ...]:
        """Whom the next claim would name. Nothing of the picture changes by that."""
        plan = self._preempting.plan(self._item, self._shape)
        return tuple("/".join(key) for key in plan.victims) if plan is not None else ()

    def refused(self, **facts: object) -> None:
        self.floors.heard(Refused("VictimNotAllowed", "", {"victim": "search/web-0", **facts}))


def test_a_budget_that_a_refusal_told_of_is_kept_until_it_is_time_to_ask_again() -> None:
    snapshot = snapshot_of(node("n0", cpu=1000), node("n1", cpu=1000))
    for row, workload in enumerate(("web", "other")):
        use = Use(row, FIRM, Resources(1000, GI), uid=f"u-{workload}", evictable=True)
        snapshot.set_use(("search", f"{workload}-0"), use)
    claims = Claims(snapshot)
    assert claims.victims() == ("search/web-0",)
    claims.refused(evictorPriority=500)
    assert claims.victims() == ("search/web-0",), "that was about something else"
    claims.refused(minServing=1)
    assert claims.victims() == ("search/other-0",)
    claims.floors.ended(NOW_MS + KEPT_MS - 1)
    assert claims.victims() == ("search/other-0",)
    claims.floors.ended(NOW_MS + KEPT_MS)
    assert claims.victims() == ("search/web-0",)


def test_a_slot_that_comes_later_is_under_the_budget_too() -> None:
    snapshot = snapshot_of(node("n0", cpu=1000), node("n1", cpu=1000))
    web = Use(0, FIRM, Resources(1000, GI), uid="u-web", evictable=True)
    snapshot.set_use(("search", "web-0"), web)
    snapshot.set_use(("search", "full-0"), Use(1, FIRM, Resources(1000, GI), priority=1000, uid="u-full", evictable=True))
    claims = Claims(snapshot)
    claims.refused(minServing=2)
    assert claims.victims() == ()
    snapshot.set_use(("search", "full-0"), None)
    snapshot.set_use(("search", "web-1"), Use(1, FIRM, Resources(1000, GI), uid="u-web", evictable=True))
    assert claims.victims() == (), "two run and two must"
