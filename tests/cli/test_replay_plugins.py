"""`fairlead replay` of a history whose policy names an installed gate: with the package, without it, and with a broken one."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.authority.judge import Settings
from fairlead.cli.frame import CHECK_FAILED, ERROR, OK, World, answer
from fairlead.main import archived_batches, decided_again, plugins
from fairlead.model.commands import Put
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock
from fairlead.store.archive import Archive
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import GI, OPERATOR, REGION, bind_of, ok, running_plane
from tests.cli.test_history import Programs
from tests.platform.packages import GATE, MODULE, PACKAGE, install


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With the package of the page in it."""
    folder = tmp_path / "packages"
    install(folder)
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    forget()


def forget() -> None:
    """As a new process begins."""
    sys.modules.pop(MODULE, None)
    importlib.invalidate_caches()


def run(folder: Path, *words: str) -> int:
    nothing: Any = None
    programs: Any = Programs(folder / "history")
    world = World(
        nothing, nothing, nothing, nothing, SystemClock, nothing, nothing, nothing, programs=programs, archived=archived_batches,
        decided_again=decided_again, plugins=plugins,
    )  # fmt: skip
    return answer(world, words)


@pytest.fixture
async def history(tmp_path: Path, packages: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A slot that the gate kept from the node that it would have filled best."""
    disk, settings = MemoryDisk(), Settings(region=REGION, plugins=plugins().registry)
    async with running_plane(MemoryStore(disk), settings=settings) as plane:
        await plane.grant("risk")
        spec = SchedulerPolicySpec(revision=1, gates=(GATE,))
        ok(await plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(Metadata(name="r1"), spec))))
        ok(
            await plane.send(
                OPERATOR, Put("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1)))
            )
        )
        for name, memory in (("small", 8 * GI), ("large", 16 * GI)):
            await plane.add_node(name, cpu=4000, memory=memory)
        ok(await plane.request("risk", "api", 0, await plane.as_role(Role.ASSIGNMENT), memory=6 * GI, priority=500))
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "large", policy_revision=1)))
    archive = Archive(tmp_path / "history")
    for entry in disk.journal:
        archive.append(entry.batch)
    archive.sync()
    archive.close()
    (tmp_path / "server.json").write_text("{}")
    file = str(tmp_path / "kept.history")
    assert run(tmp_path, "export", file, "--config", str(tmp_path / "server.json")) == OK
    capsys.readouterr()
    return file


async def test_a_history_is_judged_and_decided_again_with_the_gates_that_are_installed_here(
    tmp_path: Path, history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "replay", history, "--verify", "--fork", "policy=built-in", "--json") == OK
    told = capsys.readouterr()
    results = msgspec.json.decode(told.out)["results"]
    assert (results["identical"], told.err) == (True, "")
    placed = results["placements"]
    assert (placed["decided"], placed["same"]) == (1, 1)
    (other,) = placed["fork"]["differences"]
    assert (other["then"]["node"], other["forked"]["node"]) == ("large", "small")
    assert run(tmp_path, "replay", history, "--fork", "policy=1", "--json") == OK


def test_the_command_itself_finds_what_is_installed(packages: Path, history: str) -> None:
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH", ""))))
    words = [sys.executable, "-m", "fairlead.main", "replay", history, "--verify"]
    environment = {**os.environ, "PYTHONPATH": path, "FAIRLEAD_EVIDENCE": str(packages / "evidence")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (OK, ""), done.stdout


async def test_where_it_is_broken_that_is_said_and_what_it_decided_then_comes_out_otherwise(
    tmp_path: Path, packages: Path, history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (packages / f"{MODULE}.py").write_text("import a_module_that_nobody_has\n")
    forget()
    assert run(tmp_path, "replay", history, "--verify", "--json") == CHECK_FAILED
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f"left out: gate plug-in '{GATE}': it cannot be loaded: ModuleNotFoundError: ")
    assert PACKAGE in line
    assert "PluginMissing" in msgspec.json.decode(told.out)["results"]["differences"][0]["detail"]
    assert run(tmp_path, "replay", history, "--fork", "policy=1") == ERROR
    assert f"'{GATE}' is not loaded here" in capsys.readouterr().err
