"""`fairlead plan --lose-region`: the outlook in words, and an exit code for scripts."""

from __future__ import annotations

from fairlead.cli import frame
from tests.cli.talks import talk
from tests.client.fake_api import FakeApi

API = {"tenant": "risk", "workload": "api", "region": "us-west", "newSlots": 2, "seconds": 24.0}


def outlook(api: FakeApi, region: str, *services: dict[str, object], ready: int = 0, short: int = 0) -> None:
    spec = {"region": region, "services": list(services), "ready": ready, "short": short, "seconds": 24.0}
    api.put("regionoutlooks", region, "", spec=spec)


def test_a_region_whose_loss_would_be_survived(api: FakeApi) -> None:
    outlook(api, "us-east", API, ready=1)
    said = talk("plan", "--lose-region", "us-east")
    assert said.code == frame.OK
    assert "all 1 critical services would reach their minimum, in 24 s" in said.out
    assert [*said.out.splitlines()[-1].split()] == ["risk", "api", "us-west", "2", "24", "0", "-"]


def test_one_whose_loss_would_not_says_what_is_missing_and_ends_with_its_own_code(api: FakeApi) -> None:
    short = {**API, "region": "", "missing": 2, "why": "budget 'risk/critical' holds no more in us-west"}
    outlook(api, "us-east", short, ready=0, short=1)
    said = talk("plan", "--lose-region", "us-east")
    assert said.code == frame.CHECK_FAILED
    assert "1 of 1 critical services would NOT" in said.out
    assert "holds no more in us-west" in said.out
    assert talk("plan", "--lose-region", "us-east", "-o", "json").code == frame.CHECK_FAILED


def test_nothing_to_recover_and_an_unknown_region(api: FakeApi) -> None:
    outlook(api, "us-east")
    assert "nothing would have to be recovered" in talk("plan", "--lose-region", "us-east").out
    said = talk("plan", "--lose-region", "mars")
    assert said.code == frame.ERROR
    assert "us-east" in said.err
