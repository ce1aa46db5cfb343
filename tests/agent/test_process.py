"""Real processes: they start clean, end whole, leave their exit codes and output, and outlive the agent."""

from __future__ import annotations

import math
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from fairlead.agent.drivers.contract import Adopted, Exit, Launch, MountedFile, Started
from fairlead.agent.drivers.directories import Directories, Kept
from fairlead.agent.drivers.process import ProcessDriver
from fairlead.agent.drivers.processes import open_same, start_time
from fairlead.ports import SystemClock
from tests.agent.processes import Driven, alive, as_root, driven, instance, settings_of, sh, until

# A grandchild whose parent is gone and which sits in a session of its own: a plain kill of the process group misses it.
DOUBLE_FORK = "setsid /bin/sh -c 'setsid sleep 300 & echo $!' & wait; sleep 300"


async def test_an_exit_code_is_told_once_with_its_cause(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("exit 7"))
        assert await made.end() == Exit(7, "exited")
        await made.start(sh("kill -9 $$", run=2))
        assert await made.end(2) == Exit(137, "signalled")
        assert [run for _, run, _ in made.ends] == [1, 2]


async def test_a_program_that_is_not_there_says_so_and_never_counts_as_started(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        for run in range(1, 6):  # its shim may be gone by chance when the driver looks
            got = await made.driver.start(Launch(instance(), ("/nowhere/at-all",), {}, run=run))
            assert isinstance(got, Exit), f"run {run} is said to run"
            assert (got.code, got.cause) == (127, "unstartable")
            assert "/nowhere/at-all" in got.message
        assert made.ends == [], "an end is told once"


async def test_the_environment_is_the_templates_and_nothing_of_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", "hush")
    async with driven(tmp_path) as made:
        await made.start(sh("env; echo end", env={"COLOUR": "blue"}))
        lines = dict(line.split("=", 1) for line in (await made.output(wanted=b"end")).splitlines() if "=" in line)
        assert lines.keys() <= {
            "PATH",
            "HOME",
            "FAIRLEAD_DIR",
            "LANG",
            "COLOUR",
            "FAIRLEAD_INSTANCE",
            "PWD",
            "SHLVL",
            "_",
            "OLDPWD",
        }
        assert lines["COLOUR"] == "blue"


async def test_an_instance_has_a_session_of_its_own_no_privileges_and_no_descriptors(tmp_path: Path) -> None:
    stray = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(stray, True)  # as a library in the agent might leave one
    async with driven(tmp_path) as made:
        await made.start(sh("echo pid $$; ls /proc/self/fd | wc -l; cat /proc/self/status; echo end; sleep 300"))
        text = await made.output(wanted=b"end")
        pid = int(text.split()[1])
        assert os.getsid(pid) == pid
        status = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        assert status["NoNewPrivs"].strip() == "1"
        gone = ("CapEff", "CapPrm", "CapAmb", "CapBnd") if as_root() else ("CapEff", "CapPrm", "CapAmb")
        assert {status[name].strip() for name in gone} == {"0" * 16}
        assert int(text.splitlines()[1]) <= 4  # 0, 1, 2 and the listing's own
        if as_root():
            assert status["Uid"].split() == ["200000"] * 4
    os.close(stray)


async def test_stopping_asks_first_and_kills_the_whole_tree_after_the_grace(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
        await made.output(wanted=b"up")
        await made.driver.stop(instance(), 20.0)
        assert await made.end() == Exit(3, "stopped")
        assert "asked" in await made.output()
        await made.start(sh("trap '' TERM; echo deaf; while :; do sleep 0.05; done", run=2))
        await made.output(wanted=b"deaf")
        await made.driver.stop(instance(), 0.1)
        assert await made.end(2) == Exit(137, "stopped")


@pytest.mark.parametrize("cgroups", [True, False])
async def test_a_double_fork_is_killed_with_its_tree(tmp_path: Path, cgroups: bool) -> None:
    async with driven(tmp_path, cgroups=cgroups) as made:
        await made.start(sh(DOUBLE_FORK))
        stray = int((await made.output()).split()[0])
        await until(lambda: os.getsid(stray) == stray)
        await made.driver.kill(instance(), "stopped")
        await made.end()
        assert not alive(stray)


async def test_what_a_main_process_leaves_behind_goes_with_it_before_its_end_is_told(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("setsid /bin/sh -c 'setsid sleep 300 & echo $!'; exit 4"))
        assert await made.end() == Exit(4, "exited")
        assert not alive(int((await made.output()).split()[0]))


async def test_a_tree_whose_shim_was_killed_is_cleared_away_by_its_mark(tmp_path: Path) -> None:
    async with driven(tmp_path, cgroups=False) as made:
        started = await made.start(sh(DOUBLE_FORK))
        assert isinstance(started, Started), started
        stray = int((await made.output()).split()[0])
        os.kill(started.pid, signal.SIGKILL)
        end = await made.end()
        assert (end.code, end.cause) == (137, "lost")
        await until(lambda: not alive(stray))


async def test_a_run_whose_agent_left_no_trace_ends_by_itself(tmp_path: Path) -> None:
    driver = ProcessDriver(settings_of(tmp_path / "state"), SystemClock())
    await driver.adopt(lambda *_: None)
    got = await driver.start(sh("sleep 300"))
    pid = getattr(got, "pid", 0)
    await driver.close()
    shutil.rmtree(tmp_path / "state")  # somebody threw the platform away without stopping it
    await until(lambda: not alive(pid))


async def test_output_is_kept_in_segments_and_read_by_offset(tmp_path: Path) -> None:
    async with driven(tmp_path, segment_bytes=1000, segments_max=3) as made:
        await made.start(sh("i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done; echo oops >&2"))
        await made.end()
        whole = "".join(f"line {i}\n" for i in range(1000)).encode()
        logs = made.work().parent / "logs"
        names = sorted(path.name for path in logs.iterdir() if path.name.startswith("stdout"))
        assert len(names) == 3
        assert all((logs / name).stat().st_size <= 1000 for name in names)
        chunk = await made.driver.logs(instance(), "stdout", 0, 10_000)
        assert chunk.next == len(whole)
        assert chunk.data == whole[chunk.offset :]
        assert len(chunk.data) <= 3000
        tail = await made.driver.logs(instance(), "stdout", -9, 100)
        assert tail.data == b"line 999\n"
        assert (await made.driver.logs(instance(), "stderr", 0, 100)).data == b"oops\n"
        assert (await made.driver.logs(instance(), "stdout", tail.next, 100)).data == b""


async def test_mounted_files_lie_in_the_working_directory_and_a_link_leads_nowhere(tmp_path: Path) -> None:
    files = (MountedFile("etc/app/key", b"hush", secret=True), MountedFile("etc/app/colour", b"blue"))
    assert "hush" not in repr(files)
    outside = tmp_path / "outside"
    outside.mkdir()
    script = "cat etc/app/key etc/app/colour; echo; stat -c %a etc/app/key; ln -s $OUTSIDE etc/evil; echo end"
    async with driven(tmp_path / "state") as made:
        await made.start(sh(script, files=files, env={"OUTSIDE": str(outside)}))
        assert (await made.output(wanted=b"end")).splitlines()[:2] == ["hushblue", "400"]
        await made.end()
        got = await made.driver.start(sh("true", run=2, files=(MountedFile("etc/evil/x", b"no"),)))
        assert isinstance(got, Exit)
        assert got.cause == "unstartable"
        assert list(outside.iterdir()) == []


async def test_secrets_go_with_the_instance_and_its_output_stays(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(
            sh("cat keys/key", files=(MountedFile("keys/key", b"hush", secret=True), MountedFile("keys/open", b"x")))
        )
        await made.end()
        await made.driver.tidy(instance())
        assert sorted(path.name for path in (made.work() / "keys").iterdir()) == ["open"]
        assert (await made.driver.logs(instance(), "stdout", 0, 10)).data == b"hush"


async def test_no_file_is_mounted_outside_the_directory(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        got = await made.driver.start(sh("true", files=(MountedFile("../../x", b"no"),)))
        assert isinstance(got, Exit)
        assert "leads out" in got.message


async def test_a_memory_limit_holds_for_the_tree(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        if "memory" not in made.driver.in_force()["limits"]:
            pytest.skip("no memory control group here: only address space is limited")
        await made.start(
            sh("head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null; echo survived $?", memory_bytes=64 << 20)
        )
        await made.end()
        assert "survived 0" not in await made.output()


async def test_what_is_in_force_is_said(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        said = made.driver.in_force()
        assert said["limits"].startswith(("cgroup v", "rlimits"))
        assert "user" in said["user"]
    async with driven(tmp_path / "other", cgroups=False, uids=None) as made:
        assert made.driver.in_force()["limits"].startswith("rlimits")
        assert str(os.getuid()) in made.driver.in_force()["user"]


async def test_a_probe_runs_in_the_instances_surroundings_and_ends_at_its_limit(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        await made.start(sh("touch here; sleep 300", env={"COLOUR": "blue"}))
        await until((made.work() / "here").exists)
        good = await made.driver.execute(instance(), ("/bin/sh", "-c", "test -e here && test $COLOUR = blue"), 60.0)
        assert good.code == 0, good
        bad = await made.driver.execute(instance(), ("/bin/sh", "-c", "echo broken; exit 9"), 60.0)
        assert (bad.code, bad.message.strip()) == (9, "broken")
        slow = await made.driver.execute(instance(), ("/bin/sleep", "300"), 0.1)
        assert slow.cause == "timeout"
        assert not list(made.work().parent.glob("probe.*"))


async def test_a_user_is_not_given_again_before_its_turn(tmp_path: Path) -> None:
    if not as_root():
        pytest.skip("only root gives instances users of their own")

    async def user_of(made: Driven, name: str) -> int:
        await made.start(sh("id -u; sleep 300", id=instance(name)))
        return int(await made.output(instance(name)))

    def gone(made: Driven, name: str) -> bool:
        return made.driver.status(instance(name)) == "gone"

    async with driven(tmp_path, uids=(200_000, 4), cgroups=False) as made:
        assert [await user_of(made, name) for name in ("a-0", "b-0", "c-0")] == [200_000, 200_001, 200_002]
        for name in ("a-0", "b-0", "c-0"):
            await made.driver.kill(instance(name), "stopped")
            await until(partial(gone, made, name))
            await made.driver.forget(instance(name))
        assert [await user_of(made, f"d-{n}") for n in range(4)] == [200_003, 200_000, 200_001, 200_002]
        with pytest.raises(AssertionError, match="all 4 users"):
            made.driver._free_uid()


async def test_a_later_agent_goes_on_after_the_users_that_are_taken(tmp_path: Path) -> None:
    if not as_root():
        pytest.skip("only root gives instances users of their own")
    Directories(tmp_path).prepare(Kept(instance(), 1, {}, uid=200_005), ())
    async with driven(tmp_path, cgroups=False) as made:
        assert made.driver._free_uid() == 200_006


async def test_a_later_agent_finds_what_runs_and_what_ended_while_nobody_looked(tmp_path: Path) -> None:
    first = ProcessDriver(settings_of(tmp_path), SystemClock())
    await first.adopt(lambda *_: None)
    for name, script in (("api-0", "echo up; sleep 300"), ("job-0", "exit 5")):
        await first.start(sh(script, id=instance(name), ports={"http": 20_001}))
    await until(lambda: first.status(instance("job-0")) == "gone")
    await first.close()  # it is gone; its instances are not
    second = ProcessDriver(settings_of(tmp_path), SystemClock())
    made = Driven(second, tmp_path)
    found = await second.adopt(made.ended)
    assert found == [
        Adopted(instance("api-0"), 1, {"http": 20_001}),
        Adopted(instance("job-0"), 1, {"http": 20_001}, Exit(5, "exited")),
    ]
    await second.stop(instance("api-0"), 5.0)
    assert (await made.end()).cause == "stopped"
    await second.forget(instance("api-0"))
    await second.forget(instance("job-0"))
    await until(lambda: list((tmp_path / "instances").iterdir()) == [])
    await second.close()


def test_a_pid_that_means_another_process_is_not_adopted() -> None:
    mine = start_time(os.getpid())
    assert mine is not None
    assert open_same(os.getpid(), mine + 1) is None
    found = open_same(os.getpid(), mine)
    assert found is not None
    os.close(found)


async def test_an_exclusive_instance_ends_at_its_fence_time_without_any_agent(tmp_path: Path) -> None:
    clock = SystemClock()
    first = ProcessDriver(settings_of(tmp_path), clock)
    await first.adopt(lambda *_: None)
    fence = tmp_path / "fence"
    fence.write_text(f"{clock.monotonic() + 1.0} 0\n")
    got = await first.start(sh("sleep 300", exclusive="region"))
    await first.start(sh("sleep 300", id=instance("free-0")))
    pid = getattr(got, "pid", 0)
    await first.close()
    await until(lambda: not alive(pid))
    assert clock.monotonic() >= float(fence.read_text().split()[0])
    second = ProcessDriver(settings_of(tmp_path), clock)
    made = Driven(second, tmp_path)
    found = {adopted.id.name: adopted.exit for adopted in await second.adopt(made.ended)}
    assert found["free-0"] is None
    assert found["api-0"] is not None
    assert found["api-0"].cause == "fenced"
    await second.kill(instance("free-0"), "stopped")
    await made.end()
    await second.close()


async def test_a_later_fence_time_is_obeyed_and_a_missing_one_allows_nothing(tmp_path: Path) -> None:
    clock = SystemClock()
    async with driven(tmp_path) as made:
        fence = tmp_path / "fence"
        fence.write_text(f"{clock.monotonic() + 3600} 0\n")
        await made.start(sh("echo up; sleep 300", exclusive="region"))
        await made.output()
        fence.unlink()
        assert (await made.end()).cause == "fenced"
        fence.write_text(f"{clock.monotonic() + 3600} 0\n")
        await made.start(sh("sleep 300", id=instance("api-1"), exclusive="global"))
        assert (await made.end(2)).cause == "fenced"  # the other column is its own


async def test_a_provisional_instance_ends_at_its_time_without_any_agent_and_not_once_it_is_firm(tmp_path: Path) -> None:
    clock = SystemClock()
    first = ProcessDriver(settings_of(tmp_path), clock)
    await first.adopt(lambda *_: None)
    far = clock.monotonic() + 3600.0
    for name in ("ends-0", "firm-0", "kept-0"):
        await first.start(sh("sleep 300", id=instance(name), lasts=far))
    await first.prolong(instance("firm-0"), math.inf)
    await first.prolong(instance("ends-0"), clock.monotonic() + 0.5)
    await first.close()
    second = ProcessDriver(settings_of(tmp_path), clock)
    made = Driven(second, tmp_path)
    found = {adopted.id.name: adopted for adopted in await second.adopt(made.ended)}
    assert (found["firm-0"].lasts, found["kept-0"].lasts) == (math.inf, round(far, 3))
    if found["ends-0"].exit is None:
        await made.end()
    await until(lambda: second.status(instance("ends-0")) == "gone")
    assert [second.status(instance(name)) for name in ("firm-0", "kept-0")] == ["running", "running"]
    for name in ("firm-0", "kept-0"):
        await second.kill(instance(name), "stopped")
    await until(lambda: all(second.status(instance(name)) == "gone" for name in ("firm-0", "kept-0")))
    await second.close()
