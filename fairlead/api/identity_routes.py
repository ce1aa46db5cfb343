"""The requests by which agents come by certificates: join (a join token, once) and renew (the certificate they have); and whom
they are to believe, which tells them that the authority is being rotated.

Owns the paths and the bounds. Mounted by the server beside the component channel, in planes that hold the authority's key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.api.identity import Unauthenticated
from fairlead.decide.access import Identity
from fairlead.model.commands import Refused
from fairlead.model.refusals import REFUSALS
from fairlead.security.directory import NotReady
from fairlead.security.joining import Joined, Joining
from fairlead.security.tls import is_loopback

JOIN_PATH: Final = "/fairlead/v1/join"
RENEW_PATH: Final = "/fairlead/v1/renew"
AUTHORITIES_PATH: Final = "/fairlead/v1/authorities"
BODY_BYTES_MAX: Final = 16 * 1024
BODY_S: Final = 10.0

Identify = Callable[[Request], Identity]


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    request: str
    token: str = ""


_decoder = msgspec.json.Decoder(_Wanted)


def joining_routes(joining: Joining, identify: Identify) -> list[Route]:
    async def join(request: Request) -> Response:
        wanted = await _wanted(request)
        if isinstance(wanted, Response):
            return wanted
        host = request.client.host if request.client else ""
        if request.url.scheme != "https" and not is_loopback(host):
            return _refusal(
                403, "Forbidden", "a join token is taken over TLS only; consider this one known to others, and revoke it"
            )
        return _answer(await joining.join(wanted.token, wanted.request.encode(), host))

    async def renew(request: Request) -> Response:
        wanted = await _wanted(request)
        if isinstance(wanted, Response):
            return wanted
        try:
            who = identify(request)
        except Unauthenticated as error:
            return _refusal(401, "Unauthorized", str(error))
        except NotReady as error:
            return _refusal(503, "ServiceUnavailable", str(error))
        return _answer(joining.renew(who, wanted.request.encode()))

    async def authorities(request: Request) -> Response:
        """No secret, and of no use to strangers: every handshake shows it."""
        told = joining.authorities()
        if told is None:
            return _refusal(503, "ServiceUnavailable", "this server cannot issue certificates just now")
        return _json(200, {"authorities": told[0].decode(), "signer": told[1].decode()})

    return [
        Route(JOIN_PATH, join, methods=["POST"]),
        Route(RENEW_PATH, renew, methods=["POST"]),
        Route(AUTHORITIES_PATH, authorities, methods=["GET"]),
    ]


async def _wanted(request: Request) -> _Wanted | Response:
    """Whoever sends it has proven nothing yet: little is read, and it is not waited for."""
    body = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > BODY_BYTES_MAX:
                    return _refusal(413, "RequestEntityTooLarge", f"at most {BODY_BYTES_MAX} bytes")
    except TimeoutError:
        return _refusal(408, "Timeout", f"the body did not arrive within {BODY_S:.0f} seconds")
    except ClientDisconnect:
        return _refusal(400, "BadRequest", "the client went away before its body had arrived")
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _refusal(400, "BadRequest", "expected an object with `request` (PEM) and, to join, `token`")


def _answer(got: Joined | Refused) -> Response:
    if isinstance(got, Refused):
        return _refusal(REFUSALS[got.reason].http_status, got.reason, got.detail)
    fields: dict[str, Any] = {
        "node": got.node,
        "region": got.region,
        "certificate": got.certificate.decode(),
        "authorities": got.authorities.decode(),
    }
    if got.profile is not None:
        profile = got.profile
        fields["profile"] = {"capacity": profile.capacity.as_quantities(), "zone": profile.zone, "pool": profile.pool,
                             "maxSlots": profile.max_slots, "devices": dict(profile.devices)}  # fmt: skip
    return _json(200, fields)


def _refusal(code: int, reason: str, message: str) -> Response:
    return _json(
        code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
    )


def _json(code: int, value: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), code, media_type="application/json")
