"""Races between whoever places a slot and the world that moves on meanwhile. Each is one seed, and plays the same every time."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlead.model.commands import Bind, BindMany
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import SlotState
from fairlead.observe.checkers import JournalChecker
from fairlead.sim.loop import sleep
from fairlead.sim.scenario import Work
from tests.sim.races.stage import REGION, TENANT, Stage, placed_in, played, where

DRAINED = f"{REGION}-n0"


def test_a_bind_whose_answer_was_lost_is_not_made_again_on_another_node() -> None:
    """Duplicate reservation after a timeout: the store did it, and said nothing. Of reservations and gangs: test_doubt.py."""

    async def script(stage: Stage) -> tuple[dict[str, Any], dict[str, Any]]:
        struck = stage.lose_answer(Bind, BindMany, for_s=4.0)
        await stage.create("api", 3)
        batch = await stage.until_in_doubt(struck)
        there = placed_in(batch)
        assert there, "the bind itself is what nobody knows of"
        assert stage.platform.machines.counts["F10"] > 0, "an answer was lost"
        await stage.until(lambda: stage.serving("api") == 3)
        assert stage.world.watches[REGION].checker.incarnation == 1, "nobody took its own write for somebody else's"
        return there, {f"{TENANT}/{b.metadata.name}": where(b) for b in stage.bindings("api")}

    there, bound = played(script)
    assert sorted(bound) == [f"{TENANT}/api-{index}" for index in range(3)]
    assert {name: bound[name] for name in there} == there, "where it was, in its one life"


def test_a_bind_decided_on_a_picture_that_is_out_of_date_is_refused() -> None:
    """Bind against a stale cache: three schedulers fill the last room without knowing of each other."""

    async def script(stage: Stage) -> int:
        stage.hide("bindings", 15.0)
        await asyncio.gather(*(stage.create(name, 6, cpu="100m", memory="1Gi") for name in ("api", "index", "score")))
        await sleep(20.0)
        return stage.refused("NoFit/memory")

    assert played(script, schedulers=3, tight=True) > 0, "at least one of them was too late, and was told so"


def test_a_leader_that_dies_in_the_middle_of_placing_leaves_every_slot_bound_once() -> None:
    """Leader restart during placement."""

    async def script(stage: Stage) -> list[int]:
        stage.place_one_by_one()  # five in one commit would be bound, or none of them
        await stage.create("api", 5)
        await stage.until(lambda: stage.bindings("api"))
        assert 0 < len(stage.bindings("api")) < 5, "some are bound, and others are not yet"
        leader = stage.leader()
        leader.kill()
        stage.loop.after(1.0, leader.start)
        await stage.until(lambda: stage.serving("api") == 5)
        return sorted(binding.spec.slot.index for binding in stage.bindings("api"))

    assert played(script) == [0, 1, 2, 3, 4]


def test_a_policy_that_is_rolled_back_while_replicas_start_binds_nothing_more() -> None:
    """Policy rollback while replicas start: the scheduler goes on by the revision that is taken back until it hears of that. Each
    binding is under the revision in force at its commit (S6 looks at every one)."""

    async def script(stage: Stage) -> tuple[int, set[int], int]:
        await stage.promote(2)
        await stage.until(lambda: stage.objects(REGION, "policychannels")["", "default"].spec.current == 2)
        await stage.create("api-0", 3)
        await stage.until(lambda: len(stage.bindings("api-0")) == 3)
        stage.hide("policychannels", 5.0)
        await stage.promote(1)
        await asyncio.gather(*(stage.create(f"api-{number}", 3) for number in range(1, 4)))
        await stage.until(lambda: all(stage.serving(f"api-{number}") == 3 for number in range(4)))
        revisions = {b.spec.policy_revision for b in stage.bindings() if b.spec.slot.workload != "api-0"}
        return stage.refused("StalePolicy"), revisions, stage.world.watches[REGION].checked["S6"]

    late, revisions, judged = played(script)
    assert late > 0, "it was proposed"
    assert revisions == {1}
    assert judged >= 12, "every place was judged by the checker too"


def test_a_policy_rollback_while_replicas_start_restarts_nothing_that_is_fine() -> None:
    """What was bound under the revision that is taken back starts, serves and stays, in its one life."""

    async def script(stage: Stage) -> tuple[set[int], dict[str, set[tuple[int, int]]], set[SlotState]]:
        await stage.promote(2)
        revision = stage.world.watches[REGION].objects["policychannels"]
        await stage.until(lambda: revision["", "default"].spec.current == 2)
        await stage.create("api", 6)
        await stage.until(lambda: len(stage.bindings("api")) >= 3)
        assert stage.serving("api") < 6, "some of them are still starting"
        await stage.promote(1)
        await stage.create("web", 2)
        await stage.until(lambda: stage.serving("api") == 6 and stage.serving("web") == 2)
        await sleep(40.0)  # beyond a resync of every controller
        lives: dict[str, set[tuple[int, int]]] = {}
        states: set[SlotState] = set()

        def look(checker: JournalChecker, plural: str, key: str) -> None:
            tenant, _, name = key.partition("/")
            if plural == "bindings" and (binding := checker.objects["bindings"].get((tenant, name))) is not None:
                lives.setdefault(name, set()).add((binding.spec.token.epoch, binding.spec.token.attempt))
                states.add(binding.status.state)

        stage.walk(look)
        return {binding.spec.policy_revision for binding in stage.bindings()}, lives, states

    revisions, lives, states = played(script)
    assert revisions == {1, 2}, "each keeps the revision that it was decided under"
    assert len(lives) == 8
    assert all(len(life) == 1 for life in lives.values()), lives
    assert not states & {SlotState.DRAINING, SlotState.RELEASED, SlotState.FAILED}


def test_a_node_that_is_drained_between_choice_and_bind_gets_nothing_more() -> None:
    """Drain between choice and bind: the scheduler chose before it heard of the drain. What was there leaves all the same."""

    async def script(stage: Stage) -> tuple[int, list[str]]:
        await asyncio.gather(*(stage.create(f"old-{number}", 4) for number in range(2)))
        await stage.until(lambda: all(stage.serving(f"old-{number}") == 4 for number in range(2)))
        assert any(binding.spec.node == DRAINED for binding in stage.bindings())
        stage.hide("nodes", 5.0)
        await stage.drain(DRAINED)
        await asyncio.gather(*(stage.create(f"api-{number}", 4) for number in range(5)))
        await stage.until(lambda: all(stage.serving(f"api-{number}") == 4 for number in range(5)))
        await stage.until(lambda: not any(binding.spec.node == DRAINED for binding in stage.bindings()))
        await stage.until(lambda: all(stage.serving(f"old-{number}") == 4 for number in range(2)))
        late: list[str] = []
        seen: set[tuple[str, Token]] = set()

        def look(checker: JournalChecker, plural: str, key: str) -> None:
            tenant, _, name = key.partition("/")
            binding = checker.objects["bindings"].get((tenant, name)) if plural == "bindings" else None
            if binding is not None and (key, binding.spec.token) not in seen:
                seen.add((key, binding.spec.token))
                if checker.objects["nodes"]["", binding.spec.node].spec.drain is not None:
                    late.append(f"{key} on {binding.spec.node}")

        stage.walk(look)
        assert stage.refused("NoFit/cordon") > 0, "it was chosen, and nothing else spoke against it"
        return len(seen), late

    bound, late = played(script)
    assert bound >= 28
    assert late == []


def test_people_who_repeat_themselves_do_not_make_the_platform_repeat_itself() -> None:
    """Retry amplification: while the stores refuse everything and people ask again and again, each request twice, the network
    carries no more than a few times what it does at rest."""

    async def script(stage: Stage) -> tuple[int, int]:
        await stage.create("api", 3)
        await stage.until(lambda: stage.serving("api") == 3)
        await sleep(10.0)
        network, stores = stage.platform.network, [plane.store for plane in stage.platform.planes.values()]
        before = network.frames
        await sleep(20.0)
        at_rest = network.frames - before
        for store in stores:
            store.faults.unavailable = 1.0
        tries = stage.count_tries()
        before = network.frames
        asks = stage.loop.spawn(None, stage.create("index", 3), "asks")
        await sleep(20.0)
        assert len(tries) > 2, "they asked again, each time twice"
        refused = network.frames - before
        for store in stores:
            store.faults.unavailable = 0.0
        await asks
        await stage.create("late", 3)
        await stage.until(lambda: stage.serving("late") == 3)
        return at_rest, refused

    at_rest, refused = played(script, work=Work(workloads=0, actions=0.001, operators=0.0, replays=1.0))
    assert refused < 6 * at_rest, f"{refused} frames while nothing could be written, {at_rest} at rest"
