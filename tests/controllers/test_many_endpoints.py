"""More replicas than one Endpoints object holds: as many as fit are named, and those can still be withdrawn."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.controllers import rollout as rollout_module
from fairlead.controllers.rollout import RolloutController
from fairlead.decide.admission import OBJECT_BYTES_MAX
from fairlead.model import codec
from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.work import Endpoint, Endpoints
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from tests.controllers.test_long import NODES, Region

_S = SlotState


def _written(made: Region) -> Endpoints | None:
    """Looks until Endpoints are written or nothing is left to do; tells the controller what it wrote."""
    for _ in range(20):
        result = made.look()
        for body in result.bodies:
            if isinstance(body, Put) and body.kind == "Endpoints":
                found: Endpoints = body.object
                made.tell("endpoints", "risk", "api", found)
                return found
        made.now_ms += 1000
    return None


def _ready(count: int, address: str = "") -> Region:
    made = Region(RolloutController(), count)
    for number in range(NODES if address else 0):
        spec = NodeSpec(region="r", zone="a", address=address)
        made.tell(
            "nodes", "", f"n{number}", Node(metadata=Metadata(name=f"n{number}"), spec=spec, status=NodeStatus(health="Ready"))
        )
    for index in range(count):
        made.bind(index, _S.READY)
    return made


def _slots(found: Endpoints | None) -> list[int]:
    assert found is not None
    return [endpoint.slot for endpoint in found.spec.endpoints]


def test_endpoints_are_never_larger_than_an_object_may_be() -> None:
    found = _written(_ready(1500, "a" * 250))
    assert found is not None
    size = len(codec.encode(found))
    assert OBJECT_BYTES_MAX - 16 * 1024 < size < OBJECT_BYTES_MAX
    assert _slots(found) == list(range(len(found.spec.endpoints)))


def test_who_is_named_stays_named_and_who_fails_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    one = len(codec.encode(Endpoint(slot=0, node="n0", address="n0")))
    monkeypatch.setattr(rollout_module, "ENDPOINTS_BYTES_MAX", 10 * one + 8)
    made = _ready(15)
    made.bind(2, _S.STARTING)
    assert _slots(_written(made)) == [0, 1, *range(3, 11)]
    made.bind(2, _S.READY)
    assert _written(made) is None  # there is no room for it, and nobody is sent away
    made.bind(5, _S.FAILED)
    assert _slots(_written(made)) == [0, 1, 2, 3, 4, *range(6, 11)]


def test_the_condition_says_how_many_found_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    one = len(codec.encode(Endpoint(slot=0, node="n0", address="n0")))
    monkeypatch.setattr(rollout_module, "ENDPOINTS_BYTES_MAX", 10 * one + 8)
    made = _ready(15)
    said: list[Any] = []
    for _ in range(4):
        said += [body.status.conditions for body in made.look().bodies if isinstance(body, PutStatus)]
        made.now_ms += 2000
    assert said
    assert said[-1][0].message.endswith("5 more are ready, and Endpoints of one region hold no more")
