"""Certificates say who somebody is, for a time, for one purpose; nothing else is read into them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.security import certificates
from fairlead.security.certificates import SKEW, BadCertificate, LocalAuthority, Named, Pair

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LONG = "node-with-a-name-that-is-longer-than-any-common-name-may-ever-be-in-a-certificate.eu-west"


def authority() -> LocalAuthority:
    return LocalAuthority(LocalAuthority.create("test", NOW))


@pytest.mark.parametrize(
    "named",
    [
        Named("component", "server-0", ("scheduler",), "eu-west"),
        Named("component", "server-0", ("mirror", "node-controller")),
        Named("agent", LONG, ("agent",), "eu-west", "a1b2"),
        Named("agent", "node-1", ("agent",), "eu-west"),
        Named("user", "ada"),
    ],
)
def test_a_certificate_says_what_was_written_into_it(named: Named) -> None:
    issued = authority().issue(named, NOW)
    got = certificates.read(certificates.load(issued.certificate))
    assert got.named == named
    assert got.not_before == NOW - SKEW
    assert got.not_after == NOW + certificates.LIFETIMES[named.purpose]
    assert got.fingerprint.startswith("sha256:")


def test_a_server_s_certificate_names_its_hosts_and_is_for_servers_only() -> None:
    issued = authority().issue(Named("server", "global-0"), NOW, hosts=["localhost", "127.0.0.1", "::1"])
    certificate = certificates.load(issued.certificate)
    assert certificates.hosts_of(certificate) == ["localhost", "127.0.0.1", "::1"]
    purposes = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == [ExtendedKeyUsageOID.SERVER_AUTH]
    with pytest.raises(ValueError, match="names its hosts"):
        authority().issue(Named("server", "global-0"), NOW)
    with pytest.raises(ValueError, match="names its hosts"):
        authority().issue(Named("user", "ada"), NOW, hosts=["localhost"])


@pytest.mark.parametrize(
    "named",
    [
        Named("component", "server-0"),
        Named("component", "server-0", ("operator",)),
        Named("component", "server-0", ("authority",)),
        Named("component", "server-0", ("agent",)),
        Named("component", "server-0", ("admin",)),
        Named("agent", "node-1"),
        Named("user", "ada:x"),
        Named("user", "Ada"),
        Named("user", ""),
        Named("agent", "node-1", ("agent",), "eu:west"),
        Named("agent", "node-1", ("agent",), "eu-west", "a:b"),
    ],
)
def test_nobody_is_given_a_name_that_could_be_read_otherwise_or_a_role_above_components(named: Named) -> None:
    with pytest.raises(ValueError, match=r"."):
        authority().issue(named, NOW)


def forged(uri: str, groups: tuple[str, ...], purposes: list[x509.ObjectIdentifier], uris: int = 1) -> x509.Certificate:
    """What somebody with the authority's key, but without our rules, could write."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, NOW, NOW + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"{uri}{'x' * n}") for n in range(uris)])
    builder = builder.add_extension(names, critical=False).add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder.sign(key, hashes.SHA256())


CLIENT, SERVER = [ExtendedKeyUsageOID.CLIENT_AUTH], [ExtendedKeyUsageOID.SERVER_AUTH]


@pytest.mark.parametrize(
    "certificate",
    [
        forged("fairlead:agent:node-1:eu-west:", ("user",), CLIENT),
        forged("fairlead:user:ada", ("agent",), CLIENT),
        forged("fairlead:user:ada", ("user", "admin"), CLIENT),
        forged("fairlead:component:server-0:", ("authority",), CLIENT),
        forged("fairlead:component:server-0:", (), CLIENT),
        forged("fairlead:agent:node-1:eu-west", ("agent",), CLIENT),
        forged("fairlead:user:ada", ("user",), SERVER),
        forged("fairlead:user:ada", ("user",), [*CLIENT, *SERVER]),
        forged("fairlead:server:x", ("server",), CLIENT),
        forged("fairlead:user:ada", ("user",), CLIENT, uris=2),
        forged("https://example.org", ("user",), CLIENT),
        forged("fairlead:user:Ada", ("user",), CLIENT),
    ],
)
def test_a_certificate_that_contradicts_itself_names_nobody(certificate: x509.Certificate) -> None:
    with pytest.raises(BadCertificate):
        certificates.read(certificate)


def test_one_of_another_make_names_nobody() -> None:
    pair = LocalAuthority.create("test", NOW)
    with pytest.raises(BadCertificate):
        certificates.read(certificates.load(pair.certificate))
    for data in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", b"\x30\x00"):
        with pytest.raises(BadCertificate):
            certificates.load(data)


def test_an_authority_whose_key_is_not_its_own_is_refused() -> None:
    one, two = LocalAuthority.create("one", NOW), LocalAuthority.create("two", NOW)
    with pytest.raises(BadCertificate):
        LocalAuthority(Pair(one.certificate, two.key))


def test_clocks_may_disagree_by_five_minutes_at_both_ends() -> None:
    begins, ends = NOW, NOW + timedelta(hours=1)
    one = timedelta(seconds=1)
    assert certificates.why_not_valid(begins, ends, begins - SKEW) == ""
    assert "not valid yet" in certificates.why_not_valid(begins, ends, begins - SKEW - one)
    assert certificates.why_not_valid(begins, ends, ends + SKEW - one) == ""
    assert "expired" in certificates.why_not_valid(begins, ends, ends + SKEW)


def test_it_is_time_for_a_new_one_after_two_thirds_of_its_life() -> None:
    got = certificates.read(
        certificates.load(authority().issue(Named("user", "ada"), NOW, lifetime=timedelta(days=30)).certificate)
    )
    assert not certificates.due(got, NOW + timedelta(days=19))
    assert certificates.due(got, NOW + timedelta(days=20, hours=1))
    with pytest.raises(ValueError, match="lives for some time"):
        authority().issue(Named("user", "ada"), NOW, lifetime=timedelta(0))


def test_a_signing_request_proves_its_key_and_nothing_else() -> None:
    request, key = certificates.new_request()
    wanted = certificates.requested_key(request)
    private = serialization.load_pem_private_key(key.reveal_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.public_key() == wanted
    weak = rsa.generate_private_key(65537, 1024)
    other = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(weak, hashes.SHA256())
    for bad in (b"", b"x", request[:-40], other.public_bytes(serialization.Encoding.PEM)):
        with pytest.raises(BadCertificate):
            certificates.requested_key(bad)


def test_a_request_signed_with_another_s_key_is_refused() -> None:
    request, _ = certificates.new_request()
    parsed = x509.load_pem_x509_csr(request)
    der = bytearray(parsed.public_bytes(serialization.Encoding.DER))
    der[-5] ^= 1  # in the signature
    try:
        tampered = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    except ValueError:
        return
    with pytest.raises(BadCertificate):
        certificates.requested_key(tampered)
