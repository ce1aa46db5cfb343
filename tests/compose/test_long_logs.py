"""The files into which the local platform's processes print."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlead.compose import long_logs
from fairlead.compose.layout import Layout
from fairlead.compose.long_logs import LongLogs
from fairlead.compose.processes import Processes
from fairlead.ports import SystemClock


async def test_a_log_that_has_grown_long_is_set_aside_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_logs, "BYTES_MAX", 100)
    platform = Processes(Layout(tmp_path, sys.executable), SystemClock())
    (tmp_path / "logs").mkdir()
    (tmp_path / "run").mkdir()
    log = platform.log_of("global")
    log.write_text("short\n")
    for before, aside in (("short\n", None), ("x" * 101, "x" * 101)):
        log.write_text(before)
        platform.start("global")  # it ends at once: there is no such config
        assert await platform.wait_gone(["global"], 60.0)
        kept = log.with_name("global.log.1")
        assert (kept.read_text() if kept.exists() else None) == aside
        assert log.read_text().startswith("short") is (aside is None)


async def test_a_log_that_grows_long_while_its_process_runs_is_set_aside_and_some_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_logs, "BYTES_MAX", 100)
    log, other, said = tmp_path / "global.log", tmp_path / "short.log", list[str]()
    other.write_text("short")
    logs = LongLogs(tmp_path, SystemClock())
    with log.open("ab", buffering=0) as writer:  # as a process has it
        for number in range(6):
            writer.write(f"{number}".encode() * 101)
            await logs.look(said.append)
            assert log.read_bytes() == b"", number
            await logs.look(said.append)
            assert not said
    kept = {path.name: path.read_text()[:1] for path in tmp_path.iterdir() if path != log}
    assert kept == {"global.log.1": "5", "global.log.2": "4", "global.log.3": "3", "short.log": "s"}
    assert (tmp_path / "global.log.1").read_text() == "5" * 101
    assert (tmp_path / "global.log.1").stat().st_mode & 0o077 == 0


async def test_a_log_that_cannot_be_copied_stays_as_it_is_and_the_others_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_logs, "BYTES_MAX", 100)
    said = list[str]()
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("x" * 101)
    (tmp_path / "a.log.copy").mkdir()
    await LongLogs(tmp_path, SystemClock()).look(said.append)
    (line,) = said
    assert line.startswith("a.log cannot be set aside")
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir() if path.is_file()} == {
        "a.log": 101, "b.log": 0, "b.log.1": 101,
    }  # fmt: skip


async def test_all_that_was_written_while_it_was_copied_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_logs, "_PIECE_BYTES", 10)
    monkeypatch.setattr(long_logs, "BYTES_MAX", 100)
    log, said = tmp_path / "global.log", list[str]()
    log.write_bytes(b"x" * 101)

    class Busy(SystemClock):
        """A process writes whenever the copying gives way."""

        async def sleep(self, seconds: float) -> None:
            if log.stat().st_size < 150:
                with log.open("ab") as writer:
                    writer.write(b"y")

    await LongLogs(tmp_path, Busy()).look(said.append)
    assert (tmp_path / "global.log.1").read_bytes().startswith(b"x" * 101 + b"y" * 10)
    assert log.read_bytes() == b""
