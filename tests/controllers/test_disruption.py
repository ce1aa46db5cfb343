"""The disruption controller, looked at as a value: a picture in, commands out."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import Result, View
from fairlead.controllers.disruption import DisruptionController
from fairlead.decide.disruption import WITHDRAW_MS
from fairlead.decide.slots import instant
from fairlead.model.commands import Move
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import EvictionRequest, EvictionRequestSpec, EvictionRequestStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata
from tests.controllers.test_overrides import fill
from tests.controllers.test_repair import NOW, TRAFFIC, bound, node, order

_S = SlotState


def looked(approved_ms: int, state: SlotState, *objects: tuple[str, Any]) -> Result:
    """At one request to leave that was approved then."""
    approved = Condition(
        type="Approved", status="True", reason="WithinBudget", observed_generation=1, last_transition_time=instant(approved_ms)
    )
    spec = EvictionRequestSpec(slot=SlotRef(workload="api", uid="u", index=0), reason="rollout", epoch=2)
    status = EvictionRequestStatus(observed_generation=1, conditions=(approved,))
    asked = EvictionRequest(Metadata(name="api-0", namespace="t", generation=1), spec, status)
    view = fill(View(DisruptionController.indexes, {}), ("evictionrequests", asked), bound(state), *objects)
    return DisruptionController().reconcile(("t", "api"), view, NOW)


def test_what_waits_for_its_traffic_is_looked_at_when_that_takes_too_long() -> None:
    assert looked(NOW - 1000, _S.SERVING, order(), node("Ready"), TRAFFIC) == Result([], NOW - 1000 + WITHDRAW_MS)


def test_what_waits_for_a_silent_node_is_not_looked_at_again_and_again() -> None:
    assert looked(NOW - 2 * WITHDRAW_MS, _S.UNKNOWN, order(), node("Unknown")) == Result([], None)
    assert looked(NOW - WITHDRAW_MS, _S.UNKNOWN, order(), node("Unknown")) == Result([], None)


@pytest.mark.parametrize(("timeout_s", "least_s", "most_s"), [(600, 600.0, 600.0), (0, 1e-6, 0.01)])
def test_a_drain_has_a_deadline_and_a_timeout_of_nought_means_at_once(timeout_s: int, least_s: float, most_s: float) -> None:
    plural, assignment = order()
    spec = replace(assignment.spec, drain_timeout_seconds=timeout_s)
    (move,) = looked(NOW - 1000, _S.READY, (plural, replace(assignment, spec=spec)), node("Ready")).bodies
    assert isinstance(move, Move)
    assert move.to is _S.DRAINING
    assert least_s <= move.deadline_s <= most_s
