"""Agents that are pretended: what is bound in a trial starts, becomes ready and stops when asked, at once.

Owns what a trial takes for granted. What does not run well today stays as it is: only lives that begin in the trial, or began
less than a minute before it, come up; nodes that are not well say nothing. Called by trial.py.
"""

from __future__ import annotations

from typing import Final

from fairlead.authority.state import Rec
from fairlead.decide.slots import millis
from fairlead.model.commands import Caller, PutStatus, Report
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node, NodeStatus
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding, InstanceStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.planning.copied import Copy

_S = SlotState
_UNDER_WAY: Final = frozenset({_S.BOUND, _S.STARTING, _S.DRAINING})
YOUNG_MS: Final = 60_000  # longer than a sound start takes
_GONE: Final = frozenset({_S.RELEASED, _S.SUCCEEDED})
Name = tuple[str, str]


class Agents:
    """Of all nodes of one region."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        # Lives that are stuck: whoever does not come up today is not pretended to.
        self._stuck: dict[Name, Token] = {}
        self._waiting: dict[Name, None] = {}  # for what they evicted
        self._todo: dict[Name, None] = {}
        for rec in copy.state.live("bindings"):
            if rec.hot.state in _UNDER_WAY:
                self._todo[rec.tenant, rec.name] = None
                if rec.hot.state is not _S.DRAINING and self._is_old(rec):
                    self._stuck[rec.tenant, rec.name] = rec.hot.token

    def _is_old(self, rec: Rec) -> bool:
        binding: Binding = rec.decode()
        step = binding.status.last_transition
        return step is None or self._copy.now_ms - millis(step.time) > YOUNG_MS

    def told(self, rec: Rec) -> None:
        if rec.raw is None:
            return
        if rec.plural == "bindings":
            self._todo[rec.tenant, rec.name] = None
            if rec.hot.state in _GONE:
                self._todo |= self._waiting
                self._waiting.clear()
        elif rec.plural == "nodes" and not rec.hot.status.session and not rec.hot.status.health:
            self._register(rec.hot)

    def _register(self, node: Node) -> None:
        """A node that the change itself brings is taken to come up."""
        name = node.metadata.name
        status = NodeStatus(schedulable=True, health="Ready", session=1)
        self._copy.send(Caller(name, Role.AGENT, node=name), PutStatus("Node", "", name, status))

    def act(self) -> int:
        """Says what is to be said; how much that was."""
        todo, self._todo = self._todo, {}
        said = 0
        for tenant, name in todo:
            rec = self._copy.state.get("bindings", tenant, name)
            if rec is not None:
                said += self._say(tenant, name, rec.hot)
        return said

    def _say(self, tenant: str, name: str, hot: BindingHot) -> int:
        node: Node | None = self._copy.state.hot("nodes", "", hot.node)
        if node is None or node.status.health != "Ready":
            return 0
        caller = Caller(hot.node, Role.AGENT, node=hot.node)

        def report(to: SlotState, status: InstanceStatus | None = None) -> int:
            self._copy.send(caller, Report(tenant, name, hot.token, to, status))
            return 1

        if hot.state is _S.DRAINING:
            return report(_S.RELEASED)
        if self._stuck.get((tenant, name)) == hot.token:
            return 0
        if hot.state is _S.BOUND:
            if self._victims_there(hot):
                self._waiting[tenant, name] = None
                return 0
            return report(_S.STARTING)
        if hot.state is _S.STARTING:
            now = self._copy.ctx.now
            return report(_S.READY, InstanceStatus(ready=True, started_time=now, ready_time=now))
        return 0

    def _victims_there(self, hot: BindingHot) -> bool:
        for victim in hot.start_after:
            tenant, _, name = victim.partition("/")
            found: BindingHot | None = self._copy.state.hot("bindings", tenant, name)
            if found is not None and found.node == hot.node and found.state in (_S.DRAINING, _S.FAILED, _S.UNKNOWN):
                return True
        return False
