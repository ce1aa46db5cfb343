"""What strikes is what is counted: storms, clogs, cuts, strobes, feeds that end, wrong moves of operators."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from fairlead.model.registry import GLOBAL
from fairlead.sim import loop as sim
from fairlead.sim.campaign import scenario_of
from fairlead.sim.chaos import Chaos
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.scenario import Faults, Scenario, Work
from fairlead.sim.spells import CALLS, Hit, Loop
from fairlead.sim.walls import unheard
from fairlead.sim.world import World, run_scenario

QUIET = Scenario(1, "calm", 1, 2, 3, work=Work(2, 20.0, operators=0.0), faults=Faults())


def in_a_world(work: Callable[[World, Chaos], Coroutine[Any, Any, None]], scenario: Scenario = QUIET) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, scenario)
        world.platform.start()
        await sleep(15.0)
        await work(world, world.chaos)

    with unheard():
        sim.run(main, 1)


def test_a_storm_kills_several_programs_again_and_again_and_ends() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        programs = chaos._programs()
        loops = [Loop(0.0, 3, 0.5, 1.0), Loop(0.5, 4, 0.5, 1.0)]
        before = {program.name: program.lives for program in programs}
        chaos._spells.storm(programs, loops)
        await sleep(20.0)
        grown = sorted(program.lives - before[program.name] for program in programs)
        assert grown[-2:] == [3, 4]
        assert sum(grown) == 7
        assert all(program.alive for program in programs)
        assert chaos.counts["F15"] == 1
        assert chaos.counts["F9"] == 7

    in_a_world(work)


def test_a_storm_in_which_nothing_had_come_back_before_it_was_killed_again_is_none() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        chaos._spells.storm(chaos._programs(), [Loop(0.0, 3, 5.0, -4.0), Loop(0.5, 1, 0.5, 1.0)])
        await sleep(20.0)
        assert (chaos.counts["F15"], chaos.counts["F9"]) == (0, 2)

    in_a_world(work)


def test_a_server_is_killed_at_one_of_its_calls_and_begins_again() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        server = world.platform.planes["us-east"].servers[0]
        for call in (1, 2, 5):
            lives = server.lives
            chaos._spells.crash(server, Hit(1.0, 0.6, call, True))
            await sleep(20.0)
            assert server.alive
            assert server.lives == lives + 2, "now, and at a call of its next life"
        assert chaos.counts["killed_after_store_call"] == 3
        assert [call for call in range(1, CALLS) if chaos.counts[f"killed_after_store_call/{call}"]] == [1, 2, 5]

    in_a_world(work)


def test_a_clock_that_jumps_comes_back() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        machine = next(iter(world.platform.machines.all.values()))
        before, seen = machine.clock.wall_s, set()
        chaos._spells._strobe(machine, 100.0, 0.1, 6)
        for _ in range(20):
            seen.add(machine.clock.wall_s - before)
            await sleep(0.05)
        assert seen == {0.0, -100.0}

    in_a_world(work)


def test_feeds_that_end_are_counted_and_resets_of_other_connections_are_not() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        network, counts = world.platform.network, chaos.counts
        before = counts["F11"]
        for end in network.all_ends():
            if end.process.name.startswith("people"):
                network.reset(end)
        await sleep(1.0)
        assert counts["F11"] == before
        agent = next(end for end in network.all_ends() if end.process.name.startswith("agent"))
        network.reset(agent)
        await sleep(1.0)
        assert counts["F11"] > before

    in_a_world(work)


class Fixed:
    """Draws that are chosen: of each kind always the same."""

    def __init__(self, random: float = 0.0, uniform: float = 0.0, choice: Any = None) -> None:
        self._random, self._uniform, self._choice = random, uniform, choice

    def random(self) -> float:
        return self._random

    def uniform(self, low: float, high: float) -> float:
        return max(low, self._uniform)

    def randrange(self, low: int, high: int) -> int:
        return low

    def choice(self, among: Any) -> Any:
        return self._choice


def test_a_process_that_stands_still_is_counted_when_it_begins_to() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        await chaos._pause(Fixed())  # type: ignore[arg-type]
        await chaos._pause(Fixed())  # type: ignore[arg-type]
        paused = [program.running for program in chaos._programs() if program.running is not None and program.running.paused]
        assert (len(paused), chaos.counts["F8"]) == (1, 1)

    in_a_world(work)


def test_a_failover_that_lost_nothing_is_no_lost_tail() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        await chaos._lost_tail(Fixed())  # type: ignore[arg-type]
        assert chaos.counts["F14"] == 1
        disk = world.platform.planes[GLOBAL].store.disk
        disk.journal.clear()
        await chaos._lost_tail(Fixed())  # type: ignore[arg-type]
        assert chaos.counts["F14"] == 1

    in_a_world(work)


def test_a_second_agent_of_a_node_is_counted_and_runs() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        before = len(world.platform.agents)
        await chaos._twin(Fixed(uniform=5.0))  # type: ignore[arg-type]
        (twin,) = chaos._twins
        await sleep(2.0)
        assert (len(world.platform.agents), chaos.counts["F16"], twin.program.alive) == (before + 1, 0, True)
        await sleep(5.0)
        assert not twin.program.alive
        assert chaos.counts["F16"] == 1, "it had a session by then"
        chaos.heal()
        assert chaos.counts["F16"] == 1

    in_a_world(work)


def test_a_second_agent_that_reaches_nobody_is_not_counted() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        for server in world.platform.planes["us-east"].servers:
            server.pause()
        await chaos._twin(Fixed(uniform=5.0))  # type: ignore[arg-type]
        await sleep(6.0)
        assert (chaos._twins[0].program.alive, chaos.counts["F16"]) == (False, 0)

    in_a_world(work)


def test_a_herd_is_counted_where_all_connections_of_a_process_break_and_not_where_one_does() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        network = world.platform.network
        before = len(network.all_ends())
        await chaos._reset(Fixed(0.5))  # type: ignore[arg-type]
        assert (len(network.all_ends()), chaos.counts["F17"]) == (before - 1, 0)
        peer = network.all_ends()[0].peer
        assert peer is not None
        assert network.ends[peer.process]
        await chaos._reset(Fixed(0.0))  # type: ignore[arg-type]
        assert (chaos.counts["F17"], network.ends[peer.process]) == (1, {})

    in_a_world(work)


def test_a_clock_that_is_set_to_the_rate_it_has_is_not_counted() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        for rate, counted in ((1.005, 1), (1.005, 1), (0.995, 2)):
            await chaos._spells.clock(Fixed(0.9, choice=rate))  # type: ignore[arg-type]
            assert chaos.counts["F7"] == counted
        await chaos._spells.clock(Fixed(0.5, choice=0.995))  # type: ignore[arg-type]
        assert chaos.counts["F7"] == 3, "its wall clock is stepped"

    in_a_world(work)


def test_what_people_ask_twice_and_do_wrong_is_counted_when_it_has_arrived() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        people, node = world.people, "us-east-n0"
        servers = [program.machine for program in world.platform.planes[GLOBAL].servers]
        before = chaos.counts["F2"]
        rejoin = world.platform.network.cut([(world.platform.office, server) for server in servers])
        people._count_wrong(True, await people._cordon(node, True))
        assert (chaos.counts["F20"], chaos.counts["F2"]) == (0, before)
        rejoin()
        people._count_wrong(True, await people._cordon(node, True))
        people._count_wrong(False, await people._cordon(node, False))
        assert chaos.counts["F20"] == 1
        assert chaos.counts["F2"] > before

    in_a_world(work, replace(QUIET, work=replace(QUIET.work, actions=0.01, replays=1.0)))


def test_a_server_whose_disk_is_full_leads_on_and_notes_how_far_it_has_seen_its_store_afterwards() -> None:
    async def work(world: World, chaos: Chaos) -> None:
        (leader,) = world.platform.planes["us-east"].vouched()
        programs = chaos._programs()
        at = next(n for n, program in enumerate(programs) if program.name == leader.config.name)
        agents, servers = len(world.platform.agents), len(programs) - len(world.platform.agents)
        drawn = (at + agents + 0.5) / (agents + servers)
        assert drawn > 0.5, "not of a store"
        machine = programs[at].machine
        await chaos._spells.disk(Fixed(drawn, uniform=10.0))  # type: ignore[arg-type]
        assert machine.disk_broken
        noted, struck = machine.read(f"seen of {leader.config.name}"), chaos.counts["F13"]
        await sleep(9.0)
        assert chaos.counts["F13"] > struck
        assert machine.read(f"seen of {leader.config.name}") == noted
        await sleep(11.0)
        assert machine.read(f"seen of {leader.config.name}") != noted
        assert leader in world.platform.planes["us-east"].vouched()
        assert not world.findings

    in_a_world(work)


def test_every_fault_of_a_swarm_is_counted_under_its_id_by_what_happened() -> None:
    scenario = scenario_of(4, "swarm", 2.0)
    faults = Faults(crash=6.0, cut=6.0, slow=20.0, clock=6.0, disk=6.0, store=6.0, reset=6.0, stale=0.5, loss=0.01, unheard=0.3)
    verdict = run_scenario(_with(scenario, faults))
    assert not verdict.findings
    assert {"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F9", "F10", "F11", "F12", "F13", "F15", "F20"} <= set(verdict.counts)


def _with(scenario: Scenario, faults: Faults) -> Scenario:
    return replace(scenario, regions=1, servers=2, nodes=3, faults=faults, work=Work(4, 40.0, operators=12.0))
