"""A folder of certificates: one local authority and what it issued. Owns the layout and its rotation; used by `fairlead certs`
and by the local platform.

    ca.pem          the authority's certificate; two of them while it is being rotated. Everybody has this file
    ca.key          its key. Only where certificates are issued
    NAME.pem, .key  one caller or server each

Servers read the files again by themselves, so a rotation is no more than writing new ones here (and copying them there).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fairlead.ports import Clock
from fairlead.security import certificates
from fairlead.security.certificates import BadCertificate, LocalAuthority, Named, Pair, Presented, instant, signed_by
from fairlead.security.files import read_private, write, write_private
from fairlead.security.hidden import Hidden

AUTHORITY: Final = "ca"
AUTHORITY_LASTS: Final = max(certificates.LIFETIMES.values())  # what it signs must not outlive it
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class Entry(NamedTuple):
    """One certificate of the folder."""

    file: str
    presented: Presented | None  # None: the authority itself
    not_before: datetime
    not_after: datetime
    hosts: tuple[str, ...]
    due: bool
    trusted: bool  # signed by an authority that is believed now


class CertificateFolder:
    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock

    @property
    def authorities(self) -> Path:
        return self.path / f"{AUTHORITY}.pem"

    def files_of(self, file: str) -> tuple[Path, Path]:
        """(certificate, key)"""
        if not file or file != Path(file).name or file.startswith("."):
            raise ValueError(f"{file!r} is no name for a file")
        return self.path / f"{file}.pem", self.path / f"{file}.key"

    def create(self, name: str = "fairlead") -> None:
        if self.authorities.exists() or (self.path / f"{AUTHORITY}.key").exists():
            raise FileExistsError(f"{self.path} has an authority already; rotate it instead")
        self._write_authority(LocalAuthority.create(name, self._now()), ())

    def authority(self) -> LocalAuthority:
        return LocalAuthority(self._authority_pair())

    def issue(
        self, named: Named, *, file: str = "", hosts: Sequence[str] = (), lifetime: timedelta | None = None, replace: bool = False
    ) -> Path:
        """The path of the certificate; its key lies beside it."""
        file = file or named.name
        certificate, key = self.files_of(file)
        if file == AUTHORITY:
            raise ValueError(f"{AUTHORITY} is the authority's own file; choose another name")
        if certificate.exists() and not replace:
            raise FileExistsError(f"{certificate} exists; rotate it, or issue under another file name")
        pair = self.authority().issue(named, self._now(), hosts=hosts, lifetime=lifetime)
        # The key first: for the moment between the two a server sees files that do not fit and goes on with what it has.
        write_private(key, pair.key.reveal_bytes())
        write(certificate, pair.certificate)
        return certificate

    def rotate(self, file: str) -> Path:
        """The same name, hosts and length of life; a new key and new dates."""
        old = certificates.load(self.files_of(file)[0].read_bytes())
        presented = certificates.read(old)
        # As issued: what begins earlier, because clocks disagree, is not part of its life.
        lifetime = presented.not_after - presented.not_before - certificates.SKEW
        return self.issue(presented.named, file=file, hosts=certificates.hosts_of(old), lifetime=lifetime, replace=True)

    def rotate_authority(self, name: str = "fairlead") -> None:
        """First step: a new authority signs from now on, both are believed. Copy ca.pem everywhere, rotate everything, then
        `finish_authority`."""
        if len(self._believed()) > 1:
            raise FileExistsError("the authority is being rotated already; finish that first")
        before = self._authority_pair()
        self._write_authority(LocalAuthority.create(name, self._now()), (before.certificate,))

    def finish_authority(self) -> list[str]:
        """Last step: only the new one is believed. Gives the files that hang on the old one; while there are any, it waits.
        Nodes that joined with a token have theirs elsewhere and are not seen here: they follow by themselves (enrolment)."""
        left = self.left_behind()
        if not left:
            write(self.authorities, _pem(self._believed()[0]))
        return left

    def left_behind(self) -> list[str]:
        """The files of this folder that another authority signed than the newest."""
        return [entry.file for entry in self.entries() if entry.presented is not None and not self._by_newest(entry.file)]

    def renew(self, name: str = "fairlead") -> list[str]:
        """Replaces what is due, and where the authority ends before what it would sign, that and all of it. The files. For a
        folder that nobody reads just now: the authority changes in one step. May be cut off anywhere, and be begun again."""
        renewed = []
        if not self._lasts(self.authority().certificate):
            self._write_authority(LocalAuthority.create(name, self._now()), [_pem(one) for one in self._believed()])
            renewed.append(AUTHORITY)
        believed = self._believed()
        lasting = [one for one in believed if self._lasts(one)]
        for entry in self.entries():
            if entry.presented is not None and (entry.due or not self._signed_by_any(entry.file, lasting)):
                self.rotate(entry.file)
                renewed.append(entry.file)
        if len(lasting) < len(believed):
            write(self.authorities, b"".join(map(_pem, lasting)))
        return renewed

    def entries(self) -> list[Entry]:
        """In order of file name, the authority's first."""
        now, believed = self._now(), self._believed()
        found = [Entry(AUTHORITY, None, c.not_valid_before_utc, c.not_valid_after_utc, (), _due(c, now), True) for c in believed]
        for path in sorted(self.path.glob("*.pem")):
            if path == self.authorities:
                continue
            try:
                certificate = certificates.load(path.read_bytes())
            except BadCertificate as error:
                raise BadCertificate(f"{path}: {error}") from error
            try:
                presented = certificates.read(certificate)
            except BadCertificate:
                continue
            dates = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            trusted = any(signed_by(certificate, authority) for authority in believed)
            hosts = tuple(certificates.hosts_of(certificate))
            found.append(Entry(path.stem, presented, *dates, hosts, certificates.due(presented, now), trusted))
        return found

    def _by_newest(self, file: str) -> bool:
        return self._signed_by_any(file, self._believed()[:1])

    def _signed_by_any(self, file: str, authorities: Sequence[x509.Certificate]) -> bool:
        certificate = certificates.load(self.files_of(file)[0].read_bytes())
        return any(signed_by(certificate, authority) for authority in authorities)

    def _lasts(self, authority: x509.Certificate) -> bool:
        return authority.not_valid_after_utc > self._now() + AUTHORITY_LASTS

    def _believed(self) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(self.authorities.read_bytes())

    def _authority_pair(self) -> Pair:
        return authority_pair(self.authorities, self.path / f"{AUTHORITY}.key")

    def _write_authority(self, pair: Pair, before: Sequence[bytes]) -> None:
        write(self.authorities, b"".join((pair.certificate, *before)))
        write_private(self.path / f"{AUTHORITY}.key", pair.key.reveal_bytes())

    def _now(self) -> datetime:
        return instant(self._clock.wall())


def authority_pair(authorities: Path, key_file: Path) -> Pair:
    """The certificate that the key belongs to: not the first one if a rotation was cut off in its middle."""
    key, believed = Hidden(read_private(key_file)), authorities.read_bytes()
    try:
        public = serialization.load_pem_private_key(key.reveal_bytes(), None).public_key()
    except (ValueError, TypeError) as error:  # TypeError: it is under a password
        raise BadCertificate(f"{key_file} is no key in PEM that can be read without a password") from error
    try:
        certificates_there = x509.load_pem_x509_certificates(believed)
    except ValueError as error:
        raise BadCertificate(f"{authorities} holds no certificates in PEM") from error
    for certificate in certificates_there:
        if certificate.public_key() == public:
            return Pair(_pem(certificate), key)
    raise BadCertificate(f"{authorities}: the authority's key belongs to none of its certificates")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _due(certificate: x509.Certificate, now: datetime) -> bool:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begins + (ends - begins) * certificates.RENEW_AT
