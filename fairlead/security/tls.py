"""TLS that follows its files: a new certificate, key or authority is used from the next handshake on, without a restart.

There is no task and no signal: every handshake looks whether the files changed (three stat calls) and, if so, is handed a context
made from the new ones. Files that do not fit together are told in the log and the old ones stay in use. Called by the server
(`ServerTls.context` goes to uvicorn's `ssl_context_factory`) and by whoever dials it (`client_context`, `ClientTls`). When what
is used ends is asked for metrics: of what is used, because a file that cannot be used ends nothing and helps nobody.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

from fairlead.security import certificates
from fairlead.security.certificates import BadCertificate, signed_by
from fairlead.security.files import UnsafeFile, mark, passes, read_private

log = logging.getLogger(__name__)

HANDSHAKE_S: Final = 5.0  # for servers to pass on: a peer that connects and says nothing holds no place for longer


class TlsFiles(NamedTuple):
    certificate: Path
    key: Path
    authorities: Path  # one or more: two while the authority is being rotated


class Ends(NamedTuple):
    """In seconds by the wall clock; 0: it is not known."""

    certificate_s: float = 0.0
    authority_s: float = 0.0  # of the one that signed it: nobody believes it for longer


def _ends(files: TlsFiles) -> Ends:
    try:
        certificate = certificates.load(files.certificate.read_bytes())
        believed = x509.load_pem_x509_certificates(files.authorities.read_bytes())
    except (OSError, ValueError, BadCertificate):
        return Ends()
    signers = [one.not_valid_after_utc.timestamp() for one in believed if signed_by(certificate, one)]
    return Ends(certificate.not_valid_after_utc.timestamp(), max(signers, default=0.0))


def _load(context: ssl.SSLContext, authorities: Path, certificate: Path | None, key: Path | None) -> None:
    """Raises UnsafeFile for a key that others may read, and OSErrors that name the file: those of the library do not."""
    authorities.read_bytes()
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise _told(error, f"{authorities} holds no certificate of an authority") from error
    if certificate is None or key is None:
        return
    certificate.read_bytes()
    read_private(key)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _told(error, f"{key} does not belong to {certificate}") from error
        raise _told(error, f"{certificate} is no certificate, or {key} no key to it, in PEM") from error


def _told(error: ssl.SSLError, words: str) -> ssl.SSLError:
    return ssl.SSLError(error.errno, f"{words}: {error.reason or error}")


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL  # people come with a token instead; who shows neither is turned away above
    # A resumed session would bring back a certificate that was checked against authorities of yesterday.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    _load(context, files.authorities, files.certificate, files.key)
    return context


class ServerTls:
    """`context` is handed out once and stays; what it presents changes with the files."""

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._seen = self._state()
        self._current = _context(files)
        self._ends = _ends(files)
        self.reloads = 0
        self.refused_reloads = 0
        self.context = _context(files)
        self.context.sni_callback = self._at_handshake  # called for every handshake, with or without a server name

    def _at_handshake(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        self.refresh()
        connection.context = self._current

    def refresh(self) -> bool:
        """True if other files are in use now than before."""
        state = self._state()
        if state == self._seen:
            return False
        try:
            self._current, self._ends = _context(self.files), _ends(self.files)
        except (OSError, ssl.SSLError, UnsafeFile) as error:
            self.refused_reloads += 1
            log.error("the new certificates cannot be used, the old ones stay: %s", error)
            if not passes(error):
                self._seen = state  # told once, not at every handshake; tried again when anything about the files changes
            return False
        self._seen = state
        self.reloads += 1
        return True

    def ends(self) -> Ends:
        """Of what the next handshake shows."""
        self.refresh()
        return self._ends

    def _state(self) -> tuple[tuple[int, ...], ...]:
        return tuple(mark(path) for path in self.files)


def client_context(authorities: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """For whoever dials a plane: trusts our authority and no other. Of the files as they are now; see ClientTls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load(context, authorities, certificate, key)
    return context


class ClientTls:
    """For whoever dials for years: called before each connection, it gives a context made of the files as they are now. Files
    that do not fit together (one of two was written) are told in the log, and the context before them stays in use."""

    def __init__(self, authorities: Path, certificate: Path, key: Path) -> None:
        self.files = TlsFiles(certificate, key, authorities)
        self._seen = tuple(mark(path) for path in self.files)
        self._current = client_context(authorities, certificate, key)
        self._ends = _ends(self.files)

    def __call__(self) -> ssl.SSLContext:
        state = tuple(mark(path) for path in self.files)
        if state != self._seen:
            try:
                self._current = client_context(self.files.authorities, self.files.certificate, self.files.key)
                self._ends = _ends(self.files)
                self._seen = state
            except (OSError, ssl.SSLError, UnsafeFile) as error:
                log.error("the new certificates cannot be used, the old ones stay: %s", error)
        return self._current

    def ends(self) -> Ends:
        """Of what the next connection shows."""
        self()
        return self._ends


@functools.lru_cache(maxsize=1024)  # asked with every request that brings a token
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def why_not_listen(host: str, *, tls: bool, authentication: bool) -> str:
    """Empty: it may. Beyond this machine nothing is served in the open or to strangers, whatever the settings say."""
    if is_loopback(host):
        return ""
    missing = [word for word, there in (("TLS", tls), ("authentication", authentication)) if not there]
    return f"{host} is not loopback: it needs {' and '.join(missing)}" if missing else ""
