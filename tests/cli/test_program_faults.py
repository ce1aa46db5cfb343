"""What server, agent and endpoints say of a configuration or certificates that cannot be used: which file, and what is wrong."""

from __future__ import annotations

import fcntl
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.main import main
from tests.security.places import Place

Say = Callable[..., str]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """What the program says before it ends, started with this configuration."""

    def run(program: str, config: dict[str, Any]) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        monkeypatch.setattr("sys.argv", ["fairlead", program, "--config", str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (1, 3)
        return capsys.readouterr().err

    return run


def config_of(program: str, folder: Path, **files: Path) -> dict[str, Any]:
    tls = {name: str(path) for name, path in files.items()}
    match program:
        case "server":
            return {"plane": "global", "store": "memory:", "data": tempfile.mkdtemp(dir=folder), "tls": tls}
        case "agent":
            about = {"node": "n", "region": "r", "addresses": ["https://127.0.0.1:1"], "state": str(folder / "node")}
            return {**about, "cpu": "1", "memory": "1Gi", "cgroups": False, "tls": tls}
        case _:
            return {"regions": [], "dns": "127.0.0.1:0", "identity": tls}


@pytest.mark.parametrize("program", ["server", "agent", "endpoints"])
def test_files_that_cannot_be_used_are_named(say: Say, tmp_path: Path, program: str) -> None:
    place, other = Place(tmp_path / "pki"), Place(tmp_path / "other")
    good = {"certificate": place.files.certificate, "key": place.files.key, "authority": place.authorities}
    nowhere, garbage = tmp_path / "nowhere.pem", tmp_path / "garbage.pem"
    garbage.write_text("hello\n")
    for part in good:
        assert str(nowhere) in say(program, config_of(program, tmp_path, **good | {part: nowhere})), part
        garbage.chmod(0o600)
        assert str(garbage) in say(program, config_of(program, tmp_path, **good | {part: garbage})), part
    said = say(program, config_of(program, tmp_path, **good | {"key": other.files.key}))
    assert f"{other.files.key} does not belong to {place.files.certificate}" in said
    place.files.key.chmod(0o644)
    said = say(program, config_of(program, tmp_path, **good))
    assert "run chmod 600" in said
    assert "a fault of Fairlead" not in said


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"dnss": "127.0.0.1:53"}, "there is no setting 'dnss'"),
        ({"dns": "nonsense"}, "dns: 'nonsense' is not HOST:PORT"),
        ({"dns": "0.0.0.0:5300"}, "that needs `networks`"),
    ],
)
def test_a_setting_of_endpoints_that_cannot_be_is_no_fault_of_fairlead(say: Say, config: dict[str, str], words: str) -> None:
    said = say("endpoints", {"regions": [], **config})
    assert words in said
    assert "a fault of Fairlead" not in said


def test_a_second_agent_of_one_directory_says_that_there_is_another(say: Say, tmp_path: Path) -> None:
    config = config_of("agent", tmp_path) | {"tls": None}
    (tmp_path / "node").mkdir()
    with (tmp_path / "node" / "lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        said = say("agent", config)
    assert f"error: {tmp_path / 'node'}: another agent uses this directory" in said
    assert "a fault of Fairlead" not in said
