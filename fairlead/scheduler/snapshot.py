"""The scheduler's picture of its plane: nodes in columns, who uses what on them, what tenants use and were granted.

Kept up to date from the watch, one change at a time, and ahead of it by the scheduler's own proposals: a placement is assumed
when it is proposed and confirmed or taken back when the authority has answered. Both go through `set_use`, which is keyed by
slot and idempotent, so the echo of an own bind changes nothing and a missed echo cannot be counted twice. It is a cache: it
proposes and never authorises. Called by the scheduler's cycle; pure, so tests and benches feed it by hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fairlead.decide.classes import Classes
from fairlead.decide.preempt_rules import SERVING_CAPABLE
from fairlead.decide.scores.room import scale_of
from fairlead.decide.topology import Topology
from fairlead.model.kinds.capacity import Node, NodePool, Reservation
from fairlead.model.kinds.intent import Region
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import SHARE_WHOLE
from fairlead.scheduler.fleet import Fleet, OneRow
from fairlead.scheduler.granted import Grants
from fairlead.scheduler.rooms import Rooms
from fairlead.scheduler.uses import FIRM as FIRM
from fairlead.scheduler.uses import HELD as HELD
from fairlead.scheduler.uses import LENT as LENT
from fairlead.scheduler.uses import Correction, Listener, Placed
from fairlead.scheduler.uses import SlotKey as SlotKey
from fairlead.scheduler.uses import Use as Use

_LOG_KEPT = 10_000
_FAILURE_KEPT_MS = 600_000  # ten minutes: a node that is broken shows it again by then
_HEARD_EVERY_MS = 7_000  # longer than the time between two heartbeats, shorter than that of three


class Snapshot:
    def __init__(self) -> None:
        self.fleet = Fleet()
        self.classes = Classes()
        self.topology = Topology(self.classes, self._occupied)
        self.exclusive_rows = 0  # nodes that one tenant has to itself
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.uses: dict[SlotKey, Use] = {}
        self.rooms = Rooms()
        self.grants = Grants()
        self.used: dict[str, dict[str, int]] = {}  # tenant -> dimension -> amount
        self.capacity: dict[str, int] = {"cpu": 0, "memory": 0}
        self.revision = self.now_ms = self.assumptions = 0
        self.reached_ms = 0  # when the watch last stood at `revision`
        # Rows whose free capacity or state changed, in order. A ranking remembers how far it has read.
        self.changed: list[int] = []
        self.changed_base = 0
        self.doors = 0  # grows when a node's class, state or owner changes: who may use it at all
        self.layout = 0  # grows when rows are added or change their class: rankings lay themselves out anew
        self.listeners: list[Listener] = []
        self._nodes: dict[str, Node] = {}
        self._pools: dict[str, NodePool] = {}
        self._regions: dict[str, Region] = {}
        self._corrections: list[Correction] = []
        self._failures: deque[tuple[int, int]] = deque()  # (when it is forgotten, row)
        self._heard_early: dict[str, int] = {}

    def row(self, number: int) -> OneRow:
        return OneRow(self.fleet, number)

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def set_node(self, name: str, node: Node | None) -> None:
        row = self.row_of.get(name)
        if row is None:
            if node is None:
                return
            row = self._new_row(name)
        old = self._nodes.pop(name, None)
        if old is not None and node is not None and old.spec is node.spec and old.metadata is node.metadata:
            self._nodes[name] = node
            if old.status != node.status:  # the common case: agents report, operators seldom change a node
                self._set_status(row, node)
                self._tell_topology(row, name, known=True)
            return
        if old is not None:
            self._book_capacity(row, old, -1)
        cells = self.fleet.cells
        if node is None:
            cells["schedulable"][row] = 0
        else:
            self._nodes[name] = node
            self._book_capacity(row, node, 1)
            self._describe(row, node)
        self._tell_topology(row, name, known=node is not None)

    def _tell_topology(self, row: int, name: str, *, known: bool) -> None:
        cells = self.fleet.cells
        is_open = bool(cells["schedulable"][row] and cells["healthy"][row] and not cells["cordoned"][row])
        self.doors += 1
        self.topology.node_changed(row, name, cells["node_class"][row], is_open, known)
        self._touch(row)

    def _set_status(self, row: int, node: Node) -> None:
        fleet, cells, status = self.fleet, self.fleet.cells, node.status
        cells["schedulable"][row] = int(status.schedulable and node.metadata.deletion_time is None)
        cells["healthy"][row] = int(status.health == "Ready")
        images = frozenset(status.images)
        if fleet.images[row] != images:
            fleet.images[row] = images
            fleet.images_changed(row)

    def _describe(self, row: int, node: Node) -> None:
        fleet, cells, spec = self.fleet, self.fleet.cells, node.spec
        self._set_status(row, node)
        cells["cordoned"][row] = int(spec.unschedulable)
        self._set_class(row, self._class_of(node))
        cells["hourly_cost_millis"][row] = spec.hourly_cost_millis
        if fleet.devices[row] != spec.devices:
            fleet.devices[row] = spec.devices
            fleet.devices_changed(row)

    def _class_of(self, node: Node) -> int:
        return self.classes.number_of(node, self._pools.get(node.spec.pool), self._regions.get(node.spec.region))

    def _new_row(self, name: str) -> int:
        row = self.fleet.add_row()
        self.layout += 1
        self.row_of[name] = row
        self.names.append(name)
        self.fleet.cells["observed_ms"][row] = self._heard_early.pop(name, 0)
        return row

    def _book_capacity(self, row: int, node: Node, sign: int) -> None:
        fleet, have = self.fleet, node.spec.allocatable
        for name in ("cpu_free", "cpu_unlent", "cpu_total"):
            fleet.add(name, row, sign * have.cpu)
        for name in ("memory_free", "memory_unlent", "memory_total"):
            fleet.add(name, row, sign * have.memory)
        fleet.cells["cpu_scale"][row] = scale_of(fleet.cells["cpu_total"][row])
        fleet.cells["memory_scale"][row] = scale_of(fleet.cells["memory_total"][row])
        fleet.add("slots_free", row, sign * node.spec.max_slots)
        for scalar, amount in have.scalars:
            fleet.add(fleet.scalar("free", scalar), row, sign * amount)
            fleet.add(fleet.scalar("unlent", scalar), row, sign * amount)
        for dimension, amount in have.amounts().items():
            self.capacity[dimension] = self.capacity.get(dimension, 0) + sign * amount
        for device in node.spec.devices:
            dimension = f"device:{device.resource}"
            self.capacity[dimension] = self.capacity.get(dimension, 0) + sign * SHARE_WHOLE

    def set_pool(self, name: str, pool: NodePool | None) -> list[str]:
        """A pool's rules are part of its nodes' class. Answers with the nodes that are of another class now."""
        if pool is None:
            self._pools.pop(name, None)
        else:
            self._pools[name] = pool
        return self._reclassify([node for node in self._nodes.values() if node.spec.pool == name])

    def set_region(self, name: str, region: Region | None) -> None:
        """So are the areas its region lies in."""
        if region is None:
            self._regions.pop(name, None)
        else:
            self._regions[name] = region
        self._reclassify([node for node in self._nodes.values() if node.spec.region == name])

    def _reclassify(self, nodes: list[Node]) -> list[str]:
        other = [node.metadata.name for node in nodes if self._set_class(self.row_of[node.metadata.name], self._class_of(node))]
        for name in other:
            self._tell_topology(self.row_of[name], name, known=True)
        return other

    def _occupied(self, row: int, used_by: int, exclusive_to: int) -> None:
        cells = self.fleet.cells
        if cells["exclusive_to"][row] != exclusive_to:
            self.exclusive_rows += bool(exclusive_to) - bool(cells["exclusive_to"][row])
            self.doors += 1
        cells["used_by"][row] = used_by
        cells["exclusive_to"][row] = exclusive_to

    def _set_class(self, row: int, number: int) -> bool:
        cells = self.fleet.cells["node_class"]
        old, cells[row] = cells[row], number
        self.layout += old != number
        return bool(old != number)

    def heard(self, observed: Iterable[tuple[str, int]], max_age_ms: int) -> list[str]:
        """When each node was last heard, softly. Answers with those that were too silent before and are not now; only they
        count as changed."""
        opened = []
        cells = self.fleet.cells["observed_ms"]
        horizon = self.now_ms - max_age_ms
        for name, when_ms in observed:
            row = self.row_of.get(name)
            if row is None:
                self._heard_early[name] = when_ms  # its node is on the way
            elif cells[row] < when_ms:
                # A workload may want fresher nodes than the policy: whoever missed a heartbeat may have been too silent for it.
                was_silent = cells[row] < horizon or when_ms - cells[row] > _HEARD_EVERY_MS
                cells[row] = when_ms
                if was_silent:
                    self.doors += 1
                    self._touch(row)
                    opened.append(name)
        return opened

    def failed(self, node: str) -> None:
        """A slot failed there: a hint to look elsewhere for a while."""
        row = self.row_of.get(node)
        if row is not None:
            self.fleet.cells["recent_failures"][row] += 1
            self._failures.append((self.now_ms + _FAILURE_KEPT_MS, row))
            self._touch(row)

    def forget_failures(self) -> None:
        while self._failures and self._failures[0][0] <= self.now_ms:
            row = self._failures.popleft()[1]
            self.fleet.cells["recent_failures"][row] -= 1
            self._touch(row)

    # --- uses ----------------------------------------------------------------------------------------------------------

    def set_binding(self, key: SlotKey, placed: Placed | None) -> bool:
        """Whether that is another picture than before."""
        old = self.uses.get(key)
        if placed is None or placed.state not in HOLDS_CAPACITY or placed.node not in self.row_of:
            self.set_use(key, None)
            return old is not None
        evictable, token = placed.state in SERVING_CAPABLE, getattr(placed, "token", None)
        epoch = token.epoch if token is not None else 0
        row, marks = self.row_of[placed.node], getattr(placed, "marks", None)
        says = (row, placed.requests, placed.devices, marks)
        if old is not None and (old.row, old.requests, old.devices, old.marks) == says:
            # The echo of what was assumed, or a step that changes no capacity. It is a fact now, whoever bound it: another
            # record, so that a refusal on its way does not take it back with the assumption.
            self.uses[key] = replace(old, assumed=0, epoch=epoch)
            if old.evictable != evictable:
                self.set_evictable(key, evictable)
            return old.evictable != evictable
        new = Use(
            row, LENT if placed.borrowed else FIRM, placed.requests, placed.devices, placed.priority, placed.workload_uid, marks,
            evictable, getattr(placed, "min_serving", 0), self.now_ms if old is None else old.started_ms, epoch=epoch,
        )  # fmt: skip
        self.set_use(key, new)
        return True

    def set_reservation(self, key: SlotKey, reservation: Reservation | None) -> None:
        is_room = reservation is not None and not reservation.spec.claimer  # the rest of a claimed one is held for nobody else
        self.rooms.note(key, reservation.spec.budget if reservation is not None and is_room else "")
        if reservation is None or reservation.spec.node not in self.row_of:
            if reservation is None and key in self.uses and self.uses[key].evictable:
                return  # bound in the same entry that ended its reservation
            self.set_use(key, None)
            return
        spec = reservation.spec
        how = HELD if spec.budget else FIRM
        uid = spec.slot.uid if spec.slot is not None else ""
        self.set_use(key, Use(self.row_of[spec.node], how, spec.requests, spec.devices, uid=uid, marks=spec.marks))

    def set_use(self, key: SlotKey, new: Use | None) -> None:
        old = self.uses.get(key)
        if old is not None:
            self._book(key, old, -1)
        if new is None:
            self.uses.pop(key, None)
            return
        self.uses[key] = new
        self._book(key, new, 1)

    def set_evictable(self, key: SlotKey, evictable: bool) -> None:
        """Whether preemption may name it. Nothing else changes: what it uses it uses until it is gone."""
        old = self.uses[key]
        self.uses[key] = new = replace(old, evictable=evictable)
        for told in self.listeners:
            told(key, old, -1)
            told(key, new, 1)
        self._touch(old.row)

    def _book(self, key: SlotKey, use: Use, sign: int) -> None:
        cells, requests, row = self.fleet.cells, use.requests, use.row
        cpu, memory = sign * requests.cpu, sign * requests.memory
        if use.how != LENT:
            cells["cpu_free"][row] -= cpu
            cells["memory_free"][row] -= memory
        if use.how != HELD:
            cells["cpu_unlent"][row] -= cpu
            cells["memory_unlent"][row] -= memory
            cells["slots_free"][row] -= sign
        used = self.used.get(key[0])
        if used is None:
            used = self.used[key[0]] = {"cpu": 0, "memory": 0}
        used["cpu"] += cpu
        used["memory"] += memory
        if requests.scalars or use.devices:
            self._book_rare(used, use, sign)
        if use.uid:
            self.topology.placed(row, key[0], use.uid, use.marks, sign)
        for told in self.listeners:
            told(key, use, sign)
        self.changed.append(row)

    def _book_rare(self, used: dict[str, int], use: Use, sign: int) -> None:
        fleet, row = self.fleet, use.row
        for name, amount in use.requests.scalars:
            if use.how != LENT:
                fleet.add(fleet.scalar("free", name), row, -sign * amount)
            if use.how != HELD:
                fleet.add(fleet.scalar("unlent", name), row, -sign * amount)
            used[name] = used.get(name, 0) + sign * amount
        if use.devices:
            kinds = {device.id: device.resource for device in fleet.devices[row]}
            held = fleet.device_used[row]
            for hold in use.devices:
                left = held.get(hold.id, 0) + sign * hold.thousandths
                if left:
                    held[hold.id] = left
                else:
                    held.pop(hold.id, None)
                name = f"device:{kinds.get(hold.id, 'gpu')}"
                used[name] = used.get(name, 0) + sign * hold.thousandths
            fleet.devices_changed(row)

    # --- what the authority taught -------------------------------------------------------------------------------------

    def correct(self, node: str, facts: Mapping[str, int], revision: int) -> None:
        """The authority saw less room on a node than this picture: believe it until the watch has reached its revision."""
        row = self.row_of.get(node)
        if row is None:
            return
        cells = self.fleet.cells
        correction = Correction(
            row,
            revision,
            max(cells["cpu_free"][row] - facts.get("cpuFree", cells["cpu_free"][row]), 0),
            max(cells["memory_free"][row] - facts.get("memoryFree", cells["memory_free"][row]), 0),
            max(cells["slots_free"][row] - facts.get("slotsFree", cells["slots_free"][row]), 0),
        )
        self._corrections.append(correction)
        self._apply(correction, 1)

    def reached(self, revision: int) -> None:
        """The watch stands at `revision`: what was learnt before that is now in the picture itself."""
        self.revision = revision
        self.reached_ms = self.now_ms
        if not self._corrections:
            return
        for correction in self._corrections:
            if correction.revision <= revision:
                self._apply(correction, -1)
        self._corrections = [c for c in self._corrections if c.revision > revision]

    def _apply(self, correction: Correction, sign: int) -> None:
        fleet, row = self.fleet, correction.row
        for name in ("cpu_free", "cpu_unlent"):
            fleet.add(name, row, -sign * correction.cpu)
        for name in ("memory_free", "memory_unlent"):
            fleet.add(name, row, -sign * correction.memory)
        fleet.add("slots_free", row, -sign * correction.slots)
        self._touch(row)

    # --- asked by others ---------------------------------------------------------------------------------------------

    def free_of(self, node: str) -> dict[str, int]:
        """What a node has free, by dimension, counting for borrowers what is held and not lent."""
        row = self.row_of.get(node)
        if row is None:
            return {}
        cells, fleet = self.fleet.cells, self.fleet
        out = {
            "cpu": max(cells["cpu_free"][row], cells["cpu_unlent"][row]),
            "memory": max(cells["memory_free"][row], cells["memory_unlent"][row]),
            "slots": cells["slots_free"][row],
        }
        out.update((name[5:], cell[row]) for name, cell in cells.items() if name.startswith("free:"))
        for device in fleet.devices[row]:
            name = f"device:{device.resource}"
            out[name] = out.get(name, 0) + SHARE_WHOLE - fleet.device_used[row].get(device.id, 0)
        return out

    def shapes_epoch(self) -> tuple[int, int, bool]:
        """What compiled needs rest on, beside the policy."""
        return (len(self.classes), self.classes.version + self.topology.version, self.exclusive_rows > 0)

    # --- the log of changed rows ---------------------------------------------------------------------------------------

    def _touch(self, row: int) -> None:
        self.changed.append(row)

    @property
    def changes(self) -> int:
        return self.changed_base + len(self.changed)

    def trim_changes(self) -> None:
        """Keeps the log short. A ranking that had not read what goes computes everything when it is next asked."""
        keep = max(_LOG_KEPT, self.fleet.rows)
        if len(self.changed) > 2 * keep:
            drop = len(self.changed) - keep
            del self.changed[:drop]
            self.changed_base += drop
