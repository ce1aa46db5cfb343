"""Owns what counts as a write when everything should be at rest (L4): nobody may write anything but leases, and what is cleared,
told or trusted late on purpose. By what is written, and all of it: neither whose entry it is nor what comes first in it excuses
the rest. Over batches. Called by the simulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from fairlead.model.hot import DECODERS
from fairlead.model.journal import Entry, decode_blob, decode_command
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition
from fairlead.store.contract import Batch

_ROLLED: Final = ("endpoints", "assignments", "workloads")
_OVERDUE: Final = "ProgressDeadlineExceeded"
_LEASE_BODIES: Final = ("LeaseAcquire", "LeaseRenew", "LeaseRelease")
# Renewed, and remembered with renewals. Who leads says so once, with the leases that are over since (a term's first entry).
_RENEWED: Final = ("leases/", "grantterms/", "sessions/")
_TERM: Final = "planes/"
_KNOWN_MS: Final = 40_000  # longer than the time between two counts of the nodes that a region has
# What the garbage collector clears when it is over. Of a binding or endpoints that are not, S7 says so.
_CLEARED: Final = ("bindings/", "endpoints/", "events/", "evictionrequests/", "revisions/")
_FORGOTTEN: Final = ("repairs/",)  # by the repair controller, an hour of its plane's time after they were mended

Effects = Sequence[tuple[str, bytes | None]]


class Write(NamedTuple):
    what: str
    once: bool  # it tells, clears what is over, trusts who came and went, or counts who is trusted: of each object one time
    counts: tuple[Any, ...] = ()  # what it counts: another number is another thing to tell


def writes(batch: Batch, *, tidying: bool = False) -> Counter[str]:
    """Without leases, and without tidying where that is not asked for."""
    return Counter(one.what for one in _writes(batch) if tidying or not one.once)


def at_rest(batches: Iterable[Batch]) -> Counter[str]:
    """All of them. That a rollout has stood still for too long is said late on purpose as well: once of each object, by each who
    says it. Who says it again fights; or clears again what was cleared, tells again what was told, counts the same."""
    out: Counter[str] = Counter()
    said: set[tuple[Any, ...]] = set()
    for batch in batches:
        overdue: set[str] | None = None
        for one in _writes(batch):
            if (one.what, one.counts) not in said:
                said.add((one.what, one.counts))
                if overdue is None and not one.once:
                    overdue = _overdue(batch)
                if one.once or (overdue is not None and one.what.split()[-1] in overdue):
                    continue
            out[one.what] += 1
    return out


def _writes(batch: Batch) -> Iterator[Write]:
    blob = decode_blob(batch.blob)
    for entry in blob.entries:
        one = _write(entry, blob.header.time_ms)
        if one is not None:
            yield one


def _write(entry: Entry, now_ms: int) -> Write | None:
    """None: a renewal."""
    effects = [(key, raw) for key, raw in entry.effects if not key.startswith(_RENEWED)]
    command = decode_command(entry.command)
    kind = type(command.body).__name__ if command is not None else "own"
    if not effects and (entry.effects or command is None or kind in _LEASE_BODIES):
        return None
    if command is None and entry.effects[0][0].startswith(_TERM):
        return None
    role = command.caller.role if command is not None else Role.AUTHORITY
    key = effects[0][0] if effects else ""
    over = {Role.GARBAGE: _CLEARED, Role.REPAIR: _FORGOTTEN}.get(role)
    clears = over is not None and all(raw is None and key.startswith(over) for key, raw in effects)
    trusts = role is Role.NODE and kind == "PutStatus" and _trusts(effects)
    counts = _counts(effects, now_ms)
    return Write(f"{role.value} {kind} {key}", clears or trusts or _tells(effects) or bool(counts), counts)


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


def _tells(effects: Effects) -> bool:
    told = [key.startswith(("events/", "tokens/")) for key, _ in effects]  # that a token is used is noted once an hour
    return bool(told) and all(told)


def _trusts(effects: Effects) -> bool:
    """A node that came and went is watched for up to five minutes before it gets new work. Its node controller says so."""
    nodes = [DECODERS["nodes"].decode(raw) for key, raw in effects if raw is not None and key.startswith("nodes/")]
    return len(nodes) == len(effects) > 0 and all(node.status.health == "Ready" and node.status.flaps > 0 for node in nodes)


def _counts(effects: Effects, now_ms: int) -> tuple[Any, ...]:
    """How many nodes of a region are trusted is written every thirty seconds: after one is trusted again, so much later. Empty:
    it is no such write, or one by which a region is not whole any more."""
    regions = [DECODERS["regions"].decode(raw) for key, raw in effects if raw is not None and key.startswith("regions/")]
    well = len(regions) == len(effects) > 0 and all(
        region.status.health == "Healthy" and not any(_is_news(one, now_ms) for one in region.status.conditions)
        for region in regions
    )
    return tuple(region.status.zones for region in regions) if well else ()


def _is_news(one: Condition, now_ms: int) -> bool:
    """That it is partial, said for the first time: what stays away is missed long before a plane rests."""
    since = one.last_transition_time
    old = since is not None and since.timestamp() * 1000 < now_ms - _KNOWN_MS
    return one.type == "Partial" and one.status != "False" and not old
