"""`fairlead plan --lose-region`: the outlook in words, and an exit code for scripts."""

from __future__ import annotations

import json

import pytest

from fairlead.cli import frame
from tests.cli.talks import talk
from tests.client.fake_api import FakeApi

API = {"tenant": "risk", "workload": "api", "region": "us-west", "newSlots": 2, "seconds": 24.0}


def outlook(api: FakeApi, region: str, *services: dict[str, object], ready: int = 0, short: int = 0) -> None:
    spec = {"region": region, "services": list(services), "ready": ready, "short": short, "seconds": 24.0}
    api.put("regionoutlooks", region, "", spec=spec)


SHORT = {**API, "region": "", "missing": 2, "why": "budget 'risk/critical' holds no more in us-west"}


def test_a_region_whose_loss_would_be_survived_is_a_change(api: FakeApi) -> None:
    outlook(api, "us-east", API, ready=1)
    for more in ((), ("--require-ready",)):
        said = talk("plan", "--lose-region", "us-east", *more)
        assert said.code == frame.CHANGES
        assert "the one critical service would reach its minimum, in 24 s" in said.out
        assert [*said.out.splitlines()[-1].split()] == ["risk", "api", "us-west", "2", "24", "0", "-"]


def test_services_that_need_nothing_new_are_said_to_be_there_at_once(api: FakeApi) -> None:
    """What is nothing is left out of an object: no seconds, no new slots."""
    service = {"tenant": "risk", "workload": "api", "region": "us-west"}
    api.put("regionoutlooks", "us-east", "", spec={"region": "us-east", "services": [service], "ready": 1})
    said = talk("plan", "--lose-region", "us-east")
    assert said.code == frame.CHANGES, said.err
    assert "the one critical service would reach its minimum, in 0 s" in said.out


def test_one_whose_loss_would_not_says_so_loudly_and_fails_where_readiness_is_required(api: FakeApi) -> None:
    outlook(api, "us-east", SHORT, ready=0, short=1)
    said = talk("plan", "--lose-region", "us-east")
    assert said.code == frame.CHANGES
    assert said.out.startswith("NOT READY: if us-east were lost now, 1 of 1 critical services would NOT")
    assert "holds no more in us-west" in said.out
    assert talk("plan", "--lose-region", "us-east", "--require-ready").code == frame.CHECK_FAILED


def test_a_region_that_is_lost_is_not_told_of_as_if_it_were_there(api: FakeApi) -> None:
    outlook(api, "us-east", API, ready=1)
    api.put("regions", "us-east", "", status={"health": "Lost"})
    said = talk("plan", "--lose-region", "us-east")
    assert said.out.startswith("us-east IS LOST. What follows was worked out while it was healthy")
    assert "Had us-east been lost then, the one critical service would" in said.out
    assert "were lost now" not in said.out
    assert json.loads(talk("plan", "--lose-region", "us-east", "-o", "json").out)["status"]["lost"] is True


@pytest.mark.parametrize(("service", "ready"), [(API, True), (SHORT, False)])
def test_the_json_of_a_loss_says_whether_anything_changes_and_whether_it_is_ready(
    api: FakeApi, service: dict[str, object], ready: bool
) -> None:
    outlook(api, "us-east", service, ready=int(ready), short=int(not ready))
    said = talk("plan", "--lose-region", "us-east", "-o", "json")
    assert said.code == frame.CHANGES
    status = json.loads(said.out)["status"]
    assert (status["changed"], status["recoveryReady"]) == (True, ready)


def test_a_region_in_which_nothing_runs_changes_nothing_and_one_with_other_work_does(api: FakeApi) -> None:
    outlook(api, "us-east")
    said = talk("plan", "--lose-region", "us-east")
    assert (said.code, "nothing runs there" in said.out) == (frame.OK, True)
    assert json.loads(talk("plan", "--lose-region", "us-east", "-o", "json").out)["status"]["changed"] is False
    api.put("bindings", "analytics-0", "analytics", spec={"node": "us-east-n1"})
    said = talk("plan", "--lose-region", "us-east")
    assert (said.code, "what else runs there would be lost" in said.out) == (frame.CHANGES, True)


def test_an_unknown_region_is_an_error(api: FakeApi) -> None:
    outlook(api, "us-east")
    said = talk("plan", "--lose-region", "mars")
    assert said.code == frame.NOT_FOUND
    assert "us-east" in said.err
