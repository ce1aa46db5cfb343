"""Accounts derived from objects: what each node has promised, held and lent (P12), and what each tenant uses.

Owns nothing durable: every figure is the sum over bindings and reservations, kept up to date by State telling it of each change
(and of each change taken back). The authority refuses by it; nobody else writes it. A node's account is the row the gates of
fairlead/decide/fit.py read.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlead.authority.hot import BindingHot
from fairlead.authority.state import Rec, State
from fairlead.decide.classes import Classes
from fairlead.decide.preempt_rules import SERVING_CAPABLE
from fairlead.decide.topology import Topology
from fairlead.model.kinds.capacity import Node, Reservation
from fairlead.model.lifecycle import HOLDS_CAPACITY, SlotState
from fairlead.model.resources import SHARE_WHOLE, Device, DeviceHold, Resources

FIRM, HELD, LENT = 0, 1, 2


class NodeAccount:
    """One node. Free and unlent amounts may be negative when a node shrank under what it runs: nothing new fits then."""

    __slots__ = (
        "allocatable", "bindings", "claims", "cordoned", "cpu_free", "cpu_unlent", "device_used", "devices", "exclusive_to",
        "healthy", "known", "listed_in", "memory_free", "memory_unlent", "name", "node_class", "number", "observed_ms",
        "observed_session", "pool", "reservations", "scalars_free", "scalars_unlent", "schedulable", "session", "slots_free",
        "used_by",
    )  # fmt: skip

    def __init__(self, name: str, number: int = 0) -> None:
        self.name = name
        self.number = number
        self.known = False
        self.allocatable = Resources()
        self.cpu_free = self.memory_free = self.cpu_unlent = self.memory_unlent = self.slots_free = 0
        self.scalars_free: dict[str, int] = {}
        self.scalars_unlent: dict[str, int] = {}
        self.devices: tuple[Device, ...] = ()
        self.device_used: dict[str, int] = {}
        self.node_class = 0
        self.exclusive_to = self.used_by = 0  # tenants by number
        self.pool = ""
        self.schedulable = self.healthy = self.cordoned = 0
        self.observed_ms = 0  # soft: set by heartbeats, never journalled by itself
        self.observed_session = 0  # of the heartbeats heard
        self.session = 0  # the newest that was registered
        self.listed_in = 0  # the incarnation in which it last said what it runs
        self.bindings: dict[Rec, None] = {}
        self.claims: dict[Rec, None] = {}  # of the bindings, those that wait for somebody to leave (P12)
        self.reservations: dict[Rec, None] = {}

    def copied(self) -> NodeAccount:
        """For one judgement: its amounts may be changed, its bindings and reservations are the account's own. By hand, because
        `copy.copy` takes three times as long and every claim needs one."""
        row = NodeAccount.__new__(NodeAccount)
        for name in NodeAccount.__slots__:
            setattr(row, name, getattr(self, name))
        row.scalars_free = self.scalars_free.copy()
        row.scalars_unlent = self.scalars_unlent.copy()
        row.device_used = self.device_used.copy()
        return row

    def scalar_free(self, name: str) -> int:
        return self.scalars_free.get(name, 0)

    def scalar_unlent(self, name: str) -> int:
        return self.scalars_unlent.get(name, 0)

    def devices_whole(self, resource: str, models: tuple[str, ...]) -> int:
        used = self.device_used
        return sum(1 for d in self.devices if d.resource == resource and (not models or d.model in models) and not used.get(d.id))

    def devices_share(self, resource: str, models: tuple[str, ...]) -> int:
        used = self.device_used
        rooms = (
            SHARE_WHOLE - used.get(d.id, 0) for d in self.devices if d.resource == resource and (not models or d.model in models)
        )
        return max(rooms, default=0)

    def add(self, requests: Resources, devices: tuple[DeviceHold, ...], how: int, sign: int) -> None:
        """Books (sign 1) or takes back (sign -1) one use of this node."""
        cpu, memory = sign * requests.cpu, sign * requests.memory
        if how != LENT:
            self.cpu_free -= cpu
            self.memory_free -= memory
        if how != HELD:
            self.cpu_unlent -= cpu
            self.memory_unlent -= memory
            self.slots_free -= sign
        for name, amount in requests.scalars:
            if how != LENT:
                self.scalars_free[name] = self.scalars_free.get(name, 0) - sign * amount
            if how != HELD:
                self.scalars_unlent[name] = self.scalars_unlent.get(name, 0) - sign * amount
        for hold in devices:
            left = self.device_used.get(hold.id, 0) + sign * hold.thousandths
            if left:
                self.device_used[hold.id] = left
            else:
                self.device_used.pop(hold.id, None)


class TenantAccount:
    """What a tenant uses in this plane, by dimension; devices as thousandths under `device:RESOURCE`."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def add(self, requests: Resources, device_thousandths: dict[str, int] | None, sign: int) -> None:
        used = self.used
        if requests.cpu:
            used["cpu"] = used.get("cpu", 0) + sign * requests.cpu
        if requests.memory:
            used["memory"] = used.get("memory", 0) + sign * requests.memory
        for name, amount in requests.scalars:
            used[name] = used.get(name, 0) + sign * amount
        for name, amount in (device_thousandths or {}).items():
            used[name] = used.get(name, 0) + sign * amount


class SlotCount(msgspec.Struct, gc=False):
    """How many slots of one workload are here. While a batch is undone it may pass through values below zero."""

    tenant: str
    workload: str
    slots: int


class Ledger:
    def __init__(self, state: State) -> None:
        self._state = state
        self.nodes: dict[str, NodeAccount] = {}
        self.tenants: dict[str, TenantAccount] = {}
        self.classes = Classes()
        self.topology = Topology(self.classes, self._occupied)
        self._numbered: list[NodeAccount] = []
        state.derive("nodes", self._node_changed)
        state.derive("nodepools", self._pool_changed)
        state.derive("regions", self._region_changed)
        state.derive("bindings", self._binding_changed)
        state.derive("reservations", self._reservation_changed)
        state.derive("schedulingrequests", self._request_changed)
        # workload uid -> [tenant, workload, slots here]: a uid under two names would bind its slots twice (S1).
        self._workloads: dict[str, SlotCount] = {}
        self.capable: dict[str, int] = {}  # workload uid -> its slots that serve or soon could: what disruption budgets count

    def node(self, name: str) -> NodeAccount:
        account = self.nodes.get(name)
        if account is None:
            account = self.nodes[name] = NodeAccount(name, len(self._numbered))
            self._numbered.append(account)
        return account

    def _occupied(self, number: int, used_by: int, exclusive_to: int) -> None:
        account = self._numbered[number]
        account.used_by, account.exclusive_to = used_by, exclusive_to

    def neighbour(self, tenant: str, hot: BindingHot, sign: int) -> None:
        """A bound slot for the rules about neighbours is thought away (sign -1) for one judgement, or back (1)."""
        self.topology.placed(self.nodes[hot.node].number, tenant, hot.workload_uid, hot.marks, sign)

    def tenant(self, name: str) -> TenantAccount:
        account = self.tenants.get(name)
        if account is None:
            account = self.tenants[name] = TenantAccount()
        return account

    def _book(
        self, tenant: str, account: NodeAccount, requests: Resources, devices: tuple[DeviceHold, ...], how: int, sign: int
    ) -> None:
        account.add(requests, devices, how, sign)
        charged = device_charge(account, devices) if devices else None
        (self.tenants.get(tenant) or self.tenant(tenant)).add(requests, charged, sign)

    def workload_of(self, uid: str) -> tuple[str, str] | None:
        """The tenant and name under which slots of this workload are here."""
        found = self._workloads.get(uid)
        return (found.tenant, found.workload) if found is not None else None

    def _count_slot(self, uid: str, rec: Rec, sign: int) -> None:
        found = self._workloads.get(uid)
        if found is None:
            self._workloads[uid] = SlotCount(rec.tenant, rec.name.rpartition("-")[0], sign)
            return
        found.slots += sign
        if found.slots == 0:
            del self._workloads[uid]

    def _request_changed(self, old: Rec | None, new: Rec | None) -> None:
        before = old.hot.spec.slot.uid if old is not None else ""
        after = new.hot.spec.slot.uid if new is not None else ""
        if new is not None and after != before:
            self._count_slot(after, new, 1)
        if old is not None and before != after:
            self._count_slot(before, old, -1)

    def _binding_changed(self, old: Rec | None, new: Rec | None) -> None:
        before: BindingHot | None = old.hot if old is not None else None
        after: BindingHot | None = new.hot if new is not None else None
        # The same claim in another state: nothing to book. Another life of the slot is another claim, also where nothing lies
        # between them: the journal puts older images over objects that were written ahead.
        same = before is not None and after is not None and _same_claim(before, after)
        if new is not None and after is not None:
            account = self.nodes.get(after.node) or self.node(after.node)
            account.bindings[new] = None
            if after.start_after and after.state is SlotState.BOUND:
                account.claims[new] = None
            if before is None or before.workload_uid != after.workload_uid:
                self._count_slot(after.workload_uid, new, 1)
            if not same:
                self._book_binding(account, new.tenant, after, 1)
            self._count_capable(after, 1)
        if old is not None and before is not None:
            account = self.nodes.get(before.node) or self.node(before.node)
            account.bindings.pop(old, None)
            if before.start_after:
                account.claims.pop(old, None)
            if after is None or after.workload_uid != before.workload_uid:
                self._count_slot(before.workload_uid, old, -1)
            if not same:
                self._book_binding(account, old.tenant, before, -1)
            self._count_capable(before, -1)

    def _book_binding(self, account: NodeAccount, tenant: str, hot: BindingHot, sign: int) -> None:
        if hot.state in HOLDS_CAPACITY:
            self._book(tenant, account, hot.requests, hot.devices, LENT if hot.borrowed else FIRM, sign)
            self.topology.placed(account.number, tenant, hot.workload_uid, hot.marks, sign)

    def _count_capable(self, hot: BindingHot, sign: int) -> None:
        if hot.state in SERVING_CAPABLE:
            left = self.capable[hot.workload_uid] = self.capable.get(hot.workload_uid, 0) + sign
            if not left:
                del self.capable[hot.workload_uid]

    def _reservation_changed(self, old: Rec | None, new: Rec | None) -> None:
        for rec, sign in ((old, -1), (new, 1)):
            if rec is None:
                continue
            reservation: Reservation = rec.hot
            spec = reservation.spec
            account = self.node(spec.node)
            if sign < 0:
                account.reservations.pop(rec, None)
            else:
                account.reservations[rec] = None
            self._book(rec.tenant, account, spec.requests, spec.devices, HELD if spec.budget else FIRM, sign)
            if spec.slot is not None:
                self.topology.placed(account.number, rec.tenant, spec.slot.uid, spec.marks, sign)

    def _node_changed(self, old: Rec | None, new: Rec | None) -> None:
        name = (new or old).name  # type: ignore[union-attr]
        account = self.node(name)
        if old is not None and new is not None and old.hot.spec is new.hot.spec and old.hot.metadata is new.hot.metadata:
            self._status_changed(account, new.hot)  # the common case: agents report, operators seldom change a node
            return
        if old is not None:
            self.give(account, old.hot, -1)
        account.known = new is not None
        if new is None:
            account.schedulable = account.session = 0
            self.topology.node_changed(account.number, name, account.node_class, is_open=False, known=False)
            return
        node: Node = new.hot
        self.give(account, node, 1)
        account.allocatable = node.spec.allocatable
        if account.devices != node.spec.devices:
            self._charge_devices(account, -1)  # by what they were taken for: a start loads bindings before their node
            account.devices = node.spec.devices
            self._charge_devices(account, 1)
        account.pool = node.spec.pool
        account.schedulable = int(node.status.schedulable and node.metadata.deletion_time is None)
        account.healthy = int(node.status.health == "Ready")
        account.session, account.listed_in = node.status.session, node.status.incarnation
        account.cordoned = int(node.spec.unschedulable)
        self._classify(account, node)

    def _charge_devices(self, account: NodeAccount, sign: int) -> None:
        """Of all that holds some of this node's: charges their tenants, or takes it back."""
        bound = [(rec, rec.hot.devices) for rec in account.bindings if rec.hot.state in HOLDS_CAPACITY]
        for rec, devices in bound + [(rec, rec.hot.spec.devices) for rec in account.reservations]:
            self.tenant(rec.tenant).add(Resources(), device_charge(account, devices), sign)

    def _status_changed(self, account: NodeAccount, node: Node) -> None:
        account.session, account.listed_in = node.status.session, node.status.incarnation
        schedulable = int(node.status.schedulable and node.metadata.deletion_time is None)
        healthy = int(node.status.health == "Ready")
        if (schedulable, healthy) != (account.schedulable, account.healthy):
            account.schedulable, account.healthy = schedulable, healthy
            is_open = bool(healthy and schedulable and not account.cordoned)
            self.topology.node_changed(account.number, account.name, account.node_class, is_open, known=True)

    def _classify(self, account: NodeAccount, node: Node) -> None:
        pool, region = self._state.hot("nodepools", "", node.spec.pool), self._state.hot("regions", "", node.spec.region)
        account.node_class = self.classes.number_of(node, pool, region)
        is_open = bool(account.healthy and account.schedulable and not account.cordoned)
        self.topology.node_changed(account.number, account.name, account.node_class, is_open, known=True)

    @staticmethod
    def give(account: NodeAccount, node: Node, sign: int) -> None:
        """What the node offers is added to its account, or taken off."""
        have = node.spec.allocatable
        account.cpu_free += sign * have.cpu
        account.cpu_unlent += sign * have.cpu
        account.memory_free += sign * have.memory
        account.memory_unlent += sign * have.memory
        account.slots_free += sign * node.spec.max_slots
        for name, amount in have.scalars:
            account.scalars_free[name] = account.scalars_free.get(name, 0) + sign * amount
            account.scalars_unlent[name] = account.scalars_unlent.get(name, 0) + sign * amount

    def _pool_changed(self, old: Rec | None, new: Rec | None) -> None:
        """A pool's rules are part of its nodes' class."""
        name = (new or old).name  # type: ignore[union-attr]
        self._classify_again(lambda node: node.spec.pool == name)

    def _region_changed(self, old: Rec | None, new: Rec | None) -> None:
        """So are the areas their region lies in."""
        name = (new or old).name  # type: ignore[union-attr]
        self._classify_again(lambda node: node.spec.region == name)

    def _classify_again(self, concerned: Callable[[Node], bool]) -> None:
        for account in self.nodes.values():
            node: Node | None = self._state.hot("nodes", "", account.name) if account.known else None
            if node is not None and concerned(node):
                self._classify(account, node)


def _same_claim(before: BindingHot, after: BindingHot) -> bool:
    return (
        before.state in HOLDS_CAPACITY
        and after.state in HOLDS_CAPACITY
        and before.node == after.node
        and before.requests == after.requests
        and before.devices == after.devices
        and before.borrowed == after.borrowed
        and before.workload_uid == after.workload_uid
        and before.marks == after.marks
    )


def device_charge(account: NodeAccount, devices: tuple[DeviceHold, ...]) -> dict[str, int]:
    """Thousandths by device resource, as a tenant is charged for them."""
    kinds = {device.id: device.resource for device in account.devices}
    out: dict[str, int] = {}
    for hold in devices:
        name = f"device:{kinds.get(hold.id, 'gpu')}"
        out[name] = out.get(name, 0) + hold.thousandths
    return out
