"""Claims at random (S19): the promises hold, and the checker finds each guard that is taken out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.authority.judge import Settings, victims
from fairlead.authority.replay import Replay
from fairlead.decide.preempt_rules import Evictor
from fairlead.model.commands import Accepted
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role, SlotState
from fairlead.model.resources import DeviceAsk
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import agent_of, gpu, move_of, report_of, running_plane
from tests.authority.preemption_stage import HIGH, LOW, MID, TOP, Stage, violations


class Storm:
    """Claims at random on two small nodes, by proposers that look at nothing."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.draws = random.Random(seed)
        self.accepted = 0

    async def step(self) -> None:
        draws, stage = self.draws, self.stage
        name, node = f"{draws.choice('abc')}-{draws.randrange(6)}", draws.choice(("n1", "n2"))
        plane, what = stage.plane, draws.random()
        rec = plane.authority.view().get("bindings", "batch", name)
        if rec is not None and what < 0.35:
            token = rec.hot.token
            if rec.hot.state is SlotState.DRAINING:
                await plane.send(agent_of(rec.hot.node), report_of("batch", name, SlotState.RELEASED))
            elif what < 0.1:
                await plane.send(stage.callers[Role.DISRUPTION], move_of("batch", name, SlotState.DRAINING, token=token))
            return
        if what < 0.6 and rec is None:
            await plane.request(
                "batch", name[0], int(name[2:]), stage.callers[Role.ASSIGNMENT], priority=draws.choice((LOW, MID, HIGH, TOP)),
                cpu=draws.choice((500, 1000)), may_borrow=draws.random() < 0.2, min_serving={"a": 2, "b": 1, "c": 0}[name[0]],
                devices=(DeviceAsk(count=1),) if name == "c-0" else (),
            )  # fmt: skip
            return
        here = [r.name for r in plane.authority._state.live("bindings", "batch") if r.hot.node == node]
        claimed = draws.sample(sorted(here), min(len(here), draws.choice((0, 1, 1, 1, 2))))
        outcome = await stage.send(stage.bind(name, node, *claimed))
        if isinstance(outcome, Accepted) and claimed:
            self.accepted += 1

    def ledger_equals_the_sum(self) -> None:
        state, ledger = self.stage.plane.authority._state, self.stage.plane.authority._ctx.ledger
        capable: dict[str, int] = {}
        for rec in state.live("bindings"):
            if rec.hot.state in (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING):
                capable[rec.hot.workload_uid] = capable.get(rec.hot.workload_uid, 0) + 1
        assert ledger.capable == capable
        for node in ("n1", "n2"):
            uses = [r.hot for r in state.live("bindings") if r.hot.node == node and r.hot.state in HOLDS_CAPACITY]
            account = ledger.node(node)
            assert account.cpu_unlent == account.allocatable.cpu - sum(u.requests.cpu for u in uses)
            assert account.cpu_free == account.allocatable.cpu - sum(u.requests.cpu for u in uses if not u.borrowed)


async def _storm(seed: int, steps: int = 400) -> tuple[MemoryDisk, int]:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish("n1", "n2", cpu=3000, devices=(gpu("g0"),))
        storm = Storm(stage, seed)
        for _ in range(steps):
            await storm.step()
            plane.authority.heartbeat([("n1", 1), ("n2", 1)])
        storm.ledger_equals_the_sum()
        assert await plane.authority.figures().drifts() == [], "borrowers, claims and devices are counted as they were booked"
    return disk, storm.accepted


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_claimed_the_promises_hold_and_judging_again_gives_the_same(seed: int) -> None:
    disk, accepted = await _storm(seed)
    assert violations(disk) == []
    assert accepted > 3, "claims must succeed for this to mean anything"
    replay = Replay(Settings(region="local"))
    replay.feed([entry.batch for entry in disk.journal])
    assert replay.differences == []


@pytest.mark.parametrize("guard", ["priority", "budget", "record", "draining", "wait"])
async def test_the_checker_finds_each_guard_of_a_claim_that_is_taken_out(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if guard == "priority":
        monkeypatch.setattr(Evictor, "may_evict", lambda *a: True)
    elif guard == "budget":
        monkeypatch.setattr(victims, "breaches", lambda *a: [])
    elif guard == "record":
        real = victims.put_draining
        monkeypatch.setattr(victims, "put_draining", lambda ctx, b, why, caller: real(ctx, b, "because", caller))
    elif guard == "draining":
        monkeypatch.setattr(victims, "SERVING_CAPABLE", HOLDS_CAPACITY)
        monkeypatch.setattr(victims, "may_step", lambda *a: True)
    elif guard == "wait":
        inner = victims.claim_victims

        def forgets(*args: Any) -> Any:
            claim = inner(*args)
            if isinstance(claim, victims.Claim):
                claim.start_after = ()
            return claim

        monkeypatch.setattr("fairlead.authority.judge.placing.claim_victims", forgets)
    words = {
        "priority": "was evicted by",
        "budget": "that must be able to serve",
        "record": "its record does not say so",
        "draining": "did not begin to drain with it",
        "wait": "nobody waits for it",
    }[guard]
    for seed in range(8):
        disk, _ = await _storm(seed, 300)
        if any(found.invariant == "S19" and words in found.detail for found in violations(disk)):
            return
    pytest.fail(f"without the guard {guard} nothing broke S19")
