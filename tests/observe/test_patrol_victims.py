"""A slot that leaves for another one counts once, whatever becomes of its node meanwhile."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.patrol import Breach, Patrol, Seen


class Row(NamedTuple):
    tenant: str
    name: str
    hot: Any


NODE = Row("", "n1", Node(Metadata(name="n1"), NodeSpec(region="eu", allocatable=Resources(1200, 1 << 40), max_slots=10)))


def bound(name: str, state: SlotState, start_after: tuple[str, ...] = (), node: str = "n1") -> Row:
    hot = BindingHot(node, state, Token(1, 1, 1), Resources(800, 1), (), False, 0, 1, f"u-{name}", 0, start_after=start_after)
    return Row("t", name, hot)


def looked(*bindings: Row) -> list[Breach]:
    patrol = Patrol()
    list(patrol.look(Seen([NODE], [], [], [])))
    return [breach for told in patrol.look(Seen([NODE], bindings, [], [])) for breach in told]


def test_a_victim_whose_node_fell_silent_before_it_had_left_is_counted_with_its_evictor_once() -> None:
    evictor = bound("api-0", SlotState.UNKNOWN, ("t/feed-0",))
    assert looked(bound("feed-0", SlotState.DRAINING), evictor) == []
    assert looked(bound("feed-0", SlotState.UNKNOWN), evictor) == []
    assert looked(bound("feed-0", SlotState.SERVING), evictor) != []
    elsewhere = bound("api-0", SlotState.UNKNOWN, ("t/feed-0",), node="n2")
    both = bound("feed-0", SlotState.UNKNOWN), bound("feed-1", SlotState.SERVING)
    assert looked(*both, elsewhere) != [], "its place is not that one's"
