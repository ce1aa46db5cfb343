"""What is read of somebody who has proven nothing yet: little, and not for long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from fairlead.api import identity_routes
from fairlead.api.identity import Unauthenticated
from fairlead.api.identity_routes import JOIN_PATH, joining_routes
from fairlead.decide.access import Identity
from fairlead.model.commands import Refused
from fairlead.security.certificates import LocalAuthority, new_request
from fairlead.security.joining import FileIssuer, Joining
from tests.security.places import Place


def nobody(request: Any) -> Identity:
    raise Unauthenticated("nobody")


async def asked(parts: list[dict[str, Any]], path: str = JOIN_PATH) -> tuple[int, Any]:
    """The answer to a body that comes in these parts and then not at all."""
    routes = {route.path: route for route in joining_routes(cast(Joining, None), nobody)}
    scope = {
        "type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [], "scheme": "https",
        "server": ("plane", 443), "client": ("10.0.0.9", 5000), "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        if not parts:
            await asyncio.Event().wait()
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await routes[path].handle(scope, receive, send)
    return sent[0]["status"], msgspec.json.decode(b"".join(part.get("body", b"") for part in sent[1:]))


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_join_that_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_routes, "BODY_S", 0.05)
    status, said = await asked([part(b"{")])
    assert (status, said["reason"]) == (408, "Timeout")


async def test_a_join_that_sends_too_much_nonsense_or_goes_away_is_refused() -> None:
    assert (await asked([part(b"x" * 10_000), part(b"x" * 10_000)]))[0] == 413
    assert (await asked([part(b"x", more=False)]))[0] == 400
    assert (await asked([part(b"x"), {"type": "http.disconnect"}]))[0] == 400
    assert (await asked([part(b'{"request": "x"}', more=False)], identity_routes.RENEW_PATH))[0] == 401


@pytest.mark.parametrize("file", ["ca.key", "ca.pem"])
def test_while_the_authority_s_files_are_half_copied_nodes_are_told_to_ask_again(tmp_path: Path, file: str) -> None:
    place = Place(tmp_path)
    joining = Joining(cast(Any, None), place.clock, place.issuer, "eu-west")
    agent = Identity(name="node-1", kind="agent", node="node-1", region="eu-west")
    assert joining.authorities() is not None
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[:80])
    assert joining.authorities() is None
    refused = joining.renew(agent, new_request()[0])
    assert isinstance(refused, Refused)
    assert refused.reason == "StoreUnavailable"
    (tmp_path / file).write_bytes(whole)
    assert not isinstance(joining.renew(agent, new_request()[0]), Refused)


def test_whoever_asks_whom_to_believe_a_thousand_times_has_the_key_read_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, read = Place(tmp_path), list[str]()

    class Counted(FileIssuer):
        def authority(self) -> LocalAuthority:
            read.append("key")
            return super().authority()

    joining = Joining(cast(Any, None), place.clock, Counted(tmp_path / "ca.pem", tmp_path / "ca.key"), "eu-west")
    told = joining.authorities()
    assert told is not None
    assert [joining.authorities() for _ in range(1_000)] == [told] * 1_000
    assert read == ["key"]
    whole = (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.key").write_bytes(whole[:80])
    assert [joining.authorities() for _ in range(1_000)] == [None] * 1_000
    assert (len(read), len(caplog.records)) == (2, 1)
    (tmp_path / "ca.key").write_bytes(whole)
    assert joining.authorities() == told
    Place(tmp_path, "two")
    rotated = joining.authorities()
    assert rotated is not None
    assert rotated != told, "a rotation is told at once"
