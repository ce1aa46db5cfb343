"""Instances of a local platform: users of their own where root starts it, and no way to its keys."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from fairlead.compose import up, users_later
from fairlead.compose.agent import AgentConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.local import Local
from fairlead.compose.own_users import FIRST, PER_NODE, are_possible, of_node, of_provided
from fairlead.compose.processes import Processes
from fairlead.compose.users_later import AS_ROOT, give_users
from fairlead.ports import SystemClock, SystemIds
from fairlead.wire import json_codec
from tests.agent.processes import as_root, driven, sh, until


@pytest.fixture
def reached() -> Iterator[Path]:
    """A directory to which every user of the machine gets through. None of pytest's: those of all workers have the same parents,
    which are for whoever runs the tests."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def written(state: Path, own_users: bool) -> Layout:
    layout = Layout(state, sys.executable)
    layout.write(datetime.now(UTC), SystemIds(), {}, 15.0, own_users=own_users)
    return layout


def test_users_are_given_only_where_one_of_them_could_run_the_samples(reached: Path) -> None:
    if not as_root():
        assert not are_possible(sys.executable, reached / "state")
        return
    if not are_possible(sys.executable, reached / "state"):
        pytest.skip("this interpreter or this checkout is readable by its owner only")
    reached.chmod(0o700)
    assert not are_possible(sys.executable, reached / "state"), "no way to the state directory"
    reached.chmod(0o755)
    assert not are_possible(str(reached / "no-python"), reached / "state")


def test_a_state_directory_whose_way_has_to_be_made_is_one_that_others_get_through(reached: Path) -> None:
    possible = are_possible(sys.executable, reached / "state")
    layout = Layout(reached / "made" / "on" / "the-way", sys.executable)
    said: list[str] = []
    up._make_layout(layout, Local(layout, SystemClock()), {}, 15.0, SystemClock(), SystemIds(), said.append)
    assert (AS_ROOT in said) == (as_root() and not possible)
    assert {read_config(each, AgentConfig).uids for each in layout.path("config").glob("agent-*.json")} == {possible}


def test_agents_of_one_machine_share_no_users() -> None:
    given = [of_node(number) for number in range(11)]
    for region in range(3):
        for _ in range(10):
            given.append(of_provided(region, [first for first, _ in given]))
    firsts = sorted(first for first, _ in given)
    assert all(after - before >= PER_NODE for before, after in pairwise(firsts))
    assert firsts[0] == FIRST
    assert firsts[-1] + PER_NODE <= 260_000, "one of the last was tried"


def test_a_platforms_agents_are_told_which_users_to_give(tmp_path: Path) -> None:
    for own_users in (True, False):
        layout = written(tmp_path / f"state-{own_users}", own_users)
        names = Processes(layout, SystemClock()).agents()
        configs: list[AgentConfig] = [read_config(layout.config_of(name), AgentConfig) for name in names]
        assert {config.uids for config in configs} == {own_users}
        assert len({config.uid_range for config in configs}) == len(configs)


@pytest.mark.parametrize("own_users", [True, False])
def test_keys_tokens_and_logs_are_their_owners_alone_whatever_the_umask_was(tmp_path: Path, own_users: bool) -> None:
    before = os.umask(0o000)
    try:
        layout = written(tmp_path / "state", own_users)
    finally:
        os.umask(before)
    (tmp_path / "state" / "pki").chmod(0o755)  # as an earlier version left it
    layout.guard()
    private = ("pki", "config", "logs", "run", "seed")
    assert {stat.S_IMODE(layout.path(name).stat().st_mode) for name in private} == {0o700}
    assert stat.S_IMODE(layout.path().stat().st_mode) == (0o711 if own_users else 0o700)


async def test_an_instance_reaches_its_own_directory_and_nothing_of_the_platform(reached: Path) -> None:
    if not as_root():
        pytest.skip("only root gives instances users of their own")
    layout = written(reached / "state", own_users=True)
    node = layout.path("data", "nodes", "n1")
    keys = [
        layout.path(*parts) for parts in (("run", "admin.token"), ("pki", "ca.key"), ("pki", "secrets.keys"), ("kubeconfig",))
    ]
    assert all(key.exists() for key in keys)
    script = 'touch "$HOME/mine" && echo home; for key in $KEYS; do cat "$key" 2>/dev/null && echo "READ $key"; done; echo end'
    async with driven(node, cgroups=False, uids=of_node(3)) as made:
        await made.start(sh(script, env={"KEYS": " ".join(map(str, keys))}))
        assert await made.output(wanted=b"end") == "home\nend\n"


async def test_what_the_platforms_processes_write_is_their_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = written(tmp_path / "state", own_users=True)
    said, program = tmp_path / "umask", tmp_path / "python"
    program.write_text(f"#!/bin/sh\numask > {said}.new && mv {said}.new {said}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    Processes(layout, SystemClock()).start("global")
    await until(said.exists)
    assert int(said.read_text(), 8) == 0o077, "the store of a plane lies where instances get through"


@pytest.fixture
def of_before(reached: Path) -> tuple[Layout, Processes, Path]:
    """A platform that was made without users, by root, and the directory of one of its nodes."""
    if not as_root():
        pytest.skip("only root gives instances users of their own")
    layout = written(reached / "state", own_users=False)
    layout.path().chmod(0o700)
    processes = Processes(layout, SystemClock())
    for name in processes.agents():  # earlier versions said nothing of ranges
        config: AgentConfig = read_config(layout.config_of(name), AgentConfig)
        layout.config_of(name).write_bytes(json_codec.encode(msgspec.structs.replace(config, uid_range=(200_000, 60_000))))
    return layout, processes, Path(processes.agent_config(processes.agents()[0]).state)


async def test_what_an_earlier_start_left_to_root_is_given_to_users_at_the_next_one(
    of_before: tuple[Layout, Processes, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_later, "are_possible", lambda *_: True)
    layout, processes, node = of_before
    machines = layout.path("of-the-machine")
    machines.write_text("root's")
    script = 'mkdir -p "$HOME/d" && echo one >> "$HOME/d/mine" && ln -s /etc "$HOME/link" && ln "$FILE" "$HOME/d/linked"'
    async with driven(node, cgroups=False, uids=None) as made:
        await made.start(sh(script, env={"FILE": str(machines)}))
        await made.end(1)
        work = made.work()
        made.driver._kept.clear()  # as an agent that was stopped leaves it
    assert (work / "d" / "mine").stat().st_uid == 0

    (line,) = give_users(layout, processes, sys.executable)
    assert "1 that ran as root" in line
    configs = [processes.agent_config(name) for name in processes.agents()]
    assert all(config.uids for config in configs)
    assert len({config.uid_range for config in configs}) == len(configs)
    assert {config.uid_range[1] for config in configs} == {PER_NODE}
    uid = configs[0].uid_range[0]
    assert {path.lstat().st_uid for path in (work, work / "d", work / "d" / "mine", work / "link")} == {uid}
    assert (machines.stat().st_uid, Path("/etc").stat().st_uid) == (0, 0), "neither by a link nor by a second name"
    assert give_users(layout, processes, sys.executable) == [], "once"

    async with driven(node, cgroups=False, uids=configs[0].uid_range) as made:
        await made.start(sh('id -u; echo two >> "$HOME/d/mine" && cat "$HOME/d/mine"', run=2))
        assert await made.output(wanted=b"two") == f"{uid}\none\ntwo\n"


def test_where_no_other_user_gets_through_it_is_said_at_every_start(
    of_before: tuple[Layout, Processes, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_later, "are_possible", lambda *_: False)
    layout, processes, _ = of_before
    for _ in range(2):
        assert give_users(layout, processes, sys.executable) == [users_later.AS_ROOT]
    assert stat.S_IMODE(layout.path().stat().st_mode) == 0o700


def test_what_runs_still_is_not_given_away(of_before: tuple[Layout, Processes, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_later, "are_possible", lambda *_: True)
    layout, processes, _ = of_before
    monkeypatch.setattr(processes, "work_of", lambda agents: {agent: {7: "risk/api-0"} for agent in agents})
    (line,) = give_users(layout, processes, sys.executable)
    assert "fairlead down" in line
    assert not any(processes.agent_config(name).uids for name in processes.agents())
