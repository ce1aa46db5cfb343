"""`fairlead store` from the outside: what it prints, where, and with which exit code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import click
import pytest

from fairlead.cli import frame
from fairlead.cli.store import command as store_commands
from fairlead.main import run
from fairlead.store.contract import FORMAT
from fairlead.store.sqlite import SqliteStore
from tests.authority.planes import running_plane
from tests.cli.runs import fairlead
from tests.store.filled import add_history

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plane's store, filled once. Its log is copied in when it is closed, so the file alone is all of it."""
    path = tmp_path_factory.mktemp("original") / "plane.db"

    async def work() -> None:
        async with running_plane(SqliteStore(path)) as plane:
            await add_history(plane)

    run(work())
    return path


@pytest.fixture
def plane(original: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "plane.db"
    copy.write_bytes(original.read_bytes())
    return copy


def change(path: Path, sql: str, *values: object) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql, values)
    connection.close()


def damage(path: Path) -> int:
    connection = apsw.Connection(str(path))
    first, blob = list(connection.execute("SELECT first, blob FROM journal ORDER BY first"))[3]
    connection.close()
    change(path, "UPDATE journal SET blob = ? WHERE first = ?", blob[:-1] + bytes([blob[-1] ^ 1]), first)
    assert isinstance(first, int)
    return first


# --- status


def test_status_says_where_the_store_stands(plane: Path) -> None:
    ran = fairlead("store", "status", plane)
    assert (ran.code, ran.err) == (0, "")
    lines = dict(re.split(r" {2,}", line, maxsplit=1) for line in ran.out.splitlines() if "  " in line)
    assert lines["engine"] == "sqlite"
    assert lines["holder"] == "nobody leads"
    assert lines["format"] == str(FORMAT)
    assert lines["alarms"] == "none"
    assert "(0 behind)" in lines["materialised"]
    assert lines["bindings"].strip() == "4"


def test_status_as_json_is_one_object(plane: Path) -> None:
    facts = fairlead("store", "status", f"sqlite:{plane}", "--json").json
    assert facts["engine"] == "sqlite"
    assert facts["head"]["incarnation"] == 1
    assert facts["objects"]["nodes"] == 3
    assert facts["journal_batches"] > 5
    assert facts["alarms"] == []


def test_looking_at_nothing_creates_nothing(tmp_path: Path) -> None:
    for command in (["status"], ["verify"], ["compact"]):
        ran = fairlead("store", *command, tmp_path / "typo.db")
        assert ran.code == frame.NOT_FOUND
        assert "there is no store at" in ran.err
    assert fairlead("store", "backup", tmp_path / "typo.db", tmp_path / "b").code == frame.NOT_FOUND
    assert fairlead("store", "restore", tmp_path / "no-backup", tmp_path / "new.db").code == frame.NOT_FOUND
    assert list(tmp_path.iterdir()) == []


def test_status_of_a_damaged_store_shows_the_damage_as_an_alarm(plane: Path) -> None:
    first = damage(plane)
    change(plane, "UPDATE head SET materialised = 0")
    ran = fairlead("store", "status", plane, "--json")
    assert ran.code == 0
    assert f"journal row {first}" in ran.json["alarms"][0]


def test_a_newer_format_and_a_foreign_file_are_refused_in_one_line(plane: Path, tmp_path: Path) -> None:
    change(plane, f"UPDATE head SET format = {FORMAT + 1}")
    ran = fairlead("store", "status", plane)
    assert ran.code == frame.ERROR
    assert f"format {FORMAT + 1}" in ran.err
    foreign = tmp_path / "foreign.db"
    change(foreign, "CREATE TABLE photographs (id INTEGER)")
    ran = fairlead("store", "status", foreign)
    assert ran.code == frame.ERROR
    assert "not a Fairlead store" in ran.err
    assert ran.err.count("\n") == 1


# --- backup and restore


def test_backup_and_restore_say_what_the_operator_must_know(plane: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "plane.backup", tmp_path / "new.db"
    made = fairlead("store", "backup", plane, file)
    assert made.code == 0
    assert "position" in made.out
    assert f"fairlead store verify {file}" in made.err
    assert file.stat().st_mode & 0o077 == 0, "nobody but its owner reads a backup"
    ran = fairlead("store", "restore", file, new)
    assert ran.code == 0
    assert re.search(r"^incarnation +2$", ran.out, re.MULTILINE)
    assert "tokens, leases, sessions and receipts of incarnation 1 and before are refused" in ran.err
    assert "410" in ran.err
    status = fairlead("store", "status", new, "--json").json
    assert (status["head"]["incarnation"], status["objects"]["bindings"]) == (2, 4)
    assert fairlead("store", "verify", new).code == 0


def test_restore_as_json_and_with_a_higher_incarnation(plane: Path, tmp_path: Path) -> None:
    assert fairlead("store", "backup", plane, tmp_path / "b", "--json").json["tables"]["nodes"] == 3
    facts = fairlead("store", "restore", tmp_path / "b", tmp_path / "new.db", "--incarnation-at-least", 41, "--json").json
    assert (facts["incarnation"], facts["backup_incarnation"]) == (42, 1)


def test_restore_into_a_store_in_use_says_how_to_make_room(plane: Path, tmp_path: Path) -> None:
    fairlead("store", "backup", plane, tmp_path / "b")
    before = plane.read_bytes()
    ran = fairlead("store", "restore", tmp_path / "b", plane)
    assert ran.code == frame.CONFLICT
    assert "is not empty" in ran.err
    assert f"mv {plane} {plane}.old" in ran.err
    assert plane.read_bytes() == before


def test_a_backup_is_not_overwritten_by_accident(plane: Path, tmp_path: Path) -> None:
    file = tmp_path / "b"
    file.write_text("last week's")
    assert fairlead("store", "backup", plane, file).code == frame.CONFLICT
    assert file.read_text() == "last week's"
    assert fairlead("store", "backup", plane, file, "--overwrite").code == 0


def test_a_damaged_backup_is_refused_and_the_store_stays_empty(plane: Path, tmp_path: Path) -> None:
    file = tmp_path / "b"
    fairlead("store", "backup", plane, file)
    file.write_bytes(file.read_bytes()[:-50])
    ran = fairlead("store", "restore", file, tmp_path / "new.db")
    assert ran.code == frame.ERROR
    assert "byte" in ran.err
    assert fairlead("store", "status", tmp_path / "new.db", "--json").json["head"]["position"] == 0
    ran = fairlead("store", "verify", file)
    assert ran.code == frame.CHECK_FAILED
    assert "use another backup" in ran.err


def test_a_store_with_a_damaged_tail_is_not_backed_up(plane: Path, tmp_path: Path) -> None:
    first = damage(plane)
    change(plane, "UPDATE head SET materialised = 0")
    ran = fairlead("store", "backup", plane, tmp_path / "b")
    assert ran.code == frame.ERROR
    assert f"journal row {first}" in ran.err
    assert not (tmp_path / "b").exists()


# --- verify and compact


def test_verify_names_each_fault_and_ends_with_eight(plane: Path) -> None:
    assert fairlead("store", "verify", plane).code == 0
    first = damage(plane)
    ran = fairlead("store", "verify", plane)
    assert ran.code == frame.CHECK_FAILED
    assert f"FAULT journal row {first}: " in ran.out
    assert "fairlead store restore" in ran.err
    (fault,) = fairlead("store", "verify", plane, "--json").json["faults"]
    assert fault["where"] == f"journal row {first}"


def test_an_empty_file_is_neither_a_store_nor_a_backup_and_stays_empty(tmp_path: Path) -> None:
    empty = tmp_path / "plane.backup"
    empty.touch()
    assert fairlead("store", "verify", empty).code == frame.CHECK_FAILED
    for words in (("status", empty), ("backup", empty, tmp_path / "copy"), ("compact", empty)):
        ran = fairlead("store", *words)
        assert ran.code != frame.OK
        assert "this file is empty" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["plane.backup"]
    assert empty.stat().st_size == 0


def test_verify_takes_a_backup_file(plane: Path, tmp_path: Path) -> None:
    fairlead("store", "backup", plane, tmp_path / "b")
    ran = fairlead("store", "verify", tmp_path / "b", "--json")
    assert (ran.code, ran.json["faults"]) == (0, [])
    assert ran.json["objects"] >= 17


def test_compact_empties_the_journal_and_keeps_the_objects(plane: Path) -> None:
    before = fairlead("store", "status", plane, "--json").json
    done = fairlead("store", "compact", plane, "--json")
    assert (done.code, done.json["journal_bytes_after"]) == (0, 0)
    after = fairlead("store", "status", plane, "--json").json
    assert after["objects"] == before["objects"]
    assert (after["journal_batches"], after["head"]["truncated"]) == (0, before["head"]["position"])
    assert fairlead("store", "verify", plane).code == 0


def test_compact_waits_out_a_dead_leader(plane: Path) -> None:
    change(plane, "UPDATE head SET holder = 'a-server/that-was-killed'")
    ran = fairlead("store", "compact", plane, "--silence-seconds", 0.3)
    assert (ran.code, ran.err) == (0, "")


def test_compact_leaves_a_live_leader_alone(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"

    async def work() -> subprocess.CompletedProcess[str]:
        import asyncio

        words = [sys.executable, "-m", "fairlead.main", "store", "compact", str(path)]
        async with running_plane(SqliteStore(path)):
            return await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, cwd=ROOT, check=False)

    done = run(work())
    assert done.returncode == frame.CONFLICT, done
    assert "stop that server first" in done.stderr


def test_compact_keeps_what_the_archive_has_not_got(plane: Path, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    assert fairlead("store", "compact", plane, "--archive", tmp_path / "archive", "--json").json["batches_removed"] == 0
    assert fairlead("store", "compact", plane, "--archive", tmp_path / "none").code == frame.NOT_FOUND


# --- the walk-through


def walk_through() -> Iterator[list[str]]:
    text = (ROOT / "docs" / "operations" / "store.md").read_text()
    section = text.partition("## Back up and restore: a walk-through")[2].partition("\n## ")[0]
    for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL):
        yield from (shlex.split(line) for line in block.splitlines() if line and not line.startswith("#"))


def test_the_walk_through_of_the_manual_works_as_written(plane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran: list[list[str]] = []
    for words in walk_through():
        if words[0] == "fairlead":
            done = fairlead(*words[1:])
            assert done.code == 0, (words, done)
        else:
            assert words[0] in {"mv", "ls"}, words
            subprocess.run(words, check=True, capture_output=True)
        ran.append(words)
    assert [words[2] for words in ran if words[0] == "fairlead"] == ["status", "backup", "verify", "restore", "verify", "status"]
    assert fairlead("store", "status", "plane.db", "--json").json["head"]["incarnation"] == 2


def test_the_manual_knows_every_command_and_every_option() -> None:
    text = (ROOT / "docs" / "operations" / "store.md").read_text()
    assert isinstance(store_commands, click.Group)
    for name, found in store_commands.commands.items():
        assert f"fairlead store {name}" in text
        missing = [
            option for parameter in found.params for option in parameter.opts if option.startswith("--") and option not in text
        ]
        assert missing == [], f"docs/operations/store.md does not mention {missing} of {name}"
