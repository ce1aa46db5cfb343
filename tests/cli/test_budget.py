"""`fairlead budget report` and `fairlead audit budgets`: what may be used and what is, and who decided it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.cli import frame
from fairlead.cli.frame import DENIED, NOT_FOUND, OK, answer
from fairlead.model.commands import Caller, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import (
    BudgetInRegion,
    BudgetShape,
    Grant,
    GrantSpec,
    GrantStatus,
    HeldShape,
    RecoveryBudget,
    RecoveryBudgetSpec,
    RecoveryBudgetStatus,
)
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.store.archive import Archive
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, ok, running_plane
from tests.cli.talks import talk
from tests.cli.test_audit import world
from tests.client.fake_api import ROOT, FakeApi


def test_a_report_says_what_is_used_idle_and_too_small(api: FakeApi) -> None:
    api.put("quotas", "default", "risk", spec={"limits": {"cpu": "6"}}, status={"used": {"cpu": "7"}})
    grant = {"region": "us-east", "version": 2, "during": {"cpu": "4"}, "leaseSeconds": 600}
    api.put("grants", "us-east", "risk", spec=grant, status={"used": {"cpu": "3"}, "waiting": {"cpu": "2"}, "acceptedVersion": 2})
    shape = {"requests": {"cpu": "1"}, "held": 2, "claimed": 1, "waiting": 1, "silent": 3, "lent": 1}
    api.put("recoverybudgets", "eu", "risk", spec={}, status={"regions": [{"region": "us-east", "shapes": [shape]}]})
    told = msgspec.json.decode(talk("budget", "report", "--json").out)["results"]["rows"]
    quota, grants, budget = told
    assert (quota["used"], quota["idle"], quota["short"]) == ({"cpu": "7"}, {}, {"cpu": "1"})
    assert (grants["idle"], grants["short"], grants["lease"]) == ({"cpu": "1"}, {"cpu": "2"}, "600 s")
    assert (budget["limit"], budget["used"], budget["idle"], budget["short"]) == (
        {"cpu": "7"}, {"cpu": "3"}, {"cpu": "1"}, {"cpu": "1"},
    )  # fmt: skip
    assert (budget["borrowed"], budget["silent"]) == ({"cpu": "1"}, {"cpu": "3"}), "all of the limit is told"
    said = talk("budget", "report", "-n", "risk")
    assert said.code == frame.OK
    assert "BORROWED" in said.out
    assert "SILENT" in said.out
    assert "eu in us-east" in said.out


def test_a_tenant_that_is_named_is_told_alone_also_the_one_called_default(api: FakeApi) -> None:
    for tenant in ("default", "risk"):
        api.put("quotas", "all", tenant, spec={"limits": {"cpu": "6"}}, status={})
    for tenant in ("default", "risk"):
        told = msgspec.json.decode(talk("budget", "report", "-n", tenant, "--json").out)["results"]["rows"]
        assert [row["tenant"] for row in told] == [tenant]


def rows_of(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(talk("budget", "report", "--json", *arguments).out)["results"]["rows"]
    return found


def test_a_budget_that_no_region_has_reported_is_listed_with_each_region_that_is_to_hold_it(api: FakeApi) -> None:
    for region in ("eu", "us"):
        api.put("regions", region)
    shapes = [{"requests": {"cpu": "2"}, "count": 3}]
    api.put("recoverybudgets", "new", "risk", spec={"regions": ["us"], "shapes": shapes})
    api.put("recoverybudgets", "wide", "risk", spec={"shapes": shapes}, status={"regions": []})
    held = [{"region": "us", "shapes": [{"requests": {"cpu": "2"}, "held": 3}]}]
    api.put("recoverybudgets", "half", "risk", spec={"shapes": shapes}, status={"regions": held})
    api.put("recoverybudgets", "over", "risk", spec={"shapes": shapes, "expiryTime": "2026-01-02T00:00:00Z"})
    rows = rows_of()
    assert [(row["name"], row["limit"], row["used"], row["lease"]) for row in rows] == [
        ("half in us", {"cpu": "6"}, {"cpu": "6"}, ""),
        ("half in eu", {"cpu": "6"}, {}, "not reported yet"),
        ("new in us", {"cpu": "6"}, {}, "not reported yet"),
        ("over", {}, {}, "ended 2026-01-02T00:00:00Z"),
        ("wide in eu", {"cpu": "6"}, {}, "not reported yet"),
        ("wide in us", {"cpu": "6"}, {}, "not reported yet"),
    ]
    assert "new in us" in talk("budget", "report").out


def test_a_budget_before_there_is_any_region_is_listed_too(api: FakeApi) -> None:
    api.put("recoverybudgets", "new", "risk", spec={"shapes": [{"requests": {"cpu": "2"}, "count": 3}]})
    assert [(row["name"], row["limit"]) for row in rows_of()] == [("new", {"cpu": "6"})]


def lacking(workload: str, missing: int, why: str = "budget 'risk/eu' holds no more in us", region: str = "us") -> dict[str, Any]:
    return {"tenant": "risk", "workload": workload, "region": region, "missing": missing, "why": why}


def test_a_service_that_readiness_says_is_short_names_its_budget_as_too_small_and_by_how_much(api: FakeApi) -> None:
    asks = {"resources": {"requests": {"cpu": "2"}}}
    for name, budget in (("api", "eu"), ("feed", "eu"), ("alone", "eu"), ("late", "eu"), ("none", "")):
        api.put("workloads", name, "risk", spec={**asks, "recovery": {"budgetName": budget}})
    held = [{"region": "us", "shapes": [{"requests": {"cpu": "2"}, "held": 3}]}]
    api.put("recoverybudgets", "eu", "risk", spec={"regions": ["us"]}, status={"regions": held})
    services = [
        lacking("api", 2), lacking("feed", 1), lacking("late", 0, "it would take about 400 s"), lacking("none", 4),
        lacking("alone", 1, "no healthy region may carry it", region=""),
    ]  # fmt: skip
    api.put("regionoutlooks", "eu-west", spec={"region": "eu-west", "services": services, "short": 7})
    status = {"conditions": [{"type": "RecoveryReady", "status": "Unknown"}]}
    api.put("regionoutlooks", "us", spec={"region": "us", "services": [lacking("api", 1)], "short": 1}, status=status)
    (there, first, second) = rows_of()
    assert (there["name"], there["short"]) == ("eu in us", {}), "every room it is to hold it holds"
    assert (first["name"], first["short"], first["lost"]) == ("eu if eu-west is lost", {"cpu": "6"}, "eu-west")
    assert [(each["workload"], each["missing"]) for each in first["services"]] == [("api", 2), ("feed", 1)]
    assert first["services"][0]["why"] == "budget 'risk/eu' holds no more in us"
    assert (second["short"], second["lease"]) == ({"cpu": "2"}, "as of before"), "of a region that is not healthy nobody can tell"
    said = talk("budget", "report")
    assert "eu if eu-west is lost" in said.out
    assert "2 more services" in said.err, "seven fall short, five are listed"
    assert [row["name"] for row in rows_of("-n", "other")] == []


def test_an_emergency_quota_in_force_is_part_of_the_limit(api: FakeApi) -> None:
    api.put("quotas", "default", "risk", spec={"limits": {"cpu": "6"}}, status={"used": {"cpu": "7"}})
    flood = {
        "kind": "emergency-quota", "reason": "the flood", "ttlSeconds": 1800, "requester": "ann", "approver": "bob",
        "scope": {"tenants": ["risk"]}, "parameters": {"cpu": "4"},
    }  # fmt: skip

    def order(name: str, began: str, **changed: object) -> None:
        api.put("overrides", name, "ops", spec={**flood, **changed})
        api.objects["overrides", "ops", name]["metadata"]["creationTimestamp"] = began

    order("over", "2027-01-15T07:00:00Z")
    order("asked", "2027-01-15T07:50:00Z", approver="")
    order("other", "2027-01-15T07:50:00Z", scope={"tenants": ["web"]})
    (row,) = rows_of()
    assert (row["limit"], row["short"], row["lease"]) == ({"cpu": "6"}, {"cpu": "1"}, ""), "none of these is in force for it"
    order("flood", "2027-01-15T07:50:00Z")
    (row,) = rows_of()
    assert (row["limit"], row["idle"], row["short"]) == ({"cpu": "10"}, {"cpu": "3"}, {}), "use that is permitted is not too much"
    assert (row["emergency"], row["emergencyUntil"]) == ({"cpu": "4"}, "2027-01-15T08:20:00Z")
    assert "cpu=4 until 2027-01-15T08:20:00Z" in talk("budget", "report").out


def test_whoever_may_read_one_tenant_alone_is_told_of_it_and_what_is_left_out(api: FakeApi) -> None:
    api.put("quotas", "default", "risk", spec={"limits": {"cpu": "6"}}, status={})
    emergency = {"kind": "emergency-quota", "ttlSeconds": 1800, "requester": "ann", "approver": "bob", "parameters": {"cpu": "4"}}
    api.put("overrides", "flood", "risk", spec=emergency)
    api.objects["overrides", "risk", "flood"]["metadata"]["creationTimestamp"] = "2027-01-15T07:50:00Z"
    api.denied = {f"{ROOT}/overrides", f"{ROOT}/regionoutlooks"}
    ran = talk("budget", "report", "-n", "risk")
    assert ran.code == OK
    assert "cpu=10" in ran.out, "the overrides of the tenant itself are read"
    assert "left out are what readiness says is short" in ran.err
    api.denied = {f"{ROOT}/namespaces/risk/quotas"}
    assert talk("budget", "report", "-n", "risk").code == DENIED, "quotas are what was asked for"


def test_a_platform_without_quotas_says_so(api: FakeApi) -> None:
    assert "no quotas" in talk("budget", "report").out


def keep(disk: MemoryDisk, path: Path) -> None:
    archive = Archive(path / "history")
    for entry in disk.journal:
        archive.append(entry.batch)
    archive.sync()
    archive.close()


async def test_every_change_of_what_may_be_used_is_listed_with_who_and_until_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = MemoryDisk()
    quota = Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=Resources(6000)))
    scope = OverrideScope(tenants=("risk",))
    spec = OverrideSpec("emergency-quota", "the flood of Monday", 60, "ada", "bob", scope, {"cpu": "2"})
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global", region="global")) as plane:
        ok(await plane.send(OPERATOR, Put("Quota", quota)))
        ok(await plane.send(Caller("eve", Role.OPERATOR), Put("Quota", replace(quota, spec=QuotaSpec(limits=Resources(8000))))))
        ok(await plane.send(OPERATOR, Put("Override", Override(Metadata(name="flood", namespace="risk"), spec))))
        held = replace(spec, kind="hold", parameters={})
        ok(await plane.send(OPERATOR, Put("Override", Override(Metadata(name="other", namespace="risk"), held))))
        shapes = RecoveryBudgetSpec(shapes=(BudgetShape(Resources(500, 1 << 30), 3),))
        ok(await plane.send(OPERATOR, Put("RecoveryBudget", RecoveryBudget(Metadata(name="eu", namespace="risk"), shapes))))
        ok(await plane.send(Caller("eve", Role.OPERATOR), Delete("Override", "risk", "flood")))
        going = plane.authority.view().get("overrides", "risk", "flood")
        assert going is not None, "its finalizer keeps it until its effect is undone"
        undone: Override = going.decode()
        undone = replace(undone, metadata=replace(undone.metadata, finalizers=()))
        ok(await plane.send(await plane.as_role(Role.OVERRIDE), Put("Override", undone)))
        assert plane.authority.view().get("overrides", "risk", "flood") is None
    keep(disk, tmp_path)
    assert answer(world(), ["audit", "budgets", str(tmp_path / "history"), "--json"]) == OK
    told = msgspec.json.decode(capsys.readouterr().out)["results"]["changes"]
    assert [(each["kind"], each["what"], each["who"]) for each in told] == [
        ("Quota", "created", "ada"), ("Quota", "changed", "eve"), ("Override", "created", "ada"),
        ("RecoveryBudget", "created", "ada"), ("Override", "removed", "eve"),
    ]  # fmt: skip
    assert (told[1]["limits"], told[2]["limits"]) == ({"cpu": "8"}, {"cpu": "2"})
    assert told[3]["limits"] == {"0": "3 x cpu=500m,memory=1Gi"}
    assert told[2]["until"]
    assert answer(world(), ["audit", "budgets", str(tmp_path / "history")]) == OK
    assert "the flood of Monday" in capsys.readouterr().out
    assert answer(world(), ["audit", "budgets", str(tmp_path / "nowhere")]) == NOT_FOUND


async def test_every_change_says_why_and_what_is_used_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = MemoryDisk()
    noted = Metadata(name="default", namespace="risk", annotations={"fairlead.dev/reason": "the budget of May"})
    flood = OverrideSpec("emergency-quota", "the flood", 600, "ada", "bob", OverrideScope(tenants=("risk",)), {"cpu": "2"})
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global", region="global")) as plane:
        ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name="west")))))
        ok(await plane.send(OPERATOR, Put("Quota", Quota(noted, QuotaSpec(limits=Resources(6000))))))
        ok(await plane.send(OPERATOR, Put("Override", Override(Metadata(name="flood", namespace="risk"), flood))))
        sharer, mirror = await plane.as_role(Role.QUOTA), await plane.as_role(Role.MIRROR)
        because = Metadata(name="west", namespace="risk", annotations={"fairlead.dev/reason": "demand: cpu is waited for"})
        spec = GrantSpec("west", 1, Resources(8000), Resources(6000), lease_seconds=600, emergency=Resources(2000))
        ok(await plane.send(sharer, Put("Grant", Grant(because, spec))))
        for cpu in (7500, 3000):
            said = GrantStatus(accepted_version=1, incarnation=1, used=Resources(cpu))
            ok(await plane.send(mirror, PutStatus("Grant", "risk", "west", said)))
        meta = Metadata(name="eu", namespace="risk", annotations={"fairlead.dev/reason": "one region may fall"})
        shapes = RecoveryBudgetSpec(shapes=(BudgetShape(Resources(500), 3),))
        ok(await plane.send(OPERATOR, Put("RecoveryBudget", RecoveryBudget(meta, shapes))))
        held = RecoveryBudgetStatus(regions=(BudgetInRegion("west", (HeldShape(Resources(500), held=2, claimed=1),)),))
        ok(await plane.send(await plane.as_role(Role.RECOVERY), PutStatus("RecoveryBudget", "risk", "eu", held)))
    keep(disk, tmp_path)
    assert answer(world(), ["audit", "budgets", str(tmp_path / "history"), "--json"]) == OK
    told = {each["kind"]: each for each in msgspec.json.decode(capsys.readouterr().out)["results"]["changes"]}
    assert {kind: (each["why"], each["used"]) for kind, each in told.items()} == {
        "Quota": ("the budget of May", {}),
        "Override": ("the flood", {"cpu": "1500m"}),
        "Grant": ("demand: cpu is waited for", {"cpu": "3"}),
        "RecoveryBudget": ("one region may fall", {"west/0": "1 claimed, 2 held"}),
    }
