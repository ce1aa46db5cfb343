"""What a slot wants of its node and of its neighbours, asked of a journal: the checker finds what a judge without the gate lets
through, and says nothing of what the judge allows."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.authority.judge import placing
from fairlead.model.kinds.capacity import Taint
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, SpreadRule, Toleration
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.gates_stage import (
    API,
    CACHE,
    NEAR_CACHE,
    PLAIN,
    SHUNS_API,
    SPREAD,
    WITH_ITSELF,
    Stage,
    app,
    ask_of,
    refused_by,
    staged,
    violations,
)
from tests.authority.planes import ok, running_plane

ON_A2 = ask_of(node_labels=(LabelExpression(key="disk", values=("a2",)),))
BEARS = ask_of(tolerations=(Toleration(key="batch", operator="Exists"),))
BATCH = (Taint("batch", "yes"),)
SOFT = (Taint("batch", "yes", "PreferNoSchedule"),)


CASES: dict[str, tuple[Any, str, str]] = {  # what asks, where it is put, and in which words that is found
    "labels": (ON_A2, "a1", "its labels {'disk': 'a1'} are not"),
    "taints": (PLAIN, "b1", "taint batch is not tolerated"),
    "taints of another value": (ask_of(tolerations=(Toleration(key="batch", value="no"),)), "b1", "taint batch is not tolerated"),
    "cordon": (PLAIN, "a2", "it is cordoned"),
    "ports": (ask_of(ports=(80,)), "a1", "port 80 is in use"),
    "max-per-node": (ask_of(max_per_node=1), "a1", "slots of its workload are there, 1 at most"),
    "spread by node": (ask_of(spread=(SpreadRule(topology_key="hostname"),)), "a1", "hostname a1 has 1 of its workload"),
    "anti-affinity": (ask_of(anti_affinity=(AffinityRule(match=app("api")),)), "a1", "it keeps away by hostname"),
    "anti-affinity by zone": (SHUNS_API, "a2", "it keeps away by zone"),
    "who is repelled": (ask_of(CACHE), "a1", "what is there keeps it away by zone"),
    "affinity": (NEAR_CACHE, "a1", "zone 'a' has none of those it must be near to"),
    "affinity with itself": (WITH_ITSELF, "b1", "zone 'b' has none of those it must be near to"),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_checker_finds_what_a_judge_without_the_gate_lets_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, (ask, node, words) = MemoryDisk(), CASES[name]
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish()
        keeps = AffinityRule(topology_key="zone", match=app("cache"))
        await stage.place("risk/x-0", "a1", ask_of(API, ports=(80,), anti_affinity=(keeps,)))
        await stage.alter("b1", taints=BATCH)
        await stage.alter("a2", unschedulable=True)
        assert violations(disk) == []
        await stage.wait("risk/x-1", ask)
        if name != "spread by node":  # b1 is closed to it by its taint, and so is no other domain: found once b1 is open
            refused_by(await stage.bind("risk/x-1", node))
        else:
            await stage.alter("b1", taints=SOFT)
            assert refused_by(await stage.bind("risk/x-1", node)) == {"spread"}
        monkeypatch.setattr(placing, "feasible", lambda *a: True)
        ok(await stage.bind("risk/x-1", node))
    found = violations(disk)
    assert {violation.invariant for violation in found} == {"S6"}, found
    assert any(words in violation.detail for violation in found), found


async def test_it_says_nothing_of_what_is_allowed() -> None:
    async with staged() as stage:  # whose end asks the checker
        await stage.place("risk/x-0", "a2", ON_A2)
        await stage.alter("b1", taints=BATCH)
        await stage.place("risk/y-0", "b1", BEARS)
        await stage.alter("b1", taints=SOFT)
        await stage.place("risk/y-1", "b1", PLAIN)
        await stage.place("risk/z-0", "a1", SPREAD)
        await stage.place("risk/z-1", "b1", SPREAD)
        await stage.place("shop/z-0", "a1", ask_of(API))
        await stage.place("risk/u-0", "a1", SHUNS_API)  # another tenant's are not meant
        await stage.place("risk/v-0", "b1", WITH_ITSELF)  # the first of its kind


async def test_the_checker_finds_what_was_reserved_and_is_bound_to_a_closed_node(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish()
        await stage.wait("risk/x-0", ask_of(API, ports=(80,), max_per_node=1))
        ok(await stage.reserve("risk/x-0", "a2"))
        assert violations(disk) == []
        await stage.alter("a2", unschedulable=True)
        monkeypatch.setattr(placing, "reasons", lambda *a: {})
        ok(await stage.bind("risk/x-0", "a2"))
    assert [violation.detail for violation in violations(disk)] == ["x-0 on a2: it is cordoned"]
