"""Masks that are remembered say what asking again would say, whatever happens to the nodes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fairlead.decide.fit import open_to
from fairlead.model.kinds.capacity import NodePool, NodePoolSpec
from fairlead.model.meta import Metadata
from fairlead.scheduler import doors as module
from fairlead.scheduler.doors import Doors
from fairlead.scheduler.needs import compile_for_ranking
from fairlead.scheduler.policies import Policies
from tests.scheduler.fleets import node, request, snapshot_of


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_is_what_would_be_found(seed: int) -> None:
    draws = random.Random(seed)
    snapshot = snapshot_of(*(node(f"n{n}", zone="ab"[n % 2], pool="gold" if n % 3 == 0 else "") for n in range(9)))
    policies, doors = Policies(), Doors(snapshot)
    for _ in range(120):
        name = f"n{draws.randrange(12)}"
        match draws.randrange(6):
            case 0:
                snapshot.set_node(name, node(name, ready=draws.random() < 0.5, cordoned=draws.random() < 0.3))
            case 1:
                snapshot.set_node(name, None)
            case 2:
                allowed = draws.choice(((), ("risk",), ("search",)))
                snapshot.set_pool("gold", NodePool(metadata=Metadata(name="gold"), spec=NodePoolSpec(allowed_tenants=allowed)))
            case 3:
                snapshot.now_ms += draws.choice((100, 1500, 20_000))
            case _:
                snapshot.heard([(name, snapshot.now_ms)], 30_000)
        policy = policies.policy_for("risk")
        assert policy is not None
        columns = compile_for_ranking(snapshot, request("a-0"), policy).columns
        found, wanted = doors.open_to(columns), open_to(columns, snapshot.fleet.all(), snapshot)
        closed_late = found & ~wanted  # a node that fell silent within the last second: noticed when it is chosen
        silent = snapshot.fleet.columns["observed_ms"][: snapshot.fleet.rows] < snapshot.now_ms - columns.max_age_ms
        assert not (wanted & ~found).any()
        assert not (closed_late & ~silent).any()


def test_it_is_asked_once_for_slots_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(*args: object) -> object:
        asked.append(1)
        return open_to(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "open_to", counted)
    snapshot = snapshot_of(*(node(f"n{n}") for n in range(4)))
    policy, doors = Policies().policy_for("risk"), Doors(snapshot)
    assert policy is not None
    masks = [doors.open_to(compile_for_ranking(snapshot, request("a-0", cpu=100 + n), policy).columns) for n in range(5)]
    assert all(np.array_equal(masks[0], mask) for mask in masks)
    assert len(asked) == 1
