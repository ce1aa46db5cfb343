"""Roles, bindings, service accounts and tokens as they stand in this plane, ready to be asked with every request.

Follows the plane and takes what is new before each answer, so that a revocation holds from the next request on, and on streams
from the next row on. When it cannot follow, it says so (NotReady) and nobody is let in. Decides nothing: what rules mean is in
fairlead/decide/access.py. Called by fairlead/api/identity.py and authz.py; `run` is started by the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from fairlead.client.plane import Change, Expired, Feed, Plane
from fairlead.decide.access import BREAK_GLASS, Identity, Statement, statements_for, why_not_valid
from fairlead.model.commands import Caller, Command, PutStatus
from fairlead.model.kinds.access import SYSTEM_TENANT, AccessBinding, AccessRole, NodeProfile, ServiceAccount, Token
from fairlead.model.lifecycle import Role
from fairlead.ports import Clock
from fairlead.security import certificates
from fairlead.security.oidc import LEEWAY_S

KINDS: Final = ("accessroles", "accessbindings", "serviceaccounts", "tokens")
RETRY_S: Final = 0.2
_MEMO_MAX: Final = 10_000
_SKEW_S: Final = certificates.SKEW.total_seconds()


class NotReady(Exception):
    """Nobody can be judged just now; to be answered with 503, never by letting anybody in."""


class AccessDirectory:
    def __init__(self, plane: Plane, clock: Clock) -> None:
        self._plane = plane
        self._clock = clock
        self._feed: Feed | None = None
        self._objects: dict[str, dict[tuple[str, str], Any]] = {kind: {} for kind in KINDS}
        self._refused: frozenset[str] = frozenset()  # fingerprints of certificates
        self._memo: dict[tuple[object, ...], tuple[Statement, ...]] = {}
        self._used: dict[tuple[str, str], datetime] = {}
        self.version = 0  # grows with every change; what was derived under another is out of date

    async def load(self) -> None:
        """Everything anew: at the start, and after a gap."""
        feed = self._plane.follow(KINDS, self._plane.revision())  # before the lists, so that nothing falls between
        for kind in KINDS:
            self._objects[kind] = {(row.tenant, row.name): row.hot for row in await self._plane.list(kind)}
        self._feed = feed
        self._changed()

    async def run(self) -> None:
        while True:
            try:
                if self._feed is None:
                    await self.load()
                await self._wait()
            except (NotReady, Expired):
                await self._clock.sleep(RETRY_S)

    async def _wait(self) -> None:
        assert self._feed is not None
        await self._feed.wait()
        self._take()

    def _take(self) -> None:
        if self._feed is None:
            raise NotReady("the roles in force are not known yet")
        try:
            changes = self._feed.take_nowait()
        except Expired as expired:
            self._feed.close()
            self._feed = None
            raise NotReady("the roles in force must be read again") from expired
        if changes:
            self._apply(changes)

    def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.raw is None:
                self._objects[change.plural].pop((change.tenant, change.name), None)
            else:
                self._objects[change.plural][change.tenant, change.name] = change.hot
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._memo.clear()
        tokens = self._objects["tokens"].values()
        self._refused = frozenset(t.spec.hash for t in tokens if t.spec.purpose == "Certificate" and t.spec.revoked)

    @property
    def ready(self) -> bool:
        """Whether anybody can be judged at all."""
        return self._feed is not None

    # --- what is asked ----------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Plane time: expiries hold however somebody sets the machine's clock."""
        return certificates.instant(self._plane.plane_ms() / 1000)

    def token(self, tenant: str, name: str) -> Token | None:
        self._take()
        found: Token | None = self._objects["tokens"].get((tenant, name))
        return found

    def bindings(self) -> list[AccessBinding]:
        self._take()
        return list(self._objects["accessbindings"].values())

    def roles(self) -> dict[str, AccessRole]:
        self._take()
        return {name: role for (_, name), role in self._objects["accessroles"].items()}

    def statements(self, identity: Identity) -> tuple[Statement, ...]:
        self._take_for(identity)
        return self._statements(identity)

    def _take_for(self, identity: Identity) -> None:
        """Who comes by the local socket is judged without a word of what is kept here: that is what the socket is for."""
        if identity.kind != BREAK_GLASS:
            self._take()

    def standing(self, identity: Identity) -> tuple[str, tuple[Statement, ...]]:
        """(why not valid, statements) with one look at what is new: this is asked for every row."""
        self._take_for(identity)
        return self._why_not(identity), self._statements(identity)

    def _statements(self, identity: Identity) -> tuple[Statement, ...]:
        who = (identity.kind, identity.name, identity.roles)
        found = self._memo.get(who)
        if found is None:
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            roles = {name: role for (_, name), role in self._objects["accessroles"].items()}
            found = self._memo[who] = statements_for(identity, self._objects["accessbindings"].values(), roles)
        return found

    def profile_of(self, identity: Identity) -> NodeProfile | None:
        """What the node behind this agent was approved to be."""
        token = self.token(*identity.token) if identity.kind == "agent" and identity.token else None
        return token.spec.profile if token is not None else None

    def why_not_valid(self, identity: Identity) -> str:
        """Empty: whoever this was proven to be may still act. Asked again with every request, row and command."""
        self._take_for(identity)
        return self._why_not(identity)

    def _why_not(self, identity: Identity) -> str:
        if identity.fingerprint and identity.fingerprint in self._refused:
            return "the certificate was revoked"
        if identity.expiry_ms:
            late_s = self._clock.wall() - identity.expiry_ms / 1000
            if not identity.fingerprint and late_s >= LEEWAY_S:
                return "the token has expired"  # of an OpenID Connect provider
            if late_s >= _SKEW_S:
                return "the certificate has expired"
        if identity.token is None:
            return ""
        token: Token | None = self._objects["tokens"].get(identity.token)
        if token is None:
            return "the token does not exist"
        if identity.kind == "agent":
            return self._why_not_agent(identity, token)
        if identity.kind == "service":
            tenant, _, name = identity.name.partition("/")
            account: ServiceAccount | None = self._objects["serviceaccounts"].get((tenant, name))
            if account is None or account.spec.disabled or account.metadata.deletion_time is not None:
                return "the service account does not exist or is disabled"
        return why_not_valid(token, self.now())

    def _why_not_agent(self, identity: Identity, token: Token) -> str:
        """The join token's own end does not end the certificate that came of it; its revocation does."""
        profile = token.spec.profile
        if token.spec.revoked or token.metadata.deletion_time is not None:
            return "the join token behind this certificate was revoked"
        if token.spec.purpose != "Join" or profile is None or (profile.node, profile.region) != (identity.node, identity.region):
            return "the join token behind this certificate is for another node"
        return ""

    # --- when a token was last used ---------------------------------------------------------------------------------------

    def note_use(self, token: Token) -> None:
        """To the hour: enough to find tokens nobody needs, too coarse to follow anybody, and a write an hour at most."""
        hour = self.now().replace(minute=0, second=0, microsecond=0)
        if token.status.last_used_time is None or token.status.last_used_time < hour:
            self._used[token.metadata.namespace, token.metadata.name] = hour

    def last_uses(self) -> list[Command]:
        """For the server to submit every few minutes; it does not matter if they are lost."""
        commands: list[Command] = []
        for (tenant, name), hour in sorted(self._used.items()):
            token = self.token(tenant, name)
            if token is not None:
                status = replace(token.status, last_used_time=hour)
                commands.append(Command(Caller("api-server", Role.OPERATOR), PutStatus("Token", tenant, name, status)))
        self._used.clear()
        return commands


def join_token_of(name: str) -> tuple[str, str]:
    """Where the token is that a certificate names."""
    return SYSTEM_TENANT, name
