"""What happened to one workload, step by step, read off the journals of the planes: what was wanted, who made each step, and on
what evidence. What `fairlead timeline` prints.

Owns which change of an object is a step and how it is worded. Shares nothing with the authority but the model; reads nothing
itself: batches come from wherever they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from fairlead.model import codec
from fairlead.model.commands import Command
from fairlead.model.ids import split_key
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.registry import KINDS
from fairlead.store.contract import Batch

_DECODERS: Final = {plural: codec.decoder(info.record) for plural, info in KINDS.items()}
FOLLOWED: Final = ("workloads", "assignments", "schedulingrequests", "bindings", "instances", "evictionrequests", "endpoints")


class Step(NamedTuple):
    time_ms: int  # plane time
    plane: str
    position: int
    object: str  # KIND/NAME
    what: str
    owner: str  # role and name of whoever made it
    evidence: str  # the revision it was decided on, and how old that was
    stage: str = ""  # of the way from admitted to serving; empty: no step of it
    generation: int = 0  # of the workload, where the step belongs to one
    uid: str = ""  # of the workload


class Timeline:
    """Feed it each plane's batches in order; planes in any order."""

    def __init__(self, tenant: str, workload: str) -> None:
        self._tenant = tenant
        self._workload = workload
        self._known: dict[tuple[str, str], Any] = {}  # plane and key -> as it was
        self._steps: list[Step] = []

    def begin(self, plane: str, rows: Iterable[tuple[str, int, bytes]]) -> None:
        """What was there before the first batch, where history does not begin with nothing."""
        for key, _, raw in rows:
            found = self._decoded(key, raw)
            if found is not None:
                self._known[plane, key] = found

    def feed(self, plane: str, batches: Iterable[Batch]) -> None:
        for batch in batches:
            blob, position = decode_blob(batch.blob), batch.first - 1
            for entry in blob.entries:
                command: Command | None = None
                for key, raw in entry.effects:
                    position += 1
                    if not key.startswith(_PREFIXES):
                        continue
                    before, after = self._known.get((plane, key)), self._decoded(key, raw)
                    if before is None and after is None:
                        continue
                    command = command or decode_command(entry.command)
                    self._changed(blob.header.time_ms, plane, position, key, before, after, command)

    def _decoded(self, key: str, raw: bytes | None) -> Any:
        """The object, if it is this workload's."""
        plural, tenant, name = split_key(key)
        if raw is None or plural not in FOLLOWED or tenant != self._tenant or not name.startswith(self._workload):
            return None
        found = _DECODERS[plural].decode(raw)
        return found if _workload_of(plural, found) == self._workload else None

    def _changed(
        self, time_ms: int, plane: str, position: int, key: str, before: Any, after: Any, command: Command | None
    ) -> None:
        plural, _, name = split_key(key)
        if after is None:
            del self._known[plane, key]
        else:
            self._known[plane, key] = after
        owner = f"{command.caller.role.value} {command.caller.actor}" if command is not None else "authority"
        evidence = _evidence(command)
        of = f"{KINDS[plural].kind.lower()}/{name}"
        told, on = _WORDS[plural](before, after), _stage(plural, before, after)
        for number, what in enumerate(told):
            self._steps.append(Step(time_ms, plane, position, of, what, owner, evidence, *(on if not number else ("", 0, ""))))

    def steps(self) -> list[Step]:
        """By plane time; regions' clocks differ a little, so neighbours of two planes may stand the wrong way round."""
        return sorted(self._steps, key=lambda step: (step.time_ms, step.plane, step.position))


_PREFIXES: Final = tuple(f"{plural}/" for plural in FOLLOWED)


def _workload_of(plural: str, found: Any) -> str:
    if plural in ("workloads", "endpoints"):
        return str(found.metadata.name)
    if plural == "assignments":
        return str(found.spec.workload)
    if plural == "instances":
        return str(found.metadata.name.rpartition("-")[0])
    return str(found.spec.slot.workload)


def _stage(plural: str, before: Any, after: Any) -> tuple[str, int, str]:
    """(stage, generation, the workload's uid) that an object has come to with this change; empty: to none."""
    if after is None:
        return "", 0, ""
    if plural == "workloads":
        generation = after.metadata.generation
        is_new = before is None or before.metadata.generation != generation
        return ("admitted", generation, after.metadata.uid) if is_new else ("", 0, "")
    if plural == "schedulingrequests":
        is_new = before is None or before.spec.generation != after.spec.generation
        return ("queued", after.spec.generation, after.spec.slot.uid) if is_new else ("", 0, "")
    if plural == "bindings":
        state = after.status.state
        is_new = before is None or before.spec.token != after.spec.token or before.status.state is not state
        return (state.value.lower(), after.spec.generation, after.spec.slot.uid) if is_new else ("", 0, "")
    return "", 0, ""


def _evidence(command: Command | None) -> str:
    if command is None or command.evidence is None or not command.evidence.observed_revision:
        return ""
    return f"revision {command.evidence.observed_revision}, {command.evidence.age_seconds:.1f} s old"


# --- words, one function a kind ---------------------------------------------------------------------------------------------


def _workload(before: Any, after: Any) -> list[str]:
    if after is None:
        return ["deleted"]
    if before is None:
        return [f"created: {after.spec.replicas} replicas of class {after.spec.workload_class}"]
    out = []
    if after.metadata.generation != before.metadata.generation:
        out.append(f"generation {after.metadata.generation}: {after.spec.replicas} replicas wanted")
    if after.metadata.deletion_time is not None and before.metadata.deletion_time is None:
        out.append("deletion asked for")
    old = {one.type: one for one in before.status.conditions}
    for one in after.status.conditions:
        known = old.get(one.type)
        if known is None or (known.status, known.reason) != (one.status, one.reason):
            out.append(f"{one.type} is {one.status}: {one.reason}")
    return out


def _assignment(before: Any, after: Any) -> list[str]:
    if after is None:
        return ["withdrawn"]
    slots = sum(one.last - one.first + 1 for one in after.spec.slots)
    if before is None:
        return [f"{slots} slots assigned to {after.spec.region}"]
    if (before.spec.slots, before.spec.generation) == (after.spec.slots, after.spec.generation):
        return []
    return [f"{slots} slots of generation {after.spec.generation} for {after.spec.region}"]


def _request(before: Any, after: Any) -> list[str]:
    if after is None:
        return []  # bound, which its binding tells; or withdrawn with its assignment
    told = after.status.reason + (f": {after.status.detail}" if after.status.detail else "")
    if before is None:
        return [f"queued, epoch {after.spec.epoch}"]
    return [f"waits: {told}"] if before.status.reason != after.status.reason else []


def _binding(before: Any, after: Any) -> list[str]:
    if after is None:
        return ["removed"]
    if before is None or before.spec.token != after.spec.token:
        token = ".".join(str(part) for part in (after.spec.token.incarnation, after.spec.token.epoch, after.spec.token.attempt))
        policy = f"policy {after.spec.policy_revision}, grant {after.spec.grant_version}"
        return [f"{after.status.state.value} to {after.spec.node}, token {token}, {policy}"]
    if before.status.state is after.status.state:
        return []
    return [f"{before.status.state.value} -> {after.status.state.value} on {after.spec.node}"]


def _instance(before: Any, after: Any) -> list[str]:
    if after is None or before is None:
        return []
    out = []
    if after.status.restarts > before.status.restarts:
        out.append(f"restarted, {after.status.restarts} times so far: {after.status.message}")
    if after.status.exit_code is not None and before.status.exit_code is None:
        out.append(f"ended with code {after.status.exit_code}: {after.status.message}")
    return out


def _eviction(before: Any, after: Any) -> list[str]:
    if after is None:
        return []
    if before is None:
        return [f"eviction asked for: {after.spec.reason}"]
    if after.status.blocked_by != before.status.blocked_by and after.status.blocked_by:
        return [f"eviction waits: {after.status.blocked_by}"]
    old = {one.type for one in before.status.conditions if one.status == "True"}
    return [
        f"eviction {one.type}: {one.reason}" for one in after.status.conditions if one.status == "True" and one.type not in old
    ]


def _endpoints(before: Any, after: Any) -> list[str]:
    count = len(after.spec.endpoints) if after is not None else 0
    if before is not None and after is not None and before.spec.endpoints == after.spec.endpoints:
        return []
    version = f", version {after.spec.version}" if after is not None else ""
    return [f"{count} endpoints in traffic{version}"]


_WORDS: Final = {
    "workloads": _workload,
    "assignments": _assignment,
    "schedulingrequests": _request,
    "bindings": _binding,
    "instances": _instance,
    "evictionrequests": _eviction,
    "endpoints": _endpoints,
}
