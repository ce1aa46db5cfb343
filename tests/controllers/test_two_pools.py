"""Several node pools beside each other: for which of them what waits is counted."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.controllers.node_pool import Seen, scaled
from fairlead.decide.slots import instant
from fairlead.model.commands import PutStatus
from fairlead.model.kinds.capacity import Node, NodePool, NodePoolSpec, NodePoolStatus
from fairlead.model.meta import Metadata
from tests.authority.planes import REGION
from tests.controllers.test_node_pool import SPEC
from tests.controllers.test_node_pool_values import NOW, a_node, requests_of


def two_pools(first: NodePoolSpec, *nodes: Node, used: tuple[str, ...] = (), **asked: Any) -> dict[str, int]:
    """How many nodes are ordered of `burst` and of `spare` where two slots, each of which needs one, wait beside these."""
    names = tuple(node.metadata.name for node in nodes)
    pools = [
        NodePool(Metadata(name="burst"), first, NodePoolStatus(ordered=names, numbered=len(names))),
        NodePool(Metadata(name="spare"), SPEC),
    ]
    seen = Seen(pools, nodes, requests_of(2, **asked), dict.fromkeys(used, 1), [])
    said = [body for body in scaled(seen, REGION, NOW) if isinstance(body, PutStatus)]
    return {body.name: len(body.status.ordered) for body in said if isinstance(body.status, NodePoolStatus)}


def test_what_a_pool_that_may_have_no_more_does_not_cure_is_left_to_the_next() -> None:
    assert two_pools(SPEC) == {"burst": 2, "spare": 0}
    one = replace(SPEC, max_nodes=1)
    assert two_pools(one, a_node("n1"), used=("n1",)) == {"burst": 1, "spare": 2}, "it is full"
    assert two_pools(one, a_node("n1")) == {"burst": 1, "spare": 0}, "an empty one is there: what waits has yet to look at it"
    assert two_pools(one, a_node("n1", "Lost")) == {"burst": 1, "spare": 0}, "another comes in its place"
    assert two_pools(replace(SPEC, max_nodes=0)) == {"burst": 0, "spare": 2}, "it is being given up"
    assert two_pools(replace(SPEC, max_nodes=0), a_node("n1"), used=("n1",)) == {"burst": 1, "spare": 2}


def test_what_a_slow_pool_is_too_late_for_is_left_to_the_next() -> None:
    slow = replace(SPEC, start_seconds=600.0)
    assert two_pools(slow, deadline_time=instant(NOW + 120_000)) == {"burst": 0, "spare": 2}
    assert two_pools(slow, deadline_time=instant(NOW + 660_000)) == {"burst": 2, "spare": 0}
