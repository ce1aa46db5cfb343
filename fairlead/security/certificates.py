"""Certificates: a local authority of our own, what it issues, and what a presented certificate says.

Who somebody is stands in one URI of the subject alternative name: a common name ends at 64 characters, node names do not.

    fairlead:component:NAME:REGION        roles in O, one or more
    fairlead:agent:NODE:REGION:TOKEN      O=agent; TOKEN is the join token it came of, or empty
    fairlead:user:NAME                    O=user; a person, with the rights their bindings give

O and CN repeat it for people who read certificates. Chain, dates and purpose are checked by TLS; `read` and `why_not_valid` check
again what they can, because a connection outlives its handshake. Reads no clock: the caller says when now is.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.decide.access_roles import AGENT, CERTIFICATE_ROLES
from fairlead.security.hidden import Hidden

SKEW: Final = timedelta(minutes=5)  # how far apart the clocks of two machines may be
CA_LIFETIME: Final = timedelta(days=3650)
LIFETIMES: Final = {
    "server": timedelta(days=90),
    "component": timedelta(days=30),
    "agent": timedelta(
        days=30
    ),  # an orphaned agent goes on for a day by itself, and machines are switched off for holidays (P10)
    "user": timedelta(days=7),
}
RENEW_AT: Final = 2 / 3  # of its life: the last third is for whatever keeps the renewal from succeeding

_WORD: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")

Purpose = Literal["server", "component", "agent", "user"]

PublicKey = ec.EllipticCurvePublicKey


class BadCertificate(Exception):
    """What was presented does not say who somebody is."""


class Pair(NamedTuple):
    certificate: bytes  # PEM
    key: Hidden  # PEM


class Named(NamedTuple):
    """What a certificate says about whoever holds its key."""

    purpose: Purpose
    name: str
    roles: tuple[str, ...] = ()
    region: str = ""
    token: str = ""

    def uri(self) -> str:
        match self.purpose:
            case "agent":
                return f"fairlead:agent:{self.name}:{self.region}:{self.token}"
            case "component":
                return f"fairlead:component:{self.name}:{self.region}"
            case _:
                return f"fairlead:{self.purpose}:{self.name}"


class Presented(NamedTuple):
    named: Named
    fingerprint: str
    not_before: datetime
    not_after: datetime


def check_named(named: Named) -> None:
    """Raises ValueError for what nobody should be called."""
    for word in (named.name, *((named.region,) if named.region else ()), *((named.token,) if named.token else ())):
        if _WORD.fullmatch(word) is None:
            raise ValueError(f"{word!r} is no name: use a-z, 0-9, '-' and '.'")
    if named.purpose == "component" and (not named.roles or not CERTIFICATE_ROLES.issuperset(named.roles)):
        unknown = ", ".join(sorted(set(named.roles) - CERTIFICATE_ROLES)) or "none"
        raise ValueError(f"{unknown}: a component's roles are some of {', '.join(sorted(CERTIFICATE_ROLES))}")
    if named.purpose == "agent" and not named.region:
        raise ValueError("an agent has a region")


class LocalAuthority:
    """Signs certificates. Its key stays in this object and in one file; it is never sent."""

    def __init__(self, pair: Pair) -> None:
        self.certificate = x509.load_pem_x509_certificates(pair.certificate)[0]
        key = serialization.load_pem_private_key(pair.key.reveal_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self.certificate.public_key():
            raise BadCertificate("the authority's key does not belong to its certificate")
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime, lifetime: timedelta = CA_LIFETIME) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "fairlead"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        usage = _usage(sign_certificates=True)
        builder = _builder(subject, subject, key.public_key(), now, lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))

    def issue(self, named: Named, now: datetime, *, hosts: Sequence[str] = (), lifetime: timedelta | None = None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        return Pair(self.sign(named, key.public_key(), now, hosts=hosts, lifetime=lifetime), _key_pem(key))

    def sign(
        self,
        named: Named,
        public_key: ec.EllipticCurvePublicKey,
        now: datetime,
        *,
        hosts: Sequence[str] = (),
        lifetime: timedelta | None = None,
    ) -> bytes:
        """A certificate in PEM for whoever has the key. `hosts` are the names and addresses of a server."""
        check_named(named)
        server = named.purpose == "server"
        if server != bool(hosts):
            raise ValueError("a server's certificate names its hosts, and no other does")
        groups = named.roles if named.purpose == "component" else (named.purpose,)
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, named.name[:64]),
            ]
        )
        ours: list[x509.GeneralName] = [x509.UniformResourceIdentifier(named.uri())]
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if server else [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(
            subject, self.certificate.subject, public_key, now, LIFETIMES[named.purpose] if lifetime is None else lifetime
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([*map(_host, hosts), *ours]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return _pem(builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    if lifetime <= timedelta(0) or lifetime > CA_LIFETIME:
        raise ValueError(f"a certificate lives for some time, {CA_LIFETIME.days} days at most")
    begins = now - SKEW  # a machine whose clock is behind must not take it for one of the future
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(now + lifetime)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> Hidden:
    form = serialization.PrivateFormat.PKCS8
    return Hidden(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def new_request() -> tuple[bytes, Hidden]:
    """(signing request in PEM, key in PEM): what an agent makes before it joins. The key never leaves its machine."""
    key = _key_pem(ec.generate_private_key(ec.SECP256R1()))
    return request_for(key), key


def request_for(key_pem: Hidden) -> bytes:
    """A signing request, in PEM, for a key that is there already: whoever asks again must come with the same one."""
    try:
        key = serialization.load_pem_private_key(key_pem.reveal_bytes(), None)
    except ValueError as error:
        raise BadCertificate("this is no key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCertificate("a signing request is made with a P-256 key")
    request = x509.CertificateSigningRequestBuilder(subject_name=x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def requested_key(request: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a signing request, shown to be its sender's. Whatever else it asks for is ignored: the token says who it is."""
    try:
        parsed = x509.load_pem_x509_csr(request)
    except ValueError as error:
        raise BadCertificate("this is no signing request in PEM") from error
    key = parsed.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadCertificate("a signing request comes with a P-256 key")
    if not parsed.is_signature_valid:
        raise BadCertificate("the signing request was not signed with its own key")
    return key


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, form))
    return "sha256:" + digest.finalize().hex()


def fingerprint_of(certificate: x509.Certificate) -> str:
    return "sha256:" + certificate.fingerprint(hashes.SHA256()).hex()


def load(data: bytes) -> x509.Certificate:
    """The first certificate of a PEM file, or one in DER."""
    try:
        if data.lstrip().startswith(b"-----"):
            return x509.load_pem_x509_certificates(data)[0]
        return x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise BadCertificate("this is no certificate") from error


def read(certificate: x509.Certificate) -> Presented:
    """Who it is for. That it was signed by our authority is for TLS to have shown; the rest is held together here."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith("fairlead:")]
        purposes = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError) as error:
        raise BadCertificate("the certificate is not one of Fairlead's") from error
    if len(uris) != 1:
        raise BadCertificate("the certificate names nobody, or several")
    named = _parsed(uris[0], certificate)
    expected = ExtendedKeyUsageOID.SERVER_AUTH if named.purpose == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
    if purposes != {expected}:
        raise BadCertificate("the certificate is for another purpose than it says")
    return Presented(named, fingerprint_of(certificate), certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _parsed(uri: str, certificate: x509.Certificate) -> Named:
    groups = tuple(str(part.value) for part in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    match uri.split(":"):
        case ["fairlead", "agent", name, region, token] if groups == (AGENT,):
            named = Named("agent", name, (AGENT,), region, token)
        case ["fairlead", "component", name, region]:
            named = Named("component", name, groups, region)
        case ["fairlead", "user", name] if groups == ("user",):
            named = Named("user", name)
        case ["fairlead", "server", name] if groups == ("server",):
            named = Named("server", name)
        case _:
            raise BadCertificate("the certificate's name and its roles do not agree")
    try:
        check_named(named)
    except ValueError as error:
        raise BadCertificate(str(error)) from error
    return named


def why_not_valid(not_before: datetime, not_after: datetime, now: datetime) -> str:
    """Empty: it is. Allows for clocks that disagree by SKEW, at both ends."""
    if now < not_before - SKEW:
        return "the certificate is not valid yet; compare the clocks"
    if now >= not_after + SKEW:
        return "the certificate has expired"
    return ""


def due(presented: Presented, now: datetime) -> bool:
    """Is it time for a new one?"""
    return now >= presented.not_before + (presented.not_after - presented.not_before) * RENEW_AT


def hosts_of(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
