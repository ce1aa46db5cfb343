"""What `fairlead up`, `down` and `chaos` say when there is nothing to be done, before anything is started."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlead.compose.layout import Layout, read_config
from fairlead.compose.links import LinksConfig
from fairlead.compose.processes import Processes
from fairlead.compose.wiring import PLANES, Wiring, is_taken
from fairlead.main import main
from fairlead.ports import SystemClock, SystemIds
from tests.platform.platforms import PYTHON, Platform


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("written") / "state"
    Layout(state, PYTHON).write(datetime.now(UTC), SystemIds(), {}, 15.0)
    return state


@pytest.fixture
def platform(written: Path) -> Iterator[Platform]:
    yield Platform(written)
    assert Platform(written).processes.running() == []


class Refused:
    """Runs the command line in this process, which is what it costs to run it many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, platform: Platform, *words: str, code: int = 1) -> str:
        self._monkeypatch.setattr("sys.argv", ["fairlead", *words, "--state", str(platform.state)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr().err
        assert ended.value.code == code, said
        return said


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    return Refused(monkeypatch, capsys)


def test_a_port_that_is_taken_is_named_and_nothing_is_started(refused: Refused, platform: Platform) -> None:
    config: LinksConfig = read_config(platform.state / "config" / "links.json", LinksConfig)
    link = config.links[3]
    host, _, port = link.listen.rpartition(":")
    with socket.socket() as other:
        other.bind((host, int(port)))
        other.listen()
        said = refused(platform, "up", "--detach")
    assert f"{link.listen}, the address of the {link.name} link, is taken by another process" in said


def test_a_port_that_is_taken_for_udp_alone_is_none_for_dns(refused: Refused, platform: Platform) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(platform.dns)
        said = refused(platform, "up", "--detach")
        assert f"{platform.dns[0]}:{platform.dns[1]}, the address of the DNS server, is taken by another process" in said


def test_a_new_platform_chooses_no_port_that_is_somebody_s_for_udp() -> None:
    host, _, port = Wiring([]).dns.rpartition(":")
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind((host, int(port)))
        wiring = Wiring([])
        assert f"{host}:{port}" not in {wiring.dns, *map(wiring.listen, PLANES), *(link.listen for link in wiring.links())}


def test_platforms_made_at_the_same_moment_choose_different_ports_and_their_servers_can_listen_there() -> None:
    made = [Wiring([("agent-a", "us-east")]) for _ in range(2)]
    chosen = [{wiring.dns, *(link.listen for link in wiring.links()), *map(wiring.listen, PLANES)} for wiring in made]
    assert len(chosen[0]) == len(chosen[1]) > 10
    assert not chosen[0] & chosen[1], "neither listens yet, and both begin to look at the same place"
    host, _, port = made[0].listen("global").rpartition(":")
    assert not is_taken(f"{host}:{port}")
    with socket.create_server((host, int(port))):
        assert is_taken(f"{host}:{port}")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("mars=sqlite:/tmp/x.db", "there is no plane mars; there are global, us-east, us-west, eu-central"),
        ("postgresql://me@host/db", "write PLANE=URL"),
        ("global=mysql://host/db", "there is no engine 'mysql'"),
        ("global=memory:", "has its stores since its first start"),
    ],
)
def test_a_store_that_cannot_be_is_refused_before_anything_is_started(
    refused: Refused, platform: Platform, option: str, words: str
) -> None:
    assert words in refused(platform, "up", "--detach", "--store", option)


def test_two_planes_cannot_share_a_store(refused: Refused, platform: Platform) -> None:
    same = ("--store", "global=postgresql://me@host/db", "--store", "us-east=postgresql://me@host/db")
    assert "two planes cannot share one store" in refused(platform, "up", "--detach", *same)


def test_what_does_not_run_is_neither_stopped_nor_broken(refused: Refused, platform: Platform) -> None:
    assert "does not run; `fairlead up` starts it" in refused(platform, "chaos", "status")
    assert "nothing runs" in refused(platform, "down", code=3)


@pytest.fixture
def pretended(platform: Platform) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes that do nothing, under the names of some of the platform's."""
    names = ("us-east", "agent-us-east-general-a", "agent-us-east-memory-a", "agent-us-east-general-b", "agent-us-west-general-a")
    made = {}
    for name in names:
        config = Layout(platform.state, PYTHON).config_of(name)
        made[name] = subprocess.Popen([PYTHON, "-Sc", "import time; time.sleep(600)", str(config)])
        (platform.state / "run" / f"{name}.pid").write_text(f"{made[name].pid}\n")
    yield made
    for name, process in made.items():
        process.kill()
        process.wait()
        (platform.state / "run" / f"{name}.pid").unlink()


def test_kill_zone_kills_the_machines_of_that_zone_and_nothing_else(
    refused: Refused, platform: Platform, pretended: dict[str, subprocess.Popen[bytes]]
) -> None:
    platform.wait(lambda: len(platform.processes.running()) == len(pretended), "all of them")
    assert "there is no zone us-east-z; there are eu-central-a" in refused(
        platform, "chaos", "kill-zone", "us-east-z", "--yes", code=3
    )
    said = refused(platform, "chaos", "kill-zone", "us-east-a", code=5)  # nobody says yes
    assert "us-east-general-a: runs nothing\n" in said
    assert len(platform.processes.running()) == len(pretended)
    assert "this kills, at once and without a word, zone us-east-a" in refused(
        platform, "chaos", "kill-zone", "us-east-a", "--yes", code=0
    )
    assert platform.processes.running() == ["us-east", "agent-us-east-general-b", "agent-us-west-general-a"]


def test_where_there_is_no_platform_chaos_and_probe_say_so(refused: Refused, tmp_path: Path) -> None:
    nowhere = Platform(tmp_path)
    assert "there is no local platform" in refused(nowhere, "chaos", "kill-region", "eu-central", "--yes")
    assert "there is no local platform" in refused(nowhere, "probe", "risk-api", "-n", "risk")


def test_a_directory_of_another_version_is_left_alone(refused: Refused, platform: Platform, tmp_path: Path) -> None:
    other = Platform(tmp_path / "state")
    shutil.copytree(platform.state, other.state)
    (other.state / "ready").write_text("1\n")
    for command in (("up", "--detach"), ("down",), ("chaos", "status")):
        said = refused(other, *command)
        assert "was written by another version" in said
        assert "a fault of Fairlead" not in said


def test_a_pid_that_went_to_a_stranger_is_none_of_ours(written: Path) -> None:
    processes = Processes(Layout(written, PYTHON), SystemClock())
    file = written / "run" / "global.pid"
    file.write_text("1\n")
    try:
        assert processes.pid("global") is None
        assert processes.state("global") == "gone"
        assert not processes.signal("global", 0)
    finally:
        file.unlink()


def test_what_may_hold_a_password_is_readable_by_its_owner_alone(written: Path) -> None:
    assert written.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (written / "config").glob("*.json"))
