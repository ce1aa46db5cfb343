"""Who is asking: a bearer token, a client certificate or the local socket, looked at with every request. Owns the reading of
credentials; what they allow is fairlead/api/authz.py. `Authenticator` is handed to `make_app`, `admit` to the component channel,
`PeerProtocol` to uvicorn.

Refusals say nothing that helps a guesser: a token that is unknown and one with a wrong secret get the same words in the same
time.
"""

from __future__ import annotations

import logging
from asyncio import Transport
from typing import Any, Final

from starlette.requests import HTTPConnection, Request
from starlette.websockets import WebSocket
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlead.api import access
from fairlead.api.failures import Failure
from fairlead.decide.access import BREAK_GLASS, Identity
from fairlead.model.kinds.access import Token
from fairlead.model.lifecycle import Role
from fairlead.security import certificates, tokens
from fairlead.security.certificates import BadCertificate
from fairlead.security.directory import AccessDirectory, NotReady, join_token_of
from fairlead.security.local import LocalPeer
from fairlead.security.oidc import NotBelieved, OidcVerifier, looks_like
from fairlead.security.tls import is_loopback

log = logging.getLogger(__name__)

PEER_CERTIFICATE: Final = "fairlead.peer_certificate"  # in the scope's state: DER, checked by TLS against our authorities
PEER_LOCAL: Final = "fairlead.peer_local"  # in the scope's state: a LocalPeer, as the kernel says it of a local socket
_CHANNEL_KINDS: Final = ("component", "agent")


class Unauthenticated(Exception):
    """401. The words are for whoever sent the credential."""


class Proven(access.Identity, frozen=True):
    """What handlers get: the short form they use, and who it really is, for the decisions."""

    who: Identity | None = None


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which also tells the application whose certificate the connection was made with. WebSockets begin
    as requests of this protocol and inherit what it says."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        # Without verification getpeercert() is empty while its binary form would still be there: a claim, not a proof.
        proven = tls.getpeercert(True) if tls is not None and tls.getpeercert() else None
        self.app_state = {**self.app_state, PEER_CERTIFICATE: proven}


class Authenticator:
    def __init__(self, directory: AccessDirectory, *, region: str = "", oidc: OidcVerifier | None = None) -> None:
        self._directory = directory
        self._oidc = oidc
        self._region = region  # of this plane; empty: global
        self.by_socket_total = 0  # requests of people who showed no more than that they are on this machine

    def __call__(self, request: Request) -> Proven | None:
        """For `make_app`: None is answered with 401."""
        try:
            who = self.identify(request)
            role, tenant = standing(self._directory, who)
        except Unauthenticated as error:
            log.info("turned away %s: %s", _source(request), error)
            return None
        except NotReady as error:
            raise Failure(503, str(error), retry_after_s=1.0) from error
        return Proven(who.actor, role, tenant, who.node, who.roles, who.fingerprint or "/".join(who.token or ()), who)

    async def admit(self, socket: WebSocket) -> str:
        """For the component channel: empty for a component or an agent, which is then in `socket.state.identity`."""
        try:
            who = self.identify(socket)
        except (Unauthenticated, NotReady) as error:
            return str(error)
        if who.kind not in _CHANNEL_KINDS:
            return "the channel is for components and agents; people use the API"
        socket.state.identity = who
        return ""

    def identify(self, connection: HTTPConnection) -> Identity:
        """Raises Unauthenticated, or NotReady while nobody can be judged. A token that was sent is what counts: whoever sends a
        wrong one is not let in for the certificate beside it."""
        headers = connection.headers.getlist("authorization")
        certificate = getattr(connection.state, PEER_CERTIFICATE, None)
        local = _local(connection)
        if headers:
            who = self._by_token(connection, headers)
        elif certificate is not None:
            who = self._by_certificate(certificate, _source(connection))
        elif local is not None:
            self.by_socket_total += 1
            return _by_socket(local, connection)
        else:
            raise Unauthenticated("no token and no client certificate")
        why = self._directory.why_not_valid(who)
        if why:
            raise Unauthenticated(why)
        return who

    def _by_token(self, connection: HTTPConnection, headers: list[str]) -> Identity:
        scheme, _, text = headers[0].partition(" ")
        if len(headers) != 1 or scheme.lower() != "bearer":
            raise Unauthenticated("one Authorization header, with a bearer token")
        near = connection.client is not None and is_loopback(connection.client.host)
        if connection.scope.get("scheme", "http") in ("http", "ws") and not near and _local(connection) is None:
            raise Unauthenticated("a token is taken over TLS only; consider this one known to others, and revoke it")
        if self._oidc is not None and looks_like(text.strip()):
            return self._by_provider(self._oidc, text.strip(), _source(connection))
        presented = tokens.parse(text.strip())
        if presented is None or presented.join:
            raise Unauthenticated("the token is not valid")
        token = self._directory.token(presented.tenant, presented.name)
        good = tokens.matches(presented, token.spec.hash if token is not None else None)
        if not good or token is None or token.spec.purpose != "Access" or token.spec.subject is None:
            raise Unauthenticated("the token is not valid")
        self._directory.note_use(token)
        return _of_token(token, _source(connection))

    def _by_provider(self, oidc: OidcVerifier, text: str, source: str) -> Identity:
        try:
            person = oidc.person(text, self._directory.now().timestamp())
        except NotBelieved as error:
            log.info("a provider's token from %s is not believed: %s", source, error)
            raise Unauthenticated("the token is not valid") from error
        return Identity(name=person.name, kind="user", expiry_ms=person.expiry_ms, source=source)

    def _by_certificate(self, der: bytes, source: str) -> Identity:
        try:
            presented = certificates.read(certificates.load(der))
        except BadCertificate as error:
            raise Unauthenticated(str(error)) from error
        named = presented.named
        if named.purpose == "server":
            raise Unauthenticated("a server's certificate is not for callers")
        if named.purpose == "agent" and named.region != self._region:
            raise Unauthenticated(f"this plane has no agents of region {named.region}")
        if named.purpose == "component" and self._region and named.region not in ("", self._region):
            raise Unauthenticated(f"a server of region {named.region} has nothing to do in region {self._region}")
        return Identity(
            name=named.name,
            kind=named.purpose,
            roles=named.roles,
            node=named.name if named.purpose == "agent" else "",
            region=named.region,
            token=join_token_of(named.token) if named.token else None,
            fingerprint=presented.fingerprint,
            expiry_ms=int(presented.not_after.timestamp() * 1000),
            source=source,
        )


def _by_socket(peer: LocalPeer, connection: HTTPConnection) -> Identity:
    """No credential but the machine's word: what it allows depends on nothing that could be away. Every use is in the log."""
    log.warning("break-glass: %s (%s) asks %s %s", peer.name, peer, connection.scope.get("method", ""), connection.url.path)
    return Identity(name=peer.name, kind=BREAK_GLASS, source=str(peer))


def _of_token(token: Token, source: str) -> Identity:
    subject = token.spec.subject
    assert subject is not None
    service = subject.kind == "ServiceAccount"
    return Identity(
        name=f"{subject.tenant}/{subject.name}" if service else subject.name,
        kind="service" if service else "user",
        tenants=token.spec.tenants,
        token=(token.metadata.namespace, token.metadata.name),
        source=source,
    )


def standing(directory: AccessDirectory, who: Identity) -> tuple[Role, str]:
    """(role, tenant) in which somebody sends commands, where the handler does not ask `Access.caller` about the very change."""
    if who.kind == "agent":
        return Role.AGENT, ""
    if who.kind == BREAK_GLASS:
        return Role.BREAK_GLASS, ""
    if who.kind == "component":
        return next((role for role in Role if role.value in who.roles), Role.USER), ""
    writes = [s for s in directory.statements(who) if not s.deny and s.verbs - {"get", "list", "watch"}]
    wide = {s.role for s in writes if s.tenants is None}
    if wide == {Role.BREAK_GLASS.value}:
        return Role.BREAK_GLASS, ""
    if wide and not who.tenants:
        return Role.OPERATOR, ""
    tenants = set(who.tenants) or {tenant for s in writes for tenant in s.tenants or ()} - {""}
    return Role.USER, tenants.pop() if len(tenants) == 1 else ""


def _source(connection: HTTPConnection) -> str:
    """As the socket says it. Headers about earlier hops can be written by anybody, so they are not believed."""
    client: Any = connection.client
    if client is None and (peer := _local(connection)) is not None:
        return str(peer)
    return f"{client.host}:{client.port}" if client is not None else "unknown"


def _local(connection: HTTPConnection) -> LocalPeer | None:
    return getattr(connection.state, PEER_LOCAL, None)
