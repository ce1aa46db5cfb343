"""A renewal that is cut short, at whatever step, leaves an agent that starts again with a certificate that fits its key."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from fairlead.security import certificates, enrolment
from fairlead.security.certificates import LocalAuthority, Named, Pair, instant, requested_key
from fairlead.security.enrolment import JOIN_PATH, Authorities, CannotJoin, Certified, Renewal, identity, join, settle
from fairlead.security.files import write, write_private
from fairlead.security.hidden import Hidden
from fairlead.security.tls import TlsFiles
from tests.security.places import Place

AGENT = Named("agent", "node-1", ("agent",), "eu-west")
STEPS = ("mkdir", "open", "fsync", "rename", "replace", "rmdir", "unlink")  # all that a renewal does to a disk


class PowerCut(BaseException):
    pass


class Node:
    """An agent's directory with a certificate that is due, and a region that renews it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, place: Place | None = None) -> None:
        self.place = place or Place(folder / "region")
        self.pki = folder / "pki"
        self.files = TlsFiles(self.pki / "agent.pem", self.pki / "agent.key", self.pki / "ca.pem")
        self.now = instant(self.place.clock.wall())
        self.asked = 0
        pair = self.place.authority.issue(AGENT, self.now, lifetime=timedelta(minutes=1))
        write_private(self.files.key, pair.key.reveal_bytes())
        write(self.files.certificate, pair.certificate)
        write(self.files.authorities, self.place.pair.certificate)
        monkeypatch.setattr(enrolment, "_ask", self.answer)
        self.told: Authorities | None = None
        monkeypatch.setattr(enrolment, "_authorities_of", self.tell)

    async def answer(self, url: str, body: dict[str, Any], tls: ssl.SSLContext) -> Certified:
        self.asked += 1
        signed = self.place.authority.sign(AGENT, requested_key(body["request"].encode()), self.now)
        return Certified("node-1", "eu-west", signed.decode(), self.place.authorities.read_text())

    async def tell(self, url: str, tls: ssl.SSLContext) -> Authorities | None:
        return self.told

    def rotated(self, *, believed: Sequence[Pair], signs: Pair) -> None:
        """What the region's servers have been given."""
        write(self.place.authorities, b"".join(pair.certificate for pair in believed))
        self.place.authority = LocalAuthority(signs)
        self.told = Authorities(self.place.authorities.read_text(), signs.certificate.decode())

    def renewal(self) -> Renewal:
        return Renewal(self.files, ["https://region"], self.place.clock)

    @property
    def is_young(self) -> bool:
        presented = certificates.read(certificates.load(self.files.certificate.read_bytes()))
        return presented.not_after - self.now > timedelta(days=20)


class Disk:
    """Counts what is done to it, and fails from step `fails` on."""

    def __init__(self, patched: pytest.MonkeyPatch, fails: int, error: Callable[[], BaseException]) -> None:
        self.steps = 0
        for name in STEPS:
            patched.setattr(os, name, self._counted(getattr(os, name), fails, error))

    def _counted(self, real: Any, fails: int, error: Callable[[], BaseException]) -> Any:
        def step(*args: Any, **fields: Any) -> Any:
            self.steps += 1
            if self.steps > fails:
                raise error()
            return real(*args, **fields)

        return step


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


async def test_a_power_cut_at_any_step_leaves_the_old_certificate_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young: list[bool] = []
    place = Place(tmp_path / "region")
    for fails in range(1000):
        node = Node(tmp_path / str(fails), monkeypatch, place)
        renewal = node.renewal()
        with monkeypatch.context() as patched:
            Disk(patched, fails, PowerCut)
            try:
                assert await renewal.look()
                over = True
            except PowerCut:
                over = False
        identity(node.files)  # the next agent starts: its files fit
        young.append(node.is_young)
        assert node.is_young or await node.renewal().look(), "and it renews what is still due"
        assert {"agent.key", "agent.pem", "ca.pem"} == set(os.listdir(node.pki)) - {".agent.new"}
        if over:
            break
    assert len(young) > 10
    assert young == sorted(young), "from one step on it is the new one"
    assert not young[0]
    assert sum(young) > 3, "it is switched before the three files have moved"


async def test_a_full_disk_ends_nobody_and_the_renewal_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "region")
    for fails in range(1000):
        node = Node(tmp_path / str(fails), monkeypatch, place)
        renewal = node.renewal()
        with monkeypatch.context() as patched:
            disk = Disk(patched, fails, full)
            renewed = await renewal.look()
        renewal._tls()
        assert await renewal.look() or node.is_young
        identity(node.files)
        assert node.is_young
        if renewed and disk.steps <= fails:
            break
    else:
        pytest.fail("it never came to its end")
    assert node.asked == 1


async def test_a_certificate_that_does_not_fit_the_key_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    before = node.files.certificate.read_bytes()

    async def of_another(*_: Any) -> Certified:
        pair = node.place.authority.issue(AGENT, node.now)
        return Certified("node-1", "eu-west", pair.certificate.decode(), node.place.pair.certificate.decode())

    monkeypatch.setattr(enrolment, "_ask", of_another)
    assert not await node.renewal().look()
    assert node.files.certificate.read_bytes() == before
    identity(node.files)


async def test_files_on_another_disk_are_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, replace = Node(tmp_path, monkeypatch), os.replace

    def apart(source: Any, target: Any) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr(os, "replace", apart)
    assert await node.renewal().look()
    identity(node.files)
    assert node.is_young
    assert node.files.key.stat().st_mode & 0o777 == 0o600


def test_a_directory_in_which_nothing_is_on_its_way_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    before = {path.name: path.read_bytes() for path in node.pki.iterdir()}
    settle(node.files)
    assert {path.name: path.read_bytes() for path in node.pki.iterdir()} == before


async def test_a_young_certificate_follows_the_rotation_of_the_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    at = 0.0
    clock: Any = SimpleNamespace(wall=node.place.clock.wall, monotonic=lambda: at)
    renewal = Renewal(node.files, ["https://region"], clock)
    assert await renewal.look(), "it was due"
    old, new = node.place.pair, LocalAuthority.create("two", node.now)

    async def looked() -> bool:
        nonlocal at
        at += enrolment.AUTHORITIES_S
        return await renewal.look()

    assert not await looked(), "an older server does not know the question"
    node.rotated(believed=[old], signs=old)
    assert not await looked()
    node.rotated(believed=[new, old], signs=old)
    assert not await renewal.look(), "it is not asked at every look"
    assert await looked(), "whom it will have to believe"
    assert node.files.authorities.read_bytes() == new.certificate + old.certificate
    assert not await looked()
    node.rotated(believed=[new, old], signs=new)
    assert await looked(), "the new one signs"
    assert not await looked()
    node.rotated(believed=[old], signs=old)
    assert not await looked(), "a server that was not given the new one yet takes nothing back"
    node.rotated(believed=[new], signs=new)
    assert await looked(), "the old one is believed no more"
    assert node.files.authorities.read_bytes() == new.certificate
    assert not await looked()


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[str]:
    """A server whose answers come in these pieces, each when the one before has been read."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        return response

    app = web.Application()
    app.router.add_post(JOIN_PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


async def test_an_answer_in_pieces_is_read_to_its_end_and_no_further_than_it_may_be_long(tmp_path: Path) -> None:
    authorities = Place(tmp_path / "region").authorities
    whole = msgspec.json.encode(Certified("node-1", "eu-west", "x" * 3000, "y" * 3000))
    async with answering(whole[:1400], whole[1400:2000], whole[2000:]) as address:
        got = await join(tmp_path / "node", Hidden("t"), [address], authorities)
    assert (got.node, len(got.certificate), len(got.authorities)) == ("node-1", 3000, 3000)
    async with answering(b'{"node": "', *(b"x" * 100_000 for _ in range(3)), b'"}') as address:
        with pytest.raises(CannotJoin, match="cannot be read"):
            await join(tmp_path / "node", Hidden("t"), [address], authorities)
