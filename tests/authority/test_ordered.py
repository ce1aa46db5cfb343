"""Names in order: a list comes to its end while others go on making objects."""

from __future__ import annotations

import random

import pytest

from fairlead.authority import ordered
from fairlead.authority.ordered import OrderedNames


def test_names_are_in_order_although_more_come_in_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "_BLOCK_MAX", 4)
    monkeypatch.setattr(ordered, "_SWEEP_BLOCKS", 8)
    draws, names, members = random.Random(1), OrderedNames(), dict.fromkeys(f"n{number:05d}" for number in range(3000))
    for name in members:
        names.add(name)
    while not names.settle(members):
        pass
    for name in draws.sample(sorted(members), 2000):
        del members[name]
        names.discard(name)
    for turn in range(500):
        for _ in range(4):  # enough for a block to be cut in two
            name = f"n{draws.randrange(3000):05d}.{turn}"
            members[name] = None
            names.add(name)
        if names.settle(members):
            break
    else:
        pytest.fail("whoever lists would wait for as long as the others go on")
    assert [name for name in names.after("") if name in members] == sorted(members)
