"""Secrets do not show themselves, at rest they are sealed, and key files are their owner's alone."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlead.model import codec
from fairlead.ports import SystemIds
from fairlead.security.files import UnsafeFile, read_private, write, write_private
from fairlead.security.hidden import Hidden
from fairlead.security.sealing import CannotOpen, Keyring, is_sealed, key_id

WORD = "correct horse battery staple"


@pytest.mark.parametrize(
    "show",
    [
        str,
        "{}".format,
        lambda h: f"{h:>10}",
        lambda h: "".join(["a", h]),
        msgspec.json.encode,
        msgspec.msgpack.encode,
        lambda h: msgspec.json.encode({"a": [h]}),
        msgspec.to_builtins,
        codec.encode,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        list,
        bytes,
        len,
        hash,
    ],
)
def test_a_hidden_value_refuses_to_be_written_copied_or_counted(show: Callable[[Hidden], object]) -> None:
    with pytest.raises(TypeError) as raised:
        show(Hidden(WORD))
    assert WORD not in str(raised.value)


def test_a_hidden_value_shows_nothing_where_faults_are_reported() -> None:
    hidden = Hidden(WORD)
    assert repr([hidden, {"a": hidden}]) == "[<hidden>, {'a': <hidden>}]"
    assert WORD not in "".join(traceback.format_exception(KeyError(hidden)))
    assert WORD not in repr(vars(type(hidden))) + repr(dir(hidden))
    assert not hasattr(hidden, "__dict__")
    assert (hidden.reveal(), hidden.reveal_bytes()) == (WORD, WORD.encode())


def test_hidden_values_are_compared_without_being_shown() -> None:
    assert Hidden("a") == Hidden("a")
    assert Hidden("a") != Hidden("b")
    assert Hidden("a") != "a"


# --- key files -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602, 0o601])
def test_a_key_that_others_could_have_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    write_private(path, b"k")
    assert read_private(path) == b"k"
    path.chmod(mode)
    with pytest.raises(UnsafeFile, match="chmod 600"):
        read_private(path)


def test_a_private_file_is_private_from_the_start_whatever_the_umask_or_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"
    before = os.umask(0)
    try:
        write_private(path, b"one")
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o077 == 0
        path.chmod(0o666)
        write_private(path, b"two")
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    os.umask(0o077)
    try:
        write(tmp_path / "public", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644
    assert [p.name for p in path.parent.iterdir()] == ["key"], "nothing half written is left"


def test_a_link_or_a_pipe_in_the_place_of_a_key_is_not_written_or_read(tmp_path: Path) -> None:
    (tmp_path / ".key.new").symlink_to(tmp_path / "elsewhere")
    write_private(tmp_path / "key", b"k")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises((UnsafeFile, IsADirectoryError)):
        read_private(tmp_path)


# --- sealed at rest ------------------------------------------------------------------------------------------------------------


def ring() -> Keyring:
    from fairlead.security.sealing import _fresh

    return Keyring(_fresh(SystemIds()), SystemIds())


def test_what_was_sealed_opens_in_its_place_and_nowhere_else() -> None:
    keys = ring()
    sealed = keys.seal(Hidden(WORD), "risk", "db", "password")
    assert is_sealed(sealed)
    assert WORD not in sealed
    assert keys.open(sealed, "risk", "db", "password") == Hidden(WORD)
    for place in (
        ("search", "db", "password"),
        ("risk", "other", "password"),
        ("risk", "db", "user"),
        ("risk", "dbpass", "word"),
    ):
        with pytest.raises(CannotOpen):
            keys.open(sealed, *place)
    others = [keys.seal(Hidden(word), "risk", "db", key) for word, key in ((WORD, "user"), (WORD + "r", "password"))]
    nonces = {base64.b64decode(text.rpartition(":")[2])[:12] for text in (sealed, *others)}
    assert len(nonces) == 3, "a nonce for each value and place"


@pytest.mark.parametrize("text", ["", "plain", "fairlead:v1:", "fairlead:v1:nokey:AAAA", "fairlead:v2:k:AAAA"])
def test_what_was_never_sealed_does_not_open(text: str) -> None:
    with pytest.raises(CannotOpen):
        ring().open(text, "risk", "db", "password")


def test_a_changed_letter_is_noticed() -> None:
    keys = ring()
    sealed = keys.seal(Hidden(WORD), "risk", "db", "password")
    for at in (len(sealed) - 3, len(sealed) // 2, sealed.rindex(":") + 2):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        with pytest.raises(CannotOpen):
            keys.open(changed, "risk", "db", "password")
    with pytest.raises(CannotOpen):
        keys.open(f"fairlead:v1:{keys.current}:AAAA", "risk", "db", "password")


def seal_data(keys: Keyring, data: dict[str, str], tenant: str, name: str) -> dict[str, str]:
    return {key: keys.sealed(value, tenant, name, key) for key, value in data.items()}


def open_data(keys: Keyring, data: dict[str, str], tenant: str, name: str) -> dict[str, Hidden]:
    return {key: keys.open(value, tenant, name, key) for key, value in data.items()}


def test_a_rotated_ring_opens_what_the_old_key_sealed_and_seals_with_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = Keyring.create(path, SystemIds())
    sealed = seal_data(first, {"password": WORD}, "risk", "db")
    second = first.rotated()
    second.save(path)
    loaded = Keyring.load(path, SystemIds())
    assert loaded.current == second.current != first.current
    assert open_data(loaded, sealed, "risk", "db") == {"password": Hidden(WORD)}
    assert loaded.stale(sealed)
    anew = seal_data(loaded, sealed, "risk", "db")
    assert key_id(anew["password"]) == loaded.current
    assert not loaded.stale(anew)
    alone = loaded.without(first.current)
    assert open_data(alone, anew, "risk", "db") == {"password": Hidden(WORD)}
    with pytest.raises(CannotOpen, match="not in the keyring"):
        open_data(alone, sealed, "risk", "db")
    with pytest.raises(ValueError, match="rotate first"):
        alone.without(alone.current)
    with pytest.raises(FileExistsError):
        Keyring.create(path, SystemIds())


def test_a_write_that_says_the_same_stays_the_same_and_another_secret_s_text_is_refused() -> None:
    keys = ring()
    old = seal_data(keys, {"password": WORD, "user": "ada"}, "risk", "db")
    assert seal_data(keys, {"password": WORD, "user": "ada"}, "risk", "db") == old
    assert seal_data(keys, old, "risk", "db") == old, "a client sent back what it had read"
    changed = seal_data(keys, {"password": "new", "user": "ada"}, "risk", "db")
    assert (changed["user"], changed["password"] == old["password"]) == (old["user"], False)
    with pytest.raises(CannotOpen):
        seal_data(keys, {"password": old["password"]}, "risk", "stolen")


def test_a_keyring_file_must_be_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    Keyring.create(path, SystemIds())
    path.chmod(0o644)
    with pytest.raises(UnsafeFile):
        Keyring.load(path, SystemIds())
    for text in (b"", b"# nothing\n", b"k1 short\n", b"k1 AAAA\n"):
        write_private(path, text)
        with pytest.raises(CannotOpen):
            Keyring.load(path, SystemIds())
