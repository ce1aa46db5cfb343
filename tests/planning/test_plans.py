"""`fairlead plan` against a whole platform: who moves, who is evicted, who waits and why, who may see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from fairlead.cli import frame
from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.model.commands import Put
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy
from fairlead.model.meta import Metadata
from tests.authority.planes import OPERATOR, ok
from tests.cli.talks import talk
from tests.planning.manifests import critical, workload, written
from tests.planning.platform import Platform


def planned(*words: object) -> dict[str, Any]:
    ran = talk("plan", *words, "-o", "json")
    assert ran.code in (frame.OK, frame.CHANGES), ran
    status: dict[str, Any] = msgspec.json.decode(ran.out)["status"]
    assert status["settled"]
    return status


def serves(here: Platform, name: str, count: int, tenant: str = "risk") -> None:
    def serving() -> bool:
        return sum(len(here.rigs[region].serving(name, tenant)) for region in ("east", "west")) == count

    here.run(here.until(serving, lambda: (here.bound(name, tenant), here.waits(name, tenant))))


def applied(here: Platform, folder: Path, *trees: dict[str, Any]) -> None:
    ran = talk("apply", "-f", written(folder, *trees, name="applied.json"))
    assert ran.code == frame.OK, ran


def test_a_plan_says_who_would_wait_and_changes_nothing(here: Platform, tmp_path: Path) -> None:
    ran = talk("plan", "-f", written(tmp_path, workload("many", replicas=30)))
    assert ran.code == frame.CHANGES, ran
    assert "Slots that would start 24, move 0, lose their place 0, end 0, wait 6 (today 0)." in ran.out
    assert "of 3 nodes: 3 cpu" in ran.out
    assert "+ workload/many -n risk" in ran.out
    assert "0 -> 12" in ran.out
    assert here.get("workloads", "many") is None


def test_what_is_there_already_is_no_change(here: Platform, tmp_path: Path) -> None:
    applied(here, tmp_path, workload("same"))
    serves(here, "same", 2)
    ran = talk("plan", "-f", written(tmp_path, workload("same")))
    assert (ran.code, ran.out.splitlines()[0]) == (frame.OK, "No changes.")
    here.run(here.forget("same"))


def test_a_drain_moves_what_it_may_and_names_the_budget_that_blocks_the_rest(here: Platform, tmp_path: Path) -> None:
    placed = {"regions": {"allowed": ["east"]}}
    kept = workload("kept", replicas=3, placement=placed | {"maxPerNode": 1}, disruption={"minServing": 3})
    applied(here, tmp_path, workload("loose", replicas=3, placement=placed | {"maxPerNode": 2}), kept)
    serves(here, "loose", 3)
    serves(here, "kept", 3)
    status = planned("drain", "east-n0")
    here.run(here.until(lambda: here.get("nodes", "east-n0", "", "east").spec.drain is None))
    left = [hot for hot in here.rigs["east"].slots("loose").values() if hot.node == "east-n0"]
    moved = [row for row in status["slots"] if row["workload"] == "loose"]
    assert [(row["mark"], row["fromNode"]) for row in moved] == [("~", "east-n0")] * len(left)
    assert all(row["toNode"] in ("east-n1", "east-n2") for row in moved)
    (drain,) = status["drains"]
    assert (drain["node"], drain["left"]) == ("east-n0", 1)
    assert "minServing" in drain["message"] or "3" in drain["message"]
    assert not [row for row in status["slots"] if row["workload"] == "kept"]
    here.run(here.forget("loose", "kept"))


def test_whoever_would_be_evicted_is_named_with_whom_it_makes_room_for_and_what_it_then_waits_for(
    here: Platform, tmp_path: Path
) -> None:
    placed = {"regions": {"allowed": ["west"]}}
    applied(here, tmp_path, workload("low", replicas=12, tenant="billing", workloadClass="best-effort", placement=placed))
    serves(here, "low", 12, "billing")
    file = written(tmp_path, workload("high", replicas=2, workloadClass="critical", placement=placed))
    status = planned("-f", file)
    gone = [row for row in status["slots"] if row["mark"] == "-"]
    assert [row["workload"] for row in gone] == ["low", "low"]
    assert {row["by"] for row in gone} == {"risk/high-0", "risk/high-1"}
    assert {(row["workload"], row["reason"], row["count"]) for row in status["pending"]} == {("low", "WaitingForCapacity", 2)}

    seen = planned("-f", file, "--context", "eve")  # may see her own tenant, and no node
    assert {row["namespace"] for part in ("slots", "workloads", "pending") for row in seen[part]} == {"risk"}
    assert {row["toNode"] for row in seen["slots"]} == {""}
    assert (seen["cost"], seen["drains"], seen["readiness"]) == ([], [], [])
    here.run(here.forget("low", tenant="billing"))


def test_nobody_plans_what_they_may_not_do(here: Platform, tmp_path: Path) -> None:
    assert talk("plan", "drain", "east-n0", "--context", "eve").code == frame.DENIED
    file = written(tmp_path, workload("theirs", tenant="billing"))
    assert talk("plan", "-f", file, "--context", "eve").code == frame.DENIED


def test_a_change_that_cannot_be_named_ends_with_its_own_code(here: Platform) -> None:
    assert talk("plan", "drain", "east-n77").code == frame.NOT_FOUND
    assert talk("plan", "paint", "east-n0").code == frame.ERROR
    assert talk("plan").code == frame.ERROR


def test_a_region_that_cannot_be_read_is_left_out_and_said(here: Platform, tmp_path: Path) -> None:
    here.run(_now(here.door.cuttable["west"].cut))
    try:
        ran = talk("plan", "-f", written(tmp_path, workload("partly", replicas=2)))
    finally:
        here.run(_now(here.door.cuttable["west"].mend))
    assert "west is unreachable" in ran.err
    assert ran.code == frame.CHANGES


def test_a_change_of_a_region_that_is_away_is_refused_as_that_and_as_no_error_of_the_server(here: Platform) -> None:
    assert talk("get", "nodes").code == frame.OK  # so that the server remembers it
    here.run(_now(here.door.cuttable["west"].cut))
    try:
        ran = talk("plan", "drain", "west-n0")
    finally:
        here.run(_now(here.door.cuttable["west"].mend))
    assert (ran.code, "west cannot be reached" in ran.err) == (frame.ERROR, True), ran
    assert "the server is well, a region behind it is away" in ran.err


async def _now(work: Any) -> None:
    work()


def test_a_smaller_quota_a_hold_and_a_new_node_each_change_who_waits(here: Platform, tmp_path: Path) -> None:
    quota = {
        "kind": "Quota",
        "metadata": {"name": "all", "namespace": "risk"},
        "spec": {"limits": {"cpu": "6", "memory": "4000Gi"}},
    }
    both = planned("-f", written(tmp_path, workload("more", replicas=8), quota))
    assert sum(row["count"] for row in both["pending"] if row["reason"] in ("WaitingForQuota", "ExceedsMaxQuota")) >= 2

    override = {
        "kind": "Override", "metadata": {"name": "stop", "namespace": "risk"},
        "spec": {"kind": "hold", "reason": "try", "ttlSeconds": 3600, "scope": {"tenants": ["risk"]}},
    }  # fmt: skip
    held = planned("-f", written(tmp_path, override, workload("held")))
    assert {(row["workload"], row["reason"]) for row in held["pending"]} == {("held", "OnHold")}

    big = workload("big", replicas=1, cpu="6", placement={"regions": {"allowed": ["east"]}})
    node = {
        "kind": "Node", "metadata": {"name": "east-n9"},
        "spec": {"region": "east", "zone": "a", "allocatable": {"cpu": "8", "memory": "16Gi"}, "hourlyCostMillis": 900},
    }  # fmt: skip
    assert [row["reason"] for row in planned("-f", written(tmp_path, big))["pending"]] == ["NoMatchingCapacity"]
    with_node = planned("-f", written(tmp_path, node, big))
    assert [row["toNode"] for row in with_node["slots"]] == ["east-n9"]
    (cost,) = [row for row in with_node["cost"] if row["region"] == "east"]
    assert (cost["nodesBefore"], cost["nodesAfter"]) == (1.2, 2.1)


def _short(here: Platform, region: str) -> int:
    """Services that would not survive its loss; -1: nobody has said yet."""
    found = here.get("regionoutlooks", region, "")
    return found.spec.short if found is not None else -1


def test_a_recovery_budget_shows_its_rooms_and_what_it_does_for_readiness(here: Platform, tmp_path: Path) -> None:
    applied(here, tmp_path, critical("vital", "rooms"))
    serves(here, "vital", 2)
    here.run(here.until(lambda: all(_short(here, region) == 1 for region in ("east", "west"))))
    budget = {
        "kind": "RecoveryBudget", "metadata": {"name": "rooms", "namespace": "risk"},
        "spec": {"shapes": [{"requests": {"cpu": "1", "memory": "1Gi"}, "count": 2}], "workloadClass": "critical"},
    }  # fmt: skip
    status = planned("-f", written(tmp_path, budget))
    assert {(row["region"], row["heldAfter"]) for row in status["budgets"]} == {("east", 2), ("west", 2)}
    assert {(row["lostRegion"], row["shortBefore"], row["shortAfter"]) for row in status["readiness"]} == {
        ("east", 1, 0), ("west", 1, 0),
    }  # fmt: skip
    here.run(here.forget("vital"))


def test_a_policy_that_everybody_would_be_decided_by_is_tried_and_what_would_be_refused_is_in_the_judges_words(
    here: Platform, tmp_path: Path
) -> None:
    async def made() -> None:
        plane = here.planes["global"]
        for revision in (1, 2):
            spec = msgspec.structs.replace(BUILT_IN, revision=revision)
            ok(
                await plane.send(
                    OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(metadata=Metadata(name=f"r{revision}"), spec=spec))
                )
            )
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=1))
        ok(await plane.send(OPERATOR, Put("PolicyChannel", channel)))

    here.run(made())
    changed_channel = [{"mark": "~", "kind": "PolicyChannel", "namespace": "", "name": "default"}]
    assert planned("policy", "2")["objects"] == changed_channel
    assert talk("policy", "canary", "2", "--of", "risk").code == frame.OK
    assert planned("policy", "2")["objects"] == changed_channel, "as if the canary were promoted"
    for none in ("0", "r0", "-1", "latest"):
        ran = talk("plan", "policy", "--", none)
        assert (ran.code, "name one policy revision" in ran.err) == (frame.ERROR, True), ran
    assert talk("policy", "promote", "--yes").code == frame.OK
    assert talk("plan", "policy", "1", "--out", tmp_path / "back.plan").code == frame.CHANGES
    assert talk("apply", "--plan", tmp_path / "back.plan").code == frame.OK
    channel = msgspec.json.decode(talk("get", "policychannels/default", "-o", "json").out)["spec"]
    assert (channel["current"], channel.get("history", [])) == (1, []), "what was gone back from is not gone back to"
    assert talk("policy", "rollback").code == frame.CONFLICT
    changed = {"kind": "SchedulerPolicy", "metadata": {"name": "r1"}, "spec": {"revision": 3}}
    ran = talk("plan", "-f", written(tmp_path, changed), "--force-conflicts")
    assert ran.code not in (frame.OK, frame.CHANGES), ran
    assert "never changes" in ran.err
