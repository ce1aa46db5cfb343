"""What a race of schedulers is about: a tight fleet, work of every sort for several tenants, a world that does not stand still.

Owns the fleet, the slots asked for and the churn: agents that let victims go, slots that fail and are wanted again, nodes that
close and open, somebody by hand who reserves places. Called by race_rig.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from fairlead.authority.hot import BindingHot
from fairlead.client.plane import Change
from fairlead.client.remote import RemotePlane
from fairlead.model.commands import (
    Accepted,
    Body,
    Caller,
    Command,
    Enqueue,
    LeaseAcquire,
    Move,
    Outcome,
    Put,
    PutStatus,
    ReleaseReservation,
    Report,
    Reserve,
)
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceAsk, Resources
from tests.rigs.plane_server import REGION, SESSION

GI = 1 << 30
MI = 1 << 20
TENANTS = tuple(f"t{n}" for n in range(5))
LEASED = (Role.ASSIGNMENT, Role.REPAIR, Role.SCHEDULER)
OPERATOR = Caller("ada", Role.OPERATOR)
NODE = Resources(16_000, 64 * GI)
FILLER = Resources(2000, 2 * GI)
FILLERS_A_NODE = 7  # of the eight that fit: what comes later must evict
BURST = 40  # slots of one kind that come together
FAIL_EVERY = 25  # of the slots bound, every so many fails and is wanted again
HAND, HANDS = "hand", 4  # slots that somebody places by hand

SlotKey = tuple[str, str]


class Fleet:
    """Nodes in three zones, a third of them with two GPUs."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"n{number:03d}" for number in range(nodes)]

    def spec(self, name: str, cordoned: bool = False) -> NodeSpec:
        number = int(name[1:])
        devices = tuple(Device(id=f"{name}-g{n}", model="a100") for n in range(2)) if number % 3 == 0 else ()
        zone = "abc"[number // 3 % 3]
        return NodeSpec(region=REGION, zone=zone, allocatable=NODE, devices=devices, max_slots=200, unschedulable=cordoned)

    def put(self, name: str, cordoned: bool = False) -> Command:
        return Command(OPERATOR, Put("Node", Node(metadata=Metadata(name=name), spec=self.spec(name, cordoned))))

    def furniture(self) -> Iterator[Command]:
        limit = Resources(1 << 40, 1 << 50, {"gpu": 1000}.items())
        for tenant in TENANTS:
            grant = GrantSpec(region=REGION, version=1, during=limit, after=limit)
            yield Command(OPERATOR, Put("Grant", Grant(metadata=Metadata(name=REGION, namespace=tenant), spec=grant)))
        for name in self.names:
            yield self.put(name)
            status = NodeStatus(schedulable=True, health="Ready", session=SESSION)
            yield Command(agent_of(name), PutStatus("Node", "", name, status))


def agent_of(node: str) -> Caller:
    return Caller(f"agent-{node}", Role.AGENT, node=node)


def enqueue(workload: str, count: int, ask: Ask, number: int, priority: int = 500, **spec: Any) -> Enqueue:
    slot = SlotRef(workload=workload, uid=f"u-{workload}", index=0)
    wanted = SchedulingRequestSpec(slot=slot, ask=ask, priority=priority, **spec)
    metadata = Metadata(name=slot.object_name, namespace=TENANTS[number % len(TENANTS)])
    return Enqueue(SchedulingRequest(metadata=metadata, spec=wanted), count)


def fillers(fleet: Fleet) -> Iterator[Enqueue]:
    total = FILLERS_A_NODE * len(fleet.names)
    for number, first in enumerate(range(0, total, BURST)):
        ask = Ask(requests=FILLER, workload_class="best-effort")
        yield enqueue(f"fill{number}", min(BURST, total - first), ask, number, priority=0)


def work(bursts: int) -> Iterator[Enqueue]:
    """Every sort in turn, so that at each moment there are some of each."""
    for number in range(bursts):
        size = Resources(100 + 50 * (number % 5), 256 * MI)
        yield enqueue(f"web{number}", BURST, Ask(requests=size), number)
        yield enqueue(
            f"api{number}", 8, Ask(requests=Resources(1500, GI), workload_class="critical"), number, 1000, min_serving=4
        )
        match = (LabelExpression(key="app", values=(f"db{number}",)),)
        apart = Placement(anti_affinity=(AffinityRule(topology_key="hostname", match=match),))
        yield enqueue(f"db{number}", 10, Ask(requests=size, placement=apart, labels=(("app", f"db{number}"),)), number)
        even = Placement(spread=(SpreadRule(topology_key="zone", max_skew=1),))
        yield enqueue(f"even{number}", 12, Ask(requests=size, placement=even), number)
        share = (DeviceAsk(resource="gpu", count=1, share_thousandths=(250, 500)[number % 2]),)
        yield enqueue(f"infer{number}", 2, Ask(requests=size, devices=share), number)
        for gang in range(2):
            name = f"train{number}x{gang}"
            yield enqueue(name, 3, Ask(requests=size), number, gang=name, gang_size=3)


class World:
    """The plane as everybody but the schedulers sees it: what is bound, and what agents and repair do about it."""

    def __init__(self, plane: RemotePlane, fleet: Fleet, seed: int) -> None:
        self.plane = plane
        self.fleet = fleet
        self.rng = random.Random(f"race {seed}")
        self.roles: dict[Role, Caller] = {}
        self.bound: dict[SlotKey, BindingHot] = {}
        self.waiting: set[SlotKey] = set()
        self.asked: dict[SlotKey, SchedulingRequest] = {}
        self.cordoned: list[str] = []
        self.failed = self.drained = self.cordons = self.reserved = self.bound_total = 0

    # --- sending -----------------------------------------------------------------------------------------------------------

    async def send(self, commands: list[Command]) -> list[Outcome]:
        out: list[Outcome] = []
        for first in range(0, len(commands), 200):
            out += await self.plane.submit(commands[first : first + 200])
        return out

    async def furnish(self) -> None:
        for role in LEASED:
            caller = Caller(f"{role.value}-0", role)
            (got,) = await self.plane.submit([Command(caller, LeaseAcquire(role.value, role, 3600.0))])
            assert isinstance(got, Accepted), got
            self.roles[role] = Caller(caller.actor, role, lease=role.value, fencing_epoch=got.epoch)
        for outcome in await self.send(list(self.fleet.furniture())):
            assert isinstance(outcome, Accepted), outcome
        by_hand = enqueue(HAND, HANDS, Ask(requests=Resources(100, MI)), 0, suspend=True)
        await self.send([Command(self.roles[Role.ASSIGNMENT], by_hand)])
        await self.plane.heartbeat([(name, SESSION) for name in self.fleet.names])
        await self.reserve_some()  # while there is room everywhere

    async def ask(self, works: list[Enqueue]) -> None:
        caller = self.roles[Role.ASSIGNMENT]
        for one in works:
            slot, tenant = one.request.spec.slot, one.request.metadata.namespace
            for index in range(one.count):
                self.asked[tenant, f"{slot.workload}-{index}"] = one.request
        for outcome in await self.send([Command(caller, one) for one in works]):
            assert isinstance(outcome, Accepted), outcome
            assert not outcome.refused, outcome

    # --- watching ----------------------------------------------------------------------------------------------------------

    def observe(self, changes: list[Change]) -> list[SlotKey]:
        """The slots that were bound among them."""
        fresh: list[SlotKey] = []
        for change in changes:
            key = (change.tenant, change.name)
            if change.name.startswith(f"{HAND}-"):
                continue
            if change.plural == "schedulingrequests":
                (self.waiting.discard if change.raw is None else self.waiting.add)(key)
            elif change.raw is None:
                self.bound.pop(key, None)
            else:
                old = self.bound.get(key)
                self.bound[key] = change.hot
                if change.hot.state is SlotState.BOUND and (old is None or old.token != change.hot.token):
                    fresh.append(key)
        self.bound_total += len(fresh)
        return fresh

    # --- what happens meanwhile ------------------------------------------------------------------------------------------------

    async def let_victims_go(self) -> None:
        gone = [(key, hot) for key, hot in self.bound.items() if hot.state is SlotState.DRAINING]
        await self.send([self._report(key, hot, SlotState.RELEASED) for key, hot in gone])
        self.drained += len(gone)

    def _report(self, key: SlotKey, hot: BindingHot, to: SlotState) -> Command:
        return Command(agent_of(hot.node), Report(*key, hot.token, to))

    async def end(self, keys: list[SlotKey], again: bool) -> None:
        """They fail and are cleared away; with `again` they are wanted once more."""
        repair, commands = self.roles[Role.REPAIR], list[Command]()
        for key in keys:
            hot = self.bound[key]
            bodies: list[Body] = [Move(*key, hot.token, SlotState.RELEASED, "it failed")]
            if again:
                bodies.append(Put("SchedulingRequest", self._next_life(key, hot), mode="create"))
            commands += [self._report(key, hot, SlotState.FAILED), *(Command(repair, body) for body in bodies)]
        await self.send(commands)  # some are refused: a claim may have been faster
        self.failed += len(keys)

    def _next_life(self, key: SlotKey, hot: BindingHot) -> SchedulingRequest:
        first = self.asked[key]
        slot = replace(first.spec.slot, index=hot.index)
        spec = replace(first.spec, slot=slot, epoch=hot.token.epoch + 1)
        return SchedulingRequest(metadata=Metadata(name=key[1], namespace=key[0]), spec=spec)

    async def fail_some(self, fresh: list[SlotKey]) -> None:
        """Never of a gang: a member alone would wait for the others for ever."""
        may = [key for key in fresh if key in self.bound and not self.asked[key].spec.gang and not key[1].startswith("fill")]
        await self.end([key for key in may if self.rng.randrange(FAIL_EVERY) == 0], again=True)

    async def cordon_some(self) -> None:
        """One more is closed, and of those that are one is opened."""
        opened = self.cordoned.pop(0) if len(self.cordoned) > 2 else ""
        name = self.rng.choice(self.fleet.names)
        commands = [self.fleet.put(opened)] if opened else []
        if name not in self.cordoned:
            self.cordoned.append(name)
            self.cordons += 1
            commands.append(self.fleet.put(name, cordoned=True))
        await self.send(commands)

    async def reserve_some(self) -> None:
        """By hand, of slots that are suspended so that no scheduler tries them: some are given back, the others run out."""
        hand, nodes = self.roles[Role.SCHEDULER], self.rng.sample(self.fleet.names, HANDS)
        wanted = [Reserve(TENANTS[0], f"{HAND}-{index}", 1, 1, node, 0, 1, ttl_s=0.2) for index, node in enumerate(nodes)]
        outcomes = await self.send([Command(hand, body) for body in wanted])
        held = [(body, got.token) for body, got in zip(wanted, outcomes, strict=True) if isinstance(got, Accepted) and got.token]
        self.reserved += len(held)
        back = [ReleaseReservation(body.tenant, body.name, token) for body, token in held if self.rng.randrange(2)]
        await self.send([Command(hand, body) for body in back])

    async def calm(self) -> None:
        """Every node open, and the fillers that are left make room."""
        await self.send([self.fleet.put(name) for name in self.cordoned])
        self.cordoned.clear()
        await self.let_victims_go()
        live = (SlotState.BOUND, SlotState.STARTING)
        await self.end([key for key, hot in self.bound.items() if key[1].startswith("fill") and hot.state in live], again=False)
