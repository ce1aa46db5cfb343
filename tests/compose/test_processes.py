"""A process of the local platform is known by its pid file and by what /proc says of it, whoever looks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.compose import processes
from fairlead.compose.layout import Layout
from fairlead.compose.processes import Processes
from fairlead.ports import SystemClock

WORDLESS = [b""]  # what /proc says of one that begins, of one that is dead, and of the kernel's own


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    words = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE) as child:
        while words.encode() not in processes._words(child.pid):
            pass  # it has just begun, and is its parent's program still, or says nothing
        yield child
        child.kill()


def seen(state: Path, pid: int) -> int | None:
    """By a command that has not started it."""
    (state / "run").mkdir()
    (state / "run" / "global.pid").write_text(f"{pid}\n")
    return Processes(Layout(state, sys.executable), SystemClock()).pid("global")


def test_one_that_has_just_begun_runs_though_proc_has_no_words_of_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(processes, "_words", lambda pid: WORDLESS)
    assert seen(tmp_path, sleeper.pid) == sleeper.pid


def test_a_stranger_of_the_same_program_is_none_of_ours(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    assert seen(tmp_path, sleeper.pid) is None


def test_one_that_is_dead_and_not_reaped_does_not_run(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        while processes._letter(child.pid) != "Z":
            pass
        assert processes._words(child.pid) == WORDLESS
        assert seen(tmp_path, child.pid) is None


def test_another_program_without_words_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_words", lambda pid: WORDLESS)
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        try:
            assert seen(tmp_path, other.pid) is None
        finally:
            other.kill()
