"""Objects a plane is born with: manifests in a directory, created by the plane's own server when it leads. What is there already
is left alone, so a seed never undoes what people changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairlead.authority.local import LocalPlane
from fairlead.model.commands import Caller, Command, Put, Refused
from fairlead.model.lifecycle import Role
from fairlead.wire.manifest import decode_objects

SEEDER = Caller("seed", Role.OPERATOR)


class BadSeed(Exception):
    """A seed that cannot be used; the words say where and why."""


async def seed(plane: LocalPlane, directory: Path, kind_of_plane: str) -> int:
    """How many objects were made. Objects of kinds that do not live on this plane are passed over."""
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
    if isinstance(outcome, Refused):
        if outcome.reason == "AlreadyExists":
            return False
        raise BadSeed(f"{file}: {kind} {record.metadata.name}: {outcome.detail}")
    return True
