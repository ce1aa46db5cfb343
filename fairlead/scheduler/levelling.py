"""Spread kept after failures: when a workload that asks for it (`afterFailure: Repair`) lies unevenly and a better place is free,
proposes that one slot of the fullest domain moves.

It proposes only: an EvictionRequest, judged and carried out by the disruption controller within the workload's budget; the slot
then comes back through the queue and its spread rule sends it where it is missing. One move of a workload at a time, and none
where no node could take the slot. Called by the scheduler every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from fairlead.model.commands import Caller, Command, Put
from fairlead.model.kinds.intent import SpreadRule
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, EvictionRequest, EvictionRequestSpec, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.meta import Metadata
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.snapshot import SlotKey, Snapshot, Use

MOVES_MAX: Final = 16  # of one call: a rack that came back must not set everything in motion at once
AGAIN_MS: Final = 60_000  # a workload is looked at again this long after a move was proposed for it
DEADLINE_MS: Final = 600_000


class Move(NamedTuple):
    key: SlotKey
    uid: str
    epoch: int  # of the life it is about: one that comes after it lies elsewhere, and stays
    reason: str


class Levelling:
    def __init__(self, snapshot: Snapshot, shapes: ShapeBook, policies: Policies) -> None:
        self._snapshot = snapshot
        self._shapes = shapes
        self._policies = policies
        self._slots: dict[str, dict[SlotKey, Use]] = {}  # workloads to keep level -> their slots that run
        self._not_before_ms: dict[str, int] = {}
        snapshot.listeners.append(self._told)

    def _told(self, key: SlotKey, use: Use, sign: int) -> None:
        if use.marks is None or use.marks.keeps is None:
            return
        if sign > 0 and use.evictable:
            self._slots.setdefault(use.uid, {})[key] = use
            return
        slots = self._slots.get(use.uid)
        if slots is not None and slots.pop(key, None) is not None and not slots:
            del self._slots[use.uid]

    def commands(self, caller: Caller) -> list[Command]:
        return [Command(caller, Put("EvictionRequest", self._request(move, caller.actor))) for move in self.moves()]

    def moves(self) -> list[Move]:
        now_ms, out = self._snapshot.now_ms, []
        for uid, slots in self._slots.items():
            if self._not_before_ms.get(uid, 0) > now_ms or not slots:
                continue
            move = self._move(uid, slots)
            if move is not None:
                out.append(move)
                self._not_before_ms[uid] = now_ms + AGAIN_MS
                if len(out) >= MOVES_MAX:
                    break
        self._not_before_ms = {uid: ms for uid, ms in self._not_before_ms.items() if ms > now_ms}
        return out

    def _move(self, uid: str, slots: dict[SlotKey, Use]) -> Move | None:
        key, any_use = next(iter(slots.items()))
        assert any_use.marks is not None
        ask = any_use.marks.keeps
        assert ask is not None
        for rule in ask.placement.spread:
            if rule.after_failure != "Repair":
                continue
            by_domain = self._by_domain(rule, slots)
            fullest = max(by_domain, key=lambda name: (len(by_domain[name]), name), default="")
            target = self._target(rule, ask, key, uid, any_use)
            if target is None or target == fullest:
                continue
            skew = len(by_domain[fullest]) - len(by_domain.get(target, ()))
            if skew > rule.max_skew:
                leaves = max(by_domain[fullest])
                reason = f"{rule.topology_key} {fullest} has {skew} slots more than {target}, at most {rule.max_skew} are wanted"
                return Move(leaves, uid, self._snapshot.uses[leaves].epoch, reason)
        return None

    def _by_domain(self, rule: SpreadRule, slots: dict[SlotKey, Use]) -> dict[str, list[SlotKey]]:
        out: dict[str, list[SlotKey]] = {}
        for key, use in slots.items():
            out.setdefault(self._domain(rule.topology_key, use.row), []).append(key)
        return out

    def _domain(self, topology_key: str, row: int) -> str:
        domains = self._snapshot.topology.domains(topology_key)
        if domains is None:
            return self._snapshot.names[row]
        return str(domains.names[domains[self._snapshot.fleet.cells["node_class"][row]]])

    def _target(self, rule: SpreadRule, ask: Ask, key: SlotKey, uid: str, use: Use) -> str | None:
        """The domain into which one more slot of the workload would go now; None where it would fit nowhere."""
        policy = self._policies.policy_for(key[0])
        if policy is None:
            return None
        slot = SlotRef(workload=key[1].rpartition("-")[0], uid=uid, index=0)
        spec = SchedulingRequestSpec(slot=slot, ask=ask, priority=use.priority)
        shape = self._shapes.shape_of(SchedulingRequest(metadata=Metadata(name=key[1], namespace=key[0]), spec=spec), policy)
        if shape is None:
            return None
        shape.ranking.sync()
        row = shape.ranking.best()
        return None if row < 0 else self._domain(rule.topology_key, row)

    def _request(self, move: Move, requester: str) -> EvictionRequest:
        tenant, name = move.key
        workload, _, index = name.rpartition("-")
        return EvictionRequest(
            metadata=Metadata(name=name, namespace=tenant),
            spec=EvictionRequestSpec(
                slot=SlotRef(workload=workload, uid=move.uid, index=int(index)),
                reason=f"spread: {move.reason}",
                requester=requester,
                deadline_time=datetime.fromtimestamp((self._snapshot.now_ms + DEADLINE_MS) / 1000, tz=UTC),
                epoch=move.epoch,
            ),
        )

    def watched(self) -> Iterator[str]:
        """Workloads that are kept level."""
        return iter(self._slots)
