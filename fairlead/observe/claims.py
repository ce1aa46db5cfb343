"""S19 asked of a journal: victims stand below their evictor, disruption budgets hold except where the policy names the class and
the victim's record says so, and what one victim frees is taken by one claimer.

Owns sums of its own and shares nothing with the judge but the model and the built-in policy's figures. Fed by JournalChecker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.model.kinds.policy import PriorityClass, SchedulerPolicy
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import SlotState
from fairlead.observe.intervals import Claimed

_CAPABLE = (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING)

Found = Callable[[str, str], None]


class ClaimChecker:
    """Tell it of every change of a binding, before it is applied, and of the end of every entry."""

    def __init__(self, objects: dict[str, dict[tuple[str, str], Any]], found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._of_workload: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._claimer_of: dict[tuple[str, Token], str] = {}  # victim's name and life -> claimer
        self._drained: dict[str, Binding] = {}  # in this entry, as they were before
        self.claims: list[Claimed] = []

    def changed(self, old: Binding | None, new: Binding | None) -> None:
        if old is not None:
            self._of_workload[old.spec.slot.uid].discard((old.metadata.namespace, old.metadata.name))
        if new is None:
            return
        if old is not None and old.status.state in _CAPABLE and new.status.state is SlotState.DRAINING:
            self._drained[_name(new)] = new
        is_new_life = old is None or old.spec.token != new.spec.token
        if is_new_life and new.spec.start_after:
            self._claim(new)  # before it counts itself: a claimer does not make up for its victims
        if new.status.state in _CAPABLE:
            self._of_workload[new.spec.slot.uid].add((new.metadata.namespace, new.metadata.name))

    def entry_ended(self, by_claim: bool) -> None:
        """`by_claim`: the entry's command was a scheduler's, who drains only by claiming."""
        if by_claim:
            for name in self._drained:
                self._found("S19", f"{name} was drained by a scheduler and nobody waits for it")
        self._drained.clear()

    def _claim(self, claimer: Binding) -> None:
        self._checked["S19"] += 1
        victims: list[Binding] = []
        for name in claimer.spec.start_after:
            victim = self._drained.pop(name, None)
            if victim is None:
                self._found("S19", f"{_name(claimer)} claims {name}, which did not begin to drain with it")
                continue
            victims.append(victim)
            life = (name, victim.spec.token)
            if life in self._claimer_of:
                self._found("S19", f"{name} frees its capacity for {self._claimer_of[life]} and for {_name(claimer)}")
            self._claimer_of[life] = _name(claimer)
            if victim.spec.node != claimer.spec.node:
                self._found("S19", f"{_name(claimer)} on {claimer.spec.node} claims {name} on {victim.spec.node}")
            self._rank(claimer, victim)
        lives = tuple((_name(victim), victim.spec.token) for victim in victims)
        self.claims.append(Claimed(_name(claimer), claimer.spec.token, claimer.spec.node, lives))
        self._budgets(claimer, victims)

    def _rank(self, claimer: Binding, victim: Binding) -> None:
        if victim.spec.borrowed and not claimer.spec.borrowed:
            return
        if claimer.spec.borrowed and not victim.spec.borrowed:
            self._found("S19", f"{_name(claimer)} borrows and evicts {_name(victim)}, which does not")
        if victim.spec.priority >= claimer.spec.priority:
            of, by = victim.spec.priority, claimer.spec.priority
            self._found("S19", f"{_name(victim)} of priority {of} was evicted by {_name(claimer)} of {by}")

    def _budgets(self, claimer: Binding, victims: list[Binding]) -> None:
        may_break = any(c.may_break_disruption_budgets and c.preempts for c in self._class_of(claimer))
        for victim in victims:
            floor = max(victim.spec.min_serving, self._ordered(victim))
            if not floor or (victim.spec.borrowed and not claimer.spec.borrowed):
                continue
            left = len(self._of_workload[victim.spec.slot.uid])
            if left >= floor:
                continue
            said = victim.status.last_transition.by if victim.status.last_transition is not None else ""
            if not may_break:
                self._found("S19", f"evicting {_name(victim)} leaves {left} of {floor} that must be able to serve")
            elif "disruption budget" not in said:
                self._found("S19", f"evicting {_name(victim)} breaks a budget, and its record does not say so")

    def _ordered(self, victim: Binding) -> int:
        """The budget in the workload's order as it stands: it may have been raised since the victim was bound."""
        slot, tenant = victim.spec.slot, victim.metadata.namespace
        for (owner, _), order in self._objects["assignments"].items():
            if owner == tenant and order.spec.workload_uid == slot.uid:
                goes = order.spec.suspend or order.metadata.deletion_time is not None or order.spec.job is not None
                wanted = sum(span.last + 1 - span.first for span in order.spec.slots)
                return 0 if goes else min(int(order.spec.min_serving), wanted)
        return 0

    def _class_of(self, claimer: Binding) -> Iterator[PriorityClass]:
        """The class of the claimer's priority in the revision it was bound under: the highest that is not above it."""
        classes = BUILT_IN.priority_classes
        for policy in self._objects["schedulerpolicies"].values():
            spec = policy.spec if isinstance(policy, SchedulerPolicy) else None
            if spec is not None and spec.revision == claimer.spec.policy_revision and spec.priority_classes:
                classes = spec.priority_classes
        below = [c for c in classes if c.value <= claimer.spec.priority]
        if below:
            yield max(below, key=lambda c: c.value)


def _name(binding: Binding) -> str:
    return f"{binding.metadata.namespace}/{binding.metadata.name}"
