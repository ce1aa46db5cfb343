"""Is a node that is not heard lost, or are we not listening? Pure: facts about a zone's nodes in, verdicts out.

A node is Unknown after its lease, Lost some time later. When many of a zone fall silent together the observation itself is
suspect: they still become Unknown, which undoes itself, but are declared Lost one at a time; when nobody at all is heard, nothing
is declared. A node that comes and goes is trusted with new work only after it was heard for a while; where they all do, half of a
zone's are trusted sooner, because work that waits for better ones waits in vain. Used by the node controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final, Literal, NamedTuple

import msgspec

from fairlead.model.kinds.work import Instance
from fairlead.model.lifecycle import SlotState

Health = Literal["", "Ready", "Unknown", "Lost"]


class NodeRules(msgspec.Struct, frozen=True):
    lease_s: float = 15.0
    clock_rate_error: float = 0.01
    lost_after_s: float = 10.0  # Unknown for this long is Lost
    suspect_share: float = 0.3  # of a zone's nodes silent together
    suspect_least: int = 3  # fewer than these prove nothing about us
    loss_period_s: float = 10.0  # between two losses declared in a suspect zone
    flap_window_s: float = 600.0  # silent again this soon after it came back: it flaps
    steady_s: float = 5.0  # heard for this long, doubled with every flap, before a flapping node is Ready
    trusted_share: float = 0.5  # of a zone's nodes that are heard: as long as fewer are Ready, flaps do not double anything
    flaps_max: int = 6

    @property
    def lease_ms(self) -> int:
        return int(self.lease_s * (1 + self.clock_rate_error) * 1000)


class NodeFacts(NamedTuple):
    name: str
    health: Health
    schedulable: bool  # the inventory handshake of its session is done
    heard_ms: int
    changed_ms: int  # when its health last changed; 0: never
    flaps: int
    back_ms: int  # since when it is heard again; 0: it is not, or never was away
    suspect: bool  # as its condition says now


class NodeVerdict(NamedTuple):
    name: str
    health: Health
    silent: bool
    suspect: bool
    flaps: int
    why: str


def judge_zone(
    nodes: Sequence[NodeFacts], anybody_heard: bool, since_ms: int, now_ms: int, rules: NodeRules, well: int = 0, deaf_ms: int = 0
) -> list[NodeVerdict]:
    """Health of the nodes of one zone. Nothing is said of a silence that is not a full lease old under this observer (P9).
    `well`: how many more there are that were well and are heard: they count, and nothing has to be said of them. `deaf_ms`: when
    nobody at all was heard last; whoever is heard again a moment after the first is not lost in between."""
    quiet_ms = {node.name: now_ms - max(node.heard_ms, since_ms) for node in nodes}
    silent = {name for name, ms in quiet_ms.items() if ms > rules.lease_ms}
    present = [node for node in nodes if node.health != "Lost"]
    away = [node.name for node in present if node.name in silent]
    suspect = len(away) >= rules.suspect_least and len(away) > rules.suspect_share * (len(present) + well)
    if away and not anybody_heard:
        return [_blind(node, node.name in silent) for node in nodes]
    declared_ms = max((node.changed_ms for node in nodes if node.health == "Lost"), default=0)
    may_lose = len(away) if not suspect else int(now_ms - declared_ms >= rules.loss_period_s * 1000)
    out = []
    hurried = _hurried([node for node in nodes if node.name not in silent], well, now_ms, rules)
    for node in sorted(nodes):
        listened_ms = min(quiet_ms[node.name], now_ms - deaf_ms)
        lost = node.health == "Unknown" and listened_ms > rules.lease_ms + rules.lost_after_s * 1000
        if node.name not in silent:
            heard = node.health in ("", "Ready") or now_ms - node.heard_ms <= rules.lease_ms
            out.append(_heard(node, now_ms, rules, node.name in hurried) if heard else _as_before(node))
        elif lost and may_lose > 0:
            may_lose -= 1
            out.append(NodeVerdict(node.name, "Lost", True, False, node.flaps, f"not heard for {quiet_ms[node.name] // 1000} s"))
        elif node.health in ("Unknown", "Lost"):
            out.append(NodeVerdict(node.name, node.health, True, suspect and node.health == "Unknown", node.flaps, "not heard"))
        else:
            out.append(_fell_silent(node, suspect, now_ms, rules))
    return out


def _blind(node: NodeFacts, silent: bool) -> NodeVerdict:
    """Nobody is heard: more likely it is us."""
    return NodeVerdict(node.name, node.health, False, silent and node.health != "Lost", node.flaps, "no node at all is heard")


def _as_before(node: NodeFacts) -> NodeVerdict:
    """This observer has listened too short to call it silent, and has not heard it either: it is what the one before said."""
    return NodeVerdict(node.name, node.health, False, node.suspect, node.flaps, "not heard by this observer yet")


def _fell_silent(node: NodeFacts, suspect: bool, now_ms: int, rules: NodeRules) -> NodeVerdict:
    soon = node.changed_ms > 0 and now_ms - node.changed_ms < rules.flap_window_s * 1000
    flaps = min(node.flaps + 1, rules.flaps_max) if soon else 0
    why = "not heard for a lease" + (", as are many of its zone" if suspect else "")
    return NodeVerdict(node.name, "Unknown", True, suspect, flaps, why)


def _hurried(present: Sequence[NodeFacts], well: int, now_ms: int, rules: NodeRules) -> set[str]:
    """Of nodes that came and went, those that are trusted sooner: the steadiest, as many as it takes."""
    trusted = well + sum(node.health in ("", "Ready") for node in present)
    wanted = ceil(rules.trusted_share * (well + len(present))) - trusted
    steady_ms = int(rules.steady_s * 1000)
    back = [node for node in present if node.flaps and node.schedulable and 0 < node.back_ms <= now_ms - steady_ms]
    steadiest = sorted(back, key=lambda node: (node.flaps, node.back_ms, node.name))
    return {node.name for node in steadiest[: max(wanted, 0)]}


def _heard(node: NodeFacts, now_ms: int, rules: NodeRules, hurried: bool) -> NodeVerdict:
    if node.health in ("", "Ready"):
        return NodeVerdict(node.name, node.health, False, False, node.flaps, "heard")
    if not node.schedulable:
        return NodeVerdict(node.name, node.health, False, False, node.flaps, "heard; its inventory is awaited")
    steady_ms = int(rules.steady_s * 1000) << node.flaps if node.flaps else 0
    if now_ms - node.back_ms < steady_ms and not hurried:
        why = f"heard again; came and went {node.flaps} times, so it is watched for {steady_ms // 1000} s"
        return NodeVerdict(node.name, "Unknown", False, False, node.flaps, why)
    return NodeVerdict(node.name, "Ready", False, False, node.flaps, "heard again")


# --- slots of silent and of returned nodes

_S = SlotState
TO_UNKNOWN: Final = frozenset({_S.BOUND, _S.STARTING, _S.READY, _S.SERVING, _S.DRAINING})


def state_on_return(before: SlotState | None, instance: Instance | None, in_traffic: bool) -> SlotState:
    """Where a slot goes when its node is heard again: where it was, unless its process ended or its traffic was withdrawn."""
    ended = instance is not None and instance.status.exit_code is not None
    if ended and instance is not None:
        return _S.SUCCEEDED if instance.status.exit_code == 0 and before is not _S.DRAINING else _S.FAILED
    if before is _S.SERVING and not in_traffic:
        return _S.READY
    return before or _S.BOUND
