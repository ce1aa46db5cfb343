"""One request on its way: who sent it, what it is about, what it says, and what should be said beside the answer.

Owns query parameters, media types and the bounded reading of bodies. Called by the dispatcher, used by every handler.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fairlead.api.access import Identity
from fairlead.api.catalogue import Resource
from fairlead.api.failures import GROUP, Failure, bad_request, unacceptable
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.members import Member
from fairlead.api.negotiation import form_of
from fairlead.api.rules import Ask, Rows, Rules
from fairlead.api.sealed import opener
from fairlead.api.spelled import as_applied
from fairlead.api.tables import Form
from fairlead.client.planning import Planner
from fairlead.model.commands import Command, Fault, Outcome
from fairlead.model.report import Report
from fairlead.ports import Clock, Ids
from fairlead.security.strongbox import Strongbox
from fairlead.wire.json_codec import encode, parse_json
from fairlead.wire.limits import BODY_BYTES_MAX, check_tree
from fairlead.wire.yaml_codec import parse_yaml

PARAMETERS_MAX: Final = 50
QUERY_BYTES_MAX: Final = 16 * 1024
BODY_S: Final = 30.0  # how long a body may take to arrive
WARNINGS_MAX: Final = 50  # headers, not a report

JSON: Final = "application/json"
YAML: Final = ("application/yaml", "text/yaml", "application/x-yaml")
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = ("application/apply-patch+yaml", "application/apply-patch+json")
_NO_MATTER: Final = frozenset({"pretty", "timeout", "timeoutSeconds"})  # of a request, to what it asks for
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


class Services(NamedTuple):
    """What the handlers work with; made once by `make_app`."""

    front: FrontDoor
    rules: Rules
    clock: Clock
    ids: Ids
    secrets: Strongbox | None = None  # None: secrets are stored as they come, and never shown
    planner: Planner | None = None  # None: this server makes no plans


class Target(NamedTuple):
    """What a path names. `tenant` None: of every tenant."""

    resource: Resource
    tenant: str | None
    name: str
    subresource: str


class Call:
    def __init__(self, request: Request, services: Services, identity: Identity, target: Target) -> None:
        self.request = request
        self.services = services
        self.front = services.front
        self.identity = identity
        self.target = target
        self.resource = target.resource
        self.query = parse_query(request)
        self.region = self.query.get("region", "")  # the only one that is asked, or written to; empty: all
        self.warnings: list[str] = []
        self.rows: Rows | None = None  # which rows of a collection this caller may see; None: all
        self.may_be_done = False  # a command went to a plane: no answer from here on may say that nothing was done
        self._asked: Ask | None = None
        self._body: bytes | None = None

    @property
    def info(self) -> Any:
        info = self.resource.info
        assert info is not None, f"{self.resource.plural} are never stored"
        return info

    @property
    def members(self) -> list[Member]:
        """The planes this call is about."""
        return self.front.serving(self.info, self.region)

    @property
    def tenant(self) -> str:
        return self.target.tenant or ""

    async def submit(self, member: Member, command: Command) -> Outcome:
        self.may_be_done = True
        return await self.front.submit(member, command)

    # --- who may -------------------------------------------------------------------------------------------------------

    def allow(self, verb: str, named: str = "") -> None:
        """Raises 403 unless this caller may do this here. Of a collection it may be a part. `named`: what the object in the body
        is called, where the path names none."""
        if self.resource.info is None:
            return  # there is nothing to see
        target, plural = self.target, self.info.plural
        about = target.name or named
        self._asked = ask = Ask(verb, plural, self.tenant, about, target.subresource)
        rules = self.services.rules
        if rules.allows(self.identity, ask):
            return
        if verb in ("list", "watch") and not about and not target.tenant:
            self.rows = rules.rows(self.identity, ask)
            if self.rows is not None:
                return
        raise self.forbidden()

    def is_still_allowed(self) -> bool:
        """What was allowed last, asked anew. Of a collection whose rows are looked at one by one a part is enough."""
        rules, ask = self.services.rules, self.asked
        return rules.allows(self.identity, ask) or (self.rows is not None and rules.rows(self.identity, ask) is not None)

    def forbidden(self) -> Failure:
        """403, for what was asked last."""
        verb, plural, _, about, subresource = self.asked
        group, name, tenant = self.resource.group, self.identity.name, self.target.tenant
        shown = f"{plural}/{subresource}" if subresource else self.resource.plural
        where = f' in the namespace "{tenant}"' if tenant else ""
        what = f'{self.resource.plural}{"." + group if group else ""} "{about}" is forbidden: ' if about else ""
        message = f'{what}User "{name}" cannot {verb} resource "{shown}" in API group "{group}"{where}'
        return Failure(403, message, kind=self.resource.plural, name=about, group=group)

    def only(self, verb: str) -> None:
        """Of a subresource that knows one verb. Raises 405 for another method."""
        methods = {"get": ("GET", "HEAD"), "create": ("POST",)}[verb]
        if self.request.method not in methods:
            raise Failure(405, f"{self.request.method} is not supported on {self.target.subresource}; use {methods[0]}")

    def allow_only(self, verb: str, instead: str = "") -> None:
        """`only`, and `allow`; `instead`: what is really written is another kind, and the right to do so is asked for."""
        self.only(verb)
        if not instead:
            return self.allow(verb)
        self._asked = ask = Ask(verb, instead, self.tenant, self.target.name)
        if not self.services.rules.allows(self.identity, ask):
            name, where = self.identity.name, f' in the namespace "{self.tenant}"' if self.tenant else ""
            raise Failure(403, f'User "{name}" cannot {verb} resource "{instead}" in API group "{GROUP}"{where}')
        return None

    @property
    def asked(self) -> Ask:
        """What was asked last."""
        assert self._asked is not None, "nothing is done before it is allowed"
        return self._asked

    # --- what it says --------------------------------------------------------------------------------------------------

    def flag(self, name: str) -> bool:
        value = self.query.get(name, "")
        if value in ("", "0", "false"):
            return False
        if value in ("1", "true"):
            return True
        raise bad_request(f"{name}: expected true or false, got {value[:40]!r}")

    def number(self, name: str) -> int:
        value = self.query.get(name, "")
        if not value:
            return 0
        if not (value.isascii() and value.isdigit()) or len(value) > 12:
            raise bad_request(f"{name}: expected a whole number, got {value[:40]!r}")
        return int(value)

    def moment_ms(self, name: str) -> int | None:
        """A time that a parameter names, in milliseconds; None: it is not given."""
        return moment_of(name, self.query.get(name, ""))

    @property
    def dry_run(self) -> bool:
        return is_dry_run(self.query.get("dryRun", ""))

    @property
    def media(self) -> str:
        """Of the body. `kubectl scale --current-replicas` sends none: JSON then."""
        return self.request.headers.get("content-type", JSON).split(";")[0].strip().lower() or JSON

    @property
    def manager(self) -> str:
        given = self.query.get("fieldManager", "")
        if len(given) > 128 or not given.isprintable():
            raise bad_request("fieldManager: expected at most 128 printable characters")
        return given or self.request.headers.get("user-agent", "unknown").split("/")[0][:128] or "unknown"

    def form(self, at_ms: int = 0) -> Form:
        """`at_ms`: when what is shown was so, for ages; 0: now."""
        form = form_of(self.request.headers.get("accept", "*/*"))
        now = (lambda: at_ms) if at_ms else self.front.plane_ms
        return Form(self.resource, form, self.query.get("includeObject", "Metadata"), now, opener(self))

    async def body(self) -> bytes:
        if self._body is None:
            self._body = await read_body(self.request)
        return self._body

    @property
    def _is_secret(self) -> bool:
        return self.resource.info is not None and self.resource.info.plural == "secrets"

    def digest(self) -> bytes:
        """Of all that the client asks for, so that a repetition is told from another request under the same Idempotency-Key."""
        box = self.services.secrets
        hashed = hashlib.blake2b(digest_size=8, key=box.hash_key() if box is not None and self._is_secret else b"")
        said = sorted((name, value) for name, value in self.query.items() if name not in _NO_MATTER)
        for part in (self.request.method, self.request.url.path, repr(said), self.media):
            hashed.update(part.encode("utf-8", "surrogatepass") + b"\0")
        hashed.update(self._body or b"")
        return hashed.digest()

    async def tree(self) -> Any:
        """The body as plain values; YAML where it says so."""
        media = self.media
        if media not in (JSON, MERGE_PATCH, JSON_PATCH, *APPLY_PATCH, *YAML):
            raise Failure(415, f"the body of the request was in an unknown format: {media[:80]}; accepted are JSON and YAML")
        return parse(await self.body(), media, sound=False)  # whatever is made of it is checked when it is decoded

    # --- the answer ----------------------------------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        if len(self.warnings) < WARNINGS_MAX and text not in self.warnings:
            self.warnings.append(text)

    def answer(self, body: bytes | Mapping[str, Any], code: int = 200) -> Response:
        text = body if isinstance(body, bytes) else encode(body)
        if self.target.name or self.request.method == "POST":
            text = as_applied(text)
        response = Response(text, code, media_type=JSON)
        add_warnings(response, self.warnings)
        return response


def add_warnings(response: Response, warnings: list[str]) -> None:
    for warning in warnings:
        shown = warning[:256].replace("\\", "\\\\").replace('"', '\\"')
        shown = "".join(c if c.isprintable() and c.isascii() else "?" for c in shown)
        response.headers.append("Warning", f'299 - "{shown}"')


def moment_of(name: str, text: str, expected: str = "a time") -> int | None:
    """The time that a parameter names, in milliseconds; None: it is empty."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise bad_request(f"{name}: expected {expected} such as 2026-01-31T12:00:00Z, got {text[:60]!r}")
    return max(0, int(moment.timestamp() * 1000))


def is_dry_run(value: str) -> bool:
    if value not in ("", "All"):
        raise bad_request(f'dryRun: the only value is "All", got {value[:40]!r}')
    return value == "All"


def parse_query(request: Request) -> dict[str, str]:
    raw: bytes = request.scope.get("query_string", b"")
    if len(raw) > QUERY_BYTES_MAX:
        raise Failure(414, "the query is too long", reason="RequestURITooLong")
    try:
        return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX))
    except ValueError as error:
        raise bad_request(f"the query cannot be read: {error}") from None


def parse(body: bytes, media: str, *, sound: bool = True, what: tuple[str, str] = ("the body", "")) -> Any:
    """A tree that any handler may walk, or 400; 422 where it holds what no value can be, of the kind and name in `what`. YAML
    also holds JSON, but JSON is read by its own, faster reader where it looks like it."""
    as_yaml = media in YAML or (media in APPLY_PATCH and not body.lstrip().startswith(b"{"))
    if not as_yaml:
        tree = parse_json(body)
        if isinstance(tree, Fault):
            raise bad_request(f"the body {tree.message}")
        return _sound(tree, what) if sound else tree
    trees = parse_yaml(body)
    if isinstance(trees, Fault):
        raise bad_request(f"the body {trees.message}")
    if len(trees) != 1:
        raise bad_request(f"the body has {len(trees)} documents; expected one")
    return _sound(trees[0], what) if sound else trees[0]


def _sound(tree: Any, what: tuple[str, str]) -> Any:
    report = Report()
    if not check_tree(report, tree) or report.faults():
        raise unacceptable(*what, report.faults())
    return tree


async def read_body(request: Request) -> bytes:
    """At most what is allowed, in at most the time that is allowed."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
        raise Failure(413, f"the body has {declared} bytes; at most {BODY_BYTES_MAX} are read")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise Failure(413, f"the body is too large; at most {BODY_BYTES_MAX} bytes are read")
                parts.append(part)
    except TimeoutError:
        raise Failure(408, f"the body did not arrive within {BODY_S:.0f} seconds", reason="Timeout") from None
    except ClientDisconnect:
        raise Failure(400, "the client went away before its body had arrived") from None
    return b"".join(parts)
