"""An instance's directory: reached by its user whatever the umask; what is in it is whole or not there when a disk is full."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.agent.drivers import shim
from fairlead.agent.drivers.contract import Chunk, Exit, MountedFile
from fairlead.agent.drivers.directories import Directories, Kept, make_passable, open_below, parse_exit
from fairlead.agent.drivers.shim import Log, leave_word
from fairlead.ports import SystemClock
from tests.agent.processes import as_root, driven, instance, sh


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def strict() -> Iterator[None]:
    """As the shipped unit has it."""
    before = os.umask(0o027)
    yield
    os.umask(before)


# --- who reaches it ------------------------------------------------------------------------------------------------------------


async def test_an_instance_reaches_its_home_under_a_strict_umask(tmp_path: Path, strict: None) -> None:
    if not as_root():
        pytest.skip("only root gives instances users of their own")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-", tmp_path.name)):
            folder.chmod(0o755)  # pytest keeps these from others
    (tmp_path / "state").mkdir()
    async with driven(tmp_path / "state", cgroups=False) as made:
        await made.start(sh('touch "$HOME/x" && ls "$FAIRLEAD_DIR"; echo end $?'))
        assert await made.output(wanted=b"end") == "x\nend 0\n"


def test_directories_let_others_through_and_tell_them_nothing(tmp_path: Path, strict: None) -> None:
    make_passable(tmp_path / "a" / "state")
    dirs = Directories(tmp_path / "a" / "state")
    home = dirs.prepare(Kept(instance(), 1, {}), ()).parent
    assert [mode_of(path) & 0o007 for path in (tmp_path / "a", tmp_path / "a" / "state", home.parent, home)] == [1, 1, 1, 1]
    assert (mode_of(home), mode_of(home.parent)) == (0o711, 0o711)
    assert [mode_of(home / name) for name in ("work", "logs", "run.1")] == [0o750, 0o700, 0o700]


def test_a_directory_that_an_earlier_agent_made_too_narrow_is_widened_and_no_further_than_needed(
    tmp_path: Path, strict: None
) -> None:
    state = tmp_path / "state"
    (state / "instances" / instance().text).mkdir(parents=True)
    state.chmod(0o700)
    dirs = Directories(state)
    dirs.prepare(Kept(instance(), 1, {}), ())
    assert [mode_of(path) for path in (state, state / "instances", dirs.path(instance()))] == [0o711, 0o751, 0o711]


# --- a full disk ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 5])
def test_a_mounted_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    dirs, write, left = Directories(tmp_path), os.write, room

    def nearly_full(fd: int, data: bytes) -> int:
        nonlocal left
        if data.startswith(b"\0"):
            return write(fd, data)
        if not left:
            full()
        took = write(fd, data[: min(3, left)])
        left -= took
        return took

    dirs.prepare(Kept(instance(), 1, {}), (MountedFile("etc/key", b"old and whole", secret=True),))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            dirs.prepare(Kept(instance(), 2, {}), (MountedFile("etc/key", b"new and whole", secret=True),))
        left = 100
        dirs.prepare(Kept(instance(), 2, {}), (MountedFile("etc/other", b"in parts"),))
    etc = dirs.path(instance()) / "work" / "etc"
    assert {path.name: path.read_bytes() for path in etc.iterdir()} == {"key": b"old and whole", "other": b"in parts"}


async def test_a_disk_that_takes_no_new_time_for_an_instance_ends_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = SystemClock().monotonic() + 3600.0
    async with driven(tmp_path, cgroups=False) as made:
        await made.start(sh("sleep 300", lasts=far))
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            await made.driver.prolong(instance(), far + 60.0)
        assert made.driver._dirs.lasts(instance()) == round(far, 3)


def test_how_a_run_ended_is_told_in_room_that_was_kept_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Directories(tmp_path).prepare(Kept(instance(), 1, {}), ())
    blocks = (run / "exit.new").stat().st_blocks
    message = "\N{SNOWMAN}" * 1000
    folder, write = os.open(run, os.O_RDONLY), os.write

    def no_new_room(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_size < len(data):
            full()
        return write(fd, data)

    monkeypatch.setattr(os, "write", no_new_room)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it had to wait"))
    leave_word(folder, f"3 exited 12.000 {message}\n")
    os.close(folder)
    assert blocks * 512 >= 4096
    assert parse_exit(run) == Exit(3, "exited", message)


@pytest.mark.parametrize("short", [False, True])
def test_the_end_of_a_run_is_written_again_until_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    slept, write = list[float](), os.write

    def late(fd: int, data: bytes) -> int:
        if len(slept) < 3:
            return write(fd, data[:5]) if short else full()
        return write(fd, data)

    folder = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(os, "write", late)
    monkeypatch.setattr(time, "sleep", slept.append)
    leave_word(folder, "0 exited 12.000 done\n")
    assert parse_exit(tmp_path) == Exit(0, "exited", "done")
    assert len(slept) == 3
    monkeypatch.setattr(os, "write", full)
    leave_word(folder, "1 exited 12.000 never\n")
    assert len(slept) == 3 + shim.EXIT_TRIES, "it ends all the same"
    os.close(folder)


def test_a_shim_whose_directory_is_gone_leaves_no_word_and_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.1").mkdir()
    folder = os.open(tmp_path / "run.1", os.O_RDONLY)
    (tmp_path / "run.1").rmdir()
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it had to wait"))
    leave_word(folder, "0 exited 12.000\n")
    os.close(folder)


def test_output_goes_on_when_there_is_room_for_a_new_segment_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    kept = Log(folder, "stdout", 100, 4)
    kept.write(b"x" * 100)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        kept.write(b"y" * 50)
    another = os.open("/dev/null", os.O_RDONLY)
    kept.write(b"z" * 50)
    os.fstat(another)  # the log has closed its own descriptors alone
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "stdout.000000000000000": b"x" * 100,
        "stdout.000000000000100": b"z" * 50,
    }
    for fd in (another, folder, kept._file):
        os.close(fd)


def test_a_directory_that_is_made_for_an_instance_is_given_away_and_nothing_that_was_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not as_root():
        pytest.skip("only root gives anything away")
    work, others = tmp_path / "work", tmp_path / "kept"
    work.mkdir()
    others.write_text("of another tenant")
    real = os.mkdir

    def made(step: str, mode: int, dir_fd: int) -> None:
        real(step, mode, dir_fd=dir_fd)
        (work / step).rename(work / "away")  # the instance, to which `work` belongs, is as quick as that
        os.link(others, work / step)

    top = os.open(work, os.O_RDONLY)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "mkdir", made)
            with pytest.raises(NotADirectoryError):
                open_below(top, "sub", make=True, uid=200_001)
        assert others.stat().st_uid == 0
        os.close(open_below(top, "below/it", make=True, uid=200_001))
        assert [(work / path).stat().st_uid for path in ("below", "below/it")] == [200_001, 200_001]
    finally:
        os.close(top)


# --- output ---------------------------------------------------------------------------------------------------------------------


def written(folder: Path, **segments: bytes) -> Directories:
    dirs = Directories(folder)
    logs = dirs.path(instance()) / "logs"
    logs.mkdir(parents=True)
    for start, data in segments.items():
        (logs / f"stdout.{int(start[1:]):015d}").write_bytes(data)
    return dirs


@pytest.mark.parametrize("offset", [5, 7, 10, -5, -8])
def test_output_is_read_on_after_a_segment_that_lost_its_end_in_a_power_cut(tmp_path: Path, offset: int) -> None:
    dirs = written(tmp_path, _0=b"hello", _10=b"world")
    assert dirs.logs(instance(), "stdout", offset, 100) == Chunk(10, b"world", 15)


def test_what_lies_on_both_sides_of_a_gap_is_told_apart(tmp_path: Path) -> None:
    dirs = written(tmp_path, _0=b"hello", _10=b"world", _15=b"!")
    first = dirs.logs(instance(), "stdout", 0, 100)
    assert first == Chunk(0, b"hello", 5)
    assert dirs.logs(instance(), "stdout", first.next, 100) == Chunk(10, b"world!", 16)


def test_output_is_read_on_after_a_segment_that_has_just_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dirs = written(tmp_path, _0=b"hello", _5=b"world")
    real = os.listdir

    def listed(path: Any) -> list[str]:
        found = real(path)
        (path / "stdout.000000000000000").unlink()  # the shim rotates
        return found

    monkeypatch.setattr(os, "listdir", listed)
    assert dirs.logs(instance(), "stdout", 0, 100) == Chunk(5, b"world", 10)
