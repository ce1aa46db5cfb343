"""What a journal that was cut short leaves behind: where it was cut, the chain's hash there, and a signature over both (P2).

A shortened journal can be told from a forged one by whoever has the plane's key. Pure; made by the authority's truncation and by
`fairlead store compact`, checked by `fairlead store verify`.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from fairlead.model import codec

NO_SIGNATURE = b""  # A restored store has no journal and nobody's word for the one before it: only the backup's.


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    position: int
    hash: bytes
    time_ms: int
    signature: bytes


_decoder = codec.decoder(Anchor)


def sign_anchor(key: bytes, position: int, hashed: bytes, time_ms: int) -> bytes:
    message = position.to_bytes(8, "big") + hashed + time_ms.to_bytes(8, "big")
    return codec.encode(Anchor(position, hashed, time_ms, hmac.digest(key, message, hashlib.sha256)))


def unsigned_anchor(position: int, hashed: bytes, time_ms: int) -> bytes:
    return codec.encode(Anchor(position, hashed, time_ms, NO_SIGNATURE))


def decode_anchor(raw: bytes) -> Anchor:
    """Raises msgspec.DecodeError where it is none."""
    return _decoder.decode(raw)


def anchor_is_genuine(key: bytes, raw: bytes) -> bool:
    anchor = decode_anchor(raw)
    return hmac.compare_digest(raw, sign_anchor(key, anchor.position, anchor.hash, anchor.time_ms))
