"""The bounds that the docs state for the components that decide by themselves, asked of a journal: B1 replicas (scaling.py), B2
node pools (pooling.py), B3 canaries (trials.py), B4 moves for room (making_room.py), B5 nodes given up in doubt (suspected.py).

They are no invariants of the platform: nothing is sold twice where one is broken, so `fairlead audit verify` does not ask them.
Owns who is told of which change. Fed by JournalChecker, where whoever made it asks for them: the simulator does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.model.lifecycle import HOLDS_CAPACITY, Role
from fairlead.observe.making_room import REQUESTER, RoomChecker
from fairlead.observe.pooling import PoolChecker
from fairlead.observe.scaling import ReplicaChecker
from fairlead.observe.suspected import SuspectChecker
from fairlead.observe.too_soon import TooSoon
from fairlead.observe.trials import TrialChecker

_PEOPLE = (Role.USER, Role.OPERATOR, Role.BREAK_GLASS, Role.SCHEDULER)  # and whoever levels a spread, which is asked for


class BoundsChecker:
    """Tell it of every change before it is applied, and of every batch after it."""

    def __init__(
        self, objects: dict[str, dict[tuple[str, str], Any]], found: Callable[[str, str], None], checked: dict[str, int]
    ) -> None:
        self._too_soon = TooSoon(found)
        self._replicas = ReplicaChecker(objects, found, checked, self._too_soon)
        self._pools = PoolChecker(objects, found, checked, self._too_soon)
        self._trials = TrialChecker(objects, found, checked, self._too_soon)
        self._room = RoomChecker(objects, found, checked, self._too_soon)
        self._suspects = SuspectChecker(objects, found, checked)

    def changed(self, plural: str, at: tuple[str, str], old: Any, new: Any, now_ms: int, role: Role | None) -> None:
        scales = role is Role.AUTOSCALER
        match plural:
            case "bindings":
                self._binding(at, old, new, now_ms)
            case "schedulingrequests":
                self._pools.waits(at, old, new, now_ms)
                if old is not None and (new is None or old.status.reason != new.status.reason):
                    self._room.changed(now_ms)
                if new is None:
                    self._room.unasked(at)
                elif old is None:
                    self._room.queued(at, new, now_ms)
            case "reservations":
                self._pools.used(plural, at, old, new, now_ms)
                self._room.changed(now_ms)
            case "evictionrequests":
                self._room.asked(at, old, new, now_ms)
                filed = new is not None and (old is None or old.spec != new.spec)
                if filed and role not in _PEOPLE and new.spec.requester != REQUESTER:
                    self._trials.asked(at, new, now_ms)
            case "nodes":
                self._pools.node(old, new, now_ms)
                self._suspects.node(old, new, now_ms)
                if scales and old is not None:
                    self._pools.closed(old, new, now_ms)
                if self._trials.changed(plural, at, old, new, now_ms):
                    self._room.changed(now_ms)
            case "assignments":
                self._trials.changed(plural, at, old, new, now_ms)
            case "nodepools" if old is not None and new is not None:
                self._pools.limits(at[1], old, new, now_ms)
                if scales:
                    self._pools.ordered(at[1], old, new, now_ms)
            case "policychannels":
                self._trials.channel(old, new, now_ms, role is Role.POLICY)
            case "autoscalers" | "workloads" if scales:
                self._replicas.changed(plural, at, old, new, now_ms)

    def _binding(self, at: tuple[str, str], old: Any, new: Any, now_ms: int) -> None:
        self._pools.used("bindings", at, old, new, now_ms)
        if old is None or new is None or (old.status.state in HOLDS_CAPACITY) != (new.status.state in HOLDS_CAPACITY):
            self._room.changed(now_ms)
        if old is None and new is not None:
            self._trials.placed(new)
            self._room.bound(at, new, now_ms)

    def led_anew(self) -> None:
        """A term begins."""
        self._too_soon.led_anew()
        self._room.forgets()

    def batch_ended(self, now_ms: int) -> None:
        self._too_soon.batch_ended(now_ms)
        self._trials.batch_ended(now_ms)
        self._pools.batch_ended()
        self._room.batch_ended(now_ms)
        self._suspects.batch_ended(now_ms)
