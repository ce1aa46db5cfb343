"""`fairlead up` says that it is ready when every node takes work, and does not wait for ever for one that is broken."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from fairlead.compose import up
from fairlead.compose.layout import Layout
from fairlead.compose.local import NODES_S, Local
from fairlead.compose.up import _tell
from fairlead.ports import SystemIds
from tests.cli.talks import Quick


class Slow(Local):
    """Each look finds what is next in `answers`; the last one stays."""

    def __init__(self, folder: Path, clock: Quick, answers: list[list[str]]) -> None:
        super().__init__(Layout(folder, "python"), clock)
        self.answers = answers

    async def late_nodes(self) -> list[str]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_it_waits_until_every_node_takes_work(tmp_path: Path) -> None:
    clock = Quick()
    local = Slow(tmp_path, clock, [["a", "b"], ["b"], ["b"], []])
    assert await local.wait_nodes(asyncio.Event()) == []
    assert 0 < clock.passed_s < NODES_S


async def test_who_does_not_come_is_named_after_a_while(tmp_path: Path) -> None:
    clock = Quick()
    assert await Slow(tmp_path, clock, [["a", "b"], ["b"]]).wait_nodes(asyncio.Event()) == ["b"]
    assert clock.passed_s >= NODES_S - 1


async def test_somebody_who_stops_it_does_not_wait(tmp_path: Path) -> None:
    clock, stop = Quick(), asyncio.Event()
    stop.set()
    assert await Slow(tmp_path, clock, [["a"]]).wait_nodes(stop) == ["a"]
    assert clock.passed_s == 0


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_somebody_who_stops_it_before_every_node_is_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detach: bool, number: int
) -> None:
    calls: list[str] = []

    class Nothing:
        async def stop_all(self) -> None:
            calls.append("stopped")

    class Interrupted:
        processes = Nothing()

        async def start(self, stop: asyncio.Event) -> None:
            pass

        async def wait_nodes(self, stop: asyncio.Event) -> list[str]:
            os.kill(os.getpid(), number)
            await stop.wait()
            return ["n1"]

    monkeypatch.setattr(up, "Local", lambda *_: Interrupted())
    monkeypatch.setattr(up, "_make_layout", lambda *_: None)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(5):
            assert not await up.up(tmp_path, {}, 15.0, Quick(), SystemIds(), detach, calls.append)
    finally:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(one)
    assert calls == ["stopping", "stopped"]


def test_a_reader_who_leaves_early_does_not_end_what_was_started() -> None:
    heard: list[str] = []

    def say(line: str) -> None:
        if heard:
            raise BrokenPipeError
        heard.append(line)

    _tell(say, ["ready", "try", "logs"])
    assert heard == ["ready"]
