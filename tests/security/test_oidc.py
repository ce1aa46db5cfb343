"""Tokens of an OpenID Connect provider: whom they make of somebody, and every way in which one is not believed."""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from starlette.requests import HTTPConnection

from fairlead.api.authz import Access
from fairlead.api.identity import Authenticator, Unauthenticated
from fairlead.authority.local import LocalPlane
from fairlead.model.commands import Put
from fairlead.model.kinds.access import Subject
from fairlead.security.directory import AccessDirectory
from fairlead.security.oidc import NotBelieved, OidcSettings, OidcVerifier, looks_like, read_keys
from tests.authority.planes import OPERATOR, ok, running_plane
from tests.security.rules import bound

NOW = 1_800_000_000.0
ISSUER, AUDIENCE = "https://login.example.org", "fairlead"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_EC = ec.generate_private_key(ec.SECP256R1())
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "1", "preferred_username": "ada", "iat": NOW - 10, "exp": NOW + 600}


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwks(kid: str = "e1") -> bytes:
    r, e = RSA_KEY.public_key().public_numbers(), EC_KEY.public_key().public_numbers()
    keys = [
        {"kty": "RSA", "kid": "r1", "use": "sig", "n": number(r.n), "e": number(r.e)},
        {"kty": "EC", "kid": kid, "crv": "P-256", "x": b64(e.x.to_bytes(32, "big")), "y": b64(e.y.to_bytes(32, "big"))},
        {"kty": "EC", "kid": "sealing", "use": "enc", "crv": "P-256", "x": b64(e.x.to_bytes(32, "big")), "y": "AA"},
        {"kty": "oct", "kid": "o1", "k": "AAAA"},
    ]
    return msgspec.json.encode({"keys": keys})


def token(claims: dict[str, Any] | None = None, alg: str = "ES256", kid: str = "e1", key: Any = None, **head: Any) -> str:
    parts = [b64(msgspec.json.encode(part)) for part in ({"alg": alg, "kid": kid, **head}, {**CLAIMS, **(claims or {})})]
    signed = ".".join(parts).encode()
    if alg == "RS256":
        signature = RSA_KEY.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    elif alg == "ES256":
        pair = decode_dss_signature((key or EC_KEY).sign(signed, ec.ECDSA(hashes.SHA256())))
        signature = b"".join(part.to_bytes(32, "big") for part in pair)
    elif alg == "HS256":  # with what everybody knows of the key: an old trick
        known = EC_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        signature = hmac.digest(known, signed, hashlib.sha256)
    else:
        signature = b""
    return f"{parts[0]}.{parts[1]}.{b64(signature)}"


@pytest.fixture
def verifier(tmp_path: Path) -> OidcVerifier:
    (tmp_path / "jwks.json").write_bytes(jwks())
    return OidcVerifier(OidcSettings(ISSUER, AUDIENCE, str(tmp_path / "jwks.json")))


@pytest.mark.parametrize(("alg", "kid"), [("ES256", "e1"), ("RS256", "r1")])
def test_a_token_of_the_provider_names_a_person_with_a_prefix(verifier: OidcVerifier, alg: str, kid: str) -> None:
    text = token(alg=alg, kid=kid)
    assert looks_like(text)
    assert verifier.person(text, NOW) == ("oidc.ada", int((NOW + 600) * 1000))
    assert verifier.person(token({"aud": ["x", AUDIENCE]}), NOW).name == "oidc.ada"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (token(key=OTHER_EC), "not signed by"),
        (token(alg="none"), "in a way"),
        (token(alg="HS256"), "in a way"),
        (token(alg="RS256", kid="e1"), "in a way"),
        (token(kid="r1"), "in a way"),
        (token(kid="unknown"), "no key"),
        (token(kid="sealing"), "no key"),
        (token(crit=["b64"]), "not known here"),
        (token({"iss": "https://other.example.org"}), "another issuer"),
        (token({"aud": "other"}), "another audience"),
        (token({"aud": None}), "another audience"),
        (token({"exp": NOW - 61}), "expired"),
        (token({"exp": None}), "when it ends"),
        (token({"exp": True}), "when it ends"),
        (token({"nbf": NOW + 120}), "not valid yet"),
        (token({"exp": NOW + 30 * 3600}), "longer than a day"),
        (token({"preferred_username": None}), "no name"),
        (token({"preferred_username": "Ada Lovelace"}), "no name"),
        (token({"preferred_username": "../admin"}), "no name"),
        (token({"preferred_username": 7}), "no name"),
        (token()[:-4] + "AAAA", "not signed by"),
        ("a.b.c", "cannot be read"),
        ("eyJ." + "A" * 9000 + ".x", "too long"),
        (f"{b64(b'[' * 3000)}.{b64(b'{}')}.", "cannot be read"),
    ],
)
def test_what_is_not_the_provider_s_word_for_us_and_now_is_not_believed(verifier: OidcVerifier, text: str, words: str) -> None:
    with pytest.raises(NotBelieved, match=words):
        verifier.person(text, NOW)


def test_claims_that_were_changed_after_signing_are_not_believed(verifier: OidcVerifier) -> None:
    head, _, signature = token().split(".")
    with pytest.raises(NotBelieved, match="not signed by"):
        verifier.person(f"{head}.{b64(msgspec.json.encode({**CLAIMS, 'preferred_username': 'eve'}))}.{signature}", NOW)


def test_new_keys_of_the_provider_are_used_without_a_restart_and_nonsense_is_not(verifier: OidcVerifier, tmp_path: Path) -> None:
    fresh = tmp_path / "new"
    fresh.write_bytes(jwks("e2"))
    fresh.replace(tmp_path / "jwks.json")
    assert verifier.person(token(kid="e2"), NOW).name == "oidc.ada"
    with pytest.raises(NotBelieved):
        verifier.person(token(kid="e1"), NOW)
    (tmp_path / "jwks.json").write_bytes(b"nonsense")
    assert verifier.person(token(kid="e2"), NOW).name == "oidc.ada"


def test_new_keys_that_could_not_be_read_at_first_are_used_once_they_can_be(
    verifier: OidcVerifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks("e2"))
    path.chmod(0o600)

    def closed(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as m:
        m.setattr(Path, "read_bytes", closed)
        with pytest.raises(NotBelieved):
            verifier.person(token(kid="e2"), NOW)
    path.chmod(0o644)
    assert verifier.person(token(kid="e2"), NOW).name == "oidc.ada"


def test_settings_that_would_believe_too_much_are_refused(tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_bytes(jwks())
    for issuer, audience, prefix in (("http://x", "a", "oidc."), (ISSUER, "", "oidc."), (ISSUER, "a", ""), (ISSUER, "a", "Up/")):
        with pytest.raises(ValueError, match="oidc"):
            OidcVerifier(OidcSettings(issuer, audience, str(keys), prefix=prefix))
    for text in (b"{}", b"[]", b'{"keys":[]}', b'{"keys":[{"kty":"oct","kid":"o","k":"AA"}]}', b'{"keys":[7]}'):
        with pytest.raises(ValueError, match="oidc"):
            read_keys(text)


async def test_who_comes_from_a_provider_has_what_bindings_give_them_until_the_token_ends(
    verifier: OidcVerifier, tmp_path: Path
) -> None:
    async with running_plane() as plane:
        directory = AccessDirectory(LocalPlane(plane.authority, plane.clock), plane.clock)
        await directory.load()
        ok(await plane.send(OPERATOR, Put("AccessBinding", bound("admin", "*", Subject(name="ada"), name="ours"))))
        ok(
            await plane.send(
                OPERATOR, Put("AccessBinding", bound("tenant-viewer", "risk", Subject(name="oidc.ada"), name="theirs"))
            )
        )
        now = directory.now().timestamp()
        authenticator = Authenticator(directory, oidc=verifier)

        def asked(text: str) -> HTTPConnection:
            headers = [(b"authorization", f"Bearer {text}".encode())]
            scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers, "scheme": "https"}
            return HTTPConnection({**scope, "server": ("plane", 443), "client": ("10.0.0.9", 5000), "state": {}})

        who = authenticator.identify(asked(token({"iat": now, "exp": now + 60})))
        access = Access(directory, "global", lambda *_: None)
        assert who.actor == "user:oidc.ada"
        assert access.authorise(who, "list", "workloads", "risk")
        assert not access.authorise(who, "list", "secrets", "risk"), "not what the ada of this place has"
        assert not access.authorise(who, "list", "workloads", "search")
        assert access.correlation(who) == "from 10.0.0.9:5000 by a provider's token"
        with pytest.raises(Unauthenticated, match="the token is not valid"):
            authenticator.identify(asked(token({"iat": now - 900, "exp": now - 300})))
        with pytest.raises(Unauthenticated):
            Authenticator(directory).identify(asked(token({"iat": now, "exp": now + 60})))
        ended = msgspec.structs.replace(who, expiry_ms=int((now - 120) * 1000))
        assert directory.why_not_valid(ended) == "the token has expired"
