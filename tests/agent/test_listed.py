"""What a node takes for its own when its leader lists what is bound to it, and what it says of itself then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.agent.handshake import Handshake
from fairlead.agent.node import Node
from fairlead.agent.region import Inventory
from fairlead.agent.remembered import Remembered
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.client.plane import Expired
from fairlead.model import codec
from fairlead.model.commands import Accepted, Command, Outcome, PutStatus
from fairlead.model.ids import revision
from fairlead.model.kinds.capacity import Node as NodeObject
from fairlead.model.kinds.capacity import NodeSpec, NodeStatus
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata


def seen_of(epoch: int, position: int, state: SlotState = SlotState.BOUND) -> Any:
    spec = BindingSpec(slot=SlotRef(workload="api", uid="w1", index=0), node="n1", token=Token(1, epoch, 1), generation=1)
    binding = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(state=state))
    return SimpleNamespace(tenant="risk", name="api-0", position=position, raw=codec.encode(binding))


@pytest.mark.parametrize("now_at", [5, 20], ids=["the region is behind", "its positions were given out again"])
def test_what_was_known_when_the_leader_was_asked_does_not_stand_against_its_answer(now_at: int) -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.saw_listing(revision(1, 4), [seen_of(1, 3)])
    node.saw_binding(seen_of(2, 9))  # bound again, in a batch that the region's store then lost
    node.asks()
    slots = node.saw_listing(revision(1, now_at), [seen_of(1, 4, SlotState.DRAINING)])
    older, later = sorted(slots, key=lambda slot: slot.id.token)
    assert node.current(older) is not None
    assert node.current(later) is None, "its region knows nothing of it: it ends"


def test_what_was_heard_after_the_leader_was_asked_stands_where_it_is_from_later_than_the_answer() -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.saw_listing(revision(1, 4), [seen_of(1, 3)])
    node.asks()
    node.saw_binding(seen_of(2, 9))
    slots = node.saw_listing(revision(1, 8), [seen_of(1, 3)])
    assert [slot.id.token.epoch for slot in slots if node.current(slot) is not None] == [2]
    node.saw_listing(revision(1, 8), [])
    assert node.bound, "nor is it taken away by an answer from before it"


def gone(position: int) -> Any:
    return SimpleNamespace(tenant="risk", name="api-0", position=position, raw=None)


def test_what_left_after_the_leader_was_asked_is_not_bound_again_by_an_answer_from_before_it() -> None:
    """A node that stood still for longer than its lease, and whose feed was open all the while."""
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.saw_listing(revision(1, 4), [seen_of(1, 3)])
    node.asks()
    node.saw_binding(gone(9))
    (slot,) = node.saw_listing(revision(1, 8), [seen_of(1, 3)])
    assert node.current(slot) is None, "nobody tells it again that this has ended"
    node.asks()
    node.saw_listing(revision(1, 10), [seen_of(2, 10)])
    assert node.bound, "it was bound anew since"


@pytest.mark.parametrize("answered", [revision(1, 20), revision(2, 8)], ids=["a later answer", "another history"])
def test_what_left_before_the_leader_answered_and_is_listed_all_the_same_is_bound(answered: int) -> None:
    """That it left is in batches that the region's store then lost."""
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.saw_listing(revision(1, 4), [seen_of(1, 3)])
    node.asks()
    node.saw_binding(gone(9))
    node.saw_listing(answered, [seen_of(1, 3)])
    assert node.bound


class Behind:
    """A region whose store has lost its end: what it lists is older than what its nodes have seen, in the same incarnation."""

    def __init__(self, at: int, node: NodeObject, bindings: list[Any]) -> None:
        self._at, self._node, self._bindings = revision(1, at), node, bindings

    async def inventory(self, held: Any) -> Inventory:
        return Inventory(self._at, [SimpleNamespace(**vars(one), hot=SimpleNamespace(node="n1")) for one in self._bindings])

    async def nodes(self, names: Any) -> Any:
        return self._at, [SimpleNamespace(name="n1", position=5, raw=codec.encode(self._node))]


async def test_a_node_that_tells_its_inventory_takes_its_leaders_word_for_its_bindings_and_for_itself() -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.session, node.registered = 3, True
    node.saw_listing(revision(1, 4), [seen_of(1, 3)])
    node.saw_binding(seen_of(2, 9))  # bound again and cordoned, in batches that the region's store then lost
    cordoned = NodeObject(Metadata(name="n1"), NodeSpec(unschedulable=True), NodeStatus(session=3))
    node.saw_object(SimpleNamespace(name="n1", position=10, raw=codec.encode(cordoned)))
    as_it_is = NodeObject(Metadata(name="n1"), NodeSpec(), NodeStatus(session=3))
    region: Any = Behind(8, as_it_is, [seen_of(1, 4, SlotState.DRAINING)])
    _, slots = await Handshake(region, {}).tell([node])
    assert {slot.id.token.epoch for slot in slots if node.current(slot) is not None} == {1}, "what was lost is bound no more"
    assert node.object is not None
    assert not node.object.spec.unschedulable, "what it writes next builds on the object that there is"


async def test_a_node_that_was_closed_again_before_it_had_the_answer_to_its_confirmation_confirms_anew() -> None:
    """Its region's node controller had not heard it yet and called it lost; the feed told that before the answer came."""
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.session, node.registered, node.synced = 3, True, True
    lost = NodeObject(Metadata(name="n1"), NodeSpec(), NodeStatus(session=3, health="Lost"))
    node.saw_object(SimpleNamespace(name="n1", position=10, raw=codec.encode(lost)))
    closed_at = [12, 0, 0]

    class Region:
        async def submit(self, commands: list[Command]) -> list[Outcome]:
            at = closed_at.pop(0)
            if at:
                node.saw_object(SimpleNamespace(name="n1", position=at, raw=codec.encode(lost)))
            return [Accepted(revision(1, 11 if at else 13), "nodes//n1", "") for _ in commands]

    region: Any = Region()
    handshake = Handshake(region, {})
    await handshake.confirm([node])
    assert node.object is not None
    assert (node.confirmed, node.object.status.schedulable, node.object_position) == (False, False, 12)
    await handshake.confirm([node])
    assert (node.confirmed, node.object.status.schedulable, node.object_position) == (True, True, 13)


class Telling:
    """A region that takes in what its nodes say of themselves."""

    def __init__(self, incarnation: int, status: NodeStatus, *bindings: Any) -> None:
        self.at, self.bindings = revision(incarnation, 8), bindings
        self.written = [status]

    async def inventory(self, held: Any) -> Inventory:
        return Inventory(self.at, [SimpleNamespace(**vars(one), hot=SimpleNamespace(node="n1")) for one in self.bindings])

    async def nodes(self, names: Any) -> Any:
        node = NodeObject(Metadata(name="n1"), status=self.written[-1])
        return self.at, [SimpleNamespace(name="n1", position=5, raw=codec.encode(node))]

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        self.written.extend(command.body.status for command in commands if isinstance(command.body, PutStatus))
        return [Accepted(self.at + 1, "nodes//n1", "") for _ in commands]


async def test_until_its_region_has_heard_what_is_not_begun_whoever_speaks_for_the_node_next_does_not_begin_it_either() -> None:
    region: Any = Telling(2, NodeStatus(session=3, incarnation=1), seen_of(1, 4))
    handshake = Handshake(region, {})
    for restarts in range(2):
        node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
        node.session, node.registered = 3, True
        await handshake.tell([node])
        await handshake.confirm([node])
        await handshake.confirm([node])
        (slot,) = node.slots.values()
        assert (slot.forgone, node.confirmed) == (True, False), restarts
    said = [(status.schedulable, status.incarnation) for status in region.written]
    assert said == [(False, 1), (True, 1)], "it takes work, and says so once"
    node.bound[slot.key].state = SlotState.FAILED
    await handshake.confirm([node])
    assert (node.confirmed, region.written[-1].incarnation) == (True, 2)


async def test_an_inventory_that_was_told_in_one_history_is_told_again_where_the_node_is_read_in_another() -> None:
    region: Any = Telling(1, NodeStatus(session=3), seen_of(1, 4))
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.session, node.registered = 3, True
    told = region.inventory

    async def inventory(held: Any) -> Inventory:
        answer: Inventory = await told(held)
        region.at = revision(2, 8)
        return answer

    region.inventory = inventory
    handshake = Handshake(region, {})
    with pytest.raises(Expired):
        await handshake.tell([node])
    assert (node.synced, node.bound) == (False, {}), "of which history that is nobody can tell"
    await handshake.tell([node])
    assert (node.synced, node.listed_in, len(node.bound)) == (True, 2, 1)


async def test_a_node_says_in_which_incarnation_it_listed_what_it_runs_and_says_it_anew_in_each() -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    node.session, node.registered = 3, True
    region: Any = Telling(1, NodeStatus(session=3))
    handshake = Handshake(region, {})
    for incarnation in (1, 1, 2):
        region.at = revision(incarnation, 8)
        node.synced = node.confirmed = False
        await handshake.tell([node])
        await handshake.confirm([node])
        assert node.confirmed
    assert [(status.schedulable, status.incarnation) for status in region.written[1:]] == [(True, 1), (True, 2)]
