"""Who stops `fairlead up`, by Ctrl-C or by closing the terminal, while it starts or when it is ready, leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fairlead.compose.layout import Layout
from fairlead.ports import SystemIds
from tests.platform.platforms import PATIENCE_S, PYTHON, Platform


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One that was made and never started."""
    state = tmp_path_factory.mktemp("interrupted") / "state"
    Layout(state, PYTHON).write(datetime.now(UTC), SystemIds(), {}, 15.0)
    made = Platform(state)
    yield made
    if made.processes.running():
        made.stop()


def left(platform: Platform) -> list[str]:
    """The words of every process that still has to do with that platform."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(platform.state) in words and int(entry) != os.getpid():
            found.append(words)
    return found + [str(work) for work in platform.processes.work_of(platform.processes.agents()).values() if work]


def ended_by(platform: Platform, number: int, when: Callable[[bytes], Any], *more: str) -> tuple[int, str]:
    """`fairlead up`, sent that signal once it is so with what it has said."""
    log = platform.state / "said"
    with log.open("wb") as said:
        up = subprocess.Popen(
            [PYTHON, "-m", "fairlead.main", "up", "--state", str(platform.state), *more], env=platform.environment,
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    until = time.monotonic() + PATIENCE_S
    try:
        while not when(log.read_bytes()):
            assert up.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        up.send_signal(number)
        return up.wait(PATIENCE_S), log.read_text()
    finally:
        up.kill()


@pytest.mark.parametrize(("number", "more"), [(signal.SIGINT, ()), (signal.SIGHUP, ("--detach",))], ids=["Ctrl-C", "hang-up"])
def test_while_it_starts(stopped: Platform, number: int, more: tuple[str, ...]) -> None:
    began = time.monotonic()
    code, said = ended_by(stopped, number, lambda _: stopped.processes.pid("us-west") is not None, *more)
    assert (code, "ready after" in said) == (130, False), said
    assert "stopping\nerror: stopped before it was ready; nothing of it runs\n" in said
    assert left(stopped) == []
    assert time.monotonic() - began < PATIENCE_S / 2, "it did not wait until it was ready"


def test_when_it_is_ready(stopped: Platform) -> None:
    code, said = ended_by(stopped, signal.SIGINT, lambda said: b"what each process says" in said)
    assert (code, "\nstopping\n" in said) == (0, True), said
    assert left(stopped) == []
