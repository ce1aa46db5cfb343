"""A region that is cut off decides by itself what it may, and afterwards says what that was: exactly that."""

from __future__ import annotations

from fairlead.model.kinds.quota import MergeReport
from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import sleep
from tests.sim.races.stage import REGION, TENANT, Stage, played

CUT_S = 40.0
LEASE_S = 60  # renewed every fifth of it; two fifths without an answer, and the region counts as cut off


def test_a_merge_report_counts_what_was_placed_without_a_word_and_nothing_of_before_or_after() -> None:
    """A node is lost meanwhile. What may be placed without global's word is; the rest waits, and is placed when it is back."""

    async def script(stage: Stage) -> tuple[MergeReport, int]:
        await stage.create("api", 6, workloadClass="critical")
        await stage.create("index", 6, workloadClass="standard")
        await stage.until(lambda: stage.serving("api") == stage.serving("index") == 6)
        await sleep(LEASE_S / 4)  # all of it is older than the last word
        node = min({b.spec.node for b in stage.bindings("api")} & {b.spec.node for b in stage.bindings("index")})
        lost = sum(b.spec.node == node for b in stage.bindings("api"))
        above = [machine for name, machine in stage.platform.machines.all.items() if name.startswith(f"{GLOBAL}/")]
        await stage.cut(stage.machines(servers=True), above, LEASE_S * 0.7)
        await sleep(LEASE_S / 4)
        stage.world.chaos.power_off(stage.agent_of(node).program.machine)
        await stage.until(lambda: stage.serving("api") == 6 and all(b.spec.node != node for b in stage.bindings("api")), 40.0)
        waiting = stage.objects(REGION, "schedulingrequests")
        await stage.until(lambda: {w.status.reason for w in waiting.values()} == {"PolicyAuthorityUnreachable"}, 10.0)
        await stage.until(lambda: stage.serving("index") == 6, 90.0)
        await stage.until(lambda: stage.objects(REGION, "grantterms")["", REGION].status.merge is not None, 30.0)
        report: MergeReport = stage.objects(REGION, "grantterms")["", REGION].status.merge
        return report, lost

    report, lost = played(script, grant_lease_s=LEASE_S, node_lease_s=3.0)
    assert lost > 0
    assert (report.tenants, report.placed, report.confirmed, report.released) == ({TENANT: lost}, lost, lost, 0)
    assert report.over == ()


def test_a_cut_far_shorter_than_a_lease_has_its_report_too_and_one_that_nobody_noticed_has_none() -> None:
    """A region that is not heard for half a minute is lost for the global plane; one of three seconds is not noticed."""

    async def script(stage: Stage) -> tuple[MergeReport, int, float]:
        await stage.create("api", 6, workloadClass="critical")
        await stage.until(lambda: stage.serving("api") == 6)
        await sleep(10.0)
        above = [machine for name, machine in stage.platform.machines.all.items() if name.startswith(f"{GLOBAL}/")]
        await stage.cut(stage.machines(servers=True), above, 3.0)
        await sleep(20.0)
        assert stage.objects(REGION, "grantterms")["", REGION].status.cut_time is None
        node = min({b.spec.node for b in stage.bindings("api")})
        lost = sum(b.spec.node == node for b in stage.bindings("api"))
        await stage.cut(stage.machines(servers=True), above, CUT_S)
        stage.world.chaos.power_off(stage.agent_of(node).program.machine)
        await stage.until(lambda: stage.objects(REGION, "grantterms")["", REGION].status.merge is not None, 90.0)
        report: MergeReport = stage.objects(REGION, "grantterms")["", REGION].status.merge
        assert report.healed_time is not None
        assert report.cut_time is not None
        return report, lost, (report.healed_time - report.cut_time).total_seconds()

    report, lost, apart_s = played(script, grant_lease_s=600, node_lease_s=3.0)
    assert lost > 0
    assert (report.tenants, report.placed, report.over) == ({TENANT: lost}, lost, ())
    assert CUT_S - 1 <= apart_s <= CUT_S + 15
