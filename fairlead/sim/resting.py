"""Owns what counts as a write when everything should be at rest (L4): nobody may write anything but leases, and what is cleared,
told or trusted late on purpose. Over batches. Called by world.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.model.hot import DECODERS
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.lifecycle import Role
from fairlead.store.contract import Batch

_ROLLED: Final = ("endpoints", "assignments", "workloads")
_OVERDUE: Final = "ProgressDeadlineExceeded"
_LEASE_BODIES: Final = ("LeaseAcquire", "LeaseRenew", "LeaseRelease")


def writes(batch: Batch, *, tidying: bool = False) -> Counter[str]:
    """Without leases, and without tidying where that is not asked for."""
    out: Counter[str] = Counter()
    for entry in decode_blob(batch.blob).entries:
        command = decode_command(entry.command)
        kind = type(command.body).__name__ if command is not None else "own"
        # What is over is cleared away, and what happened is told, after a while of their own: that is no fight.
        late = _tells(entry.effects) or _trusts(entry.effects)
        tidies = command is not None and (command.caller.role is Role.GARBAGE or late)
        key = entry.effects[0][0] if entry.effects else ""
        if command is not None and kind not in _LEASE_BODIES and not key.startswith("grantterms/") and (tidying or not tidies):
            out[f"{command.caller.role.value} {kind} {key}"] += 1
    return out


def at_rest(batches: Iterable[Batch]) -> Counter[str]:
    """All of them. That a rollout has stood still for too long is said late on purpose as well: once of each object, by each who
    says it. Who says it again fights."""
    out: Counter[str] = Counter()
    said: set[str] = set()
    for batch in batches:
        for what, count in writes(batch).items():
            if what in said or what.split()[-1] not in _overdue(batch):
                out[what] += count
            said.add(what)
    return out


def _overdue(batch: Batch) -> set[str]:
    """Objects of it that say so."""
    out = set()
    for entry in decode_blob(batch.blob).entries:
        for key, raw in entry.effects:
            plural = key.partition("/")[0]
            if raw is not None and plural in _ROLLED:
                conditions = DECODERS[plural].decode(raw).status.conditions
                if any(one.reason == _OVERDUE for one in conditions):
                    out.add(key)
    return out


def _tells(effects: Sequence[tuple[str, bytes | None]]) -> bool:
    told = [key.startswith(("events/", "tokens/")) for key, _ in effects]  # that a token is used is noted once an hour
    return bool(told) and all(told)


def _trusts(effects: Sequence[tuple[str, bytes | None]]) -> bool:
    """A node that came and went is watched for up to five minutes before it gets new work."""
    nodes = [DECODERS["nodes"].decode(raw) for key, raw in effects if raw is not None and key.startswith("nodes/")]
    return len(nodes) == len(effects) > 0 and all(node.status.health == "Ready" and node.status.flaps > 0 for node in nodes)
