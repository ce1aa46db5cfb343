"""`fairlead apply --plan FILE`: carries out a plan that was kept, if what it rests on is still so.

Owns the comparison of a plan's base with the present, and the words for what moved. What is written goes through the same calls
as `apply`, `patch` and `delete`, on the versions that were just compared. Called by apply.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click
import msgspec

from fairlead.cli.frame import CONFLICT, NOT_FOUND, OK, Told
from fairlead.cli.kinds import of_model
from fairlead.cli.output import note
from fairlead.cli.plan import asked_as
from fairlead.cli.session import Session
from fairlead.cli.writing import suffix
from fairlead.client.rest_errors import Conflict
from fairlead.client.rest_shapes import Write
from fairlead.model.registry import BY_KIND

NAMED_MAX: Final = 8  # things that moved, told by name
ATTEMPTS: Final = 5  # statuses are written all the time: a version that moved is looked at again
MAKE_ONE: Final = "make one with 'fairlead plan ... --out FILE'"
Tree = dict[str, Any]


class Named(msgspec.Struct):
    name: str
    namespace: str = ""


class Changed(msgspec.Struct):
    kind: str
    metadata: Named


class Touched(msgspec.Struct, rename="camel"):
    kind: str
    namespace: str
    name: str
    resource_version: str


class Base(msgspec.Struct):
    digests: dict[str, dict[str, Any]]
    objects: list[Touched]
    marks: dict[str, dict[str, dict[str, Any]]] = {}


class Saved(msgspec.Struct, rename="camel"):
    """What must be in a file for it to be carried out. It is not read from here: what else is in it goes to the server too."""

    field_manager: str
    force: bool
    changes: list[Annotated[dict[Literal["apply", "patch", "delete"], Changed], msgspec.Meta(min_length=1, max_length=1)]]
    base: Base


async def apply_plan(session: Session, path: Path, write: Write, dry_run: str) -> int:
    kept = _read(path)
    for attempt in range(1, ATTEMPTS + 1):
        base = await _base(session, kept)
        moved = list(moves(kept["base"], base))
        if moved:
            more = f"\n  and {len(moved) - NAMED_MAX} more" if len(moved) > NAMED_MAX else ""
            said = "\n".join(f"  {one}" for one in moved[:NAMED_MAX])
            raise Told(
                f"the plan's base has moved; nothing was changed:\n{said}{more}", hint="make the plan again and look at it",
                code=CONFLICT,
            )  # fmt: skip
        versions = {_about(one): one["resourceVersion"] for one in base["objects"]}
        done = 0
        try:
            for change in kept["changes"]:
                label = await _carry_out(session, change, versions, kept, write)
                click.echo(f"{label} {'deleted' if 'delete' in change else 'applied'}{suffix(dry_run)}")
                done += 1
            return OK
        except Conflict:
            if done or attempt == ATTEMPTS:
                note(f"{done} of {len(kept['changes'])} changes were made before this one")
                raise
        except Exception:
            note(f"{done} of {len(kept['changes'])} changes were made before this one")
            raise
    raise AssertionError("the last attempt ends it")


def _read(path: Path) -> Tree:
    try:
        kept = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise Told(f"{path}: there is no such file", code=NOT_FOUND) from None
    except msgspec.DecodeError as error:
        raise Told(f"{path}: is no kept plan: {error}") from None
    if not isinstance(kept, dict) or kept.get("kind") != "SavedPlan":
        raise Told(f"{path}: is no kept plan", hint=MAKE_ONE)
    try:
        msgspec.convert(kept, Saved)
    except msgspec.ValidationError as error:
        raise Told(f"{path}: is no kept plan, or not all of one: {error}", hint=MAKE_ONE) from None
    unknown = [tree["kind"] for change in kept["changes"] for tree in change.values() if tree["kind"] not in BY_KIND]
    if unknown:
        raise Told(f"{path}: there is no kind {unknown[0]!r}", hint=MAKE_ONE)
    return kept


async def _base(session: Session, kept: Tree) -> Tree:
    spec = {"changes": kept["changes"], "baseOnly": True, "marks": True}
    base: Tree = (await session.client.post(asked_as(kept["fieldManager"], kept["force"]), {"spec": spec}))["base"]
    return base


# --- what moved


def moves(then: Tree, now: Tree) -> Iterator[str]:
    """Everything a plan rests on that is not as it was."""
    yield from _touched(then, now)
    for plane in sorted({*then["digests"], *now["digests"]}):
        was, is_ = then["digests"].get(plane), now["digests"].get(plane)
        if was is None or is_ is None:
            yield f"{plane} could not be read {'then' if was is None else 'now'}"
            continue
        for plural in sorted({*was, *is_}):
            if was.get(plural) != is_.get(plural):
                named = list(_named(then, now, plane, plural))
                yield from named or [f"{plural} of {plane} (of which you may not see more)"]


def _named(then: Tree, now: Tree, plane: str, plural: str) -> Iterator[str]:
    was, is_ = (base.get("marks", {}).get(plane, {}).get(plural, {}) for base in (then, now))
    for key in sorted({*was, *is_}):
        if was.get(key) != is_.get(key):
            how = "is new" if key not in was else "is gone" if key not in is_ else "has changed"
            yield f"{plural} {key} of {plane} {how}"


def _touched(then: Tree, now: Tree) -> Iterator[str]:
    """The plan's own objects of kinds that have no mark: their versions say it."""
    present = {_about(one): one["resourceVersion"] for one in now["objects"]}
    for one in then["objects"]:
        marked = any(BY_KIND[one["kind"]].plural in kinds for kinds in then["digests"].values())
        if not marked and present.get(_about(one)) != one["resourceVersion"]:
            yield f"{one['kind'].lower()} {one['name']} has changed"


def _about(one: Tree) -> tuple[str, str, str]:
    return one["kind"], one["namespace"], one["name"]


# --- doing it


async def _carry_out(
    session: Session, change: Tree, versions: dict[tuple[str, str, str], str], kept: Tree, write: Write
) -> str:  # fmt: skip
    ((verb, tree),) = change.items()
    meta = tree["metadata"]
    resource = of_model()[BY_KIND[tree["kind"]].plural]
    namespace, name = meta.get("namespace", ""), meta["name"]
    version = versions.get((tree["kind"], namespace, name), "")
    pinned = {"resourceVersion": version} if version else {}
    client = session.client
    match verb:
        case "apply":
            how = write._replace(field_manager=kept["fieldManager"], force=kept["force"])
            await client.apply(resource, namespace, name, {**tree, "metadata": {**meta, **pinned}}, how)
        case "patch":
            said = {key: value for key, value in tree.items() if key not in ("kind", "metadata")}
            await client.patch(resource, namespace, name, {**said, "metadata": pinned}, write)
        case _:
            await client.delete(resource, namespace, name, write, options={"preconditions": pinned} if pinned else {})
    return f"{resource.singular}/{name}"
