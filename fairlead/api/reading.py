"""get and list: one object, or pages of them, now or at an earlier revision. Called by the dispatcher."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from fairlead.api.calls import Call, moment_of
from fairlead.api.failures import Failure, bad_request, not_found
from fairlead.api.frontdoor import Cursor
from fairlead.api.members import Item
from fairlead.api.regions import belonging
from fairlead.api.selectors import Selection
from fairlead.api.unwritable import warn_of_unwritable
from fairlead.api.versions import COMPONENT_MAX, component, parse
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable

LIMIT_MAX: Final = 10_000
TOKEN_MAX: Final = 8_192
CLOCKS_APART_MS: Final = 60_000  # a client's clock may be ahead by so much before its past is our future

_token_decoder: Final = msgspec.msgpack.Decoder(Cursor)


async def get(call: Call) -> Response:
    call.allow("get")
    item = await find(call)
    await warn_of_unwritable(call, [item.member])
    return call.answer(call.form(await _shown_ms(call)).one(item, item.resource_version))


async def find(call: Call) -> Item:
    """The object the call names; 404 where there is none."""
    target, resource = call.target, call.resource
    if resource.info is None:
        raise not_found(resource.plural, target.name, resource.group)
    at = await past(call)
    if at is not None:
        at = {index: revision for index, revision in at.items() if revision}  # one object's own version speaks of its plane only
        if not at:
            raise bad_request("at: this version speaks of no plane that has such objects")
    try:
        item, warnings = await call.front.get(call.info, call.tenant, target.name, at, call.region)
    except Expired as error:
        raise expired(str(error)) from None
    for warning in warnings:
        call.warn(warning)
    if item is None:
        raise not_found(resource.plural, target.name, resource.group)
    return item


async def list_objects(call: Call) -> Response:
    call.allow("list")
    form = call.form(await _shown_ms(call))
    resource = call.resource
    if resource.info is None:
        body: dict[str, Any] = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": "1"},
            "items": [],
        }
        return call.answer(body)
    selection = selection_of(call)
    limit = min(call.number("limit") or 0, LIMIT_MAX)
    cursor = _cursor(call)
    at, not_older = await _versions(call, cursor)
    try:
        listing = await call.front.list(
            call.info,
            call.target.tenant,
            accepts=accepts_of(call, selection),
            limit=limit,
            cursor=cursor,
            at=at,
            not_older=not_older,
            region=call.region,
        )
    except Expired as error:
        raise expired(str(error)) from None
    for warning in listing.warnings:
        call.warn(warning)
    await warn_of_unwritable(call, call.members)
    return call.answer(form.many(listing, token_of(listing.cursor)))


def selection_of(call: Call) -> Selection:
    query = call.query
    return Selection(query.get("labelSelector", ""), query.get("fieldSelector", ""), call.resource.selectable)


def accepts_of(call: Call, selection: Selection) -> Callable[[Item], bool] | None:
    """What is asked for, as far as this caller may see it."""
    rows, chosen = call.rows, _chosen(selection)
    belongs = belonging(call) if selection.fields.name is None else None  # one that is named is looked for wherever it is
    if rows is None and belongs is None:
        return chosen
    return lambda item: (
        (rows is None or rows(item.change)) and (belongs is None or belongs(item.served)) and (chosen is None or chosen(item))
    )


def _chosen(selection: Selection) -> Callable[[Item], bool] | None:
    if selection.everything:
        return None
    name, namespace = selection.fields.name, selection.fields.namespace

    def accepts(item: Item) -> bool:
        change = item.change
        if namespace is not None and change.tenant != namespace:
            return False
        if name is not None and item.member.outer_name(change.plural, change.name) != name:
            return False
        return selection.accepts(item.served)

    return accepts


async def _versions(call: Call, cursor: Cursor | None) -> tuple[dict[int, int] | None, dict[int, int] | None]:
    """(exactly at, not older than), per plane."""
    at = await past(call)
    if at is not None:
        missing = [member.name for member in call.members if not at.get(member.index)]
        if missing:
            hint = "take the resourceVersion of a list, a time, or ask with region="
            raise bad_request(f"at: this version says nothing of {', '.join(missing)}; {hint}")
        return at, None
    text, match = call.query.get("resourceVersion", ""), call.query.get("resourceVersionMatch", "")
    if match not in ("", "Exact", "NotOlderThan"):
        raise bad_request(f"resourceVersionMatch: expected Exact or NotOlderThan, got {match[:40]!r}")
    if match and not text:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is given")
    if cursor is not None:
        if match or (text and text != "0"):
            raise bad_request("continue already says at which resourceVersion; leave resourceVersion out")
        return None, None
    if not text or text == "0":
        if match == "Exact":
            raise bad_request('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
        return None, None
    parse(text)
    wanted = components(call, text)
    return (wanted, None) if match == "Exact" else (None, wanted)


def components(call: Call, text: str) -> dict[int, int]:
    return {member.index: component(text, member.index) for member in call.members}


async def past(call: Call) -> dict[int, int] | None:
    """`?at=`: a resourceVersion, or a time in RFC 3339; None: now."""
    text = call.query.get("at", "")
    if not text:
        return None
    if text.isdigit():
        parse(text)
        return components(call, text)
    ms = moment_ms(call, text)
    out: dict[int, int] = {}
    for member in call.members:
        try:
            out[member.index] = await member.ask(partial(member.plane.revision_at, ms))
        except Unreachable:
            raise Failure(503, f"{member.name} cannot be reached", retry_after_s=2.0) from None
        except Expired as error:
            raise Failure(410, f"at: {text} is not in what {member.name} remembers: {error}") from None
    return out


def moment_ms(call: Call, text: str) -> int:
    """A time that `?at=` names, in milliseconds."""
    ms = moment_of("at", text, "a resourceVersion or a time") or 0
    if ms > call.front.plane_ms() + CLOCKS_APART_MS:
        raise bad_request(f"at: {text[:60]} has not come yet")
    return ms


async def _shown_ms(call: Call) -> int:
    """When what `?at=` names was so, where a table says how old things are: as old as they were then. 0: now."""
    text = call.query.get("at", "")
    if not text or not call.form().is_table:
        return 0
    if not text.isdigit():
        return moment_ms(call, text)
    for member in call.members:
        revision = component(text, member.index)
        if revision:
            try:
                return await member.ask(partial(member.plane.time_at, revision))
            except (Unreachable, Expired):
                return 0  # the reading itself says so
    return 0


def expired(detail: str) -> Failure:
    return Failure(410, f"The resourceVersion for the provided request is too old: {detail}")


def token_of(cursor: Cursor | None) -> str:
    if cursor is None:
        return ""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def _cursor(call: Call) -> Cursor | None:
    """Where the client says that the list goes on. A token is in its hands: only what this door could have written counts."""
    cursor = cursor_of(call.query.get("continue", ""))
    if cursor is not None:
        known = {member.index for member in call.members}
        if cursor.member not in known or not all(i in known and 0 <= revision <= COMPONENT_MAX for i, revision in cursor.pins):
            raise bad_request("continue key is not valid: it speaks of other planes than the request")
    return cursor


def cursor_of(token: str) -> Cursor | None:
    if not token:
        return None
    try:
        if len(token) > TOKEN_MAX:
            raise ValueError("too long")
        return _token_decoder.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise bad_request(f"continue key is not valid: {str(error)[:80]}") from None
