"""Which of the nodes that a pool has ordered have not come, and which of these are not coming any more. Pure.

A machine comes when its agent registers. One that does not (it is not let in, it has no image, nobody starts it, somebody has
deregistered its node) would be on its way for ever, and whatever waits would wait for it. When each was ordered is kept by
addition and not by node, and only as long as it matters: numbers grow. Used by controllers/node_pool.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.autoscaling import node_number
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.capacity import Addition, Node, NodePool, NodePoolSpec, NodePoolStatus

COME_TIMES: Final = 3  # of what one takes: twice as slow as said is a slow day
_ADDITIONS_MAX: Final = 64  # under way at once; of more the oldest are taken for one


class Arriving(NamedTuple):
    absent: tuple[str, ...]  # ordered, not registered, and may still come; in the order they were ordered
    overdue: tuple[str, ...]
    additions: tuple[Addition, ...]  # those whose nodes may still come
    in_vain: int


def come_s(spec: NodePoolSpec) -> float:
    """How long after it was ordered a node must have registered."""
    return COME_TIMES * spec.start_seconds


def has_come(node: Node | None) -> bool:
    """An agent has registered it. What is only approved is not there."""
    return node is not None and (node.status.session > 0 or bool(node.status.health) or node.status.schedulable)


def arriving(pool: NodePool, nodes: Mapping[str, Node], now_ms: int) -> Arriving:
    status, limit_ms = pool.status, come_s(pool.spec) * 1000
    young = tuple(each for each in _additions(status, now_ms) if now_ms - millis(each.time) < limit_ms)
    first = young[0].first if young else status.numbered + 1
    absent = [name for name in status.ordered if not has_come(nodes.get(name))]
    came = [node_number(name) for name in status.ordered if has_come(nodes.get(name))]
    late = [name for name in absent if node_number(name) < first]
    # Somebody has changed the pool since: what was wrong with it may be mended.
    in_vain = status.in_vain if status.observed_generation == pool.metadata.generation else 0
    if any(number >= first for number in came) or status.numbered in came:  # the last of all, though late
        in_vain = 0
    elif status.additions and not young:  # their time has just run out
        last = status.additions[-1].first
        # What was let go before its time had no chance to come.
        in_vain += any(node_number(name) >= last for name in late) and not any(number >= last for number in came)
    return Arriving(tuple(name for name in absent if node_number(name) >= first), tuple(late), young, in_vain)


def _additions(status: NodePoolStatus, now_ms: int) -> Sequence[Addition]:
    """Written by a version that did not keep them: all that is ordered is as old as the last addition."""
    if status.additions or not status.ordered:
        return status.additions
    return (Addition(0, status.last_up_time or instant(now_ms)),)


def with_addition(additions: tuple[Addition, ...], first: int, now_ms: int) -> tuple[Addition, ...]:
    kept = (*additions, Addition(first, instant(now_ms)))
    if len(kept) <= _ADDITIONS_MAX:
        return kept
    return (replace(kept[1], first=kept[0].first), *kept[2:])
