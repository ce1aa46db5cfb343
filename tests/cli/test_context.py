"""Contexts and completion: what is written, what is shown, and that a Tab never waits nor complains."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from fairlead.cli import complete, frame
from fairlead.client import contexts
from tests.cli.talks import quick, talk, workload
from tests.client.fake_api import FakeApi

ROOT = Path(__file__).resolve().parents[2]


def test_a_context_is_made_used_changed_and_deleted(config_file: Path) -> None:
    assert talk("config", "set-context", "prod", "--server", "https://h:7443", "-n", "risk").out == "context prod created\n"
    assert (
        talk("config", "set-context", "dev", "--server", "http://localhost:7443", "--token", "t0k").out == "context dev created\n"
    )
    assert talk("config", "current-context").out == "prod\n", "the first one is the current one"
    assert talk("config", "use-context", "dev").out == "context dev is the current one\n"
    assert talk("config", "set-context", "prod", "--region", "eu").out == "context prod changed\n"
    lines = [line.split() for line in talk("config", "get-contexts").out.splitlines()]
    assert lines == [["CURRENT", "NAME", "SERVER", "TENANT", "REGION"], ["*", "dev", "http://localhost:7443"],
                     ["prod", "https://h:7443", "risk", "eu"]]  # fmt: skip
    assert talk("config", "delete-context", "dev").code == 0
    assert talk("config", "get-contexts", "-o", "name").out == "prod\n"
    assert talk("config", "current-context").code == frame.ERROR


def test_the_file_is_its_owners_and_a_token_is_not_shown(config_file: Path) -> None:
    talk("config", "set-context", "dev", "--server", "http://localhost:1", "--token", "t0k")
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    assert "t0k" not in talk("config", "view").out
    assert "t0k" in talk("config", "view", "--raw").out
    assert "t0k" not in repr(contexts.load().contexts)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["config", "use-context", "prd"], "did you mean 'prod'?"),
        (["get", "wl", "--context", "prd"], "did you mean 'prod'?"),
        (["config", "set-context", "x"], "a new context needs a server"),
        (["config", "set-context", "x", "--server", "ftp://a"], "is not https://HOST:PORT"),
        (["config", "set-context", "x", "--server", "http://example.com"], "http is for this machine only"),
        (["config", "set-context", "x", "--server", "https://h", "--certificate-authority", "/no/ca"], "No such file"),
    ],
)
def test_a_bad_context_says_what_would_be_right(config_file: Path, arguments: list[str], said: str) -> None:
    talk("config", "set-context", "prod", "--server", "https://h:7443")
    ran = talk(*arguments)
    assert (ran.code, ran.out) == (frame.ERROR, "")
    assert said in ran.err


def test_without_any_context_the_way_to_one_is_told(config_file: Path) -> None:
    ran = talk("get", "wl")
    assert ran.code == frame.ERROR
    assert "fairlead config set-context" in ran.err


@pytest.mark.parametrize("text", ["{", '{"contexts": 3}', '{"colour": "red"}', "kind: Config\n", "a: [", '{"kind": "Config"}'])
def test_a_damaged_file_is_told_and_not_written_over(config_file: Path, text: str) -> None:
    config_file.parent.mkdir(parents=True)
    config_file.write_text(text)
    for arguments in (["config", "view"], ["get", "wl"], ["config", "set-context", "x", "--server", "https://h"]):
        ran = talk(*arguments)
        assert ran.code == frame.ERROR
        assert str(config_file) in ran.err
    assert config_file.read_text() == text


def test_a_file_in_yaml_is_read_too(config_file: Path, api: FakeApi) -> None:
    config_file.write_text(
        f"kind: ClientConfig\ncurrentContext: me\ncontexts:\n- {{name: me, server: '{api.url}', namespace: ads}}\n"
    )
    api.put("workloads", "a", "ads", **workload())
    assert talk("get", "wl", "-o", "name").out == "workload/a\n"


def test_a_token_comes_from_the_context_its_file_or_the_environment(
    api: FakeApi, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.token = "secret"
    assert talk("get", "wl").code == frame.DENIED
    (config_file.parent / "token").write_text("secret\n")
    mine = contexts.Context(name="mine", server=api.url, token_file="token")
    contexts.save(contexts.load().with_context(mine))
    assert talk("get", "wl", "--context", "mine").code == 0
    monkeypatch.setenv(contexts.CURRENT, "mine")
    assert talk("get", "wl").code == 0
    monkeypatch.setenv(contexts.TOKEN, "wrong")
    assert talk("get", "wl").code == frame.DENIED


# --- completion


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    made = ShellComplete(frame.fairlead, {"obj": quick()}, "fairlead", "_FAIRLEAD_COMPLETE")
    return [item.value for item in made.get_completions(list(before), incomplete)]


def test_names_come_from_the_server(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete, "WITHIN_S", 60.0)  # what a busy machine answers late is not shown
    api.put("workloads", "risk-api", "risk", **workload())
    api.put("workloads", "batch", "risk", **workload())
    api.put("workloads", "hidden", "ads", **workload())
    api.put("nodes", "n1", spec={})
    api.put("tenants", "ads", spec={})
    assert completed("get", "wl", "") == ["batch", "risk-api"]
    assert completed("get", "wl", "ri") == ["risk-api"]
    assert completed("get", "wl/b") == ["wl/batch"]
    assert completed("get", "-n", "ads", "wl", "") == ["hidden"]
    assert completed("get", "-n", "") == ["ads"]
    assert "workloads" in completed("get", "w")
    assert "gadgets" in completed("delete", "g")
    assert completed("drain", "") == ["n1"]
    assert completed("logs", "wl/r") == ["wl/risk-api"]
    assert completed("get", "wl", "-o", "js") == ["json", "jsonpath="]
    assert completed("get", "--context", "lo") == ["local"]
    api.put("regions", "us-east", spec={})
    api.put("overrides", "stop", "risk", spec={})
    for words in (("get", "nodes", "--region"), ("plan", "--lose-region"), ("chaos", "kill-region")):
        assert completed(*words, "u") == ["us-east"], words
    assert completed("chaos", "kill-node", "") == ["n1"]
    for verb in ("approve", "extend", "revoke"):
        assert completed("override", verb, "") == ["stop"]
    assert completed("override", "create", "hold", "") == []


def test_verbs_and_flags_complete_without_a_server(config_file: Path) -> None:
    assert "drain" in completed("dr")
    assert "--reason" in completed("drain", "--re")
    assert "apply" in completed("zzz", "ap"), "a misspelt verb is told when it is run, not by a Tab"


def test_a_completion_is_silent_when_anything_is_amiss(config_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert completed("get", "wl", "") == []
    config_file.parent.mkdir(parents=True)
    config_file.write_text("{")
    assert completed("get", "wl", "") == []
    assert completed("get", "--context", "") == []
    down = contexts.Context(name="down", server="http://127.0.0.1:9")
    contexts.save(contexts.ClientConfig(current_context="down", contexts=(down,)))
    assert completed("get", "wl", "") == []
    assert capfd.readouterr() == ("", "")


def test_a_completion_gives_up_in_time(config_file: Path) -> None:
    """A server that accepts and never answers: the socket's own timeout ends it."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    slow = contexts.Context(name="slow", server=f"http://127.0.0.1:{listener.getsockname()[1]}")
    contexts.save(contexts.ClientConfig(current_context="slow", contexts=(slow,)))
    clock = quick().clock()
    before = clock.monotonic()
    assert completed("get", "wl", "") == []
    assert complete.WITHIN_S <= clock.monotonic() - before < 20.0, "a command would wait for half a minute"
    listener.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    ran = talk("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"_FAIRLEAD_COMPLETE={shell}_complete" in ran.out


def test_the_program_itself_answers_the_shell_and_imports_no_http_library_for_it(api: FakeApi) -> None:
    api.put("workloads", "risk-api", "risk", **workload())
    settings = os.environ | {"_FAIRLEAD_COMPLETE": "bash_complete", "COMP_WORDS": "fairlead get wl ", "COMP_CWORD": "3"}
    for _ in range(20):  # a busy machine may be late: then it says nothing
        done = subprocess.run([sys.executable, "-X", "importtime", "-c", "from fairlead.main import main; main()"],
                              cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
        if done.stdout:
            break
    assert done.stdout == "plain,risk-api\n"
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not imported & {"aiohttp", "yaml", "rich", "numpy", "uvloop", "fairlead.model.registry"}


def test_a_verb_that_runs_imports_what_it_needs_and_no_more(api: FakeApi) -> None:
    """What is imported is what starting costs: no HTTP library, no engine, no server, no terminal."""
    api.put("workloads", "risk-api", "risk", **workload())
    for words in (("get", "wl"), ("get", "wl", "-o", "json"), ("scale", "wl/risk-api", "--replicas", "2")):
        done = subprocess.run([sys.executable, "-X", "importtime", "-m", "fairlead.main", *words],
                              cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
        assert done.returncode == 0, done.stderr[-300:]
        imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
        heavy = {"aiohttp", "yaml", "rich", "numpy", "starlette", "cryptography", "apsw", "fairlead.authority", "fairlead.api"}
        assert not {name.partition(".")[0] for name in imported} & heavy
        assert not {".".join(name.split(".")[:2]) for name in imported} & heavy


def test_a_real_bash_completes_verbs_kinds_and_names_with_the_script(api: FakeApi) -> None:
    api.put("workloads", "risk-api", "risk", **workload())
    api.put("workloads", "batch", "risk", **workload())
    program = Path(sys.executable).parent / "fairlead"

    def tab(*words: str) -> list[str]:
        """What stands in COMPREPLY after a Tab at the last word."""
        quoted = " ".join(shlex.quote(word) for word in ("fairlead", *words))
        script = (f"source <({program} completion bash); complete -p fairlead >/dev/null || exit 9\n"
                  f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _fairlead_completion fairlead\n"
                  'printf "%s\\n" "${COMPREPLY[@]}"')  # fmt: skip
        path = f"{program.parent}:{os.environ['PATH']}"
        settings = {**os.environ, "PATH": path}
        done = subprocess.run(["bash", "-c", script], env=settings, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.split()

    assert tab("dra") == ["drain"]
    assert "--reason" in tab("drain", "--re")
    found = next((names for _ in range(20) if (names := tab("get", "wl", ""))), [])  # a busy machine may be late: then silence
    assert found == ["batch", "risk-api"]


# bash is everywhere; zsh and fish are asked where they are installed.
CHECKED = [(shell, flag) for shell, flag in (("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")) if shutil.which(shell)]


@pytest.mark.parametrize(("shell", "flag"), CHECKED)
def test_each_script_is_one_that_its_shell_can_read(shell: str, flag: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(talk("completion", shell).out)
    done = subprocess.run([shell, flag, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_command_of_the_reference_is_without_its_module() -> None:
    context = click.Context(frame.fairlead, info_name="fairlead")
    assert all(frame.fairlead.get_command(context, name) for name in frame.fairlead.list_commands(context))


def test_a_socket_says_whom_to_ask_and_as_whom_so_nothing_else_may(config_file: Path, tmp_path: Path) -> None:
    ran = talk("get", "nodes", "--socket", tmp_path / "s", "--context", "prod")
    assert (ran.code, "without --context and --server" in ran.err) == (1, True)
    ran = talk("get", "nodes", "--socket", tmp_path / "s")
    assert (ran.code, f"unix:{tmp_path / 's'} cannot be reached" in ran.err) == (1, True)
    assert "hint: it is break-glass.sock below `data`" in ran.err
