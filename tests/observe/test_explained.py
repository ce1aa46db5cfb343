"""What waits and does not say why is found after its bound; what says it is not; a world asks it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.kinds.work import SchedulingRequest, SchedulingRequestStatus
from fairlead.observe.explained import BOUND_S, ExplainedChecker, lacks
from fairlead.sim import campaign
from fairlead.sim.world import run_scenario
from tests.authority.planes import request_of

THEN = datetime(2030, 1, 1, tzinfo=UTC)
SAID = SchedulingRequestStatus(reason="WaitingForQuota", since_time=THEN, next_owner="quota-controller", next_attempt_time=THEN)


def waits(status: SchedulingRequestStatus, **spec: Any) -> dict[str, Any]:
    request: SchedulingRequest = request_of("risk", "api", 0)
    request = replace(request, status=status, spec=replace(request.spec, **spec))
    return {"schedulingrequests": {("risk", "api-0"): request}}


@pytest.mark.parametrize(
    ("status", "missing"),
    [
        (SAID, ""),
        (replace(SAID, reason="PendingEvaluation"), "why it waits"),
        (replace(SAID, reason=""), "why it waits"),
        (replace(SAID, since_time=None), "since when"),
        (replace(SAID, next_owner=""), "whose turn it is"),
        (replace(SAID, next_attempt_time=None), "when it is looked at again"),
    ],
)
def test_each_part_of_an_explanation_is_asked_for(status: SchedulingRequestStatus, missing: str) -> None:
    assert lacks(waits(status)["schedulingrequests"]["risk", "api-0"]) == missing


def test_it_is_found_after_its_bound_and_not_before() -> None:
    checker = ExplainedChecker()
    silent = waits(SchedulingRequestStatus())
    assert checker.look(10.0, "us-east", silent) == []
    assert checker.look(10.0 + BOUND_S, "us-east", silent) == []
    (found,) = checker.look(11.0 + BOUND_S, "us-east", silent)
    assert "api-0 in us-east has waited 61 s" in found
    assert checker.look(12.0 + BOUND_S, "us-east", waits(SAID)) == [], "it has said it"
    assert checker.look(13.0 + BOUND_S, "us-east", silent) == [], "and is counted anew"
    assert checker.checked == 5


def test_what_says_that_it_is_held_when_that_is_over_is_found() -> None:
    held = waits(replace(SAID, reason="OnHold", detail="held by ada"))
    over_ms = int((THEN.timestamp() + BOUND_S) * 1000)
    assert ExplainedChecker().look(0.0, "us-east", held, over_ms) == []
    (found,) = ExplainedChecker().look(0.0, "us-east", held, over_ms + 1)
    assert found == "risk/api-0 in us-east says what is over: held by ada"
    assert ExplainedChecker().look(0.0, "us-east", waits(SAID), over_ms + 1) == [], "whatever else it waits for, it may go on to"


def test_what_people_suspended_waits_for_them() -> None:
    checker = ExplainedChecker()
    silent = waits(SchedulingRequestStatus(), suspend=True)
    assert checker.look(0.0, "us-east", silent) == checker.look(100.0, "us-east", silent) == []
    assert checker.checked == 0


def test_a_world_asks_it_of_what_waits_at_its_end() -> None:
    scenario = replace(campaign.scenario_of(2, "tight", 0.3), settle_s=5.0, quiet_s=1.0)
    verdict = run_scenario(scenario)
    assert not verdict.findings
    assert verdict.checked["L12"] > 0
