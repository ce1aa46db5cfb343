"""B3 asked of a journal: what the policy channel promises of a canary (docs/policy.md), beside S6, which asks of every placement
that it was made under the one revision that decides for its tenant there.

In the global plane: the policy controller takes a canary back, changes nothing else, and does so neither before its time is over
nor long after it. In a region: nobody who is fine is asked to leave, whatever revision it was placed under. Fine is who is of the
generation that is wanted, is wanted itself, and has a node that is well and not drained; who was not some seconds ago may be
asked all the same. Own memory; shares nothing with who decides but the model. Fed by bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.policy import PolicyChannel
from fairlead.model.kinds.work import Assignment, Binding, EvictionRequest
from fairlead.model.lifecycle import SlotState
from fairlead.observe.shares import covers
from fairlead.observe.too_soon import TooSoon

LATE_MS: Final = 5_000  # between a cause to leave and the last commit that follows from it
OVERDUE_MS: Final = 90_000  # as long as anything may be left over while the store is up (S10)
DOWN_MS: Final = 10_000  # leases are renewed more often than this: a longer silence means that nobody could write
LONGEST_MS: Final = 14_400_000  # a trial, however its order is changed
COPY: Final = "fairlead.dev/mirrored-version"  # on a region's copy of the channel
FINE: Final = (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING)

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]


class TrialChecker:
    """Tell it of every change before it is applied, and of every batch after it."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int], too_soon: TooSoon) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._too_soon = too_soon
        self._first_ms = self._since_ms = 0  # when the revision on trial was first ordered, and last ordered otherwise
        self._up_since_ms = self._last_ms = 0
        self._told_ms = 0
        self._changed_ms: dict[Slot, int] = {}  # assignments and nodes, by key

    # --- the channel ---------------------------------------------------------------------------------------------------------

    def channel(self, old: PolicyChannel | None, new: PolicyChannel | None, now_ms: int, by_controller: bool) -> None:
        before, after = (each.spec.canary if each is not None else None for each in (old, new))
        if by_controller and old is not None and new is not None and old.spec != new.spec:
            self._checked["B3/back"] += 1
            if before is None or new.spec != replace(old.spec, canary=None):
                self._found("B3", f"the policy controller changed the channel from {old.spec} to {new.spec}")
            else:
                due_ms = self._due_ms(before.ttl_seconds)
                early = f"{(due_ms - now_ms) / 1000:.1f} s before its time was over"
                self._too_soon.unless(due_ms, now_ms, "B3", f"the canary of r{before.revision} was taken back {early}")
        if after is not None and after != before:
            self._first_ms = self._first_ms if before is not None and before.revision == after.revision else now_ms
            self._since_ms = now_ms

    def _due_ms(self, ttl_s: int) -> int:
        return min(self._since_ms + 1000 * ttl_s, self._first_ms + LONGEST_MS)

    def batch_ended(self, now_ms: int) -> None:
        if now_ms - self._last_ms > DOWN_MS:
            self._up_since_ms = now_ms
        self._last_ms = now_ms
        channel: PolicyChannel | None = self._objects["policychannels"].get(("", "default"))
        if channel is None or channel.spec.canary is None or COPY in channel.metadata.annotations:
            return
        late_ms = now_ms - max(self._due_ms(channel.spec.canary.ttl_seconds), self._up_since_ms)
        if late_ms > OVERDUE_MS and self._told_ms != self._since_ms:
            self._told_ms = self._since_ms
            self._found("B3", f"the canary of r{channel.spec.canary.revision} is there {late_ms / 1000:.0f} s after its time")

    # --- a region ------------------------------------------------------------------------------------------------------------

    def placed(self, new: Binding) -> None:
        channel: PolicyChannel | None = self._objects["policychannels"].get(("", "default"))
        canary = channel.spec.canary if channel is not None else None
        node: Node | None = self._objects["nodes"].get(("", new.spec.node))
        if canary is not None and node is not None and covers(canary, new.metadata.namespace, node.spec.region):
            self._checked["B3/tried"] += 1

    def changed(self, plural: str, at: Slot, old: Any, new: Any, now_ms: int) -> bool:
        """Assignments and nodes: whether it may have been a cause to leave, or is one now."""
        if plural == "assignments":
            self._changed_ms[at[0], (new or old).spec.workload_uid] = now_ms
        elif old is None or new is None or _cause(old) != _cause(new):
            self._changed_ms[at] = now_ms
        return self._changed_ms.get(at) == now_ms

    def asked(self, slot: Slot, new: EvictionRequest, now_ms: int) -> None:
        """To leave, by a component."""
        bound: Binding | None = self._objects["bindings"].get(slot)
        if bound is None or bound.status.state not in FINE or bound.spec.slot.uid != new.spec.slot.uid:
            return
        self._checked["B3/asked"] += 1
        node: Node | None = self._objects["nodes"].get(("", bound.spec.node))
        lately = max(self._changed_ms.get((slot[0], bound.spec.slot.uid), 0), self._changed_ms.get(("", bound.spec.node), 0))
        if node is None or _cause(node) or now_ms - lately < LATE_MS:
            return
        orders: list[Assignment] = [
            order for order in self._objects["assignments"].values() if order.spec.workload_uid == bound.spec.slot.uid
        ]
        if any(_is_wanted(order, bound) for order in orders):
            revision = bound.spec.policy_revision
            self._found("B3", f"{'/'.join(slot)} of r{revision} is fine and was asked to leave: {new.spec.reason}")


def _cause(node: Node) -> tuple[str, ...]:
    """What about it makes slots leave."""
    out = [] if node.status.health == "Ready" else [node.status.health or "not judged"]
    return (*out, *(["drained"] if node.spec.drain is not None else []), *(["closed"] if node.spec.unschedulable else []))


def _is_wanted(order: Assignment, bound: Binding) -> bool:
    """As it is, and for good: what only surges, is superseded, or is of a job or a gang goes by rules of its own."""
    spec, index = order.spec, bound.spec.slot.index
    if spec.suspend or spec.gang or spec.job is not None or order.metadata.deletion_time is not None:
        return False
    own = any(span.first <= index <= span.last for span in spec.slots)
    over = any(span.first <= index <= span.last for span in spec.superseded)
    return own and not over and spec.generation == bound.spec.generation
