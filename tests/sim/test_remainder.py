"""After the faults a core is healed, in some seeds not the whole: the rest comes to rest without what stays broken."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.model.registry import GLOBAL
from fairlead.sim import campaign
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.world import Verdict, World, run_scenario

SHORT = Scenario(
    4, "swarm", 1, 1, 3, rough_s=20.0, settle_s=60.0, quiet_s=10.0, work=Work(workloads=4, actions=30.0, jobs=0.0, operators=0.0)
)


def test_in_one_seed_of_four_something_stays_broken_that_the_rest_can_do_without() -> None:
    drawn = [campaign.scenario_of(seed, profile, 1.0) for profile in PROFILES for seed in range(1, 41)]
    assert {scenario.remains for scenario in drawn} == {"", "node", "server", "zone", "region"}
    for scenario in drawn:
        assert not scenario.remains or scenario.seed % 4 == 0
        assert scenario.remains != "server" or scenario.servers == 3
        assert scenario.remains != "node" or scenario.nodes > 1
        assert scenario.remains != "zone" or scenario.faults.zone
        assert scenario.remains != "region" or (scenario.regions == 3 and scenario.faults.region)
    assert sum(bool(scenario.remains) for scenario in drawn) > len(drawn) / 5


def lived(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> tuple[Verdict, World]:
    worlds: list[World] = []
    live = World.live

    async def lives(self: World) -> None:
        worlds.append(self)
        await live(self)

    monkeypatch.setattr(World, "live", lives)
    return run_scenario(scenario), worlds[0]


def test_what_was_on_a_node_that_stays_away_serves_elsewhere_when_the_rest_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, world = lived(replace(SHORT, remains="node"), monkeypatch)
    assert not verdict.findings
    (broken,) = [machine for machine in world.platform.machines.all.values() if machine.broken]
    assert not broken.up
    node = broken.name.rpartition("/")[2]
    assert verdict.agreed_s is not None
    assert verdict.agreed_s > 5.0, "a node is missed only when its lease is over"
    bindings = world.watches["us-east"].objects["bindings"].values()
    assert bindings
    assert node not in {binding.spec.node for binding in bindings}
    assert world.watches["us-east"].objects["nodes"]["", node].status.health == "Lost"
    assert campaign.summed([verdict])["remains"] == {"remains_node": 1}


def test_what_was_on_a_zone_that_stays_away_serves_elsewhere_though_its_region_doubts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, world = lived(replace(SHORT, nodes=12, node_lease_s=6.0, remains="zone"), monkeypatch)
    assert not verdict.findings
    broken = {machine.name.rpartition("/")[2] for machine in world.platform.machines.all.values() if machine.broken}
    nodes = world.watches["us-east"].objects["nodes"].values()
    assert broken == {node.metadata.name for node in nodes if node.spec.zone == nodes_zone(world, min(broken))}
    assert len(broken) == 4
    assert verdict.checked["B5"] >= 4
    assert {node.metadata.name for node in nodes if node.status.health == "Lost"} == broken


def nodes_zone(world: World, name: str) -> str:
    return str(world.watches["us-east"].objects["nodes"]["", name].spec.zone)


def test_two_servers_of_three_are_a_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, world = lived(replace(SHORT, servers=3, remains="server"), monkeypatch)
    assert not verdict.findings
    assert [machine.up for machine in world.platform.machines.all.values() if machine.broken] == [False]
    assert verdict.agreed_s is not None


def test_two_regions_of_three_come_to_rest_and_critical_services_have_their_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    work = replace(SHORT.work, critical=1.0, workloads=6)
    verdict, world = lived(replace(SHORT, regions=3, nodes=2, remains="region", work=work, agreed_s=140.0), monkeypatch)
    assert not verdict.findings
    gone = world.platform.gone
    assert {machine.name.partition("/")[0] for machine in world.platform.machines.all.values() if not machine.up} == {gone}
    assert world.watches[GLOBAL].objects["regions"]["", gone].status.health == "Lost"
    assert verdict.recovered_s
    assert not world.losses.open
