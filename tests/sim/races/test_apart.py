"""A region that is cut off decides by itself what it may, and afterwards says what that was: exactly that."""

from __future__ import annotations

from fairlead.model.kinds.quota import MergeCheck, MergeReport
from fairlead.model.kinds.work import Binding
from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import sleep
from tests.sim.races.stage import API, REGION, TENANT, Stage, played

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


def test_what_was_placed_apart_and_stopped_when_the_lease_ended_is_in_the_report_though_nothing_is_left_of_it() -> None:
    """Twenty slots are held by an order that ends in the cut, then placed above what stays. When the lease ends the region stops
    what is above it, and asks for those slots anew, which removes their bindings; the cut goes on for half a lease."""
    replicas, hold_s = 20, 60

    async def script(stage: Stage) -> tuple[MergeReport, MergeCheck, list[Binding], list[Binding]]:
        spec = {"kind": "hold", "reason": "later", "ttlSeconds": hold_s, "scope": {"workloads": ["api"]}}
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Override", "metadata": {"name": "later"}, "spec": spec}
        await stage.world.people.write("POST", f"{API}/namespaces/{TENANT}/overrides", body, "later")
        await stage.until(lambda: stage.objects(REGION, "overrides"))
        await stage.create("api", replicas, workloadClass="critical")
        await stage.until(lambda: len(stage.objects(REGION, "schedulingrequests")) == replicas)
        await sleep(hold_s / 2)
        above = [machine for name, machine in stage.platform.machines.all.items() if name.startswith(f"{GLOBAL}/")]
        await stage.cut(stage.machines(servers=True), above, LEASE_S * 1.8)
        await stage.until(lambda: stage.serving("api") == replicas, hold_s)
        apart = stage.bindings("api")
        await stage.until(lambda: len(stage.bindings("api")) < replicas, LEASE_S)
        await sleep(10.0)
        left = stage.bindings("api")
        await stage.until(lambda: stage.objects(GLOBAL, "grantterms")["", REGION].status.merge is not None, 2.0 * LEASE_S)
        status = stage.objects(GLOBAL, "grantterms")["", REGION].status
        assert stage.objects(REGION, "grantterms")["", REGION].status.ended is None, "it is reported"
        return status.merge, status.checked, apart, left

    report, checked, apart, left = played(script, grant_lease_s=LEASE_S)
    provisional = sum(each.spec.provisional_until_time is not None for each in apart)
    stopped = replicas - len(left)
    assert 0 < stopped <= provisional < replicas
    assert (report.placed, report.provisional, report.tenants) == (replicas, provisional, {TENANT: replicas})
    assert (report.released, report.confirmed, report.lasting) == (stopped, len(left), 0)
    assert (report.ended, report.over) == ({TENANT: stopped}, ())
    assert [each.tenant for each in report.proof] == [each.tenant for each in checked.charged] == [TENANT]
    assert checked.charged[0].used == report.proof[0].used
    assert (checked.healed_time, checked.over) == (report.healed_time, ())
    assert not report.proof[0].offered.exceeding(checked.charged[0].offered), "all that it may stand on is charged"


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
