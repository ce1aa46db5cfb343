"""`POST /plans`: what a change would do, told before anybody makes it. Nothing is stored.

Every change is taken through the handler that would make it, with the caller's own rights, up to the command it would send; that
command is kept instead of sent, and tried by the planner on copies of the planes. Of the answer a caller sees what it may read.
Never decides and never writes. Called by the dispatcher.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fairlead.api import writing
from fairlead.api.access import Identity
from fairlead.api.calls import APPLY_PATCH, JSON, MERGE_PATCH, Call, Services, Target, add_warnings, parse, parse_query, read_body
from fairlead.api.catalogue import OWN
from fairlead.api.failures import Failure, bad_request, of_refusal
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.masking import OTHERS
from fairlead.api.members import Item, Member
from fairlead.api.rules import Ask
from fairlead.api.writes import stored_record
from fairlead.client.planning import Busy, Marks, PlanBase, Planned, Planner, PlanRefused, Step, TooLarge
from fairlead.client.resources import ChangePage
from fairlead.model.commands import Accepted, Command, Delete, Outcome, Put
from fairlead.model.registry import BY_KIND, KINDS
from fairlead.wire.json_codec import API_VERSION, encode

CHANGES_MAX: Final = 500
UNBLOCK: Final = 3  # changes told of a slot that waits
UNBLOCK_MAX: Final = 10
_VERBS: Final = ("apply", "patch", "delete")
_ABOUT: Final = ("nodes", "overrides")  # kinds that changes for a waiting slot are about, and that not everybody may see


async def answer(request: Request, identity: Identity, services: Services) -> Response:
    if request.method != "POST":
        raise Failure(405, "plans are asked for with POST")
    if services.planner is None:
        raise Failure(501, "this server makes no plans")
    asked = _asked(parse(await read_body(request), JSON))
    if asked.unblock is not None:
        return await _unblock(asked.unblock, identity, services, services.planner)
    if not asked.changes and not services.rules.allows(identity, Ask("list", "workloads")):
        # Nothing else would be asked of the caller, and a trial takes the server's time.
        raise Failure(403, f"{identity.name} may not try the planes without a change; name one that it may make")
    noted = _Noting(services.front)
    warnings: list[str] = []
    objects = []
    for change in asked.changes:
        call, verb, item = await _about(request, identity, services, change)
        call.front, before = noted, len(noted.steps)
        if not asked.base_only:
            await _note(call, verb)
            if item is not None and all(_is_as_it_is(step, item) for step in noted.steps[before:]):
                del noted.steps[before:]
        warnings += call.warnings
        mark = "=" if len(noted.steps) == before else "-" if verb == "delete" else "~" if item is not None else "+"
        objects.append(_object(call, mark, item))
    planes = {member.name: _Patient(member) for member in services.front.members}
    try:
        if asked.base_only:
            found: Planned | PlanRefused | None = None
            base = await services.planner.base(planes)
        else:
            found, base = await services.planner.plan(planes, noted.steps)
    except Busy as error:
        raise Failure(429, f"{error}; ask again in a while", retry_after_s=5.0) from None
    except TooLarge as error:
        raise Failure(413, f"{error}: more than one plan reads") from None
    if isinstance(found, PlanRefused):
        raise _refused(noted.steps[found.at], found)
    sees = _Sight(services, identity)
    body: dict[str, Any] = {"kind": "Plan", "apiVersion": API_VERSION, "base": _base(base, objects, sees, asked.marks)}
    if found is not None:
        body["status"] = _status(found, objects, sees)
        warnings += [f"{name} is unreachable; what the change does there is not shown" for name in found.unreachable]
        if not found.settled:
            warnings.append("it was still changing when the trial ended: what is shown may not be the end of it")
    response = Response(encode(body), media_type=JSON)
    add_warnings(response, warnings)
    return response


async def _unblock(slot: _Unblock, identity: Identity, services: Services, planner: Planner) -> Response:
    ask = Ask("get", "workloads", slot.namespace, slot.name.rpartition("-")[0], "why")
    if not services.rules.allows(identity, ask):
        raise Failure(403, f"{identity.name} may not ask why {slot.namespace}/{slot.name} waits")
    member = next((m for m in services.front.serving(KINDS["bindings"]) if m.name == slot.region), None)
    if member is None:
        raise Failure(404, f"there is no region {slot.region[:60]!r} behind this server")
    limit, sees = min(max(slot.limit, 1), UNBLOCK_MAX), _Sight(services, identity)
    hidden = frozenset(plural for plural in _ABOUT if not sees(plural))
    try:
        found = await planner.unblock(_Patient(member), slot.region, slot.namespace, slot.name, limit, hidden)
    except Busy as error:
        raise Failure(429, f"{error}; ask again in a while", retry_after_s=5.0) from None
    except TooLarge as error:
        raise Failure(413, f"{error}: more than one plan reads") from None
    shown = [one if sees("nodes") else msgspec.structs.replace(one, node="") for one in found if not one.about or sees(one.about)]
    body = {"kind": "Unblocking", "apiVersion": API_VERSION, "status": {"changes": msgspec.to_builtins(shown)}}
    return Response(encode(body), media_type=JSON)


# --- what is asked ---------------------------------------------------------------------------------------------------------


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of: `apply` with a manifest; `patch` with a merge patch that names its kind and object; `delete`."""

    apply: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    delete: dict[str, Any] | None = None


class _Unblock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A waiting slot: what would give it a place?"""

    region: str
    namespace: str
    name: str
    limit: int = UNBLOCK


class _Asked(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    changes: tuple[_Change, ...] = ()
    base_only: bool = False
    unblock: _Unblock | None = None
    marks: bool = False  # of every object, for a plan that is kept


def _asked(tree: Any) -> _Asked:
    try:
        asked = msgspec.convert((tree or {}).get("spec", {}) if isinstance(tree, dict) else tree, _Asked)
    except msgspec.ValidationError as error:
        raise bad_request(f"spec: {error}") from None
    if len(asked.changes) > CHANGES_MAX:
        raise bad_request(f"spec.changes: at most {CHANGES_MAX}, got {len(asked.changes)}")
    return asked


class _Noting(FrontDoor):
    """The same door, that keeps commands instead of sending them."""

    def __init__(self, front: FrontDoor) -> None:
        self.__dict__ |= front.__dict__
        self.steps: list[Step] = []

    async def submit(self, member: Member, command: Command) -> Outcome:
        body = command.body
        assert isinstance(body, Put | Delete), "people put and delete"
        # Which version it rests on is the base's to say: in the copy others may have written its status by then.
        body = msgspec.structs.replace(body, dry_run=False, expected_revision=0)
        self.steps.append(Step(member.name, msgspec.structs.replace(command, body=body, id=None)))
        return Accepted(member.revision())


class _Foreseen(Call):
    """One change of a plan, in the form of the request that would make it; dry, so that nothing is read back."""

    def __init__(self, request: Request, services: Services, identity: Identity, target: Target, media: str, body: Any) -> None:
        super().__init__(request, services, identity, target)
        said = parse_query(request)
        self.query = {"dryRun": "All", "fieldManager": said.get("fieldManager", "fairlead"), "force": said.get("force", "false")}
        self._media = media
        self._body = msgspec.json.encode(body)

    @property
    def media(self) -> str:
        return self._media


async def _about(request: Request, identity: Identity, services: Services, change: _Change) -> tuple[_Foreseen, str, Item | None]:
    """One change as a call, by which verb, and the object as it is."""
    given = [(verb, value) for verb in _VERBS if (value := getattr(change, verb)) is not None]
    if len(given) != 1:
        raise bad_request(f"spec.changes: each has one of {', '.join(_VERBS)}")
    verb, tree = given[0]
    metadata = tree.get("metadata") if isinstance(tree.get("metadata"), dict) else {}
    info = BY_KIND.get(str(tree.get("kind")))
    name, tenant = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    if info is None or not name or bool(tenant) != info.namespaced:
        raise bad_request(f"spec.changes: {verb} names a kind, a name and, where it has one, a namespace")
    body = (
        {key: value for key, value in tree.items() if key not in ("kind", "apiVersion", "metadata")} if verb == "patch" else tree
    )
    media = {"apply": APPLY_PATCH[1], "patch": MERGE_PATCH, "delete": JSON}[verb]
    target = Target(OWN[info.plural], tenant, name, "")
    call = _Foreseen(request, services, identity, target, media, {} if verb == "delete" else body)
    call.allow("get")
    item, _ = await services.front.get(info, tenant, name)
    return call, verb, item


async def _note(call: _Foreseen, verb: str) -> None:
    """Takes a change as far as its command, through the handler that would make it."""
    try:
        await (writing.delete(call) if verb == "delete" else writing.patch(call))
    except Failure as failure:
        raise failure.about(call.resource.plural, call.target.name, call.resource.group) from None


def _is_as_it_is(step: Step, item: Item) -> bool:
    """A write after which the object would say the same: cordoning what is cordoned, the policy that decides already."""
    body = step.command.body
    if not isinstance(body, Put):
        return False
    old, new = stored_record(item), body.object
    meta = [(one.metadata.labels, one.metadata.annotations, one.metadata.finalizers) for one in (old, new)]
    return bool(old.spec == new.spec and meta[0] == meta[1])


def _object(call: Call, mark: str, item: Item | None) -> dict[str, str]:
    version = item.resource_version if item is not None else ""
    return {"mark": mark, "kind": call.info.kind, "namespace": call.tenant, "name": call.target.name, "resourceVersion": version}


def _refused(step: Step, found: PlanRefused) -> Failure:
    body = step.command.body
    assert isinstance(body, Put | Delete), "people put and delete"
    info, name = BY_KIND[body.kind], body.name if isinstance(body, Delete) else body.object.metadata.name
    return of_refusal(found.refused, info.kind, info.plural, name)


class _Patient:
    """A plane that is asked as the door asks it: one that does not answer in time is away."""

    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def connected(self) -> bool:
        return self._member.plane.connected

    def plane_ms(self) -> int:
        return self._member.plane.plane_ms()

    def revision(self) -> int:
        return self._member.plane.revision()

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage:
        return await self._member.ask(
            partial(self._member.plane.page, plural, tenant, after=after, limit=limit, revision=revision)
        )


# --- what may be seen ------------------------------------------------------------------------------------------------------


class _Sight:
    """What this caller may read, asked once a tenant and kind."""

    def __init__(self, services: Services, identity: Identity) -> None:
        self._rules, self._identity = services.rules, identity
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, plural: str, tenant: str = "") -> bool:
        found = self._known.get((plural, tenant))
        if found is None:
            found = self._known[plural, tenant] = self._rules.allows(self._identity, Ask("list", plural, tenant))
        return found


def _status(found: Planned, objects: Sequence[Mapping[str, str]], sees: _Sight) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)

    def of_tenant(rows: list[dict[str, Any]], plural: str) -> list[dict[str, Any]]:
        return [row for row in rows if sees(plural, row["namespace"])]

    for part, plural in (
        ("workloads", "workloads"),
        ("slots", "workloads"),
        ("pending", "workloads"),
        ("budgets", "recoverybudgets"),
    ):
        plain[part] = of_tenant(plain[part], plural)
    if not sees("nodes"):
        plain["cost"], plain["drains"] = [], []
        for row in plain["slots"]:
            row["fromNode"] = row["toNode"] = ""
    for row in plain["slots"]:
        if row["by"] and not sees("workloads", row["by"].partition("/")[0]):
            row["by"] = OTHERS
    plain["readiness"] = plain["readiness"] if sees("regionoutlooks") else []
    for row in plain["readiness"]:
        row["services"] = of_tenant(row["services"], "workloads")
    touched = [{key: value for key, value in one.items() if key != "resourceVersion"} for one in objects if one["mark"] != "="]
    return {"objects": touched, "changed": _changes(touched, plain), **plain}


def _changes(objects: Sequence[Any], plain: Mapping[str, Any]) -> bool:
    return bool(objects or plain["workloads"] or plain["slots"] or any(row["count"] != row["before"] for row in plain["pending"]))


def _base(base: PlanBase, objects: list[dict[str, str]], sees: _Sight, marks: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "revisions": {name: str(revision) for name, revision in base.revisions.items()},
        "objects": [{key: value for key, value in one.items() if key != "mark"} for one in objects],
        "digests": _each(base.marks, lambda rows: f"{zlib.crc32(repr(sorted(rows.items())).encode()):08x}"),
    }
    if marks:
        out["marks"] = {
            plane: {
                plural: {key: mark for key, mark in rows.items() if sees(plural, key.partition("/")[0] if "/" in key else "")}
                for plural, rows in kinds.items()
            }
            for plane, kinds in base.marks.items()
        }
    return out


def _each(marks: Marks, of: Callable[[Mapping[str, str]], str]) -> dict[str, dict[str, str]]:
    return {plane: {plural: of(rows) for plural, rows in sorted(kinds.items())} for plane, kinds in marks.items()}
