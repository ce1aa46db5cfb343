"""Secrets at rest: AES-256-GCM under a key that is kept outside the store, so that a stolen store or backup gives nothing away.

A sealed value is text, `fairlead:v1:KEY-ID:BASE64`, and is bound to its place (tenant, object, key of the data): moved elsewhere
it does not open. The same value in the same place under the same key is the same text: a write that changes nothing makes no
revision, and a command that is sent twice is the same bytes. That much a thief learns: a value that was set back to an earlier
one. Keys are rotated by adding one; old ones still open what they sealed. Called by strongbox.py; nothing else opens one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.ports import Ids
from fairlead.security.files import read_private, write_private
from fairlead.security.hidden import Hidden

PREFIX: Final = "fairlead:v1:"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
# The nonce is a keyed hash of place and value, so two different values share one with the chance of two random ones only: NIST's
# bound for one key is 2^32 values, and long before that a key is rotated for other reasons.


class CannotOpen(Exception):
    """Not sealed by a key we have, not for this place, or tampered with. Never says which bytes."""


class Keyring:
    """The first key seals; all of them open. The file has one key a line, `ID BASE64`, the newest first."""

    def __init__(self, keys: Mapping[str, Hidden], ids: Ids) -> None:
        assert keys, "a keyring has at least one key"
        self._ciphers = {name: AESGCM(key.reveal_bytes()) for name, key in keys.items()}
        self._nonce_keys = {name: _mac(key.reveal_bytes(), b"fairlead nonce") for name, key in keys.items()}
        self._keys = dict(keys)
        self._ids = ids
        self.current = next(iter(keys))

    @classmethod
    def load(cls, path: Path, ids: Ids) -> Self:
        keys: dict[str, Hidden] = {}
        for number, line in enumerate(read_private(path).decode(errors="replace").splitlines(), 1):
            name, _, text = line.strip().partition(" ")
            if not name or name.startswith("#"):
                continue
            try:
                key = base64.b64decode(text, validate=True)
            except ValueError:  # binascii.Error too
                key = b""
            if len(key) != KEY_BYTES:
                raise CannotOpen(f"{path}, line {number}: a key is its id and {KEY_BYTES} bytes in base64")
            keys[name] = Hidden(key)
        if not keys:
            raise CannotOpen(f"{path} holds no key")
        return cls(keys, ids)

    @classmethod
    def create(cls, path: Path, ids: Ids) -> Self:
        if path.exists():
            raise FileExistsError(f"{path} exists; rotate it instead, or what it sealed is lost")
        ring = cls(_fresh(ids), ids)
        ring.save(path)
        return ring

    def rotated(self) -> Keyring:
        """A new key in front. Save it on every server before anything is sealed with it, then seal all secrets anew."""
        return Keyring({**_fresh(self._ids), **self._keys}, self._ids)

    def without(self, name: str) -> Keyring:
        """Once nothing is sealed under it any more."""
        if name == self.current:
            raise ValueError("the key that seals cannot be dropped; rotate first")
        return Keyring({key: value for key, value in self._keys.items() if key != name}, self._ids)

    def save(self, path: Path) -> None:
        lines = [f"{name} {base64.b64encode(key.reveal_bytes()).decode()}\n" for name, key in self._keys.items()]
        write_private(path, "".join(lines).encode())

    def seal(self, value: Hidden, tenant: str, name: str, key: str) -> str:
        place, plain = _place(tenant, name, key), value.reveal_bytes()
        nonce = _mac(self._nonce_keys[self.current], place + b"\0" + plain)[:NONCE_BYTES]
        sealed = self._ciphers[self.current].encrypt(nonce, plain, place)
        return f"{PREFIX}{self.current}:{base64.b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str, tenant: str, name: str, key: str) -> Hidden:
        used = key_id(sealed)
        cipher = self._ciphers.get(used)
        if cipher is None:
            raise CannotOpen(f"secret {tenant}/{name}, key {key}: sealed under {used or 'nothing'}, which is not in the keyring")
        try:
            raw = base64.b64decode(sealed.rpartition(":")[2], validate=True)
            return Hidden(cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _place(tenant, name, key)))
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise CannotOpen(f"secret {tenant}/{name}, key {key}: it was changed, or was sealed for another place") from error

    def sealed(self, value: str, tenant: str, name: str, key: str) -> str:
        """A value on its way in. What is sealed already is kept if it opens here: a client sent back what it had read."""
        if not is_sealed(value):
            return self.seal(Hidden(value), tenant, name, key)
        plain = self.open(value, tenant, name, key)  # raises for a value of another secret
        return value if key_id(value) == self.current else self.seal(plain, tenant, name, key)

    def hash_key(self) -> bytes:
        """A key for hashes, of the oldest key."""
        return _mac(list(self._keys.values())[-1].reveal_bytes(), b"fairlead request hash")

    def anchor_keys(self) -> list[bytes]:
        """Keys for what a journal leaves behind where it is cut, the newest first."""
        return [_mac(key.reveal_bytes(), b"fairlead anchor") for key in self._keys.values()]

    def stale(self, data: Mapping[str, str]) -> bool:
        """Is any of it under an older key, or open?"""
        return any(key_id(value) != self.current for value in data.values())


def is_sealed(value: str) -> bool:
    return value.startswith(PREFIX)


def key_id(sealed: str) -> str:
    return sealed[len(PREFIX) :].partition(":")[0] if is_sealed(sealed) else ""


def _fresh(ids: Ids) -> dict[str, Hidden]:
    text = "".join(ids.token() for _ in range(4))
    key = bytes.fromhex(text)
    assert len(key) == KEY_BYTES, "the Ids port gives 64 bits at a time"
    # Named after what it is: two machines that call different keys alike would seal what the other cannot open.
    return {"k" + hashlib.sha256(b"fairlead key id" + key).hexdigest()[:12]: Hidden(key)}


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _place(tenant: str, name: str, key: str) -> bytes:
    return "\0".join(("fairlead secret", tenant, name, key)).encode()
