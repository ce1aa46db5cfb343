"""Owns the planted bugs of the components that decide by themselves: autoscalers, canaries, moves for room. What stands between
what one of them may do and what it does. Called by mutants.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from fairlead.authority.judge import policies as judged
from fairlead.controllers import autoscaler, defragmenter, node_pool, policy, repair
from fairlead.controllers import policies as looked_up
from fairlead.controllers.contract import Result
from fairlead.controllers.defragmenter import DefragmenterController
from fairlead.decide import autoscaling, defragmenting
from fairlead.decide.arriving import arriving
from fairlead.model.commands import Put
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import EvictionRequest, EvictionRequestSpec
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.scheduler import policies as scheduled
from fairlead.sim.planting import Mutant, Swap


def _adds_whatever_comes() -> list[Swap]:
    """Neither those that are on their way nor the wait after the last addition keep it from ordering more, nor that the load was
    measured before that, which stands behind them."""
    return [(autoscaling, "_hold", lambda rule, load: ""), (autoscaling, "_is_of_before", lambda load: False)]


def _beyond_bounds() -> list[Swap]:
    """It orders what the load asks for, however many that is."""
    replicas = autoscaling.replicas

    def boundless(rule: Any, load: Any) -> Any:
        return replicas(rule._replace(maximum=2 * rule.maximum), load)

    return [(autoscaler, "replicas", boundless)]


def _buys_again() -> list[Swap]:
    """Nodes are ordered at every look, however short ago the last ones were."""
    nodes = autoscaling.nodes
    return [(node_pool, "nodes", lambda rule, pool, waiting: nodes(rule._replace(up_wait_s=0.0), pool, waiting))]


def _buys_beyond() -> list[Swap]:
    """As many nodes are ordered as what waits would fill."""
    nodes = autoscaling.nodes
    return [(node_pool, "nodes", lambda rule, pool, waiting: nodes(rule._replace(maximum=3 * rule.maximum), pool, waiting))]


def _waits_for_ever() -> list[Swap]:
    """What was ordered is on its way, however long ago that was."""

    def patient(pool: Any, nodes: Any, now_ms: int) -> Any:
        due = arriving(pool, nodes, now_ms)
        return due._replace(absent=(*due.overdue, *due.absent), overdue=(), in_vain=0)

    return [(node_pool, "arriving", patient)]


def _canary_for_all() -> list[Swap]:
    """A revision on trial decides for everybody, wherever it is tried."""

    def for_all(channel: Any, tenant: str, region: str = "") -> int:
        return int(channel.canary.revision if channel.canary is not None else channel.current)

    return [(module, "revision_for", for_all) for module in (judged, looked_up, scheduled)]


def _canary_cut_short() -> list[Swap]:
    """It is taken back as soon as it is seen."""

    def at_once(canary: Any, status: Any, now: datetime) -> datetime:
        return status.canary_end_time if status.canary == canary and status.canary_end_time is not None else now

    return [(policy, "trial_end", at_once)]


def _rollback_restarts() -> list[Swap]:
    """When another revision decides in a region, whoever serves there is asked to leave. The defragmenter does it: it hears of
    the channel and may ask."""
    reconcile, known = DefragmenterController.reconcile, dict[int, int]()  # by controller, the revision that it saw last

    def restless(self: DefragmenterController, key: Any, view: Any, now_ms: int) -> Result:
        channel = view.cache.get("policychannels", "", "default")
        before = known.get(id(self), 0)
        known[id(self)] = now = channel.spec.current if channel is not None else before
        serving = [item for item in view.cache.all("bindings") if item.hot.state is SlotState.SERVING]
        if before in (0, now) or not serving:
            return reconcile(self, key, view, now_ms)
        return Result([_asked(item) for item in serving], now_ms + 1000)

    return [(DefragmenterController, "reconcile", restless)]


def _asked(item: Any) -> Put:
    ref = SlotRef(workload=item.name.rpartition("-")[0], uid=item.hot.workload_uid, index=item.hot.index)
    spec = EvictionRequestSpec(slot=ref, reason="another policy decides", requester="policy", epoch=item.hot.token.epoch)
    return Put("EvictionRequest", EvictionRequest(metadata=Metadata(name=item.name, namespace=item.tenant), spec=spec))


def _moves_again() -> list[Swap]:
    """A slot that was moved is moved on as soon as that makes room."""
    return [(defragmenter, "has_moved", lambda request, now_ms: False), (DefragmenterController, "_stay", lambda *_: frozenset())]


def _moves_at_once() -> list[Swap]:
    """The next plan is made at the next look, whatever is under way."""
    return [(defragmenter, "_is_under_way", lambda cache, item: False)]


def _moves_into_the_queue() -> list[Swap]:
    """Slots are asked to leave whether or not there is another place for them."""
    return [(defragmenting, "_fit_elsewhere", lambda room, rooms, leaving: True)]


def _moves_and_back() -> list[Swap]:
    """The request of a slot that was moved says nothing of the node it left."""
    return [(repair, "_kept_off", lambda cache, request, now_ms: request)]


MUTANTS: Final[dict[str, Mutant]] = {
    "scales-whatever-comes": Mutant("what was ordered comes before more is", "elastic", ("B1",), _adds_whatever_comes, 4.0),
    "scales-beyond": Mutant("replicas stay within their bounds", "elastic", ("B1",), _beyond_bounds, 4.0),
    "pool-again": Mutant("nodes that were ordered come before more are", "elastic", ("B2",), _buys_again, 4.0),
    "pool-beyond": Mutant("a pool stays within its limits", "elastic", ("B2",), _buys_beyond, 4.0),
    "pool-waits": Mutant("what does not come is given back", "elastic", ("B2",), _waits_for_ever, 4.0),
    "canary-for-all": Mutant("a canary decides for those it is tried on", "canary", ("S6",), _canary_for_all),
    "canary-cut-short": Mutant("a canary has its time", "canary", ("B3",), _canary_cut_short),
    "rollback-restarts": Mutant("a rollback moves nothing", "canary", ("B3",), _rollback_restarts),
    "moves-again": Mutant("who was moved stays for an hour", "fragmented", ("B4",), _moves_again, 6.0, within=10),
    "moves-and-back": Mutant("who was moved keeps off the node it left", "fragmented", ("B4",), _moves_and_back, 6.0, within=10),
    "moves-at-once": Mutant("one plan at a time", "fragmented", ("B4",), _moves_at_once, 6.0),
    "moves-into-queue": Mutant("who moves has another place", "fragmented", ("B4",), _moves_into_the_queue, 6.0, within=10),
}
