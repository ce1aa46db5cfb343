"""How an agent comes by its certificate and keeps it fresh: the other end of fairlead/api/identity_routes.py.

    pki/agent.key   made here before anything is asked; it never leaves this directory
    pki/agent.pem   what came back
    pki/ca.pem      whom the agent believes from then on
    pki/.agent.next/    a renewed set of the three, whole and on its way to these places

Whoever joins again with the same directory comes with the same key, so an answer that was lost on its way is asked for once more.
Renewal is asked for when two thirds of the certificate's life are over, or when the region says that its authority is being
rotated, over a connection made with the one at hand; new connections use what it brings (tls.ClientTls). The three are replaced
together: a machine that loses power, or has no room on its disk, is left with the old set or with the new one, never with a key
that does not fit its certificate. Called by the agent's program and by `fairlead agent --join`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import ssl
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from cryptography import x509

from fairlead.ports import Clock
from fairlead.security import certificates
from fairlead.security.certificates import BadCertificate, instant, new_request, request_for, signed_by
from fairlead.security.files import UnsafeFile, read_private, write, write_private
from fairlead.security.hidden import Hidden
from fairlead.security.tls import ClientTls, TlsFiles, client_context

log = logging.getLogger(__name__)

JOIN_PATH: Final = "/fairlead/v1/join"
RENEW_PATH: Final = "/fairlead/v1/renew"
AUTHORITIES_PATH: Final = "/fairlead/v1/authorities"
LOOK_S: Final = 60.0  # how often a certificate's age is looked at
AUTHORITIES_S: Final = 600.0  # how often it is asked whom to believe; the runbooks tell people to wait for longer
ANSWER_S: Final = 15.0
_ANSWER_BYTES_MAX: Final = 256 * 1024


class CannotJoin(Exception):
    """In words for whoever started the agent."""


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    """What the node was approved to be, as far as its agent needs it."""

    capacity: dict[str, str] = {}
    zone: str = ""
    pool: str = ""
    max_slots: int = 110
    devices: dict[str, int] = {}  # resource -> how many at most


class Authorities(msgspec.Struct, frozen=True):
    """Whom a region's servers believe, the newest first, and which of these signs."""

    authorities: str
    signer: str


class Certified(msgspec.Struct, frozen=True):
    """The answer to both requests."""

    node: str
    region: str
    certificate: str
    authorities: str
    profile: Profile | None = None


def files_in(state: Path) -> TlsFiles:
    folder = state / "pki"
    return TlsFiles(folder / "agent.pem", folder / "agent.key", folder / "ca.pem")


async def join(state: Path, token: Hidden, addresses: Sequence[str], authorities: Path) -> Certified:
    """Asks the region's servers one after the other. A token is spent with the first that takes it."""
    files = files_in(state)
    settle(files)
    if files.key.exists():
        request = request_for(Hidden(read_private(files.key)))
    else:
        request, key = new_request()
        write_private(files.key, key.reveal_bytes())
    body = {"token": token.reveal().strip(), "request": request.decode()}
    why = "no server was named"
    for address in addresses:
        try:
            got = await _ask(address + JOIN_PATH, body, client_context(authorities))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = f"{address} cannot be reached: {error}"
            continue
        if isinstance(got, Certified):
            write(files.authorities, got.authorities.encode())
            write(files.certificate, got.certificate.encode())
            return got
        why = f"{address}: {got}"
    raise CannotJoin(why)


def identity(files: TlsFiles) -> ClientTls:
    """What an agent shows and whom it believes, of a directory in which a renewal may have been cut short."""
    try:
        settle(files)
    except OSError as error:
        log.error("the renewed certificate cannot be put in its place, which is tried again: %s", error)
    return ClientTls(files.authorities, files.certificate, files.key)


class Renewal:
    """A certificate that never runs out while its region can be reached."""

    def __init__(self, files: TlsFiles, addresses: Sequence[str], clock: Clock) -> None:
        self._files = files
        self._addresses = addresses
        self._clock = clock
        self._tls = identity(files)
        self._ask_at = 0.0  # monotonic
        self.renewals = 0

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> bool:
        """True: a new certificate is in place."""
        try:
            settle(self._files)
            certificate = certificates.load(self._files.certificate.read_bytes())
            presented = certificates.read(certificate)
            believed = self._files.authorities.read_bytes()
        except (OSError, BadCertificate) as error:
            log.error("the certificate cannot be read: %s", error)
            return False
        if certificates.due(presented, instant(self._clock.wall())):
            return await self._renew()
        if self._clock.monotonic() < self._ask_at:
            return False
        told = await self._told()
        rotated = told is not None and _is_rotated(certificate, believed, told)
        renewed = rotated and await self._renew()
        if renewed or not rotated:
            self._ask_at = self._clock.monotonic() + AUTHORITIES_S
        return renewed

    async def _told(self) -> Authorities | None:
        """None: no server said it. Those of an older version do not know the question."""
        for address in self._addresses:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, UnsafeFile):
                return await _authorities_of(address + AUTHORITIES_PATH, self._tls())
        return None

    async def _renew(self) -> bool:
        request, key = new_request()
        why = "no server was named"
        for address in self._addresses:
            try:
                got = await _ask(address + RENEW_PATH, {"request": request.decode()}, self._tls())
            except (aiohttp.ClientError, OSError, TimeoutError, UnsafeFile) as error:
                why = f"{address}: {error}"
                continue
            if isinstance(got, Certified):
                try:
                    _replace(self._files, key, got)
                except OSError as error:
                    why = f"it cannot be kept: {error}"
                    break
                self.renewals += 1
                log.info("renewed the certificate of %s", got.node)
                return True
            why = f"{address}: {got}"
        log.warning("the certificate could not be renewed, which is tried again: %s", why)
        return False


def _is_rotated(certificate: x509.Certificate, believed: bytes, told: Authorities) -> bool:
    """A server that has not been given the new authority yet knows less than this agent: nothing is taken back for it."""
    try:
        own, theirs = (x509.load_pem_x509_certificates(pem) for pem in (believed, told.authorities.encode()))
        signer = x509.load_pem_x509_certificate(told.signer.encode())
    except ValueError as error:
        log.warning("whom the region believes cannot be read: %s", error)
        return False
    if theirs[0] != own[0] and set(theirs) <= set(own):
        return False
    return set(theirs) != set(own) or not signed_by(certificate, signer)


def _next(files: TlsFiles) -> Path:
    return files.certificate.with_name(f".{files.certificate.stem}.next")


def _replace(files: TlsFiles, key: Hidden, got: Certified) -> None:
    """All three or none. Raises OSError, also of a set that does not fit together (ssl.SSLError)."""
    ready = _next(files)
    fresh = TlsFiles(*(ready.with_suffix(".new") / name for name in TlsFiles._fields))
    folder = fresh.key.parent
    write_private(fresh.key, key.reveal_bytes())
    write(fresh.certificate, got.certificate.encode())
    write(fresh.authorities, got.authorities.encode())
    client_context(fresh.authorities, fresh.certificate, fresh.key)
    _sync(folder)
    folder.rename(ready)  # from here on it is the new set, whatever happens
    _sync(ready.parent)
    settle(files)


def settle(files: TlsFiles) -> None:
    """Brings a whole new set to its place, where one is waiting. Raises OSError: then it waits on."""
    ready = _next(files)
    if not ready.exists():
        return
    for name, place in zip(TlsFiles._fields, files, strict=True):
        with contextlib.suppress(FileNotFoundError):  # it is there already
            _move(ready / name, place)
    for folder in {place.parent for place in files}:
        _sync(folder)
    shutil.rmtree(ready)


def _move(source: Path, place: Path) -> None:
    try:
        source.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write(place, source.read_bytes(), stat.S_IMODE(source.stat().st_mode))
        source.unlink()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


async def _ask(url: str, body: dict[str, Any], tls: ssl.SSLContext) -> Certified | str:
    """The certificate, or why there is none."""
    async with asyncio.timeout(ANSWER_S), aiohttp.ClientSession() as session:
        secure = tls if url.startswith("https:") else True
        async with session.post(url, data=msgspec.json.encode(body), ssl=secure, allow_redirects=False) as answer:
            text = await _whole(answer)
            if answer.status != 200:
                return _message(text) or f"answered {answer.status}"
    try:
        return msgspec.json.decode(text, type=Certified)
    except msgspec.DecodeError as error:
        return f"an answer that cannot be read: {error}"


async def _authorities_of(url: str, tls: ssl.SSLContext) -> Authorities | None:
    async with asyncio.timeout(ANSWER_S), aiohttp.ClientSession() as session:
        secure = tls if url.startswith("https:") else True
        async with session.get(url, ssl=secure, allow_redirects=False) as answer:
            text = await _whole(answer)
            if answer.status != 200:
                return None
    try:
        return msgspec.json.decode(text, type=Authorities)
    except msgspec.DecodeError:
        return None


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    """An answer comes in as many pieces as the network likes. Empty: it is longer than any that is one."""
    text = b""
    async for piece in answer.content.iter_any():
        text += piece
        if len(text) > _ANSWER_BYTES_MAX:
            return b""
    return text


def _message(text: bytes) -> str:
    try:
        return str(msgspec.json.decode(text).get("message", ""))[:500]
    except (msgspec.DecodeError, AttributeError):
        return ""
