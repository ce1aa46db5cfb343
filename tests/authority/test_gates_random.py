"""Random placements with rules about neighbours over a store that fails at random: the counters equal a recount of the plane's
objects whatever was undone, no rule is broken among what is placed, and the journal keeps S6."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.replay import Replay
from fairlead.decide.label_index import fits
from fairlead.model.commands import Accepted, ReleaseReservation
from fairlead.model.kinds.intent import AffinityRule
from fairlead.model.kinds.work import Ask, Marks
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role, SlotState
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.gates_stage import ALONE, API, CACHE, NEAR_CACHE, PLAIN, SHUNS_API, SPREAD, Stage, app, ask_of, violations
from tests.authority.planes import agent_of, move_of, report_of, reserve_of, running_plane, token
from tests.authority.test_promises import RandomFaults

ASKS: tuple[Ask, ...] = (
    PLAIN, ALONE, SPREAD, SHUNS_API, NEAR_CACHE, ask_of(API), ask_of(CACHE), ask_of(ports=(80,)), ask_of(API, ports=(80, 81)),
    ask_of(max_per_node=1), ask_of(API, anti_affinity=(AffinityRule(match=app("api")),)),
)  # fmt: skip
NODES = {"a1": "a", "a2": "a", "b1": "b"}
WORKLOADS, SLOTS = 8, 4


class Stream:
    """One seed. Each workload has one ask; slots come, are placed or reserved, drain and go."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.draws = random.Random(seed)
        self.asks = [self.draws.choice(ASKS) for _ in range(WORKLOADS)]
        self.accepted = self.refused = 0

    async def ask(self) -> None:
        for work, ask in enumerate(self.asks):
            for index in range(SLOTS):
                await self.stage.wait(f"{('risk', 'shop')[work % 2]}/w{work}-{index}", ask)

    async def step(self) -> None:
        stage, draws = self.stage, self.draws
        work, index, node = draws.randrange(WORKLOADS), draws.randrange(SLOTS), draws.choice(tuple(NODES))
        tenant = ("risk", "shop")[work % 2]
        slot = f"{tenant}/w{work}-{index}"
        name = slot.split("/")[1]
        view, scheduler = stage.plane.authority.view(), stage.callers[Role.SCHEDULER]
        binding, reservation = view.get("bindings", tenant, name), view.get("reservations", tenant, name)
        if binding is not None and binding.hot.state is SlotState.DRAINING:
            outcome = await stage.plane.send(agent_of(binding.hot.node), report_of(tenant, name, SlotState.RELEASED))
        elif binding is not None:
            outcome = await stage.plane.send(stage.callers[Role.DISRUPTION], move_of(tenant, name, SlotState.DRAINING))
        elif reservation is not None:
            release = ReleaseReservation(tenant, name, reservation.hot.spec.token or token())
            bind = stage.proposal(slot, reservation.hot.spec.node)
            outcome = await stage.plane.send(scheduler, draws.choice((release, bind)))
        else:
            bodies = (stage.proposal(slot, node), stage.proposal(slot, node), reserve_of(tenant, name, node))
            outcome = await stage.plane.send(scheduler, draws.choice(bodies))
        self.accepted += isinstance(outcome, Accepted)
        self.refused += not isinstance(outcome, Accepted)


def _placed(stage: Stage) -> list[tuple[str, str, str, Marks]]:
    """Tenant, workload uid, node and marks of all that is placed or reserved."""
    state = stage.plane.authority._ctx.state
    bound = [
        (r.tenant, r.hot.workload_uid, r.hot.node, r.hot.marks) for r in state.live("bindings") if r.hot.state in HOLDS_CAPACITY
    ]
    held = [(r.tenant, r.hot.spec.slot.uid, r.hot.spec.node, r.hot.spec.marks) for r in state.live("reservations")]
    return [(tenant, uid, node, marks or Marks()) for tenant, uid, node, marks in bound + held]


def _broken(stage: Stage, asks: list[Ask]) -> list[str]:
    out = []
    for (t1, u1, n1, m1), (t2, u2, n2, m2) in combinations(_placed(stage), 2):
        if n1 == n2 and set(m1.ports) & set(m2.ports):
            out.append(f"{u1} and {u2} share a port of {n1}")
        if n1 == n2 and t1 != t2 and "TenantExclusive" in (m1.isolation, m2.isolation):
            out.append(f"{u1} and {u2} share {n1}")
        if n1 == n2 and u1 == u2 and asks[int(u1.rpartition("w")[2])].placement.max_per_node == 1:
            out.append(f"{u1} is twice on {n1}")
        for mine, other in ((m1, m2), (m2, m1)):
            for rule in mine.repels:
                near = n1 == n2 if rule.topology_key == "hostname" else NODES[n1] == NODES[n2]
                if t1 == t2 and near and fits(rule.match, other.labels):
                    out.append(f"{u1} on {n1} and {u2} on {n2} keep away from each other")
    return out


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_placed_and_undone_no_rule_is_broken_and_the_counters_are_right(seed: int) -> None:
    disk = MemoryDisk()
    faults = RandomFaults(random.Random(seed))
    async with running_plane(MemoryStore(disk, faults), timing=Timing(lease_ttl_s=30.0, poll_s=0.02)) as plane:
        stage = Stage(plane)
        await stage.furnish()
        stream = Stream(stage, seed)
        await stream.ask()
        faults.on = True
        for _ in range(300):
            await stream.step()
            plane.authority.heartbeat([(node, 1) for node in NODES])
            assert _broken(stage, stream.asks) == []
        faults.on = False
        await stream.step()
        counted, wanted = stage.recounted()
        assert counted == wanted
    assert stream.accepted > 40
    assert stream.refused > 20
    assert violations(disk) == []
    replay = Replay(Settings(region="local"))
    replay.feed([entry.batch for entry in disk.journal])
    assert replay.differences == []
