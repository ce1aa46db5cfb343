"""The files into which the local platform's processes print."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlead.compose import processes
from fairlead.compose.layout import Layout
from fairlead.compose.processes import Processes
from fairlead.ports import SystemClock


async def test_a_log_that_has_grown_long_is_set_aside_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 100)
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
