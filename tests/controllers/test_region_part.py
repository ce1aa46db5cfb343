"""What the region controller writes of a region that is heard and has lost something: at once what is news, the rest seldom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairlead.controllers.contract import View
from fairlead.controllers.mirror import UP
from fairlead.controllers.region import COUNTS_MS, RegionController
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.partial import BEHIND_S
from fairlead.decide.slots import instant
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import Lease, LeaseSpec, LeaseStatus, ZoneNodes
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata


class Rig:
    """Two regions and their leases, with time that the test moves; what is written is seen at the next look."""

    def __init__(self) -> None:
        self.controller = RegionController()
        self.view = View({}, {})
        self.now_ms, self._position = 1_000_000, 0
        self.writes = 0
        self.silent = False
        for name in ("a", "b"):
            self.put("regions", name, Region(Metadata(name=name), status=RegionStatus(health="Healthy")))

    def put(self, plural: str, name: str, hot: Any) -> None:
        self._position += 1
        change: Any = SimpleNamespace(plural=plural, tenant="", name=name, position=self._position, raw=b"x", hot=hot)
        self.view.cache.apply(change)

    def look(self, after_s: float, *zones: ZoneNodes) -> tuple[str, str]:
        """What is said of region b, which says that it has these nodes."""
        self.now_ms += int(after_s * 1000)
        for name in ("a", "b"):
            if not (self.silent and name == "b"):
                spec = LeaseSpec(renewed_time=instant(self.now_ms))
                self.put("leases", f"{UP}{name}", Lease(Metadata(name=name), spec, LeaseStatus(zones=zones)))
        for body in self.controller.reconcile(("", "all"), self.view, self.now_ms).bodies:
            put: Any = body
            self.writes += put.name == "b"
            self.put("regions", put.name, Region(Metadata(name=put.name), status=put.status))
        return self.said()

    def region(self) -> Region:
        found: Region = self.view.cache.get("regions", "", "b")
        return found

    def said(self) -> tuple[str, str]:
        found = [c for c in self.region().status.conditions if c.type == "Partial"]
        return (found[0].status, found[0].reason) if found else ("", "")

    def term(self, taken: int) -> None:
        spec = GrantTermSpec(region="b", asker=1, answered=5)
        self.put("grantterms", "b", GrantTerm(Metadata(name="b"), spec, GrantTermStatus(incarnation=1, asked=5, taken=taken)))


def nodes(ready: int) -> ZoneNodes:
    return ZoneNodes(zone="z", nodes=10, ready=ready)


def test_news_is_written_at_once_and_counts_seldom() -> None:
    rig = Rig()
    assert rig.look(1) == ("", ""), "it has said nothing yet"
    assert rig.look(1, nodes(10)) == ("False", "Whole")
    before = rig.writes
    for ready in (9, 8, 7, 8, 9):
        rig.look(1, nodes(ready))
    assert rig.writes == before, "these counts mean nothing new"
    rig.look(COUNTS_MS / 1000, nodes(8))
    assert (rig.writes, rig.region().status.zones) == (before + 1, (nodes(8),))
    assert rig.look(1, nodes(4)) == ("True", "NodesLost")
    assert rig.region().status.health == "Healthy"
    assert rig.look(1, nodes(6)) == ("False", "Whole")


def test_of_a_region_that_falls_silent_nobody_knows_what_is_left() -> None:
    rig = Rig()
    assert rig.look(1, nodes(4)) == ("True", "NodesLost")
    rig.silent = True
    assert rig.look(30, nodes(4)) == ("Unknown", "Silent")
    rig.look(1, nodes(4))
    assert rig.said() == ("Unknown", "Silent")
    rig.silent = False
    assert rig.look(1, nodes(10)) == ("False", "Whole")


def test_a_region_that_does_not_take_what_it_was_answered_is_behind() -> None:
    rig = Rig()
    rig.look(1, nodes(10))
    rig.term(taken=4)
    for _ in range(int(BEHIND_S)):
        assert rig.look(1, nodes(10)) == ("False", "Whole")
    rig.look(1, nodes(10))
    assert rig.look(1, nodes(10)) == ("True", "WatchBehind")
    rig.term(taken=5)
    assert rig.look(1, nodes(10)) == ("False", "Whole")


def test_one_without_nodes_that_take_work_is_behind_no_longer_than_it_is() -> None:
    rig = Rig()
    rig.term(taken=4)
    for _ in range(int(BEHIND_S) + 2):
        rig.look(1)
    assert rig.said() == ("True", "WatchBehind")
    rig.term(taken=5)
    assert rig.look(1) == ("False", "Whole")
    assert rig.look(1, nodes(4)) == ("True", "NodesLost")
    assert rig.look(1) == ("True", "NodesLost"), "of nodes it says nothing, so they are as before"


def test_one_that_is_heard_again_and_has_no_nodes_that_take_work_is_not_unknown() -> None:
    rig = Rig()
    rig.look(1, nodes(4))
    rig.silent = True
    assert rig.look(30) == ("Unknown", "Silent")
    rig.silent = False
    assert rig.look(1) == ("True", "NodesLost"), "as it said last"


def test_placing_looks_at_everything_anew_when_a_regions_health_changes_and_not_when_its_nodes_are_counted() -> None:
    rig = Rig()
    rig.put("workloads", "api", SimpleNamespace())
    workloads = WorkloadController()

    def concerns() -> int:
        item = rig.view.cache.item("regions", "", "b")
        assert item is not None
        return len(list(workloads.keys(rig.view, item, False)))

    assert concerns() == 1
    rig.look(1, nodes(4))
    assert concerns() == 0
    rig.silent = True
    rig.look(30, nodes(4))
    assert concerns() == 1
