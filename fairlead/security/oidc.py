"""Tokens of an OpenID Connect provider, as an option: a JWT in, a person's name out.

The provider's public keys come from a file (its JWKS document), which is read again when it changes: a server asks nobody on the
network whom to believe. Two algorithms are known, RS256 and ES256, and which one is used is the key's to say, not the token's.
Whoever comes so is a person with a prefix before the name, so that no provider can make anybody into one of our own people. Such
a token cannot be revoked by itself: it must end within a day; the person's bindings are what an operator takes away. Called by
fairlead/api/identity.py.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from fairlead.security.files import mark, passes

log = logging.getLogger(__name__)

TEXT_MAX: Final = 8 * 1024
LEEWAY_S: Final = 60  # clocks of the provider and of this plane may disagree by so much
LIFETIME_S_MAX: Final = 24 * 3600
RSA_BITS_MIN: Final = 2048
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?")  # what a binding can name

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class NotBelieved(Exception):
    """For the log; whoever sent the token is told that it is not valid."""


class OidcSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    issuer: str  # the `iss` of its tokens, an https address
    audience: str  # the `aud` they must have
    keys: str  # a file: the provider's JWKS document
    claim: str = "preferred_username"  # what a person is called by
    prefix: str = "oidc."  # before the name, so that nobody of theirs is one of our own people


class Person(NamedTuple):
    name: str
    expiry_ms: int


class OidcVerifier:
    def __init__(self, settings: OidcSettings) -> None:
        """Raises ValueError for settings that cannot be used."""
        self._settings = settings
        if not settings.issuer.startswith("https://") or not settings.audience:
            raise ValueError("oidc: the issuer is an https address, and the audience is named")
        if not settings.prefix or not _NAME.fullmatch(settings.prefix + "x"):
            raise ValueError("oidc: the prefix is small letters, digits, '-' and '.', and not empty")
        self._path = Path(settings.keys)
        self._seen = mark(self._path)
        self._keys = read_keys(self._path.read_bytes())

    def person(self, text: str, now_s: float) -> Person:
        """Raises NotBelieved."""
        header, claims, signed, signature = _parts(text)
        if "crit" in header:
            raise NotBelieved("it asks for what is not known here")
        key = self._current().get(str(header.get("kid", "")))
        if key is None:
            raise NotBelieved("no key of the provider has that id")
        _check(key, header.get("alg"), signed, signature)
        self._check_claims(claims, now_s)
        given = claims.get(self._settings.claim)
        name = f"{self._settings.prefix}{given}"
        if not isinstance(given, str) or not _NAME.fullmatch(name):
            raise NotBelieved(f"its {self._settings.claim} is no name that a binding could give anything to")
        return Person(name, int(claims["exp"] * 1000))

    def _check_claims(self, claims: dict[str, Any], now_s: float) -> None:
        audiences = claims.get("aud")
        if claims.get("iss") != self._settings.issuer:
            raise NotBelieved("it is of another issuer")
        if self._settings.audience not in (audiences if isinstance(audiences, list) else [audiences]):
            raise NotBelieved("it is for another audience")
        ends, begins = claims.get("exp"), claims.get("nbf", claims.get("iat", now_s))
        if not _is_number(ends) or not _is_number(begins):
            raise NotBelieved("it does not say when it ends")
        if now_s >= ends + LEEWAY_S:
            raise NotBelieved("it has expired")
        if now_s < begins - LEEWAY_S:
            raise NotBelieved("it is not valid yet")
        if ends - now_s > LIFETIME_S_MAX + LEEWAY_S:
            raise NotBelieved("it lives longer than a day, and could not be revoked")

    def _current(self) -> dict[str, PublicKey]:
        found = mark(self._path)
        if found != self._seen:
            try:
                self._keys = read_keys(self._path.read_bytes())
            except (OSError, ValueError) as error:
                log.error("the provider's new keys cannot be used, the old ones stay: %s", error)
                if passes(error):
                    return self._keys
            self._seen = found
        return self._keys


def looks_like(text: str) -> bool:
    return text.count(".") == 2 and text.startswith("eyJ")


def read_keys(data: bytes) -> dict[str, PublicKey]:
    """By key id; keys that are for something else, or of a kind not used here, are passed over."""
    try:
        listed = msgspec.json.decode(data)["keys"]
        found = {str(each["kid"]): key for each in listed if each.get("kid") and (key := _key(each)) is not None}
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"oidc: this is no JWKS document: {error}") from error
    if not found:
        raise ValueError("oidc: the JWKS document has no RSA or P-256 key for signatures, with an id")
    return found


def _key(each: dict[str, Any]) -> PublicKey | None:
    if each.get("use", "sig") != "sig":
        return None
    if each.get("kty") == "RSA" and each.get("alg", "RS256") == "RS256":
        key = rsa.RSAPublicNumbers(_number(each["e"]), _number(each["n"])).public_key()
        return key if key.key_size >= RSA_BITS_MIN else None
    if each.get("kty") == "EC" and each.get("crv") == "P-256" and each.get("alg", "ES256") == "ES256":
        return ec.EllipticCurvePublicNumbers(_number(each["x"]), _number(each["y"]), ec.SECP256R1()).public_key()
    return None


def _check(key: PublicKey, algorithm: object, signed: bytes, signature: bytes) -> None:
    try:
        if isinstance(key, rsa.RSAPublicKey) and algorithm == "RS256":
            key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
            return
        if isinstance(key, ec.EllipticCurvePublicKey) and algorithm == "ES256" and len(signature) == 64:
            pair = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            key.verify(encode_dss_signature(*pair), signed, ec.ECDSA(hashes.SHA256()))
            return
    except InvalidSignature as error:
        raise NotBelieved("it was not signed by the provider") from error
    raise NotBelieved("it was signed in a way that is not the key's")


def _parts(text: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    if len(text) > TEXT_MAX:
        raise NotBelieved("it is too long")
    try:
        head, body, signature = text.encode("ascii").split(b".")
        header, claims = msgspec.json.decode(_decoded(head)), msgspec.json.decode(_decoded(body))
        raw = _decoded(signature)
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise NotBelieved("it cannot be read") from error
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise NotBelieved("it cannot be read")
    return header, claims, head + b"." + body, raw


def _decoded(part: bytes) -> bytes:
    return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text.encode()), "big")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
