"""Random commands from every role over a store that fails at random: whatever happens, the journal keeps its promises, judging it
again gives the same effects, and the ledger equals the sum."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings, callers, placing
from fairlead.authority.replay import Replay
from fairlead.model import codec
from fairlead.model.commands import (
    Accepted,
    BindGang,
    BindMany,
    Caller,
    Command,
    Delete,
    Enqueue,
    LeaseAcquire,
    Outcome,
    Put,
    ReleaseReservation,
    Report,
    SessionId,
)
from fairlead.model.hot import DECODERS
from fairlead.model.ids import split_key
from fairlead.model.journal import decode_blob
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import InstanceStatus
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role, SlotState
from fairlead.model.resources import DeviceAsk, Resources
from fairlead.model.settling import settled
from fairlead.observe.checkers import JournalChecker
from fairlead.store.contract import Batch
from fairlead.store.memory import Fault, MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, LAND_LATER, LOSE_ANSWER, HandFaults
from tests.authority.planes import (
    GI,
    PlaneForTest,
    agent_of,
    bind_of,
    gpu,
    move_of,
    request_of,
    reserve_of,
    running_plane,
)

ROLES = (Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION, Role.NODE, Role.REPAIR, Role.ROLLOUT)
TENANTS, NODES, SLOTS = ("risk", "search"), ("n1", "n2", "n3"), range(6)


class RandomFaults(HandFaults):
    """Each store write may meet a fault; what lands later lands at some later call."""

    def __init__(self, draws: random.Random) -> None:
        super().__init__()
        self._draws = draws
        self.on = False

    async def before(self, call: str) -> Fault | None:
        if self.held and self._draws.random() < 0.5:
            self.held.pop(0).land()
        if not self.on or call != "commit":
            return None
        drawn = self._draws.random()
        faults: tuple[Fault, ...] = (LOSE_ANSWER, LAND_LATER, DISK_FULL)
        return self._draws.choice(faults) if drawn < 0.3 else None


class Chaos:
    """One seed: a stream of commands, most of them plausible, many of them wrong."""

    def __init__(self, seed: int, plane: PlaneForTest, callers: dict[Role, Caller]) -> None:
        self.draws = random.Random(seed)
        self.plane = plane
        self.callers = callers
        self.sequence = 0

    def command(self) -> Command:
        draws = self.draws
        tenant, index, node = draws.choice(TENANTS), draws.choice(SLOTS), draws.choice(NODES)
        name, epoch = f"w-{index}", draws.choice((1, 2, 3))
        token = Token(incarnation=1, epoch=epoch, attempt=draws.choice((1, 2, 3)))
        if draws.random() < 0.85:  # as a caller would send it who has just looked
            epoch, token, node = self._looked_up(tenant, name, epoch, token, node)
        makers: list[Callable[[], tuple[Role, Any]]] = [
            lambda: (Role.ASSIGNMENT, Put("SchedulingRequest", self._request(tenant, index, epoch))),
            lambda: (Role.SCHEDULER, bind_of(tenant, name, node, epoch=epoch, grant_version=1)),
            lambda: (Role.SCHEDULER, bind_of(tenant, name, node, epoch=epoch, victims=(f"{draws.choice(TENANTS)}/w-0",))),
            lambda: (Role.SCHEDULER, reserve_of(tenant, name, node, epoch=epoch, ttl_s=draws.choice((0.05, 30.0)))),
            lambda: (Role.SCHEDULER, ReleaseReservation(tenant, name, token)),
            lambda: (Role.SCHEDULER, BindGang(tuple(bind_of(tenant, f"g-{n}", draws.choice(NODES)) for n in range(2)))),
            lambda: (Role.SCHEDULER, BindMany(tuple(bind_of(tenant, f"w-{n}", draws.choice(NODES)) for n in range(3)))),
            lambda: (Role.ASSIGNMENT, Enqueue(self._request(tenant, index, epoch), 3)),
            lambda: (Role.ASSIGNMENT, Put("SchedulingRequest", request_of(tenant, "g", index % 2, gang="g", gang_size=2))),
            lambda: (Role.DISRUPTION, move_of(tenant, name, SlotState.DRAINING, token=token)),
            lambda: (Role.NODE, move_of(tenant, name, draws.choice((SlotState.UNKNOWN, SlotState.BOUND)), token=token)),
            lambda: (Role.REPAIR, move_of(tenant, name, SlotState.RELEASED, token=token)),
            lambda: (Role.REPAIR, Put("SchedulingRequest", self._request(tenant, index, epoch + 1))),
            lambda: (Role.ROLLOUT, move_of(tenant, name, draws.choice((SlotState.SERVING, SlotState.READY)), token=token)),
            lambda: (Role.ASSIGNMENT, Delete("SchedulingRequest", tenant, name)),
            lambda: (Role.ASSIGNMENT, Delete("Binding", tenant, draws.choice((name, "g-0", "g-1")))),
        ]
        if draws.random() < 0.35:
            to = draws.choice((SlotState.STARTING, SlotState.READY, SlotState.FAILED, SlotState.RELEASED, SlotState.SUCCEEDED))
            caller, body = agent_of(node), _report(tenant, name, token, to)
        else:
            role, body = draws.choice(makers)()
            caller = self.callers[role if draws.random() < 0.95 else draws.choice(ROLES)]
            if draws.random() < 0.03:
                caller = Caller(caller.actor, caller.role, lease=caller.lease, fencing_epoch=caller.fencing_epoch - 1)
        self.sequence += 1
        return Command(caller, body, SessionId("chaos", self.sequence, max(0, self.sequence - 50)))

    def _looked_up(self, tenant: str, name: str, epoch: int, token: Token, node: str) -> tuple[int, Token, str]:
        view = self.plane.authority.view()
        binding, request = view.get("bindings", tenant, name), view.get("schedulingrequests", tenant, name)
        reservation = view.get("reservations", tenant, name)
        if binding is not None:
            return binding.hot.token.epoch, binding.hot.token, binding.hot.node
        if reservation is not None:
            return reservation.hot.spec.token.epoch, reservation.hot.spec.token, reservation.hot.spec.node
        return (request.hot.spec.epoch if request is not None else 1), token, node

    def _request(self, tenant: str, index: int, epoch: int) -> Any:
        devices = (DeviceAsk(count=1, share_thousandths=self.draws.choice((400, 1000))),) if index == 5 else ()
        priority = self.draws.choice((0, 500, 1000))
        return request_of(tenant, "w", index, epoch=epoch, priority=priority, devices=devices, may_borrow=False)


def _report(tenant: str, name: str, token: Token, to: SlotState) -> Any:
    return Report(tenant, name, token, to, InstanceStatus(ready=to is SlotState.READY))


async def _furnish(plane: PlaneForTest) -> dict[Role, Caller]:
    for number, name in enumerate(NODES):
        await plane.add_node(name, cpu=2500 + 1000 * number, memory=4 * GI, devices=(gpu("g0"), gpu("g1")))
    for tenant in TENANTS:
        await plane.grant(tenant, cpu=4000, memory=8 * GI, gpu=2)
    return {role: await plane.as_role(role) for role in ROLES}


def journal(disk: MemoryDisk) -> list[Batch]:
    return [entry.batch for entry in disk.journal]


def check(disk: MemoryDisk) -> JournalChecker:
    checker = JournalChecker()
    for batch in journal(disk):
        checker.feed(batch)
    return checker


def ledger_equals_the_sum(plane: PlaneForTest) -> None:
    state, ledger = plane.authority._state, plane.authority._ctx.ledger
    for node in NODES:
        used = Resources()
        slots = 0
        for rec in [*state.live("bindings"), *state.live("reservations")]:
            spec = rec.decode().spec
            holds = rec.plural == "reservations" or rec.hot.state in HOLDS_CAPACITY
            if spec.node == node and holds:
                used += spec.requests
                slots += 1
        account = ledger.node(node)
        have = account.allocatable - used
        assert (account.cpu_free, account.memory_free) == (have.cpu, have.memory), node
        assert account.slots_free == 110 - slots


def in_another_form(disk: MemoryDisk) -> list[str]:
    """Objects that were stored otherwise than their value alone would have them stored."""
    effects = [one for batch in journal(disk) for entry in decode_blob(batch.blob).entries for one in entry.effects]
    known = [(key, raw, DECODERS[split_key(key)[0]]) for key, raw in effects if raw and split_key(key)[0] in DECODERS]
    return [key for key, raw, decoder in known if codec.encode(settled(decoder.decode(raw))) != raw]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_sent_the_journal_keeps_its_promises(seed: int) -> None:
    disk, faults = MemoryDisk(), RandomFaults(random.Random(seed))
    timing = Timing(lease_ttl_s=30.0, renew_s=5.0, poll_s=0.02)
    outcomes: list[Outcome] = []
    async with running_plane(MemoryStore(disk, faults), timing=timing) as plane:
        callers = await _furnish(plane)
        chaos = Chaos(seed, plane, callers)
        faults.on = True
        for _ in range(800):
            bulk = [chaos.command() for _ in range(chaos.draws.choice((1, 1, 2, 12)))]
            outcomes += await plane.authority.submit(bulk)
            plane.authority.heartbeat([(name, 1) for name in NODES])
        faults.on = False
        outcomes += await plane.authority.submit([chaos.command()])
        ledger_equals_the_sum(plane)
    checker = check(disk)
    assert checker.violations == []
    assert {"S1", "S2", "S4", "S7", "S9", "S18"} <= set(checker.checked), checker.checked
    replay = Replay(Settings(region="local"))
    replay.feed(journal(disk))
    assert replay.differences == []
    assert replay.judged > 100
    assert in_another_form(disk) == []
    accepted = sum(isinstance(outcome, Accepted) for outcome in outcomes)
    assert 50 < accepted < len(outcomes) - 50, "both answers must occur for this to mean anything"


async def test_the_checker_finds_each_guard_that_is_taken_out_of_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stream with the guards of the judge taken out one by one: each gap is seen by the checker."""

    def mutated(name: str) -> None:
        if name == "fit":
            monkeypatch.setattr(placing, "feasible", lambda *a: True)
        elif name == "grant":
            monkeypatch.setattr(placing, "_grant", lambda *a: None)
        elif name == "step":
            monkeypatch.setattr("fairlead.authority.judge.running.may_step", lambda *a: True)
        elif name == "fence":
            monkeypatch.setattr(callers, "_fenced", lambda *a: None)

    expected = {"fit": "S2", "grant": "S4", "step": "S7", "fence": "S9"}
    for name, invariant in expected.items():
        with monkeypatch.context():
            mutated(name)
            found: set[str] = set()
            for seed in range(8):
                disk = MemoryDisk()
                async with running_plane(MemoryStore(disk), timing=Timing(lease_ttl_s=30.0, poll_s=0.02)) as plane:
                    chaos = Chaos(seed, plane, await _furnish(plane))
                    for _ in range(400):
                        await plane.authority.submit([chaos.command() for _ in range(3)])
                        plane.authority.heartbeat([(node, 1) for node in NODES])
                found |= {violation.invariant for violation in check(disk).violations}
                if invariant in found:
                    break
            assert invariant in found, f"without its guard {name}, nothing broke {invariant}"
        monkeypatch.undo()


async def test_a_lease_taken_over_in_the_middle_of_a_stream_fences_the_rest() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        callers = await _furnish(plane)
        chaos = Chaos(3, plane, callers)
        for _ in range(20):
            await plane.authority.submit([chaos.command() for _ in range(3)])
            await plane.send(Caller(callers[Role.SCHEDULER].actor, Role.SCHEDULER), LeaseAcquire("scheduler", Role.SCHEDULER))
        assert plane.authority.meters.refusals["FencedOut"] > 0
    assert check(disk).violations == []
