"""An exported history decided again by the scheduler's functions, as `fairlead replay` tells it. Owns which policy a fork means.

Decides nothing itself: fairlead/scheduler/forking.py does. Handed to the commands by main, which may not import a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.decide.plugins import Registry
from fairlead.decide.policy import CompiledPolicy, compile_policy
from fairlead.model import codec
from fairlead.model.journal import decode_blob
from fairlead.model.kinds.policy import SchedulerPolicy
from fairlead.model.registry import GLOBAL
from fairlead.plugins import NO_PLUGINS, Loaded
from fairlead.scheduler.forking import Fork
from fairlead.scheduler.picture import Choice
from fairlead.store.export import Exported, read_export
from fairlead.wire.manifest import decode_objects

BUILT_IN: Final = "built-in"
LISTED_MAX: Final = 1_000
_policy: Final = codec.decoder(SchedulerPolicy)


def decided_again(path: Path, fork: str, plugins: Loaded | None = None) -> dict[str, Any]:
    """What the scheduler decides now where it decided then; `fork` is empty, or policy=REVISION, policy=FILE or
    policy=built-in. Raises ValueError where that names nothing, BadExport where the file is none."""
    exported = read_export(path)
    if exported.about.plane == GLOBAL:
        if fork:
            raise ValueError(f"{path} is a history of the global plane, where nothing is placed; export a region's")
        return {}
    registry = (plugins or NO_PLUGINS).registry
    again = Fork(exported.about.region, registry)
    if fork:
        again.fork(_forked(path, fork, registry))
    again.begin(exported.rows)
    again.feed(exported.batches)
    recorded, now = again.hashes
    found: dict[str, Any] = {
        **msgspec.to_builtins(again.tally),
        "recorded_hash": recorded,
        "now_hash": now,
        "not_same": [
            {"position": position, "slot": slot, "then": then, "now": other}
            for position, slot, then, other in again.not_same[:LISTED_MAX]
        ],
    }
    if fork:
        found["fork"] = {
            "policy": fork.partition("=")[2],
            "different": len(again.otherwise),
            "moved": sum(bool(one.then.node and one.forked.node) for one in again.otherwise),
            "would_wait": sum(bool(one.then.node and not one.forked.node) for one in again.otherwise),
            "would_be_placed": sum(bool(one.forked.node and not one.then.node) for one in again.otherwise),
            "by": again.causes(),
            "differences": [
                {
                    "position": one.position,
                    "time_ms": one.time_ms,
                    "slot": one.slot,
                    "then": _plain(one.then),
                    "forked": _plain(one.forked),
                    "by": one.by,
                    "why": one.why,
                }
                for one in again.otherwise[:LISTED_MAX]
            ],
        }
    return found


def _plain(choice: Choice) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(choice).items() if value}


def _forked(path: Path, fork: str, registry: Registry) -> SchedulerPolicy | None:
    what, _, wanted = fork.partition("=")
    if what != "policy" or not wanted:
        raise ValueError(f"--fork {fork}: say policy=REVISION, policy=FILE or policy={BUILT_IN}")
    if wanted in (BUILT_IN, "0"):
        return None
    text = wanted.removeprefix("r")
    found = _of_history(read_export(path), int(text)) if text.isdecimal() else _of_file(Path(wanted))
    compiled = compile_policy(found.spec, registry)
    if not isinstance(compiled, CompiledPolicy):
        raise ValueError(f"policy {wanted} cannot be used: {'; '.join(f'{one.path}: {one.message}' for one in compiled)}")
    return found


def _of_file(path: Path) -> SchedulerPolicy:
    decoded = decode_objects(path.read_bytes(), media="yaml")
    if isinstance(decoded, tuple):
        raise ValueError(f"{path}: {'; '.join(f'{one.path}: {one.message}' for one in decoded)}")
    found = [one.record for one in decoded if isinstance(one.record, SchedulerPolicy)]
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} objects of kind SchedulerPolicy; one is wanted")
    return found[0]


def _of_history(exported: Exported, revision: int) -> SchedulerPolicy:
    known: dict[int, SchedulerPolicy] = {}
    for raw in _policies(exported):
        policy = _policy.decode(raw)
        known[policy.spec.revision] = policy
    if revision not in known:
        names = ", ".join(f"r{one}" for one in sorted(known)) or "none"
        raise ValueError(f"the history has no policy revision {revision}; it has {names}. A file may be named instead")
    return known[revision]


def _policies(exported: Exported) -> Iterator[bytes]:
    rows: Iterable[tuple[str, bytes | None]] = ((key, raw) for key, _, raw in exported.rows)
    effects = (effect for batch in exported.batches for entry in decode_blob(batch.blob).entries for effect in entry.effects)
    for pairs in (rows, effects):
        for key, raw in pairs:
            if raw is not None and key.startswith("schedulerpolicies/"):
                yield raw
