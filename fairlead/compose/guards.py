"""What guards a plane's server: the keys for secrets, the way in for new nodes, and two small chores.

Puts parts of fairlead/security together; decides nothing. The chores write what may be lost: when a token was last used, and a
secret under the newest key. Called by plane.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.routing import Route

from fairlead.api.identity_routes import joining_routes
from fairlead.client.plane import Expired, Plane
from fairlead.compose.config import PlaneConfig
from fairlead.controllers.mirror import UID
from fairlead.decide.access import Identity
from fairlead.model.commands import Caller, Command, Put
from fairlead.model.hot import DECODERS
from fairlead.model.ids import revision, split_revision
from fairlead.model.kinds.intent import Secret
from fairlead.model.lifecycle import Role
from fairlead.ports import Clock, Ids
from fairlead.security.directory import AccessDirectory, NotReady
from fairlead.security.files import UnsafeFile
from fairlead.security.joining import FileIssuer, Joining
from fairlead.security.oidc import OidcVerifier
from fairlead.security.sealing import CannotOpen
from fairlead.security.strongbox import Strongbox

USES_S: Final = 300.0  # between two rounds of writing down when tokens were used
USES_MAX: Final = 100  # tokens a round: the rest is written down when it is used again
RESEAL_S: Final = 300.0  # between two looks at all secrets; a new key is noticed at once
LOOK_S: Final = 2.0
RESEAL_MAX: Final = 50  # secrets a round, so that a new key does not make a storm of writes


def strongbox_of(config: PlaneConfig, ids: Ids) -> Strongbox:
    """Raises ValueError for a file of keys that cannot be used: a server must not begin without those it was promised."""
    try:
        return Strongbox(Path(config.seal_keys) if config.seal_keys else None, ids)
    except (CannotOpen, UnsafeFile, OSError) as error:
        raise ValueError(f"sealKeys: {error}") from error


def oidc_of(config: PlaneConfig) -> OidcVerifier | None:
    """Raises ValueError for a provider that cannot be believed."""
    try:
        return OidcVerifier(config.oidc) if config.oidc is not None else None
    except OSError as error:
        raise ValueError(f"oidc: {error}") from error


def joining_of(config: PlaneConfig, plane: Plane, clock: Clock, identify: Callable[[Request], Identity]) -> list[Route]:
    """Regions let nodes in, where they were given the authority's key."""
    if config.plane != "region" or not config.join_key or config.tls is None:
        return []
    issuer = FileIssuer(Path(config.tls.authority), Path(config.join_key))
    return joining_routes(Joining(plane, clock, issuer, config.region), identify)


class LastUses:
    """On every server: each knows of the requests it has answered itself."""

    def __init__(self, directory: AccessDirectory, plane: Plane, clock: Clock) -> None:
        self._directory = directory
        self._plane = plane
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(USES_S)
            await self.round()

    async def round(self) -> int:
        """How many were written down."""
        try:
            uses = self._directory.last_uses()[:USES_MAX]
        except NotReady:
            return 0
        if uses:
            await self._plane.submit(uses)
        return len(uses)


class Resealing:
    """On the leader: what is sealed under an older key, or was written before there was one, is sealed anew. Copies are left to
    the plane they came from."""

    def __init__(self, plane: Plane, strongbox: Strongbox, clock: Clock) -> None:
        self._plane = plane
        self._strongbox = strongbox
        self._clock = clock

    async def run(self) -> None:
        done, due = "", 0.0
        while True:
            current, now = self._strongbox.current, self._clock.monotonic()
            if current and (current != done or now >= due) and await self.round() == 0:
                done, due = current, now + RESEAL_S
            await self._clock.sleep(LOOK_S)

    def stop(self) -> None:
        """Nothing is under way between two rounds."""

    async def round(self) -> int:
        """How many were sent to be sealed: the authority's door does it."""
        try:
            rows = await self._plane.list("secrets")
        except Expired:
            return 0
        incarnation, commands = split_revision(self._plane.revision())[0], list[Command]()
        for row in rows:
            if row.raw is None or len(commands) >= RESEAL_MAX:
                continue
            secret: Secret = DECODERS["secrets"].decode(row.raw)
            if UID in secret.metadata.annotations or secret.metadata.deletion_time or not self._strongbox.stale(secret):
                continue
            body = Put("Secret", replace(secret), "update", expected_revision=revision(incarnation, row.position))
            commands.append(Command(Caller("strongbox", Role.OPERATOR), body))
        if commands:
            await self._plane.submit(commands)
        return len(commands)
