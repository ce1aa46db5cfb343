"""`fairlead budget report` and `fairlead audit budgets`: what may be used and what is, and who decided it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.cli import frame
from fairlead.cli.frame import NOT_FOUND, OK, answer
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
from tests.client.fake_api import FakeApi


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
