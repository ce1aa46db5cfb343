"""Agents that are pretended: what is bound in a trial starts, becomes ready and stops when asked, at once.

Owns what a trial takes for granted. What does not run well today stays as it is: only lives that begin in the trial come up, and
nodes that are not well say nothing. Called by trial.py.
"""

from __future__ import annotations

from typing import Final

from fairlead.authority.state import Rec
from fairlead.model.commands import Caller, PutStatus, Report
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node, NodeStatus
from fairlead.model.kinds.work import InstanceStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.planning.copied import Copy

_S = SlotState
_GONE: Final = frozenset({_S.RELEASED, _S.SUCCEEDED})
Name = tuple[str, str]


class Agents:
    """Of all nodes of one region."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        # Lives that began before the trial: whoever does not come up today is not pretended to.
        self._earlier = {(rec.tenant, rec.name): rec.hot.token for rec in copy.state.live("bindings")}
        self._waiting: dict[Name, None] = {}  # for what they evicted
        self._todo: dict[Name, None] = {
            (rec.tenant, rec.name): None for rec in copy.state.live("bindings") if rec.hot.state is _S.DRAINING
        }

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
        if self._earlier.get((tenant, name)) == hot.token:
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
