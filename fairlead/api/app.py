"""The resource API as an ASGI application: a path to a handler, every failure to a `Status`.

Owns the paths. Authentication comes before anything is looked at, authorisation before anything is read. Never touches a store.
`make_app` is called by whoever composes a server (main.py, tests, the simulator).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.types import Receive, Scope, Send

from fairlead.api import asking, decided, discovery, explaining, openapi, planning, questions, reading, scaling, telling, writing
from fairlead.api.access import Authenticate, Authorise, Identity, deny_all, nobody, refuse_impersonation
from fairlead.api.calls import JSON, Call, Services, Target
from fairlead.api.catalogue import GROUPS, VERSION
from fairlead.api.failures import GROUP, Failure, busy
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.negotiation import discovery_version
from fairlead.api.reading import expired
from fairlead.api.room import Room
from fairlead.api.rules import Rules, rules_of
from fairlead.api.watches import Watches
from fairlead.api.watching import watch
from fairlead.api.writes import undecided
from fairlead.client.plane import Expired, Overloaded
from fairlead.client.planning import Planner
from fairlead.client.resources import Unreachable
from fairlead.ports import Clock, Ids, Random, SystemIds, system_random
from fairlead.security.strongbox import Strongbox
from fairlead.wire.json_codec import encode

log = logging.getLogger(__name__)

_SEGMENTS_MAX: Final = 10

Handler = Callable[[Call], Awaitable[Response]]


class Api:
    """The dispatcher. Starlette's router tries pattern after pattern; a path of ours is taken apart once."""

    def __init__(self, services: Services, authenticate: Authenticate, watches: Watches, random: Random) -> None:
        self._services = services
        self._authenticate = authenticate
        self._watches = watches
        self._random = random

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise Failure(404, "there is nothing here for a socket")
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Failure as failure:
            response = refusal(failure.spread(self._random))
        except Overloaded as error:
            response = refusal(busy("a plane", error.retry_after_s).spread(self._random))
        except Expired as error:
            response = refusal(expired(str(error)))
        except Unreachable as error:
            response = refusal(Failure(503, f"{error} cannot be reached", retry_after_s=2.0))
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            response = refusal(Failure(500, "an error of the server; its log has the details"))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        found = self._authenticate(request)
        identity = await found if inspect.isawaitable(found) else found
        if identity is None:
            raise Failure(401, "Unauthorized")
        segments = request.scope["path"].strip("/").split("/")
        if len(segments) > _SEGMENTS_MAX:
            raise _no_such_path(request)
        fixed = self._fixed(request, segments)
        if fixed is not None:
            return fixed
        refuse_impersonation(request, identity)
        if segments == ["apis", GROUP, VERSION, "plans"]:
            return await planning.answer(request, identity, self._services)
        special = await questions.answer(request, segments, identity, self._services)
        if special is not None:
            return special
        call = Call(request, self._services, identity, _target(request, segments))
        try:
            return await self._handle(call)
        except Failure as failure:
            raise failure.about(call.resource.plural, call.target.name, call.resource.group) from None
        except (Unreachable, Expired) as error:
            if call.may_be_done:
                raise undecided(call, f"{error} cannot be reached") from error
            raise

    @staticmethod
    def _fixed(request: Request, segments: Sequence[str]) -> Response | None:
        """What is the same for everybody: discovery, OpenAPI, the version."""
        if request.method not in ("GET", "HEAD"):
            return None
        match segments:
            case ["api" | "apis" as root]:
                wanted = discovery_version(request.headers.get("accept", ""))
                if wanted:
                    body = discovery.aggregated(root == "api", wanted)
                    return Response(encode(body), media_type=discovery.aggregated_media(wanted))
                return _json(discovery.api_versions() if root == "api" else discovery.group_list())
            case ["api", "v1"]:
                return _json(discovery.resource_list(True))
            case ["apis", "fairlead.dev"]:
                return _json(discovery.group())
            case ["apis", "fairlead.dev", "v1alpha1"]:
                return _json(discovery.resource_list(False))
            case ["version"]:
                return _json(discovery.version())
            case ["openapi", *rest]:
                return openapi.answer(request, rest)
        return None

    async def _handle(self, call: Call) -> Response:
        if call.query.get("at") and (call.request.method not in ("GET", "HEAD") or call.flag("watch")):
            raise Failure(400, "at: only get and list read the past; what is watched or written is the present")
        _check_method(call)
        special = _SPECIAL.get(call.target.subresource)
        if special is not None:
            return await special(call)
        match call.request.method, bool(call.target.name):
            case "GET" | "HEAD", True:
                return await reading.get(call)
            case "GET" | "HEAD", False:
                if call.resource.info is not None and call.flag("watch"):
                    return await watch(call, self._watches)
                return await reading.list_objects(call)
            case "POST", False:
                return await writing.create(call)
            case "PUT", True:
                return await writing.replace(call)
            case "PATCH", True:
                return await writing.patch(call)
            case "DELETE", True:
                return await writing.delete(call)
            case "DELETE", False:
                return await writing.delete_all(call)
        raise Failure(405, f"{call.request.method} is not supported here")


_SPECIAL: Final[dict[str, Handler]] = {
    "scale": scaling.handle,
    "why": explaining.why,
    "decisions": decided.decisions,
    "timeline": telling.timeline,
    "eviction": asking.evict,
    "binding": asking.bind,
}


_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _check_method(call: Call) -> None:
    """A part of an object can do what is advertised of it, and nothing of what the whole object can."""
    sub = call.resource.sub(call.target.subresource)
    if sub is not None and _VERBS.get(call.request.method) not in sub.verbs:
        methods = ", ".join(method for method, verb in _VERBS.items() if verb in sub.verbs and method != "HEAD")
        raise Failure(405, f"{call.request.method} is not supported on {sub.name}; use {methods}")


def _json(body: object) -> Response:
    return Response(encode(body), media_type=JSON)


def _no_such_path(request: Request) -> Failure:
    return Failure(404, f"the server could not find {request.url.path[:200]!r}")


def refusal(failure: Failure) -> Response:
    response = Response(encode(failure.status()), failure.code, media_type=JSON)
    for name, value in failure.headers():
        response.headers[name] = value
    return response


def _target(request: Request, segments: Sequence[str]) -> Target:
    """/api/v1/... and /apis/GROUP/VERSION/..., then [namespaces/TENANT/]PLURAL[/NAME[/SUB]]."""
    rest: Sequence[str]
    match segments:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise _no_such_path(request)
    resources = GROUPS.get((group, version))
    if resources is None or not rest or not all(rest):
        raise _no_such_path(request)
    tenant: str | None = None
    if rest[0] == "namespaces" and (len(rest) > 2 or "namespaces" not in resources):
        if len(rest) < 3:
            raise _no_such_path(request)
        tenant, rest = rest[1], rest[2:]
    plural, name, sub, *more = (*rest, "", "")
    resource = resources.get(plural)
    if resource is None or any(more) or (sub and resource.sub(sub) is None):
        raise _no_such_path(request)
    if tenant is not None and not resource.namespaced:
        raise Failure(404, f"{plural} belong to no namespace")
    if tenant is None and resource.namespaced and (name or request.method == "POST"):
        raise Failure(404 if name else 405, f"{plural} belong to a namespace; name it in the path")
    return Target(resource, tenant if resource.namespaced else "", name, sub)


def make_app(
    front: FrontDoor,
    authenticate: Authenticate = nobody,
    authorise: Authorise | Rules = deny_all,
    *,
    clock: Clock,
    ids: Ids | None = None,
    random: Random | None = None,
    routes: Sequence[BaseRoute] = (),
    secrets: Strongbox | None = None,
    planner: Planner | None = None,
) -> Starlette:
    """`routes` come first: health, metrics, the component channel. `app.state.watches` is for whoever shuts the server down."""
    watches, chance = Watches(clock), random or system_random()
    services = Services(front, rules_of(authorise), clock, ids or SystemIds(), secrets, planner)
    api = Api(services, authenticate, watches, chance)
    app = Starlette(routes=[*routes, Mount("", app=api)])
    app.add_middleware(Room, clock=clock, random=chance)
    app.state.watches = watches
    return app


__all__ = ["Api", "Identity", "make_app"]
