"""Journals that no authority wrote: some objects that are there, then entries one by one, as a checker is fed them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Body, Caller, Command, Move
from fairlead.model.ids import Uid
from fairlead.model.journal import NO_COMMAND, Blob, Entry, Header, chain_hash
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus, Reservation, ReservationSpec
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Ask, Binding, BindingSpec, BindingStatus, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.checkers import JournalChecker
from fairlead.store.contract import Batch

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = Token(1, 1, 1)
Effect = tuple[str, Any]  # the object's key, and the object; None: it goes


def named(name: str, tenant: str = "", uid: str = "") -> Metadata:
    return Metadata(name=name, namespace=tenant, uid=Uid(uid or name))


def node(name: str, cpu: int = 1000) -> Effect:
    spec = NodeSpec(region="r", zone="z", allocatable=Resources(cpu, 1 << 30))
    return f"nodes//{name}", Node(named(name), spec, NodeStatus(schedulable=True, health="Ready"))


def lease(role: Role) -> Effect:
    spec = LeaseSpec(role=role.value, holder="s", epoch=3, incarnation=1)
    return f"leases//{role.value}", Lease(named(role.value), spec)


def by(role: Role, actor: str = "s") -> Caller:
    return Caller(actor, role, lease=role.value, fencing_epoch=3)


def grant(cpu: int = 1000) -> Effect:
    spec = GrantSpec(region="r", version=1, during=Resources(cpu, 1 << 30), after=Resources(cpu, 1 << 30))
    return "grants/risk/r", Grant(named("r", "risk"), spec)


def binding(index: int = 0, on: str = "n1", cpu: int = 500, state: SlotState = SlotState.SERVING, **more: Any) -> Effect:
    name, uid = f"api-{index}", more.pop("uid", f"b{index}")
    spec = BindingSpec(slot=SlotRef("api", "u", index), node=on, token=TOKEN, requests=Resources(cpu, 1 << 20), **more)
    return f"bindings/risk/{name}", Binding(named(name, "risk", uid), spec, BindingStatus(state))


def reservation(index: int = 0, cpu: int = 100, on: str = "n1", **more: Any) -> Effect:
    name = f"api-{index}"
    slot = {} if "budget" in more else {"slot": SlotRef("api", "u", index), "token": TOKEN, "owner": "s"}
    spec = ReservationSpec(node=on, requests=Resources(cpu, 1 << 20), **slot, **more)  # type: ignore[arg-type]
    return f"reservations/risk/{name}", Reservation(named(name, "risk", f"r{index}"), spec)


def request(index: int = 0, **more: Any) -> Effect:
    name = f"api-{index}"
    spec = SchedulingRequestSpec(slot=SlotRef("api", "u", index), ask=Ask(requests=Resources(100, 1 << 20)), **more)
    return f"schedulingrequests/risk/{name}", SchedulingRequest(named(name, "risk", f"q{index}"), spec)


def gone(effect: Effect) -> Effect:
    return effect[0], None


def to(state: SlotState, index: int = 0) -> Move:
    return Move("risk", f"api-{index}", TOKEN, state)


ROLES = (Role.SCHEDULER, Role.DISRUPTION, Role.GARBAGE, Role.ROLLOUT, Role.QUOTA, Role.ASSIGNMENT)
BASE = (node("n1"), node("n2"), grant(), *map(lease, ROLES))


class Forged:
    """A region's journal after `rows` were there."""

    def __init__(self, *rows: Effect, bounds: bool = False) -> None:
        self.checker = JournalChecker(bounds=bounds)
        self.next, self.incarnation, self.epoch = len(rows) + 1, 1, 1
        self._previous = b"\0" * 32
        self.checker.begin([(key, n + 1, codec.encode(one)) for n, (key, one) in enumerate(rows)], _ms(0))

    def entry(
        self, caller: Caller | None, body: Body | None, *effects: Effect, at_s: float = 0, first: int = 0,
        heard: tuple[tuple[str, int], ...] = (),
    ) -> Forged:  # fmt: skip
        """Without a caller: one of the authority's own. `first`: the position it claims, where that is not the next. `heard`: of
        nodes that were judged, and by how many milliseconds after the beginning they were heard last."""
        command = msgspec.Raw(codec.encode(Command(caller, body))) if caller is not None and body is not None else NO_COMMAND
        soft = tuple((name, _ms(0) + after_ms) for name, after_ms in heard)
        made = Entry(command, tuple((key, codec.encode(one) if one is not None else None) for key, one in effects), soft)
        first = first or self.next
        blob = codec.encode(Blob(Header(1, self.incarnation, self.epoch, "me", first, _ms(at_s)), (made,)))
        hashed = chain_hash(self._previous, blob)
        self.checker.feed(Batch(first, first + len(effects) - 1, self._previous, hashed, blob))
        self._previous, self.next = hashed, first + len(effects)
        return self

    def passes(self, begin_s: int, end_s: int, step_s: int = 5) -> Forged:
        """Time does, with renewals of a lease."""
        for at_s in range(begin_s, end_s, step_s):
            self.entry(by(Role.ROLLOUT), to(SlotState.SERVING), lease(Role.ROLLOUT), at_s=at_s)
        return self

    @property
    def found(self) -> list[str]:
        return [violation.invariant for violation in self.checker.violations]

    @property
    def details(self) -> list[str]:
        return [violation.detail for violation in self.checker.violations]


def _ms(at_s: float) -> int:
    return round((T0.timestamp() + at_s) * 1000)
