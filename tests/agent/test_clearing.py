"""What an instance leaves on disk is cleared away, whatever it is, and nobody waits for it."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.agent.drivers import clearing
from fairlead.agent.drivers.clearing import Clearing, clear
from fairlead.agent.drivers.directories import Directories, Kept
from fairlead.agent.drivers.process import ProcessDriver
from fairlead.ports import SystemClock
from tests.agent.processes import instance, settings_of, until

DEEP = 1500  # more than the interpreter's stack has room for


def nested(folder: Path, depth: int) -> None:
    """Too deep for any path to name it."""
    folder.mkdir(parents=True, exist_ok=True)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


def kept(folder: Path, name: str = "api-0") -> Path:
    """An instance's directory, as a run leaves it."""
    dirs = Directories(folder)
    dirs.prepare(Kept(instance(name), 1, {}), ())
    return dirs.path(instance(name))


def left_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "instances"))


async def adopted(folder: Path) -> ProcessDriver:
    driver = ProcessDriver(settings_of(folder, cgroups=False), SystemClock())
    await driver.adopt(lambda *_: None)
    return driver


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """pytest itself cannot remove what is left of it."""
    yield tmp_path
    subprocess.run(["/bin/rm", "-rf", str(tmp_path / "instances")], check=True)


async def test_a_tree_deeper_than_any_stack_goes_with_its_instance(deep: Path) -> None:
    nested(kept(deep) / "work", DEEP)
    driver = await adopted(deep)
    await driver.forget(instance())
    await until(lambda: left_in(deep) == [])
    await driver.close()


async def test_nobody_waits_while_files_are_removed_and_the_place_is_free_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go = threading.Event(), threading.Event()

    def slow(path: Path, stopped: threading.Event) -> bool:
        asked.set()
        return go.wait(60.0) and clear(path, stopped)

    monkeypatch.setattr(clearing, "clear", slow)
    home = kept(tmp_path)
    driver = await adopted(tmp_path)
    await driver.forget(instance())
    assert not home.exists()
    await until(asked.is_set)
    assert len(left_in(tmp_path)) == 1
    go.set()
    await until(lambda: left_in(tmp_path) == [])
    await driver.close()


async def test_what_one_agent_did_not_clear_away_the_next_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nested(kept(tmp_path) / "work", 3)
    with monkeypatch.context() as patched:
        patched.setattr(Clearing, "start", lambda *_: None)  # it ended before it came to it
        first = await adopted(tmp_path)
        await first.forget(instance())
        await first.close()
    (aside,) = left_in(tmp_path)
    assert aside.startswith("gone.")
    second = await adopted(tmp_path)
    await until(lambda: left_in(tmp_path) == [])
    await second.close()


async def test_a_failure_to_clear_away_is_said_and_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> bool:
        raise RecursionError("too deep")

    monkeypatch.setattr(clearing, "clear", broken)
    driver = await adopted(tmp_path)
    for name in ("api-0", "api-1"):
        kept(tmp_path, name)
        await driver.forget(instance(name))
    await until(lambda: caplog.text.count("too deep") == 2)
    await driver.close()
    assert len(left_in(tmp_path)) == 2


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "gone" / "work"
    nested(outside, 2)
    nested(work / "a", 2)
    for place in (work.parent, work, work / "a", work / "a" / "d"):
        (place / "folder").symlink_to(outside)
        (place / "file").symlink_to(outside / "d" / "d" / "bottom")
        os.mkfifo(place / "pipe")
    assert clear(tmp_path / "gone", threading.Event())
    assert not (tmp_path / "gone").exists()
    (tmp_path / "gone").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        clear(tmp_path / "gone", threading.Event())
    assert (outside / "d" / "d" / "bottom").exists()


def test_what_cannot_be_removed_is_left_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, unlink = tmp_path / "gone", os.unlink
    nested(top / "work" / "deep", 5)
    (top / "work" / "stuck").touch()

    def refuse(path: str, **fields: Any) -> None:
        if path == "stuck":
            raise PermissionError(errno.EPERM, "it is immutable")
        unlink(path, **fields)

    monkeypatch.setattr(os, "unlink", refuse)
    assert not clear(top, threading.Event())
    assert [str(path.relative_to(top)) for path in sorted(top.rglob("*"))] == ["work", "work/stuck"]


def test_whoever_is_stopped_leaves_the_rest(tmp_path: Path) -> None:
    nested(tmp_path / "gone" / "work", 2)
    stopped = threading.Event()
    stopped.set()
    assert not clear(tmp_path / "gone", stopped)
    assert (tmp_path / "gone" / "work" / "d" / "d" / "bottom").exists()


async def test_an_instance_whose_record_cannot_be_read_now_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, read = kept(tmp_path), Path.read_bytes

    def broken(path: Path) -> bytes:
        if path.name == "kept":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    driver = ProcessDriver(settings_of(tmp_path, cgroups=False), SystemClock())
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", broken)
        with pytest.raises(OSError, match="Input/output error"):
            await driver.adopt(lambda *_: None)
    await driver.close()
    assert (home / "kept").exists()
    driver = ProcessDriver(settings_of(tmp_path, cgroups=False), SystemClock())
    assert [found.id for found in await driver.adopt(lambda *_: None)] == [instance()]
    await driver.close()


async def test_a_record_that_is_not_there_or_says_nothing_is_cleared_away(tmp_path: Path) -> None:
    (kept(tmp_path, "api-0") / "kept").unlink()
    (kept(tmp_path, "api-1") / "kept").write_bytes(b"torn")
    kept(tmp_path, "api-2")
    (tmp_path / "instances" / "a_file_1-1-1").touch()
    driver = await adopted(tmp_path)
    await until(lambda: left_in(tmp_path) == ["a_file_1-1-1", instance("api-2").text])
    await driver.close()
