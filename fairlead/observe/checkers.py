"""Independent checks of a plane's journal: the promises S1 to S20 asked of what was committed, entry by entry.

Shares nothing with the authority but the model: its own sums, its own state. One class serves property tests, the simulator and
`fairlead audit verify`. Covers S1 to S11, S16, S18, S19 and S20, and collects what S12 is asked of; which the others are, and who
shows them, is in audit.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.model import codec
from fairlead.model.commands import BindGang, Body, Command, LeaseAcquire, LeaseRelease, LeaseRenew
from fairlead.model.ids import split_key, split_revision
from fairlead.model.journal import NO_COMMAND, Blob, Entry, decode_blob, decode_command
from fairlead.model.kinds.capacity import Grant, Node
from fairlead.model.kinds.ledger import Lease
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import HOLDS_CAPACITY, LEASED_ROLES, Role
from fairlead.model.registry import KINDS
from fairlead.model.resources import SHARE_WHOLE, Resources
from fairlead.observe.bounds import BoundsChecker
from fairlead.observe.chained import ChainChecker
from fairlead.observe.claims import ClaimChecker
from fairlead.observe.decided import DecidedChecker
from fairlead.observe.escrow import OfferChecker, spendable
from fairlead.observe.going import going
from fairlead.observe.handing_over import HandingOverChecker
from fairlead.observe.intervals import Claimed
from fairlead.observe.leased import LeaseChecker
from fairlead.observe.leaving import LeavingChecker
from fairlead.observe.leftovers import LeftoverChecker
from fairlead.observe.moving import MovingChecker
from fairlead.observe.overrides import OverrideChecker
from fairlead.observe.places import PlaceChecker
from fairlead.observe.queued import QueuedChecker
from fairlead.observe.runs import RunChecker
from fairlead.observe.steps import StepChecker
from fairlead.observe.suited import SuitChecker
from fairlead.observe.versions import VersionChecker
from fairlead.store.contract import Batch, ObjectRow

_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {plural: codec.decoder(info.record) for plural, info in KINDS.items()}
_LEASE_BODIES = (LeaseAcquire, LeaseRenew, LeaseRelease)
# Of all others nothing is asked but that they do not go back. Most entries of a journal are renewals of leases.
_ASKED = frozenset(
    {"assignments", "bindings", "evictionrequests", "grantterms", "overrides", "reservations", "schedulingrequests"}
)


_OFFERED = frozenset({"grants", "grantterms", "quotas", "overrides"})


class Violation(msgspec.Struct, frozen=True):
    invariant: str
    position: int
    detail: str


class JournalChecker:
    """Feed it every batch of one plane, in order, from the beginning; or from a point whose state it is told first."""

    def __init__(self, *, bounds: bool = False) -> None:
        """`bounds`: asks for those of the components that decide by themselves as well (bounds.py)."""
        self.violations: list[Violation] = []
        self.checked: dict[str, int] = defaultdict(int)
        self._objects: dict[str, dict[tuple[str, str], Any]] = defaultdict(dict)
        self._on_node: dict[str, dict[tuple[str, str, str], Any]] = defaultdict(dict)
        self._of_tenant: dict[str, dict[tuple[str, str], Any]] = defaultdict(dict)
        self._position = 0
        self._term = (0, 0)  # incarnation and epoch of the newest batch
        self._chain = ChainChecker(self._objects, self._found)
        self._steps = StepChecker(self._objects, self._found, self.checked)
        self._queued = QueuedChecker(self._objects, self._found, self.checked)
        self._claims = ClaimChecker(self._objects, self._found, self.checked)
        self._leaving = LeavingChecker(self._objects, self._found, self.checked)
        self._suits = SuitChecker(self._objects, self._found, self.checked)
        self._places = PlaceChecker(self._objects, self._on_node, self._suits, self._found)
        self._leftovers = LeftoverChecker(self._objects, self._found, self.checked)
        self._overrides = OverrideChecker(self._objects, self._found)
        self.leases = LeaseChecker(self._objects, self._found)  # of policy and residency
        self.moving = MovingChecker(self._objects, self._found)
        self._handing_over = HandingOverChecker(self._objects, self._found)
        self.runs = RunChecker(self._objects)
        self._versions = VersionChecker(self._found)
        self._offers = OfferChecker(self._objects, self._found)
        self._now_ms = 0
        self._decided = DecidedChecker(self._objects, self._found)
        self._body: Body | None = None  # of the entry's command
        self._actor = ""  # who sent it
        self._bounds = BoundsChecker(self._objects, self._found, self.checked) if bounds else None

    @property
    def objects(self) -> dict[str, dict[tuple[str, str], Any]]:
        """What is there after the last batch: plural -> (tenant, name) -> object."""
        return self._objects

    @property
    def claims(self) -> list[Claimed]:
        """Who waits for whom to be gone."""
        return self._claims.claims

    @property
    def incarnation(self) -> int:
        return self._term[0]

    def begin(self, rows: Iterable[ObjectRow], now_ms: int) -> None:
        """What was there before the first batch, where history does not begin with nothing, and the time of that batch. Nothing
        is asked of it: what made it so is not there to be looked at."""
        rows = list(rows)
        self._entry(Entry(NO_COMMAND, tuple((key, raw) for key, _, raw in rows)), 0)
        self._versions.begun(rows)
        self._decided.entry_ended(None, 0, "")
        self.leases.begun()
        self._overrides.begun(now_ms)
        self.moving.moved = 0
        self.violations.clear()
        self.checked.clear()

    def feed(self, batch: Batch, blob: Blob | None = None) -> None:
        """`blob`: its, where somebody has decoded it already."""
        self.checked["S18"] += 1
        blob = blob or decode_blob(batch.blob)
        self._chain.batch(batch, blob)
        self._position = batch.first - 1
        self._now_ms = blob.header.time_ms
        term = (blob.header.incarnation, blob.header.epoch)
        if term < self._term:
            self._found("S9", f"batch {batch.first} is of term {term}, and {self._term} has begun")
        if term[0] < self._term[0]:
            self._found("S16", f"batch {batch.first} is of incarnation {term[0]}, and {self._term[0]} has begun")
        if self._bounds is not None and term != self._term:
            self._bounds.led_anew()
        self._term = max(term, self._term)
        for entry in blob.entries:
            self._entry(entry, blob.header.incarnation)
            self._decided.entry_ended(self._body, blob.header.time_ms, self._actor, entry.soft)
        self._leftovers.batch_ended(blob.header.time_ms)
        if self._bounds is not None:
            self._bounds.batch_ended(blob.header.time_ms)

    def _found(self, invariant: str, detail: str) -> None:
        self.violations.append(Violation(invariant, self._position, detail))

    # --- one entry -----------------------------------------------------------------------------------------------------

    def _entry(self, entry: Entry, incarnation: int) -> None:
        command = decode_command(entry.command, records=False)
        self._body, self._actor = (command.body, command.caller.actor) if command is not None else (None, "")
        if command is not None:
            self._fencing(command, incarnation)
        else:
            self._chain.own(entry)
        raised_nodes: set[str] = set()
        raised_tenants: set[str] = set()
        bound: list[str] = []
        ganged: list[tuple[str, SchedulingRequest]] = []  # members of a gang that wait no longer
        role = command.caller.role if command is not None else None
        asked = self._versions.asks(self._body)
        for object_key, raw in entry.effects:
            self._position += 1
            plural, tenant, name = split_key(object_key)
            if plural not in KINDS:
                continue
            old = self._objects[plural].get((tenant, name))
            new = _DECODERS[plural].decode(raw) if raw is not None else None
            if plural == asked:  # the first of its kind; what goes with it comes after it
                self._versions.named(self._body, object_key, old, incarnation)
                self.checked["S7"] += 1
                asked = ""
            self._versions.wrote(object_key, self._position, raw is None)
            self._between_planes(plural, (tenant, name), old, new, incarnation, role)
            if self._bounds is not None:
                self._bounds.changed(plural, (tenant, name), old, new, self._now_ms, role)
            if plural not in _ASKED:
                self._steps.generation(plural, old, new)
                self._apply(plural, tenant, name, new)
                continue
            self._decided.changed(plural, (tenant, name), old, new)
            raised = self._changed(command, plural, (tenant, name), old, new)
            if plural == "bindings" and new is not None and old is None:
                bound.append(name)
            elif plural == "schedulingrequests" and old is not None and new is None and old.spec.gang:
                ganged.append((tenant, old))
            if plural in ("schedulingrequests", "reservations", "bindings"):
                self.checked["S6"] += self._places.changed(plural, old, new)
            if plural in ("grantterms", "reservations", "bindings"):
                self.leases.changed(plural, old, new, self._now_ms, incarnation, role is Role.SCHEDULER)
            if plural in ("overrides", "bindings", "schedulingrequests"):
                self.checked["S11"] += self._overrides.changed(plural, old, new, self._now_ms, role)
            self._steps.generation(plural, old, new)
            self._apply(plural, tenant, name, new)
            if raised and new is not None:
                raised_nodes.add(new.spec.node)
                raised_tenants.add(tenant)
        self._entry_ended(role, raised_nodes, raised_tenants)
        self._gang(command, bound)
        if ganged:
            self._whole([(tenant, request) for tenant, request in ganged if request.metadata.name in bound])

    def _entry_ended(self, role: Role | None, raised_nodes: set[str], raised_tenants: set[str]) -> None:
        """Where something may use more than before it."""
        self._queued.entry_ended(role, self._term[0], self._now_ms)
        self._claims.entry_ended(role is Role.SCHEDULER)
        self._places.entry_ended(raised_nodes)
        for node in sorted(raised_nodes):
            self._capacity(node)
            self._takes_work(node, role)
        for tenant in sorted(raised_tenants):
            self._grant(tenant)

    def _changed(self, command: Command | None, plural: str, at: tuple[str, str], old: Any, new: Any) -> bool:
        """Whether something may use more than before."""
        role = command.caller.role if command is not None else None
        match plural:
            case "bindings":
                self._claims.changed(old, new)
                self._leaving.binding(at, old, new, role)
                self._queued.binding(at, old, new)
                return self._steps.binding(command, old, new)
            case "reservations":
                self._queued.reservation(at, old, new, role)
                return self._steps.reservation(command, old, new, self._now_ms)
            case "assignments":
                self.checked["S1"] += self.moving.assignment(old, new)
                self.checked["S12"] += self._handing_over.assignment(old, new)
                self._leaving.order(old, new)
            case "workloads":
                self._handing_over.workload(new)
            case "evictionrequests":
                self._leaving.asked(at, new)
            case "schedulingrequests":
                self.checked["S1"] += self.moving.request(at[0], old, new)
                self._queued.request(at, old, new, role)
        return False

    def _gang(self, command: Command | None, bound: list[str]) -> None:
        """Of a proposal for a gang all members were bound (S20)."""
        if command is not None and isinstance(command.body, BindGang):
            self.checked["S20"] += 1
            if sorted(bound) != sorted(member.name for member in command.body.binds):
                self._found("S20", f"of a gang of {len(command.body.binds)} only {bound} was bound")

    def _between_planes(self, plural: str, at: tuple[str, str], old: Any, new: Any, incarnation: int, role: Role | None) -> None:
        if plural in _OFFERED:
            self.checked["S5"] += self._offers.changed(plural, *at, old, new, self._now_ms, incarnation)
        elif role is Role.AGENT and new is not None and plural in ("bindings", "instances"):
            self.checked["S12"] += self.runs.reported(plural, *at, new, self._now_ms)
        elif plural == "leases" and new is not None and incarnation not in (0, new.spec.incarnation):
            self._found("S16", f"lease {at[1]} of incarnation {new.spec.incarnation} was written in {incarnation}")

    def _whole(self, members: list[tuple[str, SchedulingRequest]]) -> None:
        """Whoever proposed it: as many of a gang were bound in this entry as it has members (S20)."""
        together = Counter((tenant, request.spec.gang, request.spec.gang_size) for tenant, request in members)
        for (tenant, gang, size), count in together.items():
            if count != size:
                self._found("S20", f"of gang {tenant}/{gang}, which has {size} members, {count} were bound")

    def _apply(self, plural: str, tenant: str, name: str, new: Any) -> None:
        table = self._objects[plural]
        old = table.pop((tenant, name), None)
        if plural in ("bindings", "reservations"):
            self._suits.changed(tenant, old, new)
            if old is not None:
                self._on_node[old.spec.node].pop((plural, tenant, name), None)
                self._of_tenant[tenant].pop((plural, name), None)
        if new is None:
            return
        table[tenant, name] = new
        if plural in ("bindings", "reservations"):
            self._on_node[new.spec.node][plural, tenant, name] = new
            self._of_tenant[tenant][plural, name] = new

    # --- the promises --------------------------------------------------------------------------------------------------

    def _fencing(self, command: Command, incarnation: int) -> None:
        self._of_now(command, incarnation)
        caller = command.caller
        if caller.role not in LEASED_ROLES or isinstance(command.body, _LEASE_BODIES):
            return
        self.checked["S9"] += 1
        lease: Lease | None = self._objects["leases"].get(("", caller.lease))
        if lease is None or lease.spec.epoch != caller.fencing_epoch:
            held = lease.spec.epoch if lease else None
            self._found("S9", f"{caller.actor} wrote with epoch {caller.fencing_epoch} of {caller.lease}, which is at {held}")
        elif lease.spec.term not in (0, self._term[1]):
            self._found(
                "S9", f"{caller.actor} wrote in term {self._term[1]} under {caller.lease}, held for term {lease.spec.term}"
            )
        elif lease.spec.role != caller.role.value:
            self._found("S9", f"{caller.actor} wrote as {caller.role.value} under {caller.lease}, a lease of {lease.spec.role}")

    def _of_now(self, command: Command, incarnation: int) -> None:
        """After a restore nothing counts that was seen, leased or promised in the history before it (S16)."""
        if incarnation <= 1:
            return
        self.checked["S16"] += 1
        caller = command.caller
        seen = command.evidence.observed_revision if command.evidence is not None else 0
        if seen and split_revision(seen)[0] != incarnation:
            self._found("S16", f"{caller.actor} wrote on what it saw in incarnation {split_revision(seen)[0]}")
        lease: Lease | None = self._objects["leases"].get(("", caller.lease)) if caller.lease else None
        fenced = caller.role in LEASED_ROLES and not isinstance(command.body, _LEASE_BODIES)
        if fenced and lease is not None and lease.spec.incarnation != incarnation:
            self._found("S16", f"{caller.actor} wrote under {caller.lease} of incarnation {lease.spec.incarnation}")

    def _capacity(self, name: str) -> None:
        self.checked["S2"] += 1
        node: Node | None = self._objects["nodes"].get(("", name))
        if node is None:
            self._found("S2", f"something was placed on {name}, which is not there")
            return
        firm, held, lent = Resources(), Resources(), Resources()
        devices: dict[str, int] = defaultdict(int)
        goes = going(self._on_node[name])
        slots = 0
        for at, use in self._on_node[name].items():
            plural = at[0]
            if at in goes or (plural == "bindings" and use.status.state not in HOLDS_CAPACITY):
                continue
            if plural == "reservations" and use.spec.budget:
                held += use.spec.requests
                continue
            slots += 1
            if getattr(use.spec, "borrowed", False):
                lent += use.spec.requests
            else:
                firm += use.spec.requests
            for hold in use.spec.devices:
                devices[hold.id] += hold.thousandths
        for total, what in ((firm + held, "firm + held"), (firm + lent, "firm + lent")):
            for dimension, used, limit in total.exceeding(node.spec.allocatable):
                self._found("S2", f"{name}: {what} {dimension} is {used} of {limit}")
        if slots > node.spec.max_slots:
            self._found("S2", f"{name}: {slots} slots of {node.spec.max_slots}")
        self._devices(node, devices)

    def _takes_work(self, name: str, role: Role | None) -> None:
        """What a scheduler places is on a node that said what it runs and is well (P10). What agents bring back is there."""
        node: Node | None = self._objects["nodes"].get(("", name))
        if node is not None and role is Role.SCHEDULER and not (node.status.schedulable and node.status.health == "Ready"):
            health = node.status.health or "not judged"
            self._found(
                "S2", f"something was placed on {name}, which is {health}{'' if node.status.schedulable else ' and closed'}"
            )

    def _devices(self, node: Node, used: dict[str, int]) -> None:
        known = {device.id for device in node.spec.devices}
        for device, thousandths in used.items():
            self.checked["S3"] += 1
            if device not in known or thousandths > SHARE_WHOLE:
                self._found("S3", f"{node.metadata.name}: device {device} is held {thousandths}/1000")

    def _grant(self, tenant: str) -> None:
        self.checked["S4"] += 1
        grants: list[Grant] = [g for (owner, _), g in self._objects["grants"].items() if owner == tenant]
        if len(grants) != 1:
            self._found("S4", f"tenant {tenant} has {len(grants)} grants here and something was placed")
            return
        used = Resources()
        for (plural, _), use in self._of_tenant[tenant].items():
            if plural == "reservations" or use.status.state in HOLDS_CAPACITY:
                used += use.spec.requests
        term = next(iter(self._objects["grantterms"].values()), None)
        for dimension, amount, limit in used.exceeding(spendable(grants[0], term, self._term[0], self._now_ms)):
            self._found("S4", f"tenant {tenant} uses {amount} {dimension} of {limit}")
