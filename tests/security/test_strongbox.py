"""Secrets pass the authority's door sealed, and are opened for whoever was allowed to read them."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.compose.config import PlaneConfig
from fairlead.compose.guards import LastUses, Resealing, strongbox_of
from fairlead.compose.plane import PlaneServer
from fairlead.model.anchor import anchor_is_genuine, sign_anchor
from fairlead.model.commands import Accepted, Caller, Command, IdempotencyKey, Put, Refused
from fairlead.model.kinds.access import SYSTEM_TENANT, Subject, Token, TokenSpec
from fairlead.model.kinds.intent import Secret, SecretSpec, Tenant
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock, SystemIds, Tasks, system_random
from fairlead.security.directory import AccessDirectory
from fairlead.security.files import write_private
from fairlead.security.sealing import CannotOpen, Keyring, is_sealed, key_id
from fairlead.security.strongbox import LAST_APPLIED, Strongbox
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.api.doors import GROUP, Door, allow_all, authenticate, call
from tests.authority.planes import OPERATOR, PlaneForTest, ok

WORD = "correct-horse-battery-staple"
IDS = SystemIds()
MIRROR = Caller("mirror", Role.MIRROR)
SECRETS = f"{GROUP}/namespaces/risk/secrets"


def secret(name: str = "db", annotations: dict[str, str] | None = None, **data: str) -> Secret:
    metadata = Metadata(name=name, namespace="risk", annotations=annotations or {})
    return Secret(metadata=metadata, spec=SecretSpec(data=data))


def put(value: Secret, caller: Caller = OPERATOR) -> Command:
    return Command(caller, Put("Secret", value))


def passed(box: Strongbox, value: Secret, caller: Caller = OPERATOR) -> Secret:
    got = box.seal(put(value, caller))
    assert isinstance(got, Command), got
    assert isinstance(got.body, Put)
    found: Secret = got.body.object
    return found


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    Keyring.create(tmp_path / "keys", IDS)
    return tmp_path / "keys"


def test_the_door_seals_every_value_and_the_copy_that_apply_keeps(keys: Path) -> None:
    box = Strongbox(keys, IDS)
    sealed = passed(box, secret(annotations={LAST_APPLIED: f'{{"a":"{WORD}"}}', "x": "y"}, a=WORD, b=""))
    values = [*sealed.spec.data.values(), sealed.metadata.annotations[LAST_APPLIED]]
    assert all(is_sealed(value) for value in values)
    assert sealed.metadata.annotations["x"] == "y"
    assert WORD not in repr(msgspec.to_builtins(sealed))
    opened, why = box.open_for_reader(sealed)
    assert (opened.spec.data, opened.metadata.annotations[LAST_APPLIED], why) == ({"a": WORD, "b": ""}, f'{{"a":"{WORD}"}}', "")


def test_what_a_node_is_given_is_open_and_without_what_only_people_need(keys: Path) -> None:
    box = Strongbox(keys, IDS)
    raw = box.open_for_node(
        msgspec.msgpack.encode(msgspec.to_builtins(passed(box, secret(annotations={LAST_APPLIED: "x"}, a=WORD))))
    )
    assert WORD.encode() in raw
    assert LAST_APPLIED.encode() not in raw
    other = Strongbox(None, IDS)
    with pytest.raises(CannotOpen, match="no key"):
        other.open_for_node(msgspec.msgpack.encode(msgspec.to_builtins(passed(box, secret(a=WORD)))))


def test_without_a_key_nothing_is_written_in_the_clear_and_sealed_copies_pass(keys: Path) -> None:
    box, none = Strongbox(keys, IDS), Strongbox(None, IDS)
    sealed = passed(box, secret(a=WORD))
    refused = none.seal(put(secret(a=WORD)))
    assert isinstance(refused, Refused)
    assert "--seal-key" in refused.detail
    assert isinstance(none.seal(put(secret(a=WORD), MIRROR)), Refused), "not even from a mirror"
    assert passed(none, sealed, MIRROR) == sealed
    shown, why = none.open_for_reader(sealed)
    assert (shown, "no key" in why) == (sealed, True)


def test_sealed_text_of_another_secret_is_refused(keys: Path) -> None:
    box = Strongbox(keys, IDS)
    stolen = passed(box, secret("db", a=WORD)).spec.data["a"]
    refused = box.seal(put(secret("mine", a=stolen)))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.faults[0].path) == ("Invalid", "spec.data")


def test_a_rotated_file_is_used_at_once_and_one_that_cannot_be_used_is_not(keys: Path) -> None:
    box = Strongbox(keys, IDS)
    before, hashed = passed(box, secret(a=WORD)), box.hash_key()
    Keyring.load(keys, IDS).rotated().save(keys)
    assert box.stale(before)
    after = passed(box, before)
    assert key_id(after.spec.data["a"]) != key_id(before.spec.data["a"])
    assert box.open_for_reader(before)[0].spec.data == box.open_for_reader(after)[0].spec.data == {"a": WORD}
    assert box.hash_key() == hashed, "the same request is the same request under a new key"
    write_private(keys, b"nonsense\n")
    assert passed(box, secret(a=WORD)) == after
    keys.unlink()
    assert passed(box, secret(a=WORD)) == after


def test_a_rotated_file_that_came_with_the_wrong_mode_is_used_once_that_is_right(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = Strongbox(keys, IDS)
    before, fresh = box.current, keys.with_name("copied")
    Keyring.load(keys, IDS).rotated().save(fresh)
    fresh.chmod(0o644)
    fresh.replace(keys)
    assert [box.current, box.current] == [before, before]
    assert len([r for r in caplog.records if "cannot be used" in r.message]) == 1, "told once, not with every question"
    keys.chmod(0o600)
    assert box.current == Keyring.load(keys, IDS).current != before


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00\n", "k1 \u00e9\n".encode(), b"k1 AAAA\n", b""])
def test_while_a_new_file_is_senseless_the_old_keys_stay(keys: Path, garbage: bytes) -> None:
    box = Strongbox(keys, IDS)
    before = box.current
    write_private(keys, garbage)
    assert box.current == before
    assert box.anchor_key()
    assert is_sealed(passed(box, secret(password=WORD)).spec.data["password"])
    with pytest.raises(CannotOpen):
        Keyring.load(keys, IDS)


def test_keys_that_could_not_be_read_for_want_of_a_descriptor_are_read_at_the_next_question(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Strongbox(keys, IDS)
    before = box.current
    Keyring.load(keys, IDS).rotated().save(keys)

    def load(path: Path, ids: object) -> Keyring:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as m:
        m.setattr(Keyring, "load", load)
        assert box.current == before
    assert box.current != before


def test_no_server_starts_without_the_keys_it_was_promised_and_it_says_which(keys: Path) -> None:
    config = PlaneConfig(plane="global", store="memory:", data="unused", seal_keys=str(keys))
    assert strongbox_of(config, IDS).current
    keys.write_bytes(b"nonsense")
    for mode, words in ((0o644, "chmod 600"), (0o600, "a key is its id")):
        keys.chmod(mode)
        with pytest.raises(ValueError, match=words):
            strongbox_of(config, IDS)
    keys.unlink()
    with pytest.raises(ValueError, match="sealKeys"):
        strongbox_of(config, IDS)


# --- in a plane ----------------------------------------------------------------------------------------------------------------


class Guarded:
    def __init__(self, box: Strongbox, authority: Authority, store: MemoryStore) -> None:
        self.box = box
        self.store = store
        self.plane = PlaneForTest(authority, SystemClock())
        self.local = LocalPlane(authority, SystemClock())
        app = make_app(
            FrontDoor({"global": self.local}, SystemClock()), authenticate, allow_all, clock=SystemClock(), secrets=box
        )
        self.door = Door({"global": self.plane}, {}, app)

    def kept(self, name: str = "db") -> dict[str, str]:
        row = self.plane.authority.view().get("secrets", "risk", name)
        assert row is not None
        data: dict[str, str] = row.decode().spec.data
        return data

    def position(self, name: str = "db") -> int:
        row = self.plane.authority.view().get("secrets", "risk", name)
        assert row is not None
        return row.position


@asynccontextmanager
async def guarded(keys: Path, plane: str = "global") -> AsyncIterator[Guarded]:
    box, store = Strongbox(keys, IDS), MemoryStore(MemoryDisk())
    timing = Timing(lease_ttl_s=2.0, renew_s=0.5, poll_s=0.02)
    settings = Settings(plane=plane, region=plane)
    authority = Authority(store, SystemClock(), IDS, settings, timing=timing, door=box.seal)
    async with Tasks() as tasks:
        task = tasks.start(authority.run(), "authority")
        await authority.wait_leading()
        made = Guarded(box, authority, store)
        ok(await made.plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="risk")))))
        yield made
        authority.stop()
        await task


async def test_no_journal_entry_holds_what_was_written_whoever_wrote_it(keys: Path) -> None:
    async with guarded(keys) as world:
        ok(await world.plane.send(OPERATOR, Put("Secret", secret("direct", a=WORD))))
        body = {"metadata": {"name": "db"}, "spec": {"data": {"a": WORD}}}
        assert (await call(world.door, "POST", SECRETS, body, headers={"Idempotency-Key": "k1"})).status == 201
        assert (await call(world.door, "PUT", f"{SECRETS}/db", {**body, "spec": {"data": {"a": WORD, "b": WORD}}})).status == 200
        assert all(is_sealed(value) for name in ("direct", "db") for value in world.kept(name).values())
        tail = await world.store.tail(0)
        assert isinstance(tail, list)
        assert len(tail) > 3
        assert all(WORD.encode() not in batch.blob for batch in tail)


async def test_the_same_value_written_again_makes_no_revision_by_any_verb(keys: Path) -> None:
    async with guarded(keys) as world:
        body: dict[str, Any] = {"metadata": {"name": "db"}, "spec": {"data": {"a": WORD}}}
        apply = f"{SECRETS}/db?fieldManager=me"
        text = msgspec.json.encode({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Secret", **body})
        assert (await call(world.door, "PATCH", apply, text, media="application/apply-patch+yaml")).status == 201
        at = world.position()
        for method, path, media, sent in (
            ("PATCH", apply, "application/apply-patch+yaml", text),
            (
                "PATCH",
                f"{SECRETS}/db?fieldManager=me",
                "application/merge-patch+json",
                msgspec.json.encode({"spec": body["spec"]}),
            ),
            ("PUT", f"{SECRETS}/db?fieldManager=me", "application/json", text),
        ):
            answer = await call(world.door, method, path, sent, media=media)
            assert (answer.status, world.position(), answer.json["spec"]["data"]) == (200, at, {"a": WORD}), method
        shown = (await call(world.door, "GET", f"{SECRETS}/db")).json
        shown["spec"]["data"]["b"] = "two"
        assert (await call(world.door, "PUT", f"{SECRETS}/db", shown)).status == 200
        listed = (await call(world.door, "GET", SECRETS)).json["items"]
        assert [item["spec"]["data"] for item in listed] == [{"a": WORD, "b": "two"}]
        test = msgspec.json.encode(
            [{"op": "test", "path": "/spec/data/a", "value": WORD}, {"op": "remove", "path": "/spec/data/a"}]
        )
        assert (await call(world.door, "PATCH", f"{SECRETS}/db", test, media="application/json-patch+json")).status == 200
        assert (await call(world.door, "GET", f"{SECRETS}/db")).json["spec"]["data"] == {"b": "two"}


async def test_a_command_sent_twice_under_one_id_is_the_same_command(keys: Path) -> None:
    async with guarded(keys) as world:
        command = Command(OPERATOR, Put("Secret", secret(a=WORD)), IdempotencyKey("once"))
        first, second = await world.local.submit([command, command])
        assert isinstance(first, Accepted)
        assert isinstance(second, Accepted)
        assert (second.revision, second.replayed) == (first.revision, True)


async def test_of_several_commands_the_door_turns_away_one_and_lets_the_others_in(keys: Path) -> None:
    async with guarded(keys) as world:
        good, bad = put(secret("good", a=WORD)), put(secret("bad", a="fairlead:v1:nokey:AAAA"))
        outcomes = await world.local.submit([good, bad, put(secret("better", a=WORD))])
        assert [type(outcome) for outcome in outcomes] == [Accepted, Refused, Accepted]
        assert isinstance(outcomes[0], Accepted)
        assert outcomes[0].key == "secrets/risk/good"


async def test_under_a_new_key_every_secret_is_sealed_anew_but_copies(keys: Path) -> None:
    async with guarded(keys, "region") as world:
        for name in ("one", "two"):
            ok(await world.plane.send(OPERATOR, Put("Secret", secret(name, a=WORD))))
        copied = passed(world.box, secret("copied", {"fairlead.dev/mirrored-uid": "u"}, a=WORD))
        ok(await world.plane.send(await world.plane.as_role(Role.MIRROR), Put("Secret", copied)))
        work = Resealing(world.local, world.box, SystemClock())
        assert await work.round() == 0
        before = world.kept("copied")
        Keyring.load(keys, IDS).rotated().save(keys)
        assert await work.round() == 2
        assert await work.round() == 0
        assert {key_id(world.kept(name)["a"]) for name in ("one", "two")} == {world.box.current}
        assert world.kept("copied") == before
        assert (await call(world.door, "GET", f"{SECRETS}/one")).json["spec"]["data"] == {"a": WORD}


async def test_when_tokens_were_used_is_written_down_so_many_at_a_time(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.compose.guards.USES_MAX", 2)
    async with guarded(keys) as world:
        directory = AccessDirectory(world.local, SystemClock())
        await directory.load()
        for number in range(3):
            spec = TokenSpec(
                hash="sha256:" + f"{number}" * 64, subject=Subject(name="ada"), expiry_time=directory.now() + timedelta(hours=1)
            )
            ok(
                await world.plane.send(
                    OPERATOR, Put("Token", Token(metadata=Metadata(name=f"t{number}", namespace=SYSTEM_TENANT), spec=spec))
                )
            )
            stored = directory.token(SYSTEM_TENANT, f"t{number}")
            assert stored is not None
            directory.note_use(stored)
        chore = LastUses(directory, world.local, SystemClock())
        assert await chore.round() == 2
        assert await chore.round() == 0, "what was left waits until it is used again"
        used = [row.decode().status.last_used_time for row in await world.local.list("tokens")]
        assert [time is not None for time in used] == [True, True, False]
        assert all(time is None or (time.minute, time.second) == (0, 0) for time in used), "to the hour"


def test_a_server_signs_where_it_cuts_its_journal_and_a_rotated_key_signs_from_then_on(tmp_path: Path) -> None:
    keys = tmp_path / "secrets.keys"
    ring = Keyring.create(keys, IDS)
    config = PlaneConfig(plane="region", region="r", store="memory:", data=str(tmp_path), seal_keys=str(keys))
    server = PlaneServer(config, MemoryStore(MemoryDisk()), SystemClock(), IDS, system_random())
    signing = server.authority._timing.journal.anchor_key
    signed = sign_anchor(signing(), 7, b"\1" * 32, 1)
    assert anchor_is_genuine(ring.anchor_keys(), signed)
    newer = ring.rotated()
    newer.save(keys)
    again = sign_anchor(signing(), 8, b"\2" * 32, 2)
    assert anchor_is_genuine(newer.anchor_keys(), signed), "what was signed before the rotation"
    assert anchor_is_genuine(newer.anchor_keys(), again)
    assert not anchor_is_genuine(ring.anchor_keys(), again), "the new key signs"
    assert not anchor_is_genuine(newer.anchor_keys(), sign_anchor(b"", 8, b"\2" * 32, 2)), "one without a key proves nothing"
