"""Incidents of a minute or more, each as one readable script: a second region lost during recovery, an autoscaler under a load
that cannot be served, repairs that wait for people, an exception that must end. The other four of docs/failure-scenarios.md are
races of test_placing.py; tests/docs/test_failure_scenarios.py has the list."""

from __future__ import annotations

from typing import Any

from fairlead.decide.slots import instant
from fairlead.model.lifecycle import SlotState
from fairlead.model.registry import GLOBAL
from fairlead.sim.born import BUDGET
from fairlead.sim.loop import sleep
from fairlead.sim.scenario import Work
from tests.sim.races.stage import API, REGION, TENANT, Stage, played

NAMESPACE = f"{API}/namespaces/{TENANT}"


async def order(stage: Stage, kind: str, name: str, ttl_s: int) -> None:
    """An override about one workload, and the region knows of it."""
    spec = {"kind": kind, "reason": "drill", "ttlSeconds": ttl_s, "scope": {"workloads": [name]}}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Override", "metadata": {"name": name}, "spec": spec}
    answer = await stage.world.people.write("POST", f"{NAMESPACE}/overrides", body, name)
    assert answer is not None
    assert answer.status == 201, answer
    await stage.until(lambda: (TENANT, name) in stage.world.watches[REGION].objects.get("overrides", {}))


def test_a_second_region_that_is_lost_during_recovery_costs_no_service_its_minimum() -> None:
    """Regional capacity loss during recovery: what stood in is lost too, and is ordered again in the region that is left."""

    async def script(stage: Stage) -> list[float]:
        regions = stage.platform.regions
        place = {"regions": {"allowed": list(regions), "perRegionMinimum": 2}}
        recovery = {"budgetName": BUDGET, "minServing": 4}
        await stage.create("api", 6, placement=place, recovery=recovery, priorityClassName="critical-service")
        await stage.until(lambda: all(stage.serving("api", region) == 2 for region in regions))
        await stage.until(lambda: stage.rooms_held(BUDGET) == len(regions))
        stage.lose("us-west")

        def ordered() -> Any:
            found = stage.objects(GLOBAL, "recoveryorders").get((TENANT, "api"))
            return found.spec if found is not None else None

        await stage.until(lambda: ordered() is not None)
        (stands_in,) = ordered().regions
        stage.lose(stands_in)
        (left,) = {*regions} - {"us-west", stands_in}
        await stage.until(lambda: stage.serving("api", left) >= 4, 120.0)
        await stage.until(lambda: len(stage.world.losses.recovered_s) == 2, 30.0)
        assert (ordered().regions, ordered().missing) == ({left: 2}, 0), "moved as soon as nobody knew of the region any more"
        return list(stage.world.losses.recovered_s)

    took_s = played(script, regions=3, nodes=1, work=Work(0, 0.001, operators=0.0, replays=0.0, critical=1.0))
    assert max(took_s) < 60.0


def test_an_autoscaler_whose_orders_cannot_come_does_not_order_ever_more() -> None:
    """Autoscaler amplification during low readiness: room for three, a load for six. One that multiplies what it ordered by what
    it reads, with the same readings, would order more than twice as many, and more than twice what is needed."""
    load, target, surge = 4000, 700, 1  # thousandths of one replica
    needed = -(-load // target)

    async def script(stage: Stage) -> tuple[int, int]:
        alone = {"topologyKey": "hostname", "match": [{"key": "app", "operator": "In", "values": ["api"]}], "required": True}
        await stage.create("api", 2, placement={"antiAffinity": [alone]}, labels={"app": "api"})
        await stage.until(lambda: stage.serving("api") == 2)
        spec = {"workload": "api", "minReplicas": 2, "maxReplicas": 40, "targetPercent": target // 10, "surge": surge,
                "upWaitSeconds": 5.0}  # fmt: skip
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Autoscaler", "metadata": {"name": "api"}, "spec": spec}
        await stage.world.people.write("POST", f"{NAMESPACE}/autoscalers", body, "api")
        most, naive = 2, 2
        for _ in range(10):
            busy = load // max(1, stage.serving("api"))
            naive = min(40, -(-naive * busy // target))
            at = instant(stage.platform.planes[GLOBAL].leaders()[0].authority.plane_ms()).isoformat(timespec="seconds")
            change = {"metadata": {"annotations": {"fairlead.dev/busy": f"{busy}@{at}"}}}
            await stage.world.people.write("PATCH", f"{NAMESPACE}/autoscalers/api", change, "api")
            await sleep(5.0)
            most = max(most, stage.objects(GLOBAL, "workloads")[TENANT, "api"].spec.replicas)
        assert stage.serving("api") == 3, "there are three nodes"
        return most, naive

    most, naive = played(script)
    assert 2 < most <= needed + surge
    assert naive >= 2 * needed, f"{naive} against {needed} that are needed"
    assert naive >= 2 * most


def test_while_people_must_agree_to_repairs_nothing_is_replaced_and_then_each_slot_is_once() -> None:
    """Repair loop running during an incident: nobody agrees, so repairs go on when the override ends, and not before."""
    ttl_s = 70

    async def script(stage: Stage) -> tuple[float, list[str]]:
        await stage.create("api", 6)
        await stage.until(lambda: stage.serving("api") == 6)
        await order(stage, "repair-approval", "api", ttl_s)
        ordered_s = stage.loop.now
        before = {binding.metadata.name: binding.spec.token for binding in stage.bindings("api")}
        agent = stage.agent_of(stage.bindings("api")[0].spec.node)
        there = {binding.metadata.name for binding in stage.bindings("api") if binding.spec.node == agent.node.name}
        stage.world.chaos.power_off(agent.program.machine)

        def state(name: str) -> Any:
            return next((b.status.state for b in stage.bindings("api") if b.metadata.name == name), None)

        await stage.until(lambda: all(state(name) is SlotState.UNKNOWN for name in there), 40.0)

        def moved() -> list[str]:
            now = {binding.metadata.name: binding.spec.token for binding in stage.bindings("api")}
            return sorted(name for name, token in before.items() if now.get(name) != token)

        await stage.until(lambda: moved(), ttl_s + 60.0)
        first_s = stage.loop.now - ordered_s
        await stage.until(lambda: stage.serving("api") == 6, 60.0)
        assert set(moved()) == there, "what was well was left alone"
        return first_s, sorted(there)

    first_s, there = played(script)
    assert there
    assert first_s >= 0.99 * ttl_s - 1.0, (
        f"the first was replaced {first_s:.1f} s after the order; clocks are 0.9 % wrong at most"
    )


def test_what_a_hold_keeps_back_is_bound_when_it_ends_and_no_moment_before() -> None:
    """A human override that must expire: by evaluation, in a region that hears of nothing any more. S11 looks at each bind."""
    ttl_s = 25

    async def script(stage: Stage) -> float:
        await order(stage, "hold", "api", ttl_s)
        ordered_s = stage.loop.now
        await stage.create("api", 3)
        waiting = stage.world.watches[REGION].objects["schedulingrequests"]
        await stage.until(lambda: len(waiting) == 3 and all(each.status.reason == "OnHold" for each in waiting.values()), 20.0)
        above = [machine for name, machine in stage.platform.machines.all.items() if name.startswith(f"{GLOBAL}/")]
        await stage.cut(stage.machines(servers=True), above, 120.0)
        await stage.until(lambda: stage.bindings("api"), 60.0)
        bound_s = stage.loop.now - ordered_s
        await stage.until(lambda: stage.serving("api") == 3)
        return bound_s

    assert played(script) >= 0.99 * ttl_s - 1.0
