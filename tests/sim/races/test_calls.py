"""How often a region asks the global plane: by the second, for what its reports and leases are about, and never for a bind."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from fairlead.sim.loop import sleep
from tests.sim.races.stage import API, REGION, TENANT, Stage, played

SERVICES, SLOTS, NODES = 6, 50, 6  # a node of this platform takes 64 slots
BINDS = SERVICES * SLOTS
QUIET_S = 60.0
CALLS = "fairlead_coordination_calls_total"


async def calls(stage: Stage) -> float:
    """As the metrics page of the region's leader has it."""
    (server,) = stage.platform.planes[REGION].leaders()
    text = (await server._metering.page()).render().decode()
    found = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == CALLS]
    (one,) = found
    assert one.labels == {"boundary": "global"}
    return float(one.value)


async def calls_in_quiet(stage: Stage) -> float:
    before = await calls(stage)
    await sleep(QUIET_S)
    return await calls(stage) - before


def test_many_binds_inside_a_grant_cost_less_than_a_call_to_the_global_plane_for_every_other() -> None:
    """Whatever the region sends there is counted, renewals of its leases as well; in simulated time, so on any machine."""

    async def script(stage: Stage) -> tuple[float, float]:
        names = [f"api{number}" for number in range(SERVICES)]
        for name in names:
            await stage.create(name, 1, cpu="1m", memory="1Mi")
        await stage.until(lambda: all(stage.serving(name) == 1 for name in names))
        before, began = await calls(stage), stage.loop.now
        change = {"spec": {"replicas": 1 + SLOTS}}
        for name in names:
            await stage.world.people.write("PATCH", f"{API}/namespaces/{TENANT}/workloads/{name}", change, name)
        await stage.until(lambda: all(stage.serving(name) == 1 + SLOTS for name in names))
        return await calls(stage) - before, stage.loop.now - began

    made, took_s = played(script, nodes=NODES)
    print(f"{made:.0f} calls for {BINDS} binds in {took_s:.1f} s")
    assert 0 < made < BINDS / 2, f"{made:.0f} calls for {BINDS} binds in {took_s:.1f} s"


def test_renewals_of_the_slot_lease_and_what_is_read_of_the_global_plane_are_counted_as_calls() -> None:
    async def script(stage: Stage) -> tuple[float, float]:
        await stage.until(lambda: stage.objects(REGION, "grantterms"))
        await sleep(10.0)
        without = await calls_in_quiet(stage)
        await stage.create("once", 1, exclusive="global")
        await stage.until(lambda: stage.serving("once") == 1)
        await sleep(10.0)
        return without, await calls_in_quiet(stage)

    without, held = played(script)
    print(f"in {QUIET_S:.0f} s in which nothing happens {without:.0f} calls, {held:.0f} with a slot lease")
    assert without >= QUIET_S / 3.0 - 1, "it renews the lease that says it is there every three seconds"
    assert held - without >= QUIET_S / 6.0 - 1, "and a slot lease every six"
