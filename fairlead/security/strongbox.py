"""Where Secrets pass: sealed on their way to the authority, opened for whoever was allowed to read them.

Owns the file of keys, which it reads again when it changes, and what of a Secret is sealed: its data, and the copy of itself that
client-side apply keeps in an annotation. Decides nothing about rights. `seal` is the authority's door, so that no way of writing
(API, channel, seed, another server) leads past it; `open_for_reader` is asked by the API, `open_for_node` by the channel's gate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model import codec
from fairlead.model.commands import Command, Fault, Put, Refused
from fairlead.model.kinds.intent import Secret
from fairlead.model.lifecycle import Role
from fairlead.ports import Ids
from fairlead.security.files import UnsafeFile, mark, passes
from fairlead.security.sealing import CannotOpen, Keyring, is_sealed, key_id

log = logging.getLogger(__name__)

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_APPLIED: Final = "annotation last-applied"  # the place of that annotation; no key of data has a space in it
NO_KEY: Final = "this server has no key for secrets: start it with --seal-key FILE (made by `fairlead certs init`)"

_decode: Final = codec.decoder(Secret).decode


class Strongbox:
    def __init__(self, path: Path | None, ids: Ids) -> None:
        """`path` None: there is no key; sealed copies from elsewhere are kept, nothing is sealed or opened here."""
        self._path = path
        self._ids = ids
        self._seen = mark(path)
        self._ring = Keyring.load(path, ids) if path is not None else None

    def _keys(self) -> Keyring | None:
        """A rotated file is used from the next question on. One that cannot be used is told, and the old keys stay."""
        found = mark(self._path)
        if self._path is not None and found != self._seen:
            try:
                self._ring = Keyring.load(self._path, self._ids)
                log.info("secrets are sealed under key %s from now on", self._ring.current)
            except (CannotOpen, UnsafeFile, OSError) as error:
                log.error("the new keys for secrets cannot be used, the old ones stay: %s", error)
                if passes(error):
                    return self._ring
            self._seen = found  # what cannot be used is told once, and tried again when anything about it changes
        return self._ring

    @property
    def current(self) -> str:
        """The name of the key that seals; empty: there is none."""
        ring = self._keys()
        return ring.current if ring is not None else ""

    def hash_key(self) -> bytes:
        """For hashes of requests that hold secrets: without it a short secret could be guessed from what is stored of them. The
        oldest key's, so that a rotation does not change what the same request hashes to."""
        ring = self._keys()
        return ring.hash_key() if ring is not None else b""

    def anchor_key(self) -> bytes:
        """By which this server signs where it cuts its journal; empty: it has no keys, and signs nothing."""
        ring = self._keys()
        return ring.anchor_keys()[0] if ring is not None else b""

    # --- on the way in ----------------------------------------------------------------------------------------------------

    def seal(self, command: Command) -> Command | Refused:
        """The authority's door. A mirror's copy was sealed where it came from, and need not open here."""
        body = command.body
        if type(body) is not Put or body.kind != "Secret" or type(body.object) is not Secret:
            return command
        secret: Secret = body.object
        if command.caller.role is Role.MIRROR and all(is_sealed(value) for value in _values(secret)):
            return command
        ring = self._keys()
        if ring is None:
            return Refused("Forbidden", NO_KEY)
        try:
            sealed = _each(secret, lambda value, key: ring.sealed(value, secret.metadata.namespace, secret.metadata.name, key))
        except CannotOpen as error:
            return Refused("Invalid", str(error), faults=(Fault("spec.data", "is sealed text that is not this secret's"),))
        return replace(command, body=replace(body, object=sealed))

    # --- on the way out ---------------------------------------------------------------------------------------------------

    def open_for_reader(self, secret: Secret) -> tuple[Secret, str]:
        """(the secret, why some of it stays closed). What was written before there was a key is shown as it is."""
        ring, why = self._keys(), ""

        def opened(value: str, key: str) -> str:
            nonlocal why
            try:
                return _opened(ring, secret, value, key)
            except CannotOpen as error:
                why = str(error)
                return value

        return _each(secret, opened), why

    def open_for_node(self, raw: bytes) -> bytes:
        """Raises CannotOpen: an instance is started with all of its secret or not at all. What only people need stays away."""
        secret, ring = _decode(raw), self._keys()
        kept = {key: value for key, value in secret.metadata.annotations.items() if key != LAST_APPLIED}
        secret = replace(secret, metadata=replace(secret.metadata, annotations=kept))
        return codec.encode(_each(secret, lambda value, key: _opened(ring, secret, value, key)))

    def stale(self, secret: Secret) -> bool:
        """Would it be sealed under another key today, or is it open?"""
        ring = self._keys()
        return ring is not None and any(key_id(value) != ring.current for value in _values(secret))


def _opened(ring: Keyring | None, secret: Secret, value: str, key: str) -> str:
    if not is_sealed(value):
        return value
    if ring is None:
        raise CannotOpen(NO_KEY)
    return ring.open(value, secret.metadata.namespace, secret.metadata.name, key).reveal()


def _values(secret: Secret) -> list[str]:
    applied = secret.metadata.annotations.get(LAST_APPLIED)
    return [*secret.spec.data.values(), *(() if applied is None else (applied,))]


def _each(secret: Secret, change: Callable[[str, str], str]) -> Secret:
    """The same secret with every value changed that must not be read."""
    data = {key: change(value, key) for key, value in secret.spec.data.items()}
    metadata: Any = secret.metadata
    applied = metadata.annotations.get(LAST_APPLIED)
    if applied is not None:
        metadata = replace(metadata, annotations={**metadata.annotations, LAST_APPLIED: change(applied, _APPLIED)})
    return replace(secret, metadata=metadata, spec=replace(secret.spec, data=data))
