"""Shims that are late, slow or no longer wanted: none is forgotten, and none outlives the word that it is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.agent.drivers import process, processes
from fairlead.agent.drivers.contract import Exit, Started
from fairlead.agent.drivers.process import SHIM_MARKER, ProcessDriver
from fairlead.agent.drivers.processes import _marked
from fairlead.agent.drivers.watched import Watched, watch_child
from fairlead.agent.probes import Target, ask
from fairlead.model.kinds.intent import Exec, Probe
from fairlead.ports import SystemClock, Tasks
from tests.agent.processes import Driven, alive, driven, instance, settings_of, sh, until

TARGET = Target(instance(), "127.0.0.1", {})
LATE = "#!/bin/sh\nexec sleep 300\n"
LATE_WITH_A_STRAY = "#!/bin/sh\nsetsid sleep 300 &\nexec sleep 300\n"


def children() -> set[int]:
    """Zombies too."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found |= {int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return found


def shims_of(made: Driven) -> list[int]:
    return _marked([f"{SHIM_MARKER}={made.driver._marker}/{instance().text}".encode()])


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def spawned(*argv: str) -> int:
    return os.posix_spawn(argv[0], argv, {}, setsid=True)


def wait_zombie(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_a_program_as_probe_that_takes_too_long_is_reaped(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("sleep 300"))
        before = children()
        slow = Probe(exec=Exec(command=("/bin/sleep", "300")), timeout_seconds=0.1)
        assert await ask(slow, TARGET, made.driver) == (False, "no answer within 0.1 s")
        assert children() == before, "its shim ended it, and was waited for"


async def test_a_probe_that_nobody_waits_for_any_more_is_ended_and_reaped(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("sleep 300"))
        before = children()
        for begun in (False, True):
            async with Tasks() as tasks:
                tasks.start(made.driver.execute(instance(), ("/bin/sh", "-c", "touch begun; sleep 300"), 300.0), "probe")
                await until((made.work() / "begun").exists if begun else lambda: children() - before)
                tasks.cancel()
            await until(lambda: children() == before)
        assert not list(made.work().parent.glob("probe.*"))


async def test_the_folder_of_a_probe_stays_until_its_shim_is_gone(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("sleep 300"))
        before, folders = children(), made.work().parent
        async with Tasks() as tasks:
            tasks.start(made.driver.execute(instance(), ("/bin/sh", "-c", "touch begun; sleep 300"), 300.0), "probe")
            await until((made.work() / "begun").exists)
            [shim] = children() - before
            os.kill(shim, signal.SIGSTOP)  # what it writes at its end comes later than whoever asked is gone
            tasks.cancel()
        assert list(folders.glob("probe.*"))
        os.kill(shim, signal.SIGCONT)
        await until(lambda: children() == before)
        assert not list(folders.glob("probe.*"))


async def test_a_probe_whose_shim_never_came_is_killed(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("sleep 300"))
        before, late = children(), program(tmp_path / "late", LATE)
        made.driver._settings = msgspec.structs.replace(made.driver._settings, python=late)
        async with Tasks() as tasks:
            tasks.start(made.driver.execute(instance(), ("/bin/true",), 300.0), "probe")
            await until(lambda: children() - before)
            tasks.cancel()
        await until(lambda: children() == before)


async def test_a_probe_whose_shim_does_not_obey_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PROBE_KILL_S", 0.05)
    async with driven(tmp_path) as made:
        await made.start(sh("sleep 300"))
        before = children()
        async with Tasks() as tasks:
            tasks.start(made.driver.execute(instance(), ("/bin/sh", "-c", "touch begun; sleep 300"), 300.0), "probe")
            await until((made.work() / "begun").exists)
            (shim,) = children() - before
            os.kill(shim, signal.SIGSTOP)
            tasks.cancel()
        await until(lambda: children() == before)


async def test_a_shim_that_comes_after_the_fence_time_starts_nothing_at_all(tmp_path: Path) -> None:
    """A machine that is overloaded or sleeps takes its time, and by then it may run elsewhere (S12)."""
    async with driven(tmp_path) as made:
        (tmp_path / "fence").write_text("1.0 1.0\n")
        got = await made.driver.start(sh("touch begun; sleep 300", exclusive="region"))
        if isinstance(got, Started):
            got = await made.end()
        assert got.cause == "fenced"
        assert not (made.work() / "begun").exists()


async def test_what_an_earlier_agent_left_of_its_probes_is_in_nobodys_way(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("sleep 300"))
        (made.work().parent / "probe.1").mkdir()
        assert (await made.driver.execute(instance(), ("/bin/true",), 60.0)).code == 0


@pytest.mark.parametrize("late", [LATE, LATE_WITH_A_STRAY])
async def test_a_start_that_takes_too_long_is_over_before_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    monkeypatch.setattr(process, "START_LIMIT_S", 0.2)
    before = children()
    async with driven(tmp_path, python=program(tmp_path / "late", late)) as made:
        got = await made.driver.start(sh("sleep 300"))
        assert isinstance(got, Exit)
        assert (got.code, got.cause) == (127, "unstartable")
        assert "within 0.2 s" in got.message
        assert not [pid for pid in shims_of(made) if alive(pid)]
        assert children() == before
        assert made.driver.status(instance()) == "gone"


async def test_a_start_of_which_something_may_be_left_is_not_said_to_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, left = 0, True

    def found(*_: Any) -> set[int]:
        nonlocal looks
        looks += 1
        return {os.getpid()} if left else set()

    monkeypatch.setattr(process, "START_LIMIT_S", 0.05)
    monkeypatch.setattr(process, "KILL_POLL_S", 0.001)
    monkeypatch.setattr(process, "kill_found", found)
    async with driven(tmp_path, python=program(tmp_path / "late", LATE)) as made, Tasks() as tasks:
        start = tasks.start(made.driver.start(sh("sleep 300")), "start")
        await until(lambda: looks > 3)
        assert not start.done()
        left = False
        assert (await start).cause == "unstartable"


async def test_a_run_without_its_shim_is_not_said_to_be_over_while_something_of_it_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits for a disk or a device outlives a kill for as long as that takes (S12)."""
    looks, left = 0, True

    def killed(*args: Any) -> int | None:
        nonlocal looks
        looks += 1
        return None if left else processes.kill_marked(*args)

    monkeypatch.setattr(process, "KILL_POLL_S", 0.001)
    async with driven(tmp_path) as made:
        got = await made.start(sh("sleep 300"))
        assert isinstance(got, Started)
        with monkeypatch.context() as patched:
            patched.setattr(process, "kill_marked", killed)
            os.kill(got.pid, signal.SIGKILL)
            await until(lambda: looks > 3)
            assert made.driver.status(instance()) == "running"
            left = False
            assert (await made.end()).cause == "lost"
        assert made.driver.status(instance()) == "gone"


async def test_an_agent_that_comes_again_waits_until_nothing_is_left_of_a_run_without_its_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def killed(*args: Any) -> int | None:
        nonlocal looks
        looks += 1
        return None if looks < 3 else processes.kill_marked(*args)

    monkeypatch.setattr(process, "KILL_POLL_S", 0.001)
    monkeypatch.setattr(process, "kill_marked", killed)
    first = ProcessDriver(settings_of(tmp_path), SystemClock())
    await first.adopt(lambda *_: None)
    got = await first.start(sh("sleep 300"))
    assert isinstance(got, Started)
    await first.close()
    os.kill(got.pid, signal.SIGKILL)
    wait_zombie(got.pid)
    second = ProcessDriver(settings_of(tmp_path), SystemClock())
    (found,) = await second.adopt(lambda *_: None)
    assert found.exit is not None
    assert (found.exit.cause, looks) == ("lost", 3)
    await second.forget(instance())
    await second.close()


async def test_whoever_is_killed_and_stays_is_told_apart_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "kill_found", lambda *_: {1})
    assert processes.kill_marked((), list) is None
    found = [{1, 2}, {2}, set[int]()]
    monkeypatch.setattr(processes, "kill_found", lambda *_: found.pop(0))
    assert processes.kill_marked((), list) == 2


async def test_a_child_that_cannot_be_watched_is_ended_and_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    before = children()
    pid = spawned("/bin/sleep", "300")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", none_left)
        with pytest.raises(OSError, match="Too many"):
            watch_child(pid)
    assert children() == before


async def test_an_end_that_the_loop_has_not_come_to_yet_is_seen_and_told_once() -> None:
    told: list[int] = []
    pid = spawned("/bin/true")
    child = Watched(pid, os.pidfd_open(pid), child=True)
    child.then = lambda: told.append(pid)
    wait_zombie(pid)
    assert child.look()
    await asyncio.sleep(0)
    assert child.look()
    child.kill()  # nobody is left to be killed
    assert told == []
    assert pid not in children()


async def test_an_order_to_a_shim_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        got = await made.start(sh("sleep 300"))
        assert isinstance(got, Started)
        os.kill(got.pid, signal.SIGKILL)
        await until(lambda: not alive(got.pid))
        await made.driver.stop(instance(), 0.0)
        assert (await made.end()).cause == "lost"
