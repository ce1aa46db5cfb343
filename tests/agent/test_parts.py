"""The smaller parts: what is remembered, the fence file, ports, control groups of both versions."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import cast

import pytest

from fairlead.agent.drivers.cgroups import detect, own_groups
from fairlead.agent.drivers.contract import InstanceId, parse_instance_id
from fairlead.agent.fence import read_fence, write_fence
from fairlead.agent.launching import Launcher
from fairlead.agent.port_range import NoPort, PortRange
from fairlead.agent.region import Region
from fairlead.agent.remembered import TOKENS_MAX, Remembered
from fairlead.agent.settings import LOOPBACK, _reachable, detect_address, detect_capacity
from fairlead.agent.slot import Slot
from fairlead.model.kinds.intent import Port, Template
from fairlead.model.kinds.slot import Token
from fairlead.ports import SystemClock


def test_tokens_sessions_and_leaders_are_remembered_over_a_restart(tmp_path: Path) -> None:
    first = Remembered(tmp_path / "agent")
    assert first.see("risk", "api-0", Token(1, 2, 1))
    first.begin_session(4)
    assert first.hear(1, 7)
    first.save()
    second = Remembered(tmp_path / "agent")
    assert (second.session, second.leader) == (4, (1, 7))
    assert not second.see("risk", "api-0", Token(1, 1, 9))
    assert second.see("risk", "api-0", Token(1, 2, 1))
    assert second.see("risk", "api-0", Token(2, 1, 1))  # a new history begins above every old one
    assert not second.hear(1, 6)
    assert second.hear(2, 1)


def test_what_is_remembered_has_a_bound() -> None:
    memory = Remembered()
    for n in range(TOKENS_MAX + 10):
        memory.see("risk", f"s-{n}", Token(1, 1, 1))
    assert memory.highest("risk", "s-0") is None
    assert memory.highest("risk", f"s-{TOKENS_MAX + 9}") == Token(1, 1, 1)


def test_a_fence_of_before_the_last_start_of_the_machine_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "fence"
    assert read_fence(path, 100.0, 15.0) is None
    write_fence(path, 110.0, 105.0)
    assert read_fence(path, 100.0, 15.0) == (110.0, 105.0)
    assert read_fence(path, 20.0, 15.0) is None
    path.write_text("torn")
    assert read_fence(path, 100.0, 15.0) is None


def test_ports_are_given_once_and_never_one_that_is_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = PortRange(port, port)
        with pytest.raises(NoPort):
            ports.take()
    assert ports.take() == port
    with pytest.raises(NoPort):
        ports.take()
    ports.give_back([port])
    assert ports.take() == port


def test_a_port_is_free_when_the_last_who_has_it_gives_it_back() -> None:
    ports = PortRange(20_100, 20_199)
    launcher = Launcher(cast(Region, None), ports, (), SystemClock())
    given = ports.take()
    slot = Slot(InstanceId("risk", "api-0", Token(1, 1, 1)), "n1")
    named = launcher._take_ports(slot, Template(ports=(Port(name="http", port=given), Port(name="admin", port=given + 1))))
    assert named == {"http": given, "admin": given + 1}
    assert [ports.take() for _ in range(3)] == [given + 2, given + 3, given + 4], "a port that a template names is not given away"
    ports.give_back(named.values())
    assert {ports.take() for _ in range(96)} == {*range(20_100, 20_200)} - {*range(given, given + 5)} | {given + 1}
    with pytest.raises(NoPort):
        ports.take()  # it still belongs to whom it was given
    ports.give_back([given])
    assert ports.take() == given


def test_two_ranges_that_begin_apart_do_not_give_out_the_same_first() -> None:
    one, other = PortRange(20_100, 20_199, 20_100), PortRange(20_100, 20_199, 20_150)
    assert one.take() < 20_150 <= other.take()
    assert PortRange(20_100, 20_199, 5).take() < 20_150, "one that does not lie in it is none"


@pytest.mark.parametrize("text", ["risk_api-0_1-2-3", "a_b_1-1-1"])
def test_an_instances_name_reads_back(text: str) -> None:
    found = parse_instance_id(text)
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize("text", ["", "lost+found", "a_b", "a_b_1-2", "a_b_c_1-2-3", "a_b_x-y-z"])
def test_what_is_no_instances_name_is_left_alone(text: str) -> None:
    assert parse_instance_id(text) is None


def test_the_groups_of_a_process_are_read_in_both_forms() -> None:
    assert own_groups("0::/user.slice\n") == {"": "/user.slice"}
    assert own_groups("3:cpu,cpuacct:/a\n0::/\n") == {"cpu": "/a", "cpuacct": "/a", "": "/"}


def group(path: Path, controllers: str | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").write_text("")
    if controllers is not None:
        (path / "cgroup.controllers").write_text(controllers)
        (path / "cgroup.subtree_control").write_text("")
    return path


def test_version_two_is_preferred_and_limits_are_written_in_its_words(tmp_path: Path) -> None:
    base = group(tmp_path / "agent.slice", "cpu memory pids io")
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids io")
    group(base / "fairlead-x", "cpu memory pids")
    found = detect("fairlead-x", tmp_path, "0::/agent.slice\n")
    assert found.version == 2
    assert found.in_force == "cgroup v2 (cpu, memory, pids); killed by cgroup"
    made = found.make("one", cpu_milli=1500, memory_bytes=1 << 30)
    folder = base / "fairlead-x" / "one"
    assert made.procs == (str(folder / "cgroup.procs"),)
    assert made.kill_file == str(folder / "cgroup.kill")
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "memory.max").read_text() == str(1 << 30)


def test_version_one_is_used_where_two_has_no_controllers(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        group(tmp_path / name / "box")
    found = detect("fairlead-x", tmp_path, "2:memory:/box\n1:cpu:/box\n")
    assert (found.version, found.limits_memory) == (1, True)
    made = found.make("one", cpu_milli=250, memory_bytes=0)
    assert len(made.procs) == 2
    assert (tmp_path / "cpu/box/fairlead-x/one/cpu.cfs_quota_us").read_text() == "25000"
    assert not (tmp_path / "memory/box/fairlead-x/one/memory.limit_in_bytes").exists()


def test_without_any_group_it_says_that_only_rlimits_are_in_force(tmp_path: Path) -> None:
    found = detect("fairlead-x", tmp_path, "0::/\n")
    assert (found.version, found.limits_memory) == (0, False)
    assert found.in_force.startswith("rlimits")


def test_a_machine_says_what_it_has() -> None:
    found = detect_capacity()
    assert found.cpu >= 100
    assert found.memory >= 64 << 20


def test_an_instance_id_sorts_by_its_token() -> None:
    ids = [InstanceId("a", "b", Token(1, 2, 1)), InstanceId("a", "b", Token(1, 1, 9))]
    assert sorted(ids)[0].token == Token(1, 1, 9)


def test_a_node_is_reached_by_the_address_it_has_towards_its_servers() -> None:
    assert detect_address(["https://127.0.0.1:7443", "https://localhost:7443"]) == LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = way.getsockname()[0]
    assert detect_address(["https://127.0.0.1:7443", "https://192.0.2.1:7443"]) == own, "one server lives on this machine"
    assert detect_address(["https://no-such-host.invalid:7443"]) == own, "no name is known now; it is not reached by loopback"


def test_addresses_that_others_cannot_use_are_passed_over() -> None:
    assert _reachable(["127.0.0.1", "fe80::1%eth0", "fd00::2", "10.0.0.5"]) == "fd00::2"
    assert _reachable(["::1"]) == "::1"
    assert _reachable([]) == LOOPBACK
