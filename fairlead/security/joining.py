"""How a machine becomes a node: a join token and a key of its own in, a certificate out. Once.

The token is spent in the plane, against the revision at which it was found unspent, so of two that come with it at the same time
one is refused, whichever servers they ask. Whoever spent it may ask again with the same key (the answer may have been lost on its
way); with another key it is somebody else. Nothing the machine says of itself is believed: who it is, and what it may offer at
most, stands in the token. Called by fairlead/api/identity_routes.py.
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from fairlead.client.plane import Plane
from fairlead.decide.access import Identity, why_not_valid
from fairlead.decide.admission.access import begins_with_region
from fairlead.model.commands import Accepted, Caller, Command, Outcome, Put, PutStatus, Refused
from fairlead.model.ids import revision, split_revision
from fairlead.model.kinds.access import NodeProfile, Token
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import numbered_devices
from fairlead.ports import Clock
from fairlead.security import tokens
from fairlead.security.certificates import (
    BadCertificate,
    LocalAuthority,
    Named,
    PublicKey,
    instant,
    key_fingerprint,
    requested_key,
)
from fairlead.security.files import UnsafeFile, mark, passes
from fairlead.security.folder import authority_pair

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 3


class Joined(NamedTuple):
    node: str
    region: str
    certificate: bytes
    authorities: bytes  # what the agent is to trust
    profile: NodeProfile | None = None  # of a node that joins: the most it may be


class Issuer(Protocol):
    """Who signs, looked up each time: it is rotated without a restart."""

    def authority(self) -> LocalAuthority: ...

    def believed(self) -> bytes: ...

    def mark(self) -> tuple[object, ...]:
        """Changes whenever the others could say something else."""


class FileIssuer:
    """The authority's files on this machine."""

    def __init__(self, authorities: Path, key: Path) -> None:
        self._authorities = authorities
        self._key = key

    def authority(self) -> LocalAuthority:
        return LocalAuthority(authority_pair(self._authorities, self._key))

    def believed(self) -> bytes:
        return self._authorities.read_bytes()

    def mark(self) -> tuple[object, ...]:
        return mark(self._authorities), mark(self._key)


class Joining:
    def __init__(self, plane: Plane, clock: Clock, issuer: Issuer, region: str) -> None:
        self._plane = plane
        self._clock = clock
        self._issuer = issuer
        self._region = region
        self._told: tuple[bytes, bytes] | None = None
        self._told_of: tuple[object, ...] | None = None  # the mark of what was read for it

    async def join(self, text: str, request: bytes, source: str = "") -> Joined | Refused:
        presented = tokens.parse(text)
        if presented is None or not presented.join:
            return _refused("this is no join token")
        try:
            key = requested_key(request)
        except BadCertificate as error:
            return Refused("Invalid", str(error))
        used_for = key_fingerprint(key)
        for _ in range(ATTEMPTS_MAX):
            row = await self._plane.get("tokens", presented.tenant, presented.name)
            token: Token | None = row.hot if row is not None else None
            if not tokens.matches(presented, token.spec.hash if token is not None else None) or token is None or row is None:
                return _refused("the join token is not valid")
            refused = self._refuse(token, used_for)
            if refused is not None:
                return refused
            if not token.status.spent_key:
                spent = await self._spend(token, row.position, used_for, source)
                if isinstance(spent, Refused) and spent.reason == "Conflict":
                    continue  # somebody was faster; look who
                if not isinstance(spent, Accepted):
                    return spent if isinstance(spent, Refused) else Refused("StoreUnavailable", "ask again with the same key")
            profile = token.spec.profile
            assert profile is not None
            await self._plane.submit([_registration(token, profile, source)])  # AlreadyExists is as good
            return self._signed(Named("agent", profile.node, ("agent",), profile.region, token.metadata.name), key, profile)
        return Refused("Conflict", "the join token is being used by others; ask again", retry_after_s=1.0)

    def renew(self, identity: Identity, request: bytes) -> Joined | Refused:
        """A new certificate for an agent that has shown a valid one. It says the same; only key and dates are new."""
        if identity.kind != "agent" or not identity.node:
            return _refused("only agents renew their certificates here")
        try:
            key = requested_key(request)
        except BadCertificate as error:
            return Refused("Invalid", str(error))
        named = Named("agent", identity.node, ("agent",), identity.region, identity.token[1] if identity.token else "")
        return self._signed(named, key)

    def authorities(self) -> tuple[bytes, bytes] | None:
        """(who is believed, who signs) as agents are told it, so that they follow a rotation. None: not just now. Anybody may
        ask, as often as they like: nothing is read or said twice of the same files, and the key least of all."""
        found = self._issuer.mark()
        if found == self._told_of:
            return self._told
        told = None
        try:
            told = self._issuer.believed(), self._issuer.authority().certificate.public_bytes(Encoding.PEM)
        except (OSError, UnsafeFile, BadCertificate) as error:
            log.error("whom to believe cannot be told: %s", error)
            if passes(error):
                return None
        self._told, self._told_of = told, found
        return told

    def _signed(self, named: Named, key: PublicKey, profile: NodeProfile | None = None) -> Joined | Refused:
        try:
            certificate = self._issuer.authority().sign(named, key, self._wall())
            return Joined(named.name, named.region, certificate, self._issuer.believed(), profile)
        except (OSError, UnsafeFile, BadCertificate) as error:
            log.error("no certificate can be issued here: %s", error)
            return Refused("StoreUnavailable", "this server cannot issue certificates just now; ask again with the same key")

    def _refuse(self, token: Token, used_for: str) -> Refused | None:
        profile = token.spec.profile
        if token.spec.purpose != "Join" or profile is None:
            return _refused("the join token is not valid")
        if profile.region != self._region:
            return _refused(f"this join token is for region {profile.region}; this is {self._region or 'the global plane'}")
        if token.status.spent_key and token.status.spent_key != used_for:
            return _refused("the join token was used before, with another key; if that was not you, revoke it")
        if not token.status.spent_key and not begins_with_region(profile.node, profile.region):
            return _refused(f"{profile.node} does not begin with {profile.region}-, the name of its region; issue another token")
        why = why_not_valid(token, instant(self._plane.plane_ms() / 1000))
        return _refused(why) if why else None

    async def _spend(self, token: Token, position: int, used_for: str, source: str) -> Outcome:
        status = replace(token.status, spent_key=used_for, spent_time=instant(self._plane.plane_ms() / 1000))
        at = revision(split_revision(self._plane.revision())[0], position)
        where = token.metadata.namespace, token.metadata.name
        body = PutStatus("Token", *where, status, expected_revision=at, uid=token.metadata.uid)
        caller = Caller(f"join:{token.metadata.name}", Role.OPERATOR)
        return (await self._plane.submit([Command(caller, body, correlation=f"join from {source}")]))[0]

    def _wall(self) -> datetime:
        return instant(self._clock.wall())


def _registration(token: Token, profile: NodeProfile, source: str) -> Command:
    spec = NodeSpec(
        region=profile.region, zone=profile.zone, pool=profile.pool, allocatable=profile.capacity, max_slots=profile.max_slots,
        devices=numbered_devices(profile.devices),
    )  # fmt: skip
    node = Node(metadata=Metadata(name=profile.node, labels=dict(profile.labels)), spec=spec)
    caller = Caller(f"join:{token.metadata.name}", Role.OPERATOR)
    return Command(caller, Put("Node", node, mode="create"), correlation=f"join from {source}")


def _refused(detail: str) -> Refused:
    return Refused("Forbidden", detail)
