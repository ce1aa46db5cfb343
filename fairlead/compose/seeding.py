"""Objects a plane is born with: manifests in a directory, created by the plane's own server whenever it begins to lead.

What is there already is left alone, as people changed it. What people deleted is made again by whoever leads next, tokens and
access too: it has to be taken out of the directory as well. Called by plane.py, by way of outside.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fairlead.authority.local import LocalPlane
from fairlead.model.commands import Caller, Command, Put, Refused, Unknown
from fairlead.model.lifecycle import Role
from fairlead.wire.manifest import decode_objects

SEEDER = Caller("seed", Role.OPERATOR)
RETRY_S: Final = 1.0  # where a refusal does not say it
RETRY_MAX_S: Final = 30.0  # a store may be well again long before it thinks
_PASSING: Final = frozenset({"NotLeader", "StoreUnavailable", "Overloaded", "BeingDeleted"})


class BadSeed(Exception):
    """A seed that cannot be used; the words say where and why."""


class SeedPutOff(Exception):
    """Nothing is wrong with the seed: the plane does not take it just now. The same may be asked again, as often as need be."""

    def __init__(self, detail: str, retry_after_s: float = 0.0) -> None:
        super().__init__(detail)
        self.retry_after_s = min(retry_after_s or RETRY_S, RETRY_MAX_S)


async def seed(plane: LocalPlane, directory: Path, kind_of_plane: str) -> int:
    """How many objects were made. Objects of kinds that do not live on this plane are passed over. Raises BadSeed or
    SeedPutOff."""
    made = 0
    for path in sorted(directory.glob("*.yaml")):
        decoded = decode_objects(path.read_bytes(), media="yaml")
        if isinstance(decoded, tuple):
            raise BadSeed(f"{path.name}: {decoded[0].path}: {decoded[0].message}")
        for one in decoded:
            if kind_of_plane in one.info.planes:
                made += await _create(plane, path.name, one.info.kind, one.record)
    return made


async def _create(plane: LocalPlane, file: str, kind: str, record: Any) -> bool:
    (outcome,) = await plane.submit([Command(SEEDER, Put(kind, record, mode="create"))])
    what = f"{file}: {kind} {record.metadata.name}"
    if isinstance(outcome, Unknown):
        raise SeedPutOff(f"{what}: {outcome.detail}")
    if isinstance(outcome, Refused):
        if outcome.reason == "AlreadyExists":
            return False
        if outcome.reason in _PASSING or outcome.retry_after_s > 0:
            raise SeedPutOff(f"{what}: {outcome.reason}: {outcome.detail}", outcome.retry_after_s)
        raise BadSeed(f"{what}: {outcome.detail}")
    return True
