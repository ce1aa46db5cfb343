"""The server around the application: bounds before authentication, TLS, and an end that cuts nobody off."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import msgspec
import pytest

from fairlead.api import calls, room, server
from fairlead.api.server import make_server
from tests.api.doors import GROUP, call, listening, open_door, server_context, workload, write_certificates

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(port: int) -> Pair:
    return await asyncio.open_connection("127.0.0.1", port)


async def answer_to(pair: Pair, *parts: bytes) -> bytes:
    reader, writer = pair
    for part in parts:
        writer.write(part)
    await writer.drain()
    async with asyncio.timeout(60):
        got = await reader.read()
    writer.close()
    return got


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: door", "authorization: Bearer ada-token", "connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.2)
    async with open_door() as door, listening(door.app, None) as listener:
        for beginning in (b"", b"GET / HTTP/1.1\r\nhost: x\r\n"):
            got = await answer_to(await connected(listener.port), beginning)
            assert got.startswith(b"HTTP/1.1 408")
        monkeypatch.setattr(server, "HEAD_S", 60.0)  # a busy machine is not to be late with one that comes
        whole = await answer_to(await connected(listener.port), request("GET", "/version"))
        assert b"200 OK" in whole


async def test_a_kept_connection_must_send_its_next_head_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 1.0)
    async with open_door() as door, listening(door.app, None) as listener:
        keep = request("GET", "/version").replace(b"connection: close\r\n", b"")
        got = await answer_to(await connected(listener.port), keep + b"GET /half HTTP/1.1\r\n")
        assert got.count(b"HTTP/1.1 200") == 1
        assert b"HTTP/1.1 408" in got


@pytest.mark.parametrize(
    "head",
    [
        b"GET /version HTTP/1.1\r\n" + b"x-large: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /version HTTP/1.1\r\n" + b"".join(b"x-%d: a\r\n" % n for n in range(200)) + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /version HTTP/1.1\r\nx-endless: " + b"a" * 2_000_000,
    ],
)
async def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    async with open_door() as door, listening(door.app, None) as listener:
        reader, writer = await connected(listener.port)
        try:
            got = await answer_to((reader, writer), head)
        except ConnectionError:
            got = b"HTTP/1.1 431"  # refused before all of it was sent
        assert got.startswith(b"HTTP/1.1 431")


async def test_bodies_that_do_not_come_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "REQUESTS_MAX", 8)
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = msgspec.json.encode({"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}})
    async with open_door() as door, listening(door.app, None) as listener:
        slow = [await connected(listener.port) for _ in range(16)]
        for _, writer in slow:
            writer.write(request("POST", review, "content-type: application/json", f"content-length: {len(body)}"))
        for _ in range(20):  # by then all heads have been read
            another = request("GET", WORKLOADS).replace(b"ada-token", b"eve-token")
            got = await answer_to(await connected(listener.port), another)
            assert got.startswith(b"HTTP/1.1 200")
        answers = await asyncio.gather(*(answer_to(pair, body) for pair in slow))
        assert sorted(answer.split()[1] for answer in answers) == [b"201"] * 4 + [b"429"] * 12, (
            "its own share is half of the room"
        )


async def test_a_body_that_is_too_large_or_too_slow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BODY_S", 0.2)
    async with open_door() as door, listening(door.app, None) as listener:
        slow = await answer_to(await connected(listener.port), request("POST", WORKLOADS, "content-length: 100", body=b"{"))
        assert slow.startswith(b"HTTP/1.1 408")
        monkeypatch.setattr(calls, "BODY_S", 60.0)  # a busy machine takes its time over megabytes
        large = await answer_to(await connected(listener.port), request("POST", WORKLOADS, "content-length: 99999999"))
        assert large.startswith(b"HTTP/1.1 413")
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        endless = request("POST", WORKLOADS, "transfer-encoding: chunked")
        try:
            got = await answer_to(await connected(listener.port), endless, chunk, chunk, chunk, chunk)
        except ConnectionError:
            got = b"HTTP/1.1 413"  # refused before all of it was sent
        assert got.startswith(b"HTTP/1.1 413")


async def test_what_is_no_http_ends_the_connection_and_nothing_else() -> None:
    async with open_door() as door, listening(door.app, None) as listener:
        for noise in (b"\x16\x03\x01 hello", b"GET\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n"):
            got = await answer_to(await connected(listener.port), noise)
            assert got.startswith(b"HTTP/1.1 400")
        assert b"200 OK" in await answer_to(await connected(listener.port), request("GET", "/version"))


async def test_a_shutdown_ends_watches_with_a_last_chunk_and_finishes_requests(tmp_path: Path) -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        async with listening(door.app, None) as listener:
            pairs = [await connected(listener.port) for _ in range(20)]
            for reader, writer in pairs:
                writer.write(request("GET", f"{WORKLOADS}?watch=true&allowWatchBookmarks=true"))
                await reader.readuntil(b'"ADDED"')
            listener.stop()
            async with asyncio.timeout(60):
                ends = [await reader.read() for reader, _ in pairs]
        assert all(end.endswith(b"\r\n0\r\n\r\n") for end in ends)
        assert all(b"BOOKMARK" in end for end in ends)
        for _, writer in pairs:
            writer.close()


async def test_a_renewed_certificate_is_shown_to_the_next_client_without_a_restart(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    ca_old, certificate, key = write_certificates(old)
    ca_new, certificate_new, key_new = write_certificates(new)
    context = server_context(str(certificate), str(key))

    async def shakes_hands(port: int, ca: Path) -> bool:
        trust = ssl.create_default_context(cafile=str(ca))
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        except ssl.SSLError:
            return False
        writer.close()
        return True

    async with open_door() as door, listening(door.app, context) as listener:
        assert await shakes_hands(listener.port, ca_old)
        context.load_cert_chain(str(certificate_new), str(key_new))
        assert await shakes_hands(listener.port, ca_new)
        assert not await shakes_hands(listener.port, ca_old)


async def test_a_handshake_that_does_not_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_S", 2.0)  # longer than one takes that does end, on a busy machine too
    ca, certificate, key = write_certificates(tmp_path)
    async with open_door() as door, listening(door.app, server_context(str(certificate), str(key))) as listener:
        pairs = [await connected(listener.port) for _ in range(2)]
        for (_, writer), beginning in zip(pairs, (b"", b"\x16\x03\x01"), strict=True):
            writer.write(beginning)
        for reader, writer in pairs:
            async with asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()
        trust = ssl.create_default_context(cafile=str(ca))
        pair = await asyncio.open_connection("127.0.0.1", listener.port, ssl=trust)
        assert b"200 OK" in await answer_to(pair, request("GET", "/version"))


async def test_a_client_that_takes_nothing_of_its_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TAKE_S", 0.3)
    lost: list[bool] = []

    class Told(server.BoundedHttp):
        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(True)
            super().connection_lost(exc)

    monkeypatch.setattr(server.Server, "protocol", Told)
    async with open_door() as door, listening(door.app, None) as listener:
        whole = request("GET", "/openapi/v2").replace(b"connection: close\r\n", b"")
        _reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1)
        for _ in range(2_000):  # answers of half a megabyte that nobody reads: more than any buffer on the way holds
            writer.write(whole)
        async with asyncio.timeout(30):
            while not lost:
                await asyncio.sleep(0.02)
        writer.close()
        monkeypatch.setattr(server, "TAKE_S", 60.0)
        assert b"200 OK" in await answer_to(await connected(listener.port), request("GET", "/version"))


async def test_more_connections_than_there_is_room_for_are_turned_away() -> None:
    async with open_door() as door, listening(door.app, None, connections_max=3) as listener:
        held = [await connected(listener.port) for _ in range(3)]
        got = await answer_to(await connected(listener.port), request("GET", "/version"))
        assert got.startswith(b"HTTP/1.1 503")
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", b'{"a":' * 100 + b"1" + b"}" * 100),
        ("application/yaml", b"[" * 100 + b"]" * 100),
        ("application/yaml", b"a: &a [1, 2]\nb: [*a, *a]\n"),
        ("application/json", b"\xff\xfe"),
    ],
)
async def test_a_body_made_to_cost_much_is_refused_before_it_does(media: str, body: bytes) -> None:
    async with open_door() as door, listening(door.app, None) as listener:
        headers = (f"content-type: {media}", f"content-length: {len(body)}")
        got = await answer_to(await connected(listener.port), request("POST", WORKLOADS, *headers, body=body))
        assert got.startswith(b"HTTP/1.1 400"), got[:200]


async def test_nothing_listens_beyond_loopback_without_tls() -> None:
    async with open_door() as door:
        with pytest.raises(ValueError, match="without TLS"):
            make_server(door.app, host="0.0.0.0")


async def test_the_documents_are_not_sent_twice_to_whoever_has_them() -> None:
    async with open_door() as door:
        index = (await call(door, "GET", "/openapi/v3")).json
        path = index["paths"]["apis/fairlead.dev/v1alpha1"]["serverRelativeURL"]
        first = await call(door, "GET", path)
        assert first.headers["cache-control"] == "public, immutable"
        assert first.headers["etag"].strip('"') in path
        assert (await call(door, "GET", path, headers={"if-none-match": first.headers["etag"]})).status == 304
        assert msgspec.json.decode(first.body)["openapi"] == "3.0.0"
        old = await call(door, "GET", "/openapi/v2")
        assert "@" not in old.headers["content-type"]
        assert b"dev.fairlead.v1alpha1.Workload" in old.body
