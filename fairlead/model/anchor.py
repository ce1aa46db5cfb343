"""What a journal that was cut short leaves behind: where it was cut, the chain's hash there, and a signature over both (P2).

A shortened journal can be told from a forged one by whoever has the keys of the plane (`secrets.keys`, which no store holds).
Pure; made by the authority's truncation and by `fairlead store compact`, checked by `fairlead store verify`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import msgspec

from fairlead.model import codec

# Of a server without keys; and of a restored store, which has nobody's word for the journal before it but the backup's.
NO_SIGNATURE = b""


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    position: int
    hash: bytes
    time_ms: int
    signature: bytes


_decoder = codec.decoder(Anchor)


def sign_anchor(key: bytes, position: int, hashed: bytes, time_ms: int) -> bytes:
    """Unsigned where there is no key: a signature that anybody could make proves nothing."""
    if not key:
        return unsigned_anchor(position, hashed, time_ms)
    message = position.to_bytes(8, "big") + hashed + time_ms.to_bytes(8, "big")
    return codec.encode(Anchor(position, hashed, time_ms, hmac.digest(key, message, hashlib.sha256)))


def unsigned_anchor(position: int, hashed: bytes, time_ms: int) -> bytes:
    return codec.encode(Anchor(position, hashed, time_ms, NO_SIGNATURE))


def decode_anchor(raw: bytes) -> Anchor:
    """Raises msgspec.DecodeError where it is none."""
    return _decoder.decode(raw)


def anchor_is_genuine(keys: Iterable[bytes], raw: bytes) -> bool:
    """Signed under one of these; a plane whose keys were rotated has several."""
    anchor = decode_anchor(raw)
    return any(key and hmac.compare_digest(raw, sign_anchor(key, anchor.position, anchor.hash, anchor.time_ms)) for key in keys)
