"""TLS over real sockets: whose certificate a connection was made with, and certificates that change under a running server."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fairlead.api.identity import PEER_CERTIFICATE
from fairlead.security import certificates
from fairlead.security.certificates import LocalAuthority, Named, instant
from fairlead.security.files import UnsafeFile, write, write_private
from fairlead.security.tls import ClientTls, ServerTls, client_context, is_loopback, why_not_listen
from tests.security.places import Place, serving

AGENT = Named("agent", "node-1", ("agent",), "eu-west")


async def who(request: Request) -> PlainTextResponse:
    der = getattr(request.state, PEER_CERTIFICATE)
    return PlainTextResponse(certificates.read(certificates.load(der)).named.uri() if der else "nobody")


APP = Starlette(routes=[Route("/who", who)])


async def ask(address: str, tls: ssl.SSLContext) -> tuple[str, str]:
    """(what the server saw of us, which server it was). A connection of its own each time."""
    host, _, port = address.removeprefix("https://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.write(b"GET /who HTTP/1.1\r\nhost: plane\r\nconnection: close\r\n\r\n")
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    if not head.startswith("HTTP/1.1 200"):
        raise ConnectionError(head)
    return body, certificates.read(x509.load_der_x509_certificate(shown)).named.name


async def test_the_server_sees_the_certificate_a_connection_was_made_with(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with serving(APP, ServerTls(place.files)) as address:
        assert await ask(address, place.client(AGENT)) == ("fairlead:agent:node-1:eu-west:", "server-0")
        assert await ask(address, place.client()) == ("nobody", "server-0")


async def test_a_certificate_of_another_authority_an_expired_one_or_a_server_s_is_turned_away(tmp_path: Path) -> None:
    place, stranger = Place(tmp_path / "a"), Place(tmp_path / "b")
    now = instant(place.clock.wall())
    foreign = stranger.authority.issue(AGENT, now)
    past = place.authority.issue(AGENT, now - timedelta(days=2), lifetime=timedelta(days=1))
    future = place.authority.issue(AGENT, now + timedelta(hours=1))
    async with serving(APP, ServerTls(place.files)) as address:
        for name, pair in (("foreign", foreign), ("past", past), ("future", future), ("server", place.write_server("server-0"))):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                print(name, await ask(address, place.client_with(pair, name)))
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(address, stranger.client())


async def test_a_new_certificate_is_used_from_the_next_connection_on_without_a_restart(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tls = ServerTls(place.files)
    async with serving(APP, tls) as address:
        standing = aiohttp.ClientSession()
        async with standing.get(f"{address}/who", ssl=place.client(AGENT)) as answer:
            assert await answer.text() == "fairlead:agent:node-1:eu-west:"
        place.write_server("server-0-renewed")
        assert await ask(address, place.client()) == ("nobody", "server-0-renewed")
        assert tls.reloads == 1
        async with standing.get(f"{address}/who", ssl=place.client(AGENT)) as answer:
            assert answer.status == 200, "connections that stand are left alone"
        await standing.close()


async def test_the_authority_is_rotated_without_a_restart_and_the_old_one_is_believed_no_more(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tls = ServerTls(place.files)
    old_client = place.client(AGENT)
    async with serving(APP, tls) as address:
        assert (await ask(address, old_client))[0] != "nobody"
        fresh = LocalAuthority.create("two", instant(place.clock.wall()))
        write(place.authorities, fresh.certificate + place.pair.certificate)  # both are believed for a time
        old_too = client_context(place.authorities, tmp_path / "node-1.pem", tmp_path / "node-1.key")
        place.authority = LocalAuthority(fresh)
        place.write_server("server-0-two")
        assert await ask(address, old_too) == ("fairlead:agent:node-1:eu-west:", "server-0-two")
        write(place.authorities, fresh.certificate)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(address, old_too)
        assert (await ask(address, place.client(AGENT)))[0] == "fairlead:agent:node-1:eu-west:"
        assert tls.reloads >= 2


async def test_files_that_do_not_fit_or_that_others_may_read_are_not_put_to_use(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tls = ServerTls(place.files)
    async with serving(APP, tls) as address:
        good = place.files.key.read_bytes()
        other = place.authority.issue(Named("server", "x"), instant(place.clock.wall()), hosts=["localhost"])
        write_private(place.files.key, other.key.reveal_bytes())
        assert (await ask(address, place.client()))[1] == "server-0"
        write_private(place.files.key, good)
        place.files.key.chmod(0o644)
        assert (await ask(address, place.client()))[1] == "server-0"
        place.files.certificate.unlink()
        assert (await ask(address, place.client()))[1] == "server-0"
        assert (tls.reloads, tls.refused_reloads) == (0, 3)
        place.write_server("server-0-mended")
        assert (await ask(address, place.client()))[1] == "server-0-mended"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_that_came_with_the_wrong_owner_is_used_once_that_is_right(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tls = ServerTls(place.files)
    place.write_server("server-0-renewed")
    os.chown(place.files.key, 4242, 4242)
    assert [tls.refresh(), tls.refresh()] == [False, False]
    assert tls.refused_reloads == 1, "tried once, not at every handshake"
    os.chown(place.files.key, os.geteuid(), os.getegid())
    assert [tls.refresh(), tls.refresh(), tls.reloads] == [True, False, 1]


def test_files_that_could_not_be_read_for_want_of_a_descriptor_are_read_at_the_next_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    tls = ServerTls(place.files)
    place.write_server("server-0-renewed")

    def full(path: Path) -> bytes:
        raise OSError(errno.ENFILE, "Too many open files in system")

    with monkeypatch.context() as m:
        m.setattr("fairlead.security.tls.read_private", full)
        assert [tls.refresh(), tls.refresh(), tls.refused_reloads] == [False, False, 2]
    assert tls.refresh()


def test_no_server_or_client_starts_with_a_key_that_others_may_read(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.files.key.chmod(0o640)
    with pytest.raises(UnsafeFile):
        ServerTls(place.files)
    with pytest.raises(UnsafeFile):
        client_context(place.authorities, place.files.certificate, place.files.key)


def test_nothing_is_spoken_below_tls_1_3(tmp_path: Path) -> None:
    context = ServerTls(Place(tmp_path).files).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.num_tickets == 0


@pytest.mark.parametrize(
    ("host", "tls", "authentication", "missing"),
    [
        ("127.0.0.1", False, False, ""),
        ("::1", False, False, ""),
        ("localhost", False, False, ""),
        ("::ffff:127.0.0.1", False, False, ""),
        ("0.0.0.0", True, True, ""),
        ("0.0.0.0", False, True, "TLS"),
        ("0.0.0.0", True, False, "authentication"),
        ("::", False, False, "TLS and authentication"),
        ("10.0.0.7", False, False, "TLS and authentication"),
        ("example.org", False, False, "TLS and authentication"),
        ("127.0.0.1.example.org", False, True, "TLS"),
        ("", False, True, "TLS"),
    ],
)
def test_beyond_this_machine_nothing_listens_in_the_open_or_to_strangers(
    host: str, tls: bool, authentication: bool, missing: str
) -> None:
    why = why_not_listen(host, tls=tls, authentication=authentication)
    assert why.endswith(missing)
    assert bool(why) is bool(missing)
    assert is_loopback(host) is (host in ("127.0.0.1", "::1", "localhost", "::ffff:127.0.0.1"))


@pytest.mark.parametrize("dials", [False, True])
def test_it_is_told_when_that_ends_which_is_used_and_not_a_file_that_cannot_be(tmp_path: Path, dials: bool) -> None:
    place = Place(tmp_path)
    files, now = place.files, instant(place.clock.wall())
    tls = ClientTls(files.authorities, files.certificate, files.key) if dials else ServerTls(files)

    def days_left() -> tuple[int, int]:
        return tuple(round((instant(end_s) - now) / timedelta(days=1)) for end_s in tls.ends())  # type: ignore[return-value]

    def lay(days: int, mode: int = 0o600) -> None:
        named = Named("server", "server-0")
        pair = place.authority.issue(named, now, hosts=["localhost"], lifetime=timedelta(days=days))
        write(files.key, pair.key.reveal_bytes(), mode)
        write(files.certificate, pair.certificate)

    assert days_left() == (90, 3650)
    lay(3, mode=0o644)
    assert days_left() == (90, 3650)
    files.key.chmod(0o600)
    assert days_left() == (3, 3650)
    lay(50)
    assert days_left() == (50, 3650)
    newer = LocalAuthority.create("newer", now, timedelta(days=200))
    write(files.authorities, newer.certificate + place.pair.certificate)
    assert days_left() == (50, 3650), "the one that signed counts"
