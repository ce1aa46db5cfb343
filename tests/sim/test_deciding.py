"""The components that decide by themselves, in campaigns: their worlds, what people do to them, and that each of them acted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.agent.settings import NodeDeclaration
from fairlead.model.kinds.capacity import NodePool
from fairlead.model.kinds.policy import SchedulerPolicy
from fairlead.sim import born, loop, providing
from fairlead.sim.campaign import scenario_of
from fairlead.sim.coverage import ACTED, ACTED_FLOOR, ACTS_IN, CHECKED, STRUCK_IN, void_reasons
from fairlead.sim.loop import SimLoop, draws_of
from fairlead.sim.machines import SimIds
from fairlead.sim.people import LARGE, workload
from fairlead.sim.platform import Platform
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.trying import CHANNEL, Trying, drawn, put_right
from fairlead.sim.world import run_scenario
from tests.sim.test_coverage import ENOUGH_FAULTS, ENOUGH_REFUSALS, names

SEEDS = 5  # what it takes for a large slot to wait beside small ones differs with every change of the code


@pytest.mark.parametrize(("profile", "minutes"), [("canary", 1.5), ("elastic", 3.0), ("fragmented", 5.0)])
def test_each_of_them_acts_in_the_profile_that_is_directed_at_it(profile: str, minutes: float) -> None:
    asked = {name.partition("/")[0] for name in ACTS_IN[profile]}
    acted: set[str] = set()
    for seed in range(1, SEEDS + 1):
        verdict = run_scenario(scenario_of(seed, profile, minutes))
        assert not verdict.findings
        acted |= {name.partition("/")[0] for name in verdict.checked}
        if asked <= acted:
            return
    pytest.fail(f"{asked - acted} did nothing in {SEEDS} seeds")


def test_a_campaign_in_which_one_of_them_did_nothing_is_void() -> None:
    enough = dict.fromkeys((*CHECKED, *ACTED), 1_000)
    assert not void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 0, checked=enough)
    for name in ACTED:
        thin = void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 0, checked={**enough, name: ACTED_FLOOR - 1})
        assert names(thin) == [("component", name)]
    for profile, own in ACTS_IN.items():
        idle = void_reasons({}, {}, 100, 0, directed=profile, checked={})
        assert [name for name in names(idle) if name[0] == "component"] == [("component", name) for name in own]
        struck = dict.fromkeys(STRUCK_IN.get(profile, ()), 1_000)
        assert not void_reasons(struck, {}, 100, 0, directed=profile, checked=enough)


def test_everything_that_is_counted_of_them_belongs_to_a_profile() -> None:
    assert {name for own in ACTS_IN.values() for name in own} == set(ACTED)
    assert set(ACTS_IN) <= set(PROFILES)


# --- their worlds ------------------------------------------------------------------------------------------------------------


def test_where_work_is_moved_for_room_nodes_have_no_devices_and_policies_ask_for_it() -> None:
    assert born.declared("us-east", 0, True, plain=True).devices == ()
    assert born.declared("us-east", 0, True).devices
    for fragmented in (False, True):
        objects, _ = born.global_objects(
            born.usual(1, tight=False, critical=False, fragmented=fragmented), SimIds(draws_of(1, "x"))
        )
        policies = [one for _, one in objects if isinstance(one, SchedulerPolicy)]
        assert len(policies) == 3
        assert all((one.spec.defragmentation is not None) == fragmented for one in policies)


def test_a_pool_where_there_is_little_room_begins_with_no_node_and_orders_small_ones() -> None:
    def pool(*, tight: bool) -> NodePool:
        (found,) = [one for _, one in born.region_objects("us-east", [], True, tight) if one.metadata.name == born.BURST]
        return cast(NodePool, found)

    assert (pool(tight=True).spec.min_nodes, pool(tight=True).spec.node) == (0, born.TIGHT_ROOM)
    assert pool(tight=False).spec.min_nodes == 1


def test_large_services_are_few_and_do_not_evict_and_none_wants_a_device_beside_them() -> None:
    work = Work(large=0.3, exclusive=0.0, jobs=0.0)
    made = [workload("api", 6, kind, work)["spec"] for kind in range(100)]
    large = [spec for spec in made if spec["resources"]["requests"]["cpu"] == LARGE[0]]
    assert len(large) == 30
    assert all(spec["replicas"] <= 3 and "priorityClassName" not in spec for spec in large)
    assert not any("devices" in spec["resources"] for spec in made)


# --- what people do ----------------------------------------------------------------------------------------------------------


def test_canaries_are_drawn_by_name_by_share_by_region_and_by_both() -> None:
    draws = draws_of(1, "canaries")
    found = [drawn(draws, ("us-east", "us-west")) for _ in range(200)]
    kinds = {(bool(one.canary["tenants"]), one.canary["sharePercent"] > 0, bool(one.canary["regions"])) for one in found}
    assert len(kinds) == 8, "the one that is about nobody is the API's to refuse"
    assert {one.then < 0.35 for one in found} == {one.then < 0.7 for one in found} == {True, False}


def test_a_canary_is_ordered_and_then_promoted_taken_back_or_left_alone() -> None:
    wrote: list[tuple[str, Any]] = []
    people = SimpleNamespace(stopped=False)

    async def write(method: str, path: str, body: Any, name: str, token: str = "") -> Any:
        wrote.append((path, body["spec"]))
        people.stopped = len(wrote) > 40
        return SimpleNamespace(status=200)

    async def main(loop: SimLoop) -> None:
        platform = Platform(loop, Scenario(1, work=Work(canaries=60.0)))
        (task,) = Trying(platform, write, lambda text: None, lambda: people.stopped).tasks()
        await task()

    loop.run(main, 1)
    tried = [spec for _, spec in wrote if spec["canary"] is not None]
    ended = [spec for _, spec in wrote if spec["canary"] is None]
    assert {path for path, _ in wrote} == {CHANNEL}
    assert len(tried) > len(ended), "some are left to their end"
    assert {"current" in spec for spec in ended} == {True, False}


def test_what_they_did_is_put_right_and_where_they_did_nothing_nothing_is_written() -> None:
    assert put_right(Scenario(1), ("us-east",)) == []
    work = Work(canaries=1.0, resizes=1.0)
    paths = [path for path, _ in put_right(Scenario(1, work=work), ("us-east", "us-west"))]
    assert paths[0] == CHANNEL
    assert [path.rpartition("=")[2] for path in paths[1:]] == ["us-east", "us-west"]


# --- machines ----------------------------------------------------------------------------------------------------------------


def test_a_machine_that_came_back_by_itself_is_not_started_again_nor_one_without_power() -> None:
    class Plane:
        async def submit(self, commands: list[Any]) -> list[Any]:
            return []

    def start(*, alive: bool, up: bool) -> int:
        starts: list[int] = []
        program = SimpleNamespace(alive=alive, machine=SimpleNamespace(up=up), start=lambda: starts.append(1))
        node = NodeDeclaration(name="b-1", region="r")
        machines = cast(Any, {"b-1": SimpleNamespace(node=node, program=program)})
        nodes = providing.SimNodes(machines, cast(Any, None), "r", cast(Any, Plane()))
        pool = cast(NodePool, born.region_objects("r", [], True)[1][1])
        work: Awaitable[None] = nodes.start(pool, "b-1")
        asyncio.run(cast(Any, work))
        return len(starts)

    assert [start(alive=False, up=True), start(alive=True, up=True), start(alive=False, up=False)] == [1, 0, 0]


def test_a_machine_that_does_not_come_up_never_does_whoever_asks_and_after_healing_all_others_do() -> None:
    counts = Counter[str]()
    drawn = providing.Stillborn(1.0, draws_of(1, "stillborn"), counts)
    fates = [drawn.fate(f"b-{n}") for n in range(20)]
    assert set(fates) == {"refused", "silent"}
    drawn.healed = lambda: True
    assert [drawn.fate(f"b-{n}") for n in range(20)] == fates
    assert drawn.fate("b-20") == ""
    assert counts == {"stillborn": 20}
    left_out = providing.Stillborn(1.0, draws_of(1, "stillborn"), counts)
    left_out.left_out = lambda strike: strike == "stillborn:b-1"
    assert (left_out.fate("b-1"), bool(left_out.fate("b-2"))) == ("", True)
    assert providing.Stillborn(0.0, draws_of(1, "stillborn"), counts).fate("b-1") == ""


def test_a_machine_that_is_stopped_takes_what_runs_on_it_with_it() -> None:
    ended: list[str] = []
    program = SimpleNamespace(kill=lambda: ended.append("agent"))
    machine = SimpleNamespace(program=program, instances=SimpleNamespace(power_lost=lambda: ended.append("instances")))
    nodes = providing.SimNodes(cast(Any, {"b-1": machine}), cast(Any, None), "r", cast(Any, None))
    asyncio.run(nodes.stop(born.BURST, "b-1"))
    assert ended == ["agent", "instances"]
