"""What one client of the kill rig sends: creates and updates under Idempotency-Keys, slots queued, bound, drained and released in
a session, and commands that must be refused. Chosen by a seed.

Grants and nodes are tight, so GrantExceeded and NoFit happen by themselves; two clients share a tenant and contend for its slots.
Owns what the client believes about its objects; sends nothing itself. Called by clients.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from fairlead.model.commands import (
    Bind,
    Body,
    Caller,
    Command,
    CommandId,
    IdempotencyKey,
    LeaseAcquire,
    Move,
    Put,
    PutStatus,
    Report,
    SessionId,
)
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import ResourceSpec, Template, Workload, WorkloadSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.rigs.frames import Answer, pack
from tests.rigs.plane_server import REGION, SESSION

GI = 1 << 30
SLOT = Resources(1000, GI)
NODES = [f"n{n}" for n in range(8)]
NODE_SLOTS = 3
GRANT_SLOTS = 4  # per tenant: with eight tenants more than all nodes hold, so either limit is met
PENDING_MAX = 6
TOKEN = Token(incarnation=1, epoch=1, attempt=1)  # of every slot's first life
LEASED = (Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION)
WEIGHTS = {
    "create": 30, "exists": 4, "update": 16, "stale": 4, "reuse": 2, "request": 12, "bind": 16, "drain": 10, "release": 10,
}  # fmt: skip

Done = Callable[[Answer | None], None]


class Planned(msgspec.Struct, frozen=True):
    """A command to send, and what its answer tells the client. None: the client will never know."""

    id: str
    what: str
    expects: str
    raw: bytes
    done: Done
    actor: str = ""
    key: str = ""


class Slots:
    """The slots of one tenant, as far as its clients know."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.pending: list[str] = []
        self.bound: list[tuple[str, str]] = []
        self.draining: list[tuple[str, str]] = []


def furniture(tenants: list[str]) -> list[tuple[str, Command]]:
    """Leases, grants and nodes: sent once, before anything is killed."""
    operator = Caller("ada", Role.OPERATOR)
    bodies: list[tuple[Caller, Body]] = [(_holder(role), LeaseAcquire(role.value, role, 36_000.0)) for role in LEASED]
    limit = Resources(SLOT.cpu * GRANT_SLOTS, SLOT.memory * GRANT_SLOTS)
    for tenant in tenants:
        spec = GrantSpec(region=REGION, version=1, during=limit, after=limit)
        bodies.append((operator, Put("Grant", Grant(metadata=Metadata(name=REGION, namespace=tenant), spec=spec))))
    room = Resources(SLOT.cpu * NODE_SLOTS, SLOT.memory * NODE_SLOTS)
    for name in NODES:
        node = Node(metadata=Metadata(name=name), spec=NodeSpec(region=REGION, zone="a", allocatable=room))
        bodies.append((operator, Put("Node", node)))
        status = NodeStatus(schedulable=True, health="Ready", session=SESSION)
        bodies.append((_agent(name), PutStatus("Node", "", name, status)))
    return [
        (f"setup-{n}", Command(caller, body, IdempotencyKey(f"setup-{n}"), correlation=f"setup-{n}"))
        for n, (caller, body) in enumerate(bodies)
    ]


class Traffic:
    def __init__(self, number: int, slots: Slots, rng: random.Random) -> None:
        self._number = number
        self._slots = slots
        self._rng = rng
        self._count = 0
        self._objects: dict[str, tuple[int, int]] = {}  # workload -> (revision, replicas)
        self._keys: list[str] = []
        self._binding: set[str] = set()  # one try at a time: a second one to the same node would be a repetition
        self._sequence = 0
        self._floor = 0
        self._user = Caller(f"user-{number}", Role.USER)
        # Clients that share a tenant choose from different nodes, so that a slot taken is a refusal and no repetition.
        self._nodes = NODES[number % 2 :: 2]
        self._roles = {role: Caller(_holder(role).actor, role, lease=role.value, fencing_epoch=1) for role in LEASED}

    def plan(self, size: int) -> list[Planned]:
        """Commands for one call. Everything sent before has ended: the session's window starts here."""
        self._floor = self._sequence + 1
        bulk: list[Planned] = []
        makers = {what: getattr(self, f"_{what}") for what in WEIGHTS}
        while len(bulk) < size:
            what = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            planned: Planned | None = makers[what]()
            if planned is not None:
                bulk.append(planned)
        return bulk

    def _planned(self, what: str, expects: str, caller: Caller, body: Body, done: Done, id: CommandId | None = None) -> Planned:
        self._count += 1
        name = f"c{self._number}-{self._count}"
        key = ""
        if isinstance(id, IdempotencyKey):
            key = id.key or name
            id = IdempotencyKey(key)
        else:
            self._sequence += 1
            id = SessionId(f"client-{self._number}", self._sequence, self._floor)
        command = Command(caller, body, id, correlation=name)
        may_ask = bool(key) and expects == "accepted"
        return Planned(name, what, expects, pack(command), done, caller.actor if may_ask else "", key if may_ask else "")

    # --- objects under an Idempotency-Key -----------------------------------------------------------------------------

    def _create(self) -> Planned:
        name = f"w{self._number}-{self._count + 1}"
        return self._put("create", "accepted", workload(self._slots.tenant, name, 1), name, 1)

    def _exists(self) -> Planned | None:
        if not self._objects:
            return None
        name = self._rng.choice(list(self._objects))
        body = Put("Workload", workload(self._slots.tenant, name, 9), mode="create")
        return self._planned("exists", "AlreadyExists", self._user, body, _nothing, IdempotencyKey(""))

    def _update(self) -> Planned | None:
        if not self._objects:
            return None
        name = self._rng.choice(list(self._objects))
        revision, replicas = self._objects.pop(name)
        return self._put("update", "accepted", workload(self._slots.tenant, name, replicas + 1), name, replicas + 1, revision)

    def _put(self, mode: str, expects: str, record: Workload, name: str, replicas: int, revision: int = 0) -> Planned:
        body = Put("Workload", record, "create" if mode == "create" else "update", revision)
        before = (revision, replicas - 1) if revision else None

        def done(answer: Answer | None) -> None:
            if answer is not None and answer.kind == "accepted":
                self._objects[name] = (answer.revision, replicas)
                self._keys = [*self._keys[-20:], planned.key]
            elif answer is not None and before is not None and answer.reason != "Conflict":
                self._objects[name] = before

        planned = self._planned(mode, expects, self._user, body, done, IdempotencyKey(""))
        return planned

    def _stale(self) -> Planned | None:
        if not self._objects:
            return None
        name, (revision, _) = self._rng.choice(list(self._objects.items()))
        body = Put("Workload", workload(self._slots.tenant, name, 8), "update", revision - 1)
        return self._planned("stale", "Conflict", self._user, body, _nothing, IdempotencyKey(""))

    def _reuse(self) -> Planned | None:
        if not self._keys:
            return None
        body = Put("Workload", workload(self._slots.tenant, f"x{self._number}-{self._count}", 1), "create")
        return self._planned("reuse", "IdReused", self._user, body, _nothing, IdempotencyKey(self._rng.choice(self._keys)))

    # --- slots in a session -------------------------------------------------------------------------------------------

    def _request(self) -> Planned | None:
        slots = self._slots
        if len(slots.pending) >= PENDING_MAX:
            return None
        workload = f"s{self._number}-{self._count}"
        slot = SlotRef(workload=workload, uid=f"u-{workload}", index=0)
        metadata = Metadata(name=slot.object_name, namespace=slots.tenant)
        request = SchedulingRequest(metadata=metadata, spec=SchedulingRequestSpec(slot=slot, ask=Ask(requests=SLOT)))

        def done(answer: Answer | None) -> None:
            if answer is not None and answer.kind == "accepted":
                slots.pending.append(slot.object_name)

        body = Put("SchedulingRequest", request, mode="create")
        return self._planned("request", "accepted", self._roles[Role.ASSIGNMENT], body, done)

    def _bind(self) -> Planned | None:
        slots = self._slots
        free = [name for name in slots.pending if name not in self._binding]
        if not free:
            return None
        name, node = self._rng.choice(free), self._rng.choice(self._nodes)
        self._binding.add(name)

        def done(answer: Answer | None) -> None:
            assert answer is not None
            self._binding.discard(name)
            taken = answer.kind == "accepted" or answer.reason == "AlreadyBound"
            if taken and name in slots.pending:
                slots.pending.remove(name)
            if answer.kind == "accepted":
                slots.bound.append((name, node))

        body = Bind(slots.tenant, name, 1, 1, node, 0, 1)
        return self._planned("bind", "", self._roles[Role.SCHEDULER], body, done)

    def _drain(self) -> Planned | None:
        slots = self._slots
        if not slots.bound:
            return None
        name, node = slots.bound.pop(0)
        body = Move(slots.tenant, name, TOKEN, SlotState.DRAINING)
        done = _moved((name, node), slots.bound, slots.draining)
        return self._planned("drain", "accepted", self._roles[Role.DISRUPTION], body, done)

    def _release(self) -> Planned | None:
        slots = self._slots
        if not slots.draining:
            return None
        name, node = slots.draining.pop(0)
        body = Report(slots.tenant, name, TOKEN, SlotState.RELEASED)
        done = _moved((name, node), slots.draining, None)
        return self._planned("release", "accepted", _agent(node), body, done)


def _moved(slot: tuple[str, str], before: list[tuple[str, str]], after: list[tuple[str, str]] | None) -> Done:
    def done(answer: Answer | None) -> None:
        assert answer is not None
        if answer.kind != "accepted":
            before.append(slot)
        elif after is not None:
            after.append(slot)

    return done


def _nothing(answer: Answer | None) -> None:
    pass


def _holder(role: Role) -> Caller:
    return Caller(f"{role.value}-0", role)


def _agent(node: str) -> Caller:
    return Caller(f"agent-{node}", Role.AGENT, node=node)


def workload(tenant: str, name: str, replicas: int) -> Workload:
    template = Template(command=("serve", "--port", "$PORT"))
    spec = WorkloadSpec(replicas=replicas, template=template, resources=ResourceSpec(requests=SLOT))
    return Workload(metadata=Metadata(name=name, namespace=tenant), spec=spec)
