"""An override that people order in a region which is cut off: it holds there and ends there, lifts nothing, and the global plane
hears of it afterwards. S11 looks at every bind."""

from __future__ import annotations

from typing import Any

from fairlead.decide.regional import ORDERED_IN
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import MergeReport
from fairlead.model.registry import GLOBAL
from fairlead.sim.asking import Ask, Told
from fairlead.sim.loop import sleep
from tests.sim.races.stage import API, REGION, TENANT, Stage, played

LEASE_S = 120  # of grants and policy: the region may go on by itself for as long
TTL_S = 40
NAME, REVOKED = f"{REGION}-stop", f"{REGION}-still"


async def ordered_there(stage: Stage, kind: str, name: str, **more: Any) -> Told:
    scope = {"tenants": [TENANT], "workloads": ["api"]}
    spec = {"kind": kind, "reason": "incident 7", "ttlSeconds": TTL_S, "scope": scope, **more}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Override", "metadata": {"name": name}, "spec": spec}
    return await asked_there(stage, "POST", "", body)


async def asked_there(stage: Stage, method: str, name: str, body: Any = None) -> Told:
    """The region's own server, by somebody in the office."""
    asking, (address, *_) = stage.world.people.asking, stage.platform.planes[REGION].addresses
    assert asking is not None
    told = await asking.write(address, Ask(method, f"{API}/namespaces/{TENANT}/overrides{name}", body), "", lambda: 0.0)
    assert told is not None
    return told


def reasons(stage: Stage) -> set[str]:
    return {request.status.reason for request in stage.objects(REGION, "schedulingrequests").values()}


def test_what_is_ordered_in_a_region_on_its_own_ends_there_and_is_merged_after_healing_even_if_it_was_revoked() -> None:
    async def script(stage: Stage) -> tuple[float, Override, MergeReport]:
        await stage.create("api", 6, workloadClass="critical")
        await stage.until(lambda: stage.serving("api") == 6)
        above = [machine for name, machine in stage.platform.machines.all.items() if name.startswith(f"{GLOBAL}/")]
        await stage.cut(stage.machines(servers=True), above, LEASE_S * 0.75)
        await sleep(LEASE_S / 4)
        lifts = await ordered_there(stage, "emergency-quota", f"{REGION}-more", parameters={"cpu": "1"})
        assert lifts.status == 422, lifts
        elsewhere = await ordered_there(stage, "hold", "stop")
        assert elsewhere.status == 422, elsewhere
        said = await ordered_there(stage, "hold", NAME)
        assert said.status == 201, said
        began = stage.loop.now
        said = await ordered_there(stage, "freeze", REVOKED)
        assert said.status == 201, said
        said = await asked_there(stage, "DELETE", f"/{REVOKED}")
        assert said.status == 200, said
        node = stage.bindings("api")[0].spec.node
        stage.world.chaos.power_off(stage.agent_of(node).program.machine)
        await stage.until(lambda: reasons(stage) == {"OnHold"})
        assert (TENANT, NAME) not in stage.objects(GLOBAL, "overrides"), "nobody there can know"
        await stage.until(lambda: stage.serving("api") == 6 and all(b.spec.node != node for b in stage.bindings("api")))
        held_s = stage.loop.now - began
        await stage.until(lambda: {(TENANT, NAME), (TENANT, REVOKED)} <= stage.objects(GLOBAL, "overrides").keys())
        await stage.until(lambda: stage.objects(REGION, "grantterms")["", REGION].status.merge is not None)
        report: MergeReport = stage.objects(REGION, "grantterms")["", REGION].status.merge
        return held_s, stage.objects(GLOBAL, "overrides")[TENANT, NAME], report

    held_s, record, report = played(script, grant_lease_s=LEASE_S, node_lease_s=3.0)
    assert held_s >= 0.99 * TTL_S - 1.0, "clocks are 0.9 % wrong at most"
    assert held_s < 0.75 * LEASE_S - LEASE_S / 4, "the region still had no word from above when it ended"
    assert record.metadata.annotations[ORDERED_IN] == REGION
    assert (NAME, "hold") in [(one.name, one.kind) for one in report.overrides]
    assert report.placed > 0
    assert report.over == ()
