"""Bearer tokens: made, written down, recognised, compared. Only a hash is ever stored.

    flt_TENANT.NAME.SECRET   for people and programs
    flj_TENANT.NAME.SECRET   for an agent that joins, once

SECRET is 64 hexadecimal digits: 256 bits from the Ids port. At that size one round of SHA-256 is as good as any slow hash: there
is nothing to guess. The prefixes and the fixed length are for the scanners that look for leaked credentials (LEAK_PATTERN).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final, NamedTuple

from fairlead.ports import Ids
from fairlead.security.hidden import Hidden

ACCESS_PREFIX: Final = "flt_"
JOIN_PREFIX: Final = "flj_"
LEAK_PATTERN: Final = r"fl[tj]_[a-z0-9-]{1,63}\.[a-z0-9-]{1,63}\.[0-9a-f]{64}"

_FORM: Final = re.compile(r"(fl[tj]_)([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.([0-9a-f]{64})")
TOKEN_CHARACTERS_MAX: Final = 4 + 63 + 1 + 63 + 1 + 64
_NO_HASH: Final = "sha256:" + "0" * 64


class Presented(NamedTuple):
    """What somebody showed us; nothing is proven yet."""

    join: bool
    tenant: str
    name: str
    secret: Hidden


class Minted(NamedTuple):
    name: str
    hash: str  # for the Token object
    text: Hidden  # for its owner, once


def mint(ids: Ids, tenant: str, *, join: bool = False) -> Minted:
    name = ids.token()
    secret = "".join(ids.token() for _ in range(4))
    assert len(secret) == 64, "the Ids port gives 64 bits at a time"
    prefix = JOIN_PREFIX if join else ACCESS_PREFIX
    return Minted(name, hash_of(Hidden(secret)), Hidden(f"{prefix}{tenant}.{name}.{secret}"))


def hash_of(secret: Hidden) -> str:
    return "sha256:" + hashlib.sha256(secret.reveal_bytes()).hexdigest()


def parse(text: str) -> Presented | None:
    if len(text) > TOKEN_CHARACTERS_MAX:
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    prefix, tenant, name, secret = found.groups()
    return Presented(prefix == JOIN_PREFIX, tenant, name, Hidden(secret))


def matches(presented: Presented, stored_hash: str | None) -> bool:
    """In constant time, and in the same time for a token that does not exist (None)."""
    same = hmac.compare_digest(hash_of(presented.secret), stored_hash or _NO_HASH)
    return same and stored_hash is not None
