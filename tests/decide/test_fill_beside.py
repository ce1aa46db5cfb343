"""Expected fill: requests without devices where nodes have devices, and what a place for wide requests is worth."""

from __future__ import annotations

import numpy as np

from fairlead.decide.scores.fill.kernel import States
from fairlead.decide.scores.fill.lists import LISTS, Mix, pattern_of
from fairlead.decide.scores.fill.nodes import Nodes
from fairlead.decide.scores.fill.scarce import WIDE_LEAST, WIDE_MORE, Wide
from fairlead.model.resources import SHARE_WHOLE
from tests.decide.test_fill import best, learnt, need, picture, use

WHOLE = need(gpus=1)


def test_among_nodes_whose_devices_are_taken_the_fullest_is_filled() -> None:
    """No device can be lost on any of them, so the lists see no difference; the CPU left over should lie together."""
    snapshot = picture(*(((32, 64, 1, "a"),) * 3))
    for row in range(3):
        use(snapshot, f"g{row}", row, WHOLE, 0)
    use(snapshot, "c", 1, need(8000, 8))
    score = learnt(snapshot, (need(4000, 4), 10), (WHOLE, 50))
    assert best(score, snapshot, need(4000, 4)) == 1


def test_a_device_is_not_left_without_cpu_to_keep_another_node_empty() -> None:
    """The fuller node has just enough CPU for its free device; the emptier one has CPU that no device needs."""
    snapshot = picture((16, 64, 1, "a"), (32, 64, 1, "a"))
    usual = need(8000, 8, gpus=1)
    use(snapshot, "g", 1, usual, 0)
    use(snapshot, "c", 0, need(8000, 8))
    score = learnt(snapshot, (need(4000, 4), 5), (usual, 50))
    assert best(score, snapshot, need(4000, 4)) == 1


def test_where_models_are_named_a_small_node_is_not_preferred_while_its_device_is_free() -> None:
    """Both have CPU to spare, so no device would be lost; without names the small one is the fuller."""
    snapshot = picture((64, 64, 1, "common"), (16, 16, 1, "rare"))
    usual, choosy, plain = need(1000, 1, gpus=1), need(1000, 1, gpus=1, models=("rare",)), need(2000, 2)
    assert best(learnt(snapshot, (usual, 10)), snapshot, plain) == 1
    assert best(learnt(snapshot, (usual, 10), (choosy, 1)), snapshot, plain) == 0


def test_a_node_without_devices_comes_first_however_empty_it_is() -> None:
    snapshot = picture((32, 64, 1, "a"), (128, 512, 0, ""))
    use(snapshot, "g", 0, WHOLE, 0)
    use(snapshot, "c", 0, need(28_000, 60))
    score = learnt(snapshot, (need(1000, 1), 10), (WHOLE, 50))
    assert best(score, snapshot, need(1000, 1)) == 1


def test_a_place_for_wide_requests_is_worth_less_as_the_fleet_fills() -> None:
    """At the full price: no place is left, so the price is one. The worth is asked of a node that is empty, in thought."""
    found = []
    for taken in (8, 32 - 8, 32 - 4, 32):
        snapshot = picture(*(((96, 96, 8, "a"),) * 4))
        for device in range(taken):  # one on each node at least, so that none has a place
            use(snapshot, f"s{device}", device % 4, WHOLE, device // 4)
        mix, nodes = Mix(), Nodes()
        nodes.follow(snapshot)
        assert nodes.capacity == 32 * SHARE_WHOLE
        mix.observe(pattern_of(WHOLE), 90)
        mix.observe(pattern_of(need(8000, 8, gpus=8)), 5)
        kind = np.array([nodes.kinds["gpu", ("a",)]], np.int64)
        empty = States(np.array([96_000]), np.array([96 << 10]), kind, np.full((1, 8), SHARE_WHOLE, np.int16))
        found.append(int(Wide(mix, nodes).worth(empty)[0]) // (LISTS * 8))
    most, half = WIDE_LEAST + WIDE_MORE, WIDE_LEAST + WIDE_MORE // 2
    assert found == [most, most, half, WIDE_LEAST]


def test_devices_are_counted_once_however_often_their_node_changes() -> None:
    snapshot, nodes = picture((96, 96, 8, "a"), (96, 96, 2, "b")), Nodes()
    for number in range(3):
        nodes.follow(snapshot)
        assert nodes.capacity == 10 * SHARE_WHOLE
        use(snapshot, f"s{number}", 0, WHOLE, number)
    snapshot.set_node("n1", picture((1, 1, 0, ""), (96, 96, 1, "b"))._nodes["n1"])
    nodes.follow(snapshot)
    assert nodes.capacity == 9 * SHARE_WHOLE
