"""The node controller and nodes that come back: they are closed once, and not each time they list what they run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.node import NodeController
from fairlead.decide.nodes import NodeRules
from fairlead.model import codec
from fairlead.model.commands import PutStatus
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.meta import Metadata
from tests.controllers.test_overrides import at
from tests.controllers.test_repair import Row

BEGAN_MS = 1_000_000
LEASE_MS = NodeRules().lease_ms
LATE_MS = BEGAN_MS + 10 * LEASE_MS


class Zone:
    """Two nodes: `a`, which is told of, and `b`, which is always heard."""

    def __init__(self, **status: object) -> None:
        self.controller = NodeController()
        self.view = View(NodeController.indexes, {})
        self.a = self._node("a", replace(NodeStatus(session=1, health="Ready", schedulable=True), **status))
        self._position = 0
        self._told(self._node("b", NodeStatus(session=1, health="Ready", schedulable=True)))

    @staticmethod
    def _node(name: str, status: NodeStatus) -> Node:
        metadata = Metadata(name=name, creation_time=at(BEGAN_MS), generation=1)
        return Node(metadata=metadata, spec=NodeSpec(region="r", zone="z"), status=status)

    def _told(self, node: Node) -> None:
        self._position += 1
        self.view.cache.apply(Row("nodes", "", node.metadata.name, self._position, codec.encode(node), node))

    def look(self, now_ms: int, heard_ms: int = BEGAN_MS) -> NodeStatus:
        """What is written of `a`, or stands."""
        self.view.heard = {"a": heard_ms, "b": now_ms}
        self._told(self.a)
        for body in self.controller.reconcile(("", "z"), self.view, now_ms).bodies:
            if isinstance(body, PutStatus) and body.name == "a":
                self.a = replace(self.a, status=body.status)
        return self.a.status

    def list_again(self) -> None:
        """As its agent does when it is back."""
        self.a = replace(self.a, status=replace(self.a.status, schedulable=True))


def test_a_node_that_is_declared_lost_is_closed_until_it_has_listed_what_it_runs() -> None:
    status = Zone(health="Unknown").look(LATE_MS)
    assert (status.health, status.schedulable) == ("Lost", False)


@pytest.mark.parametrize("looks", [1, 50])
def test_one_that_has_listed_is_not_closed_again_while_its_heartbeats_are_on_their_way(looks: int) -> None:
    zone = Zone(health="Unknown")
    zone.look(LATE_MS)
    zone.list_again()
    for look in range(looks):
        status = zone.look(LATE_MS + look * 3)
        assert (status.health, status.schedulable) == ("Lost", True), "no new work either way: it is not Ready"
    assert zone.look(LATE_MS + 1000, heard_ms=LATE_MS + 900).health == "Ready"


def test_one_that_has_listed_and_is_not_heard_for_a_lease_must_list_again() -> None:
    zone = Zone(health="Unknown")
    zone.look(LATE_MS)
    zone.list_again()
    assert zone.look(LATE_MS).schedulable
    assert zone.look(LATE_MS + LEASE_MS).schedulable
    assert not zone.look(LATE_MS + LEASE_MS + 1).schedulable
    zone.list_again()
    assert zone.look(LATE_MS + LEASE_MS + 2).schedulable, "and its time begins anew"
