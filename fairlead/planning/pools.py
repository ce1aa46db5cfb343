"""Node pools that a change itself asks to be larger or smaller: the production decision about them, and a pretended provider.

Of pools that the change does not touch nothing is tried: capacity that an autoscaler might add is never counted. Of the others
the controller's own function is asked, and told of nothing that waits, so that it orders what the pool must have at least, drains
and lets go what is above its most, and buys nothing for anybody. What is ordered comes up at once; what is let go is gone when
nothing is on it. Called by trial.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from fairlead.controllers.node_pool import CLOSED, SWEEP_S, NodePoolController, Seen, scaled
from fairlead.model.commands import Caller, Command, Delete, Put
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.kinds.capacity import Node, NodePool, NodeSpec
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role
from fairlead.model.meta import Metadata
from fairlead.planning.copied import Copy

_PROVIDER: Final = Caller("plan", Role.OPERATOR)
_SWEEP_MS: Final = int(SWEEP_S * 1000)


class Pools:
    """Of one region."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._changed: set[str] = set()
        self._caller: Caller | None = None
        self.due_ms: int | None = None  # the next look; None: there is nothing to look at

    def told(self, command: Command) -> None:
        """Of a command of the change."""
        body = command.body
        if isinstance(body, Put) and isinstance(body.object, NodePool):
            self._changed.add(body.object.metadata.name)
            self.due_ms = self._copy.now_ms

    def act(self) -> int:
        """What follows now; how much that was."""
        copy = self._copy
        if self.due_ms is None or copy.now_ms < self.due_ms:
            return 0
        self.due_ms = copy.now_ms + _SWEEP_MS
        if self._caller is None:
            name = NodePoolController.name
            self._caller = copy.lease(name, CONTROLLERS[name].role)
        bodies = scaled(self._seen(), copy.name, copy.now_ms)
        for body in bodies:
            copy.send(self._caller, body)
        return len(bodies) + self._provided()

    def _seen(self) -> Seen:
        state = self._copy.state
        used = [rec.hot.node for rec in state.live("bindings") if rec.hot.state in HOLDS_CAPACITY]
        return Seen(
            [rec.hot for rec in state.live("nodepools") if rec.name in self._changed],
            [rec.hot for rec in state.live("nodes")],
            (),
            Counter((*used, *(rec.hot.spec.node for rec in state.live("reservations")))),
            [rec.hot for rec in state.live("overrides")],
        )

    def _provided(self) -> int:
        """Machines that are ordered and not there come; those that are closed and no longer ordered go."""
        copy, done = self._copy, 0
        for rec in [rec for rec in copy.state.live("nodepools") if rec.name in self._changed and rec.hot.spec.provider]:
            pool: NodePool = rec.hot
            there: dict[str, Node] = {n.name: n.hot for n in copy.state.live("nodes") if n.hot.spec.pool == rec.name}
            for name in pool.status.ordered:
                if name not in there:
                    copy.send(_PROVIDER, Put("Node", self._node(pool, name, there), "create"))
                    done += 1
            for name, node in sorted(there.items()):
                if name not in pool.status.ordered and CLOSED in node.metadata.annotations:
                    copy.send(_PROVIDER, Delete("Node", "", name, uid=node.metadata.uid))
                    done += 1
        return done

    def _node(self, pool: NodePool, name: str, there: dict[str, Node]) -> Node:
        """Where the provider would put it is not known: in the first zone, as the local platform's does, at what one costs."""
        zones = [zone for rec in self._copy.state.live("regions") if rec.name == self._copy.name for zone in rec.hot.spec.zones]
        costs = [node.spec.hourly_cost_millis for node in there.values()]
        spec = NodeSpec(
            region=self._copy.name, zone=min(zones, default=""), pool=pool.metadata.name, allocatable=pool.spec.node,
            max_slots=pool.spec.max_slots, hourly_cost_millis=max(costs, default=0),
        )  # fmt: skip
        return Node(metadata=Metadata(name=name), spec=spec)
