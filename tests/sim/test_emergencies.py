"""Emergency quotas that people order: one asks, another agrees, some are taken back. A campaign that used none is void."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairlead.decide.admission import faults
from fairlead.model.kinds.policy import Override
from fairlead.model.registry import KINDS
from fairlead.sim import campaign
from fairlead.sim.coverage import EMERGENCIES
from fairlead.sim.emergencies import MORE, THINKS_S, TTL_S, drawn
from fairlead.sim.loop import SimLoop, draws_of, run
from fairlead.sim.platform import Platform
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.trying import Trying
from fairlead.sim.verdict import Verdict
from fairlead.sim.viewers import APPROVER
from fairlead.sim.world import run_scenario
from fairlead.wire import json_codec

REGIONS = ("us-east", "us-west")


def test_whatever_is_drawn_is_admitted_and_all_of_it_is_drawn() -> None:
    draws = draws_of(1, "emergencies")
    orders = [drawn(draws, REGIONS) for _ in range(600)]
    for order in orders:
        body = order.body("e1")
        made = json_codec.decode(
            json_codec.encode({"metadata": {"name": "e1", "namespace": order.tenant}, "spec": body["spec"]}), Override
        )
        assert isinstance(made, Override), made
        assert faults(KINDS["overrides"], made, None) == ()
        assert TTL_S[0] <= order.ttl_s < TTL_S[1]
        assert order.thinks_s < THINKS_S[1] < TTL_S[0], "nobody agrees to what has ended"
    for drawn_so in ("agreed", "taken_back", "by_asker"):
        assert {getattr(order, drawn_so) for order in orders} == {True, False}, drawn_so
    assert {tuple(order.regions) for order in orders} == {(), ("us-east",), ("us-west",)}
    assert [more for more in MORE if not any(order.more == more for order in orders)] == []


def test_one_person_asks_and_another_agrees_with_a_token_of_their_own() -> None:
    wrote: list[tuple[str, str, Any, str]] = []
    people = SimpleNamespace(stopped=False)

    async def write(method: str, path: str, body: Any, name: str, token: str = "") -> Any:
        wrote.append((method, name, body, token))
        people.stopped = len(wrote) > 60
        return SimpleNamespace(status=403 if body and body["spec"].get("approver") == "ada" else 200)

    async def main(loop: SimLoop) -> Platform:
        platform = Platform(loop, Scenario(1, regions=2, work=Work(emergencies=30.0)))
        (task,) = Trying(platform, write, lambda text: None, lambda: people.stopped).tasks()
        await task()
        return platform

    platform = run(main, 1).value
    assert platform.approver_token not in ("", platform.token)
    agreed = [(name, token) for _, name, body, token in wrote if body and body["spec"].get("approver") == APPROVER]
    assert {token for _, token in agreed} == {platform.approver_token}
    assert {token for _, _, body, token in wrote if not body or body["spec"].get("approver") != APPROVER} == {""}
    asked = [name for method, name, _, _ in wrote if method == "POST"]
    assert len(set(asked)) == len(asked) > len(agreed) > 0
    counts = platform.machines.counts
    assert counts["emergency/agreed"] == len(agreed)
    assert counts["emergency/own"] == sum(bool(body and body["spec"].get("approver") == "ada") for _, _, body, _ in wrote) > 0
    assert counts["emergency/back"] == sum(method == "DELETE" for method, *_ in wrote) > 0


def test_nobody_else_orders_any_and_nobody_else_has_a_second_person() -> None:
    assert [name for name in PROFILES if campaign.scenario_of(1, name, 1.0).work.emergencies] == ["emergencies"]

    async def main(loop: SimLoop) -> str:
        return Platform(loop, Scenario(1)).approver_token

    assert run(main, 1).value == ""


def test_a_run_outlasts_what_its_last_emergency_quota_allowed() -> None:
    scenario = campaign.scenario_of(1, "emergencies", 1.0)
    assert scenario.settle_s >= TTL_S[1] + 300 + 20 + 60, "its end, its drain, the grace of what drains, a place elsewhere"


def test_emergency_quotas_are_agreed_to_and_used_and_what_they_allowed_is_gone_at_the_end() -> None:
    verdict = run_scenario(campaign.scenario_of(2, "emergencies", 2.0))
    assert not verdict.findings
    assert verdict.counts["emergency/agreed"] > 0
    assert verdict.counts["emergency/used"] > 0


def test_a_campaign_in_which_no_emergency_quota_was_used_is_void() -> None:
    met = {"F_region": 1, **dict.fromkeys(EMERGENCIES, 1)}
    one = Verdict(1, "emergencies", [], [], 1, 1.0, "t", 1, met, {}, {}, 1.0)
    assert campaign.summed([one], directed="emergencies")["void"] == []
    one.counts["emergency/used"] = 0
    void = campaign.summed([one], directed="emergencies")["void"]
    assert [(reason["kind"], reason["name"]) for reason in void] == [("fault", "emergency/used")]
