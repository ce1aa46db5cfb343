"""Owns the planted bugs of agents, feeds and controllers: what stands between a slot and its second copy, and between a change
and whoever must hear of it. Called by mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.agent.node import Node
from fairlead.agent.remembered import Remembered
from fairlead.authority.authority import Authority
from fairlead.authority.hub import Hub
from fairlead.authority.judge import letting_go, running
from fairlead.authority.state import Rec, State
from fairlead.authority.term import HeartbeatAck
from fairlead.controllers import node, workload
from fairlead.controllers.node import NodeController
from fairlead.controllers.repair import RepairController
from fairlead.controllers.runtime import Runtime
from fairlead.decide import disruption, rollout
from fairlead.decide.instances import Wait
from fairlead.decide.nodes import NodeRules, judge_zone
from fairlead.decide.oscillation import Oscillation
from fairlead.model.commands import Refused
from fairlead.model.kinds.work import AssignmentSpec
from fairlead.model.lifecycle import SlotState
from fairlead.sim.driver import Instances
from fairlead.sim.machines import for_ever
from fairlead.sim.planting import Mutant, Swap
from fairlead.store.memory import MemoryDisk


def _agent_takes_any_token() -> list[Swap]:
    see = Remembered.see
    return [(Remembered, "see", lambda self, tenant, name, token: see(self, tenant, name, token) or True)]


def _agent_lease_never_ends() -> list[Swap]:
    return [
        (Node, "until", lambda self, slot: float("inf")),
        (Node, "expire", lambda self, now: False),
        (Node, "overdue", lambda self, now: False),
        (Instances, "_look_at_fence", lambda self, run: None),  # the shim guards the same
    ]


def _agent_counts_by_its_own_lease() -> list[Swap]:
    """Not as long as its region says, which waits for that and no longer."""
    return [(Node, "lease_s", property(lambda self: self._settings.node_lease_s))]


def _counts_from_receipt() -> list[Swap]:
    """An acknowledgement counts from when it arrives, not from when it was asked for. A region waits for a fence after a lease,
    and an agent stops a moment before its own is over. Both cover for the seconds that an answer may take, and are out as well;
    without the bug nothing is found when they are (seeds 1 to 5)."""
    heard, not_proven_gone = Node.heard, running._not_proven_gone

    def late(self: Node, ack: Any, sent: float, answered_at: float) -> bool:
        return heard(self, ack, answered_at + self._settings.kill_s, answered_at)

    def at_once(ctx: Any, binding: Any) -> Any:
        return None if binding.spec.execution == "Exclusive" else not_proven_gone(ctx, binding)

    def hasty(self: RepairController, cache: Any, assignment: Any, slot: Any) -> bool:
        return slot.state is SlotState.UNKNOWN

    return [(Node, "heard", late), (running, "_not_proven_gone", at_once), (RepairController, "_may_go", hasty)]


def _shim_has_no_fence() -> list[Swap]:
    return [(Instances, "_look_at_fence", lambda self, run: None)]


def _twins_both_stay() -> list[Swap]:
    return [(Node, "supersede", lambda self, why: None)]


def _any_session() -> list[Swap]:
    """Of two agents with one name both are acknowledged, and neither is told of the other."""
    heartbeat = Authority.heartbeat

    def lax(self: Authority, nodes: list[tuple[str, int]]) -> HeartbeatAck | Refused:
        accounts = self._ctx.ledger.nodes
        return heartbeat(self, [(name, max(said, accounts[name].session) if name in accounts else said) for name, said in nodes])

    return [(Authority, "heartbeat", lax), (Node, "supersede", lambda self, why: None)]


def _starts_at_once() -> list[Swap]:
    """An agent that has just come does not wait for an earlier one's lease to end."""
    decide = Node.decide

    def hasty(self: Node, slot: Any, now: float) -> Any:
        slot.doubtful = False
        return decide(self, slot, now)

    return [(Node, "decide", hasty)]


def _no_fence_wait() -> list[Swap]:
    """Released as soon as it is Unknown, by repair and at commit; and Unknown after a third of a lease, because a whole one is
    long enough for the agent to have stopped it."""
    return [
        (running, "_not_proven_gone", lambda *_: None),
        (RepairController, "_may_go", lambda self, cache, assignment, slot: slot.state is SlotState.UNKNOWN),
        (NodeRules, "lease_ms", property(lambda self: int(self.lease_s * 333))),
    ]


def _exclusive_surges() -> list[Swap]:
    """A rollout starts the next life of an Exclusive slot beside the last one, where the rule allows a surge."""
    spares = rollout._spares

    def with_surge(order: AssignmentSpec, *rest: Any) -> list[int]:
        return spares(replace(order, execution="Replicated"), *rest)

    return [(workload, "rollout_of", lambda spec: spec.rollout), (rollout, "_spares", with_surge)]


def _orphans_run_on() -> list[Swap]:
    decide = Node.decide

    def kept(self: Node, slot: Any, now: float) -> Any:
        return Wait() if self.current(slot) is None and slot.there else decide(self, slot, now)

    return [(Node, "decide", kept)]


def _watch_drops() -> list[Swap]:
    publish = Hub.publish

    def lossy(self: Hub, recs: Any) -> None:
        publish(self, recs[:-1] if len(recs) > 2 else recs)

    return [(Hub, "publish", lossy)]


def _watch_twice() -> list[Swap]:
    publish = Hub.publish

    def stuttering(self: Hub, recs: Any) -> None:
        publish(self, [*recs, recs[-1]] if len(recs) > 2 else recs)

    return [(Hub, "publish", stuttering)]


def _watch_disorder() -> list[Swap]:
    publish = Hub.publish
    return [(Hub, "publish", lambda self, recs: publish(self, recs[::-1]))]


def _gap_ignored() -> list[Swap]:
    """Whoever asks from further back than memory reaches is told what there is, and not that there was more."""
    watch = Hub.watch

    def bridged(self: Hub, plural: str, after: int, **rest: Any) -> Any:
        return watch(self, plural, max(after, self.durable - 1), **rest)

    return [(Hub, "watch", bridged)]


def _no_resync() -> list[Swap]:
    """A controller that overhears a change now and then never looks again."""
    concerns = Runtime._concerns
    heard = [0]

    async def never(self: Runtime, *_: Any) -> None:
        await for_ever()

    def lossy(self: Runtime, *args: Any) -> bool:
        heard[0] += 1
        return bool(heard[0] % 4) and concerns(self, *args)

    return [(Runtime, "_resync_loop", never), (Runtime, "_concerns", lossy)]


def _objects_beyond_the_head() -> list[Swap]:
    materialise = MemoryDisk.materialise

    def lax(self: MemoryDisk, fence: Any, upto: int, rows: Any, deleted: Any, as_of: int = 0) -> Any:
        position = self.head.position
        self.head = replace(self.head, position=1 << 62)
        result = materialise(self, fence, upto, rows, deleted, as_of)
        self.head = replace(self.head, position=position)
        return result

    return [(MemoryDisk, "materialise", lax)]


def _left_behind() -> list[Swap]:
    """Whoever begins to lead writes to the store's objects what memory still reaches back to, and nothing older."""

    def recent(self: State, position: int) -> list[Rec]:
        return [rec for rec in self._ring if rec.position > position]

    def nothing(self: State, after: int) -> None: ...

    return [(State, "hold", nothing), (State, "let_go", nothing), (State, "changes_since", recent)]


def _lost_is_closed_again() -> list[Swap]:
    """A lost node that has listed what it runs is closed again, as often as it lists it, until its heartbeats are heard. What
    stands behind it, that whoever is contradicted again and again waits longer, is out with it."""
    return [
        (NodeController, "_has_listed", lambda self, node, now_ms: False),
        (Oscillation, "damped_until_ms", lambda self, key, now_ms: 0),
    ]


def _drains_whatever_serves() -> list[Swap]:
    """Neither a budget nor that it is the last copy keeps a slot from leaving: only that nobody hears its node."""
    blocked = disruption.blocked

    def lax(state: Any, serving: int, budget: Any) -> str:
        return blocked(state, 1 << 30, budget)

    return [(disruption, "blocked", lax), (letting_go, "blocked", lax)]


def _silent_for_good() -> list[Swap]:
    """A node that was not heard for once is watched for ever: whatever waits then waits for room on nodes that are well."""

    def unforgiving(facts: Any, *rest: Any, **more: Any) -> Any:
        before = {one.name: one.health for one in facts}
        return [
            verdict._replace(health="Unknown")
            if verdict.health == "Ready" and before[verdict.name] in ("Unknown", "Lost")
            else verdict
            for verdict in judge_zone(facts, *rest, **more)
        ]

    return [(node, "judge_zone", unforgiving)]


MUTANTS: Final[dict[str, Mutant]] = {
    "agent-any-token": Mutant("an agent refuses a token below one it has seen", "echoes", ("S9",), _agent_takes_any_token, 1.0),
    "agent-no-lease": Mutant("an agent stops Exclusive work when its lease ends", "usurpers", ("S12",), _agent_lease_never_ends),
    "agent-own-lease": Mutant(
        "the region says how long its word counts", "exclusive", ("S12",), _agent_counts_by_its_own_lease, within=10
    ),
    "lease-from-receipt": Mutant("a lease counts from when it was asked for", "lingering", ("S12",), _counts_from_receipt, 1.0),
    "shim-no-fence": Mutant("a shim ends Exclusive work by itself", "silent", ("S12",), _shim_has_no_fence),
    "agent-starts-at-once": Mutant("a new session waits for the earlier one's lease", "twins", ("S12",), _starts_at_once),
    "twins-both-stay": Mutant("an agent whose session is over stops", "twins", ("S12",), _twins_both_stay),
    "any-session": Mutant("only the newest session is acknowledged", "twins", ("S12",), _any_session),
    "no-fence-wait": Mutant("an Exclusive slot is released after its fence time", "exclusive", ("S12",), _no_fence_wait),
    "exclusive-surges": Mutant("an Exclusive slot has no other beside it in a rollout", "exclusive", ("S12",), _exclusive_surges),
    "orphans-run-on": Mutant("what is not bound any more is stopped", "silent", ("L4", "L6"), _orphans_run_on),
    "watch-drops": Mutant("a feed tells everything that was committed", "first", ("S15",), _watch_drops, 1.0),
    "watch-twice": Mutant("a feed tells each change once", "first", ("S15",), _watch_twice, 1.0),
    "watch-disorder": Mutant("a feed tells changes in order", "first", ("S15",), _watch_disorder, 1.0),
    "gap-ignored": Mutant("a gap in the history ends a feed", "resets", ("S15",), _gap_ignored, 1.0),
    "drain-any-budget": Mutant("a drain leaves what a budget says", "drains", ("S19",), _drains_whatever_serves, 4.0),
    "silent-for-good": Mutant("a node that is heard again is Ready again", "silent", ("L4",), _silent_for_good, 1.0),
    "no-resync": Mutant("a missed event is found by a resync", "first", ("L4",), _no_resync, 1.0),
    "lost-closed-again": Mutant("a node is closed once when it is lost", "silent", ("X3",), _lost_is_closed_again, 2.0),
    "objects-left-behind": Mutant("objects that are far behind are brought up to date", "lagging", ("S13",), _left_behind),
    "objects-beyond-head": Mutant("objects never pass the head", "tails", ("S18",), _objects_beyond_the_head, 1.0, within=40),
}
