"""Races about who may still act: leaders and agents that were replaced, nodes nobody can speak with, changes nobody heard of."""

from __future__ import annotations

from fairlead.decide.nodes import NodeRules
from fairlead.model.commands import Bind, BindMany
from fairlead.sim.loop import sleep
from fairlead.sim.sieve import MISSED_S, scenario_at
from fairlead.sim.world import run_scenario
from tests.sim.races.stage import REGION, Stage, played


def test_what_a_deposed_leader_had_under_way_is_refused_when_it_arrives() -> None:
    """Old leader's late packet: a bind that it had sent is held up, and it is paused, beyond its lease. Its slots are bound by
    the next one by then; the packet arrives, and it goes on."""

    async def script(stage: Stage) -> None:
        old, fenced = stage.leader(), stage.turned_down()
        machine, store = old.machine, stage.store.program
        assert store is not None
        held = stage.hold_back((machine, store.machine), Bind, BindMany)
        await stage.create("api", 2)
        await stage.until(lambda: held)
        old.pause()
        await stage.until(lambda: any(s.config.name != old.name for s in stage.platform.planes[REGION].leaders()), 60.0)
        await stage.until(lambda: stage.serving("api") == 2)
        assert not fenced
        stage.platform.network.unblock(machine, store.machine)
        await stage.until(lambda: [batch.hash for batch in fenced] == [held[0].hash], 5.0)  # the store turns it down
        old.resume()
        await sleep(5.0)
        assert stage.serving("api") == 2
        assert [server.config.name for server in stage.platform.planes[REGION].leaders()] != [old.name]

    played(script, servers=2)


def test_of_two_agents_with_one_identity_one_stops_and_exclusive_work_runs_once() -> None:
    """Duplicate agent identity: restored from an image of its disk. S12 looks at true run intervals."""

    async def script(stage: Stage) -> set[str]:
        await stage.create("api", 1, exclusive=True)
        await stage.until(lambda: stage.serving("api") == 1)
        original = stage.agent_of(stage.bindings("api")[0].spec.node)
        machine = stage.platform.machines.machine(f"{REGION}/twin")
        machine.copy_files(original.program.machine)
        twin = stage.platform.add_agent_program("twin", machine, original.node)
        twin.program.start()
        await sleep(30.0)
        twin.program.wanted = False
        machine.up = False
        twin.program.kill(silent=True)
        twin.instances.power_lost()
        ran = {run.where.rpartition("/")[2] for run in stage.platform.intervals} - {original.node.name}

        def running() -> int:
            return sum(run.end is None for run in stage.platform.intervals)

        await stage.until(lambda: stage.serving("api") == 1 and running() == 1, 120.0)
        await sleep(10.0)
        assert (stage.serving("api"), running()) == (1, 1)
        return ran

    assert played(script) == {"twin"}, "it did run on both"


def test_an_exclusive_slot_on_a_node_nobody_can_reach_starts_elsewhere_only_when_it_has_certainly_ended() -> None:
    """Ambiguous ownership: the node lives, and only it knows."""

    async def script(stage: Stage) -> tuple[float, float]:
        await stage.create("api", 1, exclusive=True)
        await stage.until(lambda: stage.serving("api") == 1)
        node = stage.bindings("api")[0].spec.node
        await stage.cut([stage.agent_of(node).program.machine], stage.machines(servers=True), 120.0)
        await stage.until(lambda: stage.serving("api") == 1 and stage.bindings("api")[0].spec.node != node, 110.0)
        first, second = (run for run in stage.platform.intervals if run.exclusive)
        assert first.end is not None
        return first.end, second.begin

    ended, begun = played(script)
    assert ended < begun


def test_a_region_that_hears_nobody_doubts_itself_and_takes_nothing_away() -> None:
    """Fail-open repair: every node falls silent at once, so it is the listener that is deaf."""

    async def script(stage: Stage) -> tuple[list[str], list[str], set[str]]:
        await stage.create("api", 6)
        await stage.until(lambda: stage.serving("api") == 6)
        before = sorted(str(binding.spec.token) for binding in stage.bindings("api"))
        await stage.cut(stage.machines(servers=False), stage.machines(servers=True), 40.0)
        await sleep(80.0)
        return before, sorted(str(binding.spec.token) for binding in stage.bindings("api")), stage.suspected()

    before, after, suspected = played(script)
    assert len(suspected) == 3, "the region said of each node that it doubts its own hearing"
    assert before == after, "every slot lives the life it lived before"


def test_what_many_silent_nodes_of_a_zone_ran_serves_elsewhere_within_bounded_seconds() -> None:
    """Fail-closed repair: three of a zone's four nodes go at once, so the region doubts its own hearing and gives them up one
    at a time. That keeps what was on them idle for a few periods, not for ever."""
    lease_s, rules = 6.0, NodeRules()

    async def script(stage: Stage) -> tuple[float, set[str]]:
        dark = {f"{REGION}-n{number}" for number in (0, 3, 6)}
        await stage.create("api", 14, placement={"maxPerNode": 2})
        await stage.until(lambda: stage.serving("api") == 14)
        assert dark <= {binding.spec.node for binding in stage.bindings("api")}, "each of them runs something"
        for node in dark:
            stage.world.chaos.power_off(stage.agent_of(node).program.machine)

        def elsewhere() -> bool:
            return stage.serving("api") == 14 and not dark & {binding.spec.node for binding in stage.bindings("api")}

        return await stage.until(elsewhere, 120.0), stage.suspected()

    took_s, suspected = played(script, nodes=10, node_lease_s=lease_s)
    assert len(suspected) == 3, "the region doubted what it saw, and said so"
    assert took_s < lease_s + rules.lost_after_s + 3 * rules.loss_period_s


def test_what_a_dead_node_ran_serves_elsewhere_within_bounded_seconds() -> None:
    """One node that dies is no reason for doubt."""

    async def script(stage: Stage) -> float:
        await stage.create("api", 6)
        await stage.until(lambda: stage.serving("api") == 6)
        agent = stage.agent_of(stage.bindings("api")[0].spec.node)
        agent.program.machine.up = False
        agent.program.kill(silent=True)
        agent.instances.power_lost()
        node = agent.node.name
        return await stage.until(
            lambda: stage.serving("api") == 6 and all(b.spec.node != node for b in stage.bindings("api")), 120.0
        )

    assert played(script) < 90.0


def test_a_change_that_a_controller_never_heard_of_is_made_good_by_its_resync() -> None:
    """Lost wake-up: the assignment controller's tenth change is lost on its way."""
    verdict = run_scenario(scenario_at("assignment", "missed", 9))
    assert verdict.counts["sieve_calls"] > 9, "it was lost"
    assert not verdict.findings
    assert verdict.agreed_s is not None
    assert verdict.agreed_s <= MISSED_S
