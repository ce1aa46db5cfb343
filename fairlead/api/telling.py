"""`workloads/NAME/timeline` and `/history`: what happened to a workload, on all planes; a plane's whole history, piece by piece.

Reads only. A timeline is its tenant's to ask for and names nothing of another's; a whole history is everybody's, so it takes the
right to read the audit record. Called by the dispatcher and by questions.py.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from fairlead.api.access import Identity
from fairlead.api.calls import JSON, Call, Services, moment_of
from fairlead.api.columns import instant_of
from fairlead.api.failures import Failure, bad_request, busy
from fairlead.api.members import Member
from fairlead.api.rules import Ask
from fairlead.client.plane import Expired, Overloaded
from fairlead.client.resources import Unreachable
from fairlead.decide.access_roles import AUDIT
from fairlead.model.registry import KINDS
from fairlead.observe.timeline import Step
from fairlead.wire.json_codec import API_VERSION, encode

SINCE_MS: Final = 24 * 3_600_000  # told where nobody says since when: reading on takes long
PATIENCE_S: Final = 60.0  # of one plane: it looks through files

T = TypeVar("T")


async def timeline(call: Call) -> Response:
    call.allow_only("get")
    since_ms = call.moment_ms("since")
    since_ms = call.front.plane_ms() - SINCE_MS if since_ms is None else since_ms
    tenant, name = call.tenant, call.target.name
    steps: list[Step] = []
    for member in dict.fromkeys((*call.members, *call.front.serving(KINDS["bindings"], call.region))):
        try:
            steps += await _asked(member, partial(member.plane.steps, tenant, name, since_ms))
        except Unreachable:
            call.warn(f"{member.name} is unreachable; what happened there is not shown")
    steps.sort(key=lambda step: (step.time_ms, step.plane, step.position))
    items = [
        {
            "time": instant_of(step.time_ms), "plane": step.plane, "position": step.position, "object": step.object,
            "what": step.what, "by": step.owner, "evidence": step.evidence, "stage": step.stage,
            "generation": step.generation, "uid": step.uid,
        }
        for step in steps
    ]  # fmt: skip
    about = {"name": name, "namespace": tenant}
    since = {"sinceTime": instant_of(since_ms)}
    return call.answer({"kind": "Timeline", "apiVersion": API_VERSION, "metadata": about, **since, "items": items})


async def history(request: Request, identity: Identity, services: Services) -> Response:
    """One piece of the file; `token` and `offset` of the piece before ask for the next. 410: begin anew."""
    if request.method not in ("GET", "HEAD"):
        raise Failure(405, "history is read only")
    if not services.rules.allows(identity, Ask("get", AUDIT, "", "")):
        raise Failure(403, f"{identity.name} may not read the audit record; the roles admin and auditor may")
    query, front = request.query_params, services.front
    wanted = query.get("region", "")
    member = next((one for one in front.members if one.name == wanted or not wanted), None)
    if member is None:
        raise bad_request(f"region: there is no plane {wanted[:40]!r}; there are {', '.join(one.name for one in front.members)}")
    offset = query.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 16):
        raise bad_request(f"offset: expected a number, got {offset[:40]!r}")
    asked = partial(
        member.plane.exported, moment_of("since", query.get("since", "")) or 0, query.get("token", "")[:64], int(offset)
    )
    try:
        token, size, piece = await _asked(member, asked)
    except Unreachable:
        raise Failure(503, f"{member.name} cannot be reached", retry_after_s=2.0) from None
    body = {"kind": "HistoryPiece", "apiVersion": API_VERSION, "plane": member.name, "token": token, "size": size}
    return Response(encode({**body, "offset": int(offset), "data": base64.b64encode(piece).decode()}), media_type=JSON)


async def _asked(member: Member, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if not member.plane.connected:
        raise Unreachable(member.name)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await question()
    except TimeoutError as error:
        raise Unreachable(member.name) from error
    except Overloaded as error:
        raise busy(member.name, error.retry_after_s) from error
    except Expired as error:
        raise Failure(410, f"{member.name}: {error}") from None
