"""Every refusal as a Status: the code of its row, a reason clients know, our own reason beside it."""

from __future__ import annotations

import pytest

from fairlead.api.app import refusal
from fairlead.api.failures import Failure, of_refusal
from fairlead.model.commands import Fault, Refused
from fairlead.model.refusals import REFUSALS

KNOWN = {
    "BadRequest", "Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Expired", "Invalid",
    "UnsupportedMediaType", "NotAcceptable", "MethodNotAllowed", "Timeout", "TooManyRequests", "InternalError",
    "ServiceUnavailable", "RequestEntityTooLarge",
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSALS)
def test_every_refusal_has_a_status(reason: str) -> None:
    failure = of_refusal(Refused(reason, "because"), "Workload", "workloads", "api")
    status = failure.status()
    assert status["code"] == REFUSALS[reason].http_status
    assert status["reason"] in KNOWN
    assert status["details"]["name"] == "api"
    assert reason in [cause["reason"] for cause in status["details"]["causes"]] or reason == "Invalid"


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.0, "1"), (2.5, "3")])
def test_who_is_to_wait_is_told_how_long(seconds: float, header: str) -> None:
    refused = Refused("Overloaded", "20000 commands wait already", retry_after_s=seconds)
    response = refusal(of_refusal(refused, "Workload", "workloads", "api"))
    assert response.status_code == 429
    assert response.headers["retry-after"] == header


def test_faults_are_causes_with_their_fields() -> None:
    faults = tuple(Fault(f"spec.f{n}", "is wrong") for n in range(5))
    status = of_refusal(Refused("Invalid", "x", faults=faults), "Workload", "workloads", "api").status()
    assert [cause["field"] for cause in status["details"]["causes"]] == [f"spec.f{n}" for n in range(5)]
    assert "(and 2 more)" in status["message"]


def test_a_message_that_cannot_be_sent_is_made_sendable() -> None:
    assert refusal(Failure(400, "half a pair: \ud800")).status_code == 400
