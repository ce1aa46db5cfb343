"""The frame: it starts at once, every command has help, a mistake gets a hint, and no fault ever shows a stack trace."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import fairlead.cli.bench as bench
from bench.registry import Option
from fairlead import main
from fairlead.cli import frame, version
from fairlead.cli.output import json_option
from fairlead.cli.show import Format, format_option
from fairlead.store.contract import StoreError
from tests.cli.runs import fairlead, world
from tests.client.fake_api import FakeApi

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "aiohttp",
    "apsw",
    "asyncpg",
    "grpc",
    "google.protobuf",
    "rich",
    "numpy",
    "yaml",
    "asyncio",
    "msgspec",
    "zstandard",
    "uvloop",
    "ssl",
}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group, info_name="fairlead")
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, f"{name} is listed and is not there"
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


ALL = dict(commands(frame.fairlead))


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


def test_help_imports_no_driver_and_nothing_heavy() -> None:
    """The wall clock of a busy machine says little; what is imported is what costs, and click alone is allowed to."""
    done = run_python("-X", "importtime", "-m", "fairlead.main", "--help")
    assert done.returncode == 0
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "click" in imported
    assert imported & HEAVY == set()


def test_help_starts_within_its_budget() -> None:
    """150 ms of CPU, the best of a few. On a machine so busy that click alone takes most of that, not much more than click."""
    probe = (
        "import resource, subprocess, sys\n"
        "def cost(*words):\n"
        "    before = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)\n"
        "    after = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime\n"
        "pairs = [(cost('-m', 'fairlead.main', '--help'), cost('-c', 'import click')) for _ in range(5)]\n"
        "print(*map(min, zip(*pairs)))\n"
    )
    ours, clicks = map(float, run_python("-c", probe).stdout.split())
    assert ours < max(0.150, 1.6 * clicks)


def test_looking_at_sqlite_imports_no_other_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from fairlead.main import open_store; open_store(sys.argv[1])\n"
        "print([name for name in ('asyncpg', 'grpc', 'rich') if name in sys.modules])"
    )
    assert run_python("-c", code, str(tmp_path / "p.db")).stdout.strip() == "[]"


@pytest.mark.parametrize("path", list(ALL), ids=" ".join)
def test_every_command_has_help_that_says_what_it_does(path: tuple[str, ...]) -> None:
    ran = fairlead(*path, "--help")
    assert ran.code == 0
    assert f"Usage: fairlead {' '.join(path)}" in ran.out
    assert ran.err == ""
    assert ALL[path].help, path
    for parameter in ALL[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.opts[0]} has no help"


def test_the_groups_help_lists_its_commands() -> None:
    out = fairlead("--help").out
    for name in ("store", "bench", "version"):
        assert f"\n  {name} " in out
    assert fairlead().out == out, "no arguments at all is a question, not a mistake"
    assert fairlead("store").code == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["stor"], "did you mean 'fairlead store'?"),
        (["store", "verfy", "x"], "did you mean 'fairlead store verify'?"),
        (["store", "zzz"], "See 'fairlead store --help'"),
        (["store", "status"], "see 'fairlead store status --help'"),
        (["store", "status", "--nix", "x.db"], "see 'fairlead store status --help'"),
    ],
)
def test_a_mistake_is_an_error_with_a_hint_and_never_exit_code_two(arguments: list[str], hint: str) -> None:
    ran = fairlead(*arguments)
    assert ran.code == frame.ERROR
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert hint in ran.err


def test_a_fault_of_ours_is_one_line_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(url: str, *, create: bool = True) -> None:
        raise RuntimeError("boom\nand a second line")

    within = world()._replace(open_store=broken)  # type: ignore[arg-type]
    monkeypatch.delenv(frame.DEBUG, raising=False)
    ran = fairlead("store", "status", "x.db", within=within)
    assert ran.code == frame.ERROR
    assert ran.err.splitlines() == [
        "error: unexpected RuntimeError: boom",
        "hint: this is a fault of Fairlead; set FAIRLEAD_DEBUG=1 to see where",
    ]
    monkeypatch.setenv(frame.DEBUG, "1")
    with pytest.raises(RuntimeError):
        fairlead("store", "status", "x.db", within=within)


def test_an_interruption_is_exit_code_130() -> None:
    def interrupted(url: str, *, create: bool = True) -> None:
        raise KeyboardInterrupt

    ran = fairlead("store", "status", "x.db", within=world()._replace(open_store=interrupted))  # type: ignore[arg-type]
    assert (ran.code, ran.out) == (130, "")


def test_a_closed_pipe_is_not_a_fault() -> None:
    words = [sys.executable, "-m", "fairlead.main", "--help"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_version_is_one_object() -> None:
    assert set(fairlead("version", "--json").json) == {"fairlead", "store_format", "python"}
    assert "store format" in fairlead("version").out


def test_the_version_is_said_as_other_tools_say_it() -> None:
    ran = fairlead("--version")
    assert (ran.code, ran.out) == (0, f"fairlead {fairlead('version', '--json').json['fairlead']}\n")


def test_without_a_checkout_bench_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    ran = fairlead("bench", "commit", "--json")
    assert ran.code == frame.NOT_FOUND
    assert "benchmarks need a source checkout" in ran.err
    assert fairlead("bench", "--help").code == 0


class Benchmarks:
    """As bench/registry.py, with one benchmark that measures nothing."""

    OPTIONS = (
        Option("engine", "sqlite", "Which engine.", ("memory", "sqlite")),
        Option("clients", 4, "How many."),
        Option("all_out", False, "No pauses."),
    )
    __doc__ = "`fairlead bench fake`: measures nothing.\n\nAnd says more."

    def names(self) -> list[str]:
        return ["fake"]

    def load(self, name: str) -> Benchmarks:
        return self

    async def main(self, **options: object) -> dict[str, object]:
        failures = ["too slow"] if options["clients"] == 13 else []
        switch_s = sys.getswitchinterval()
        return {
            "name": "bench fake",
            "params": options,
            "environment": {},
            "results": {"switch_s": switch_s, "failures": failures},
        }


def test_a_benchmark_gets_its_options_and_prints_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_registry", Benchmarks)
    before = sys.getswitchinterval()
    try:
        ran = fairlead("bench", "fake", "--engine", "memory", "--all-out", "--json")
    finally:
        sys.setswitchinterval(before)
    assert ran.code == 0
    assert ran.json["params"] == {"engine": "memory", "clients": 4, "all_out": True}
    assert ran.json["results"]["switch_s"] == pytest.approx(0.0005), "a benchmark runs as a plane does"
    assert "measures nothing." in fairlead("bench", "--help").out
    assert fairlead("bench", "fake", "--engine", "paper").code == frame.ERROR


def test_a_benchmark_that_misses_its_limits_ends_with_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_registry", Benchmarks)
    monkeypatch.setattr(main, "run_plane", main.run)
    ran = fairlead("bench", "fake", "--clients", 13)
    assert ran.code == frame.CHECK_FAILED
    assert "FAILED too slow" in ran.out


# --- URLs


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://db/x", "there is no engine 'mysql'"),
        ("sqlite:", "the path is missing"),
        ("sqlite:/no/such/directory/p.db", "its directory does not exist"),
        ("/", "this is a directory"),
        ("postgresql:///x", "the host is missing"),
        ("postgresql://db:1:2/x", "db:1:2 is not HOST or HOST:PORT"),
        ("postgresql://ada:p@db:99999/x", "db:99999 is not HOST or HOST:PORT"),
        ("postgresql://db/x?plane=Not_A_Plane", "a plane is named with"),
        ("etcd://one,two/p", "one is not HOST:PORT"),
        ("etcd:///p", "the host is missing"),
        ("etcd://a:1/p?ca=/no/such/file", "cannot be read: No such file"),
        ("etcd://a:1/p?cert=x", "TLS needs ca"),
        ("etcd://a:1/p?colour=x", "unknown setting 'colour'"),
    ],
)
def test_a_bad_url_says_what_is_wrong_and_what_would_be_right(url: str, said: str) -> None:
    with pytest.raises(StoreError) as raised:
        main.open_store(url)
    assert said in str(raised.value)
    assert "postgresql://USER@HOST/DATABASE" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "engine"),
    [
        ("plane.db", "SqliteStore"),
        ("sqlite:plane.db", "SqliteStore"),
        ("sqlite:///tmp/plane.db", "SqliteStore"),
        ("postgresql://ada@db/x?plane=eu-west&sslmode=require", "PostgresStore"),
        ("postgres://ada@db/x", "PostgresStore"),
        ("postgresql://ada:p@one:5432,two:5433/x", "PostgresStore"),
        ("etcd://a:2379,b:2379,[::1]:2379/fairlead/eu", "EtcdStore"),
        ("memory:", "MemoryStore"),
    ],
)
async def test_a_url_names_an_engine(url: str, engine: str) -> None:
    store = main.open_store(url)
    assert type(store).__name__ == engine
    await store.close()


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [("fairlead.store.postgres", "postgresql://db/x", "postgres"), ("fairlead.store.etcd", "etcd://a:1/p", "etcd")],
)
def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str, url: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreError, match=rf"pip install 'fairlead\[{extra}\]'"):
        main.open_store(url)


def test_a_password_is_never_shown() -> None:
    assert main.without_password("postgresql://ada:secret@db:5432/x?plane=eu") == "postgresql://ada:***@db:5432/x?plane=eu"
    assert "secret" not in main.without_password("postgresql://db/x?user=ada&password=secret&plane=eu")
    ran = fairlead("store", "status", "mysql://ada:secret@db/x")
    assert "secret" not in ran.err


def test_no_verb_imports_the_http_library_the_model_or_a_terminal_before_it_runs() -> None:
    """Loading a command is what its help, its flags and a Tab cost; explain alone is about the model itself."""
    context = click.Context(frame.fairlead, info_name="fairlead")
    rows = [frame.fairlead._lazy[name][0] for name in frame.fairlead.list_commands(context)]
    verbs = (
        "get",
        "apply",
        "edit",
        "delete",
        "describe",
        "wait",
        "rollout",
        "drain",
        "logs",
        "top",
        "events",
        "config",
        "receipt",
    )
    modules = sorted({row.partition(":")[0] for row in rows} & {f"fairlead.cli.{verb}" for verb in verbs})
    assert len(modules) == len(verbs)
    heavy = ("aiohttp", "asyncio", "ssl", "rich", "yaml", "numpy", "uvloop", "fairlead.model.registry", "fairlead.decide")
    code = f"import sys, {', '.join(modules)}\nprint([name for name in {heavy} if name in sys.modules])"
    assert run_python("-c", code).stdout.strip() == "[]"


def test_json_is_asked_for_in_both_ways_wherever_it_can_be() -> None:
    assert fairlead("version", "--json").out == fairlead("version", "-o", "json").out
    for command in (show_command, measured_command):
        said = [CliRunner().invoke(command, words).output for words in ([], ["--json"], ["-o", "json"])]
        assert said == ["table\n", "json\n", "json\n"]


@click.command()
@format_option()
def show_command(form: Format) -> None:
    click.echo(form.name)


@click.command()
@json_option
def measured_command(as_json: bool) -> None:
    click.echo("json" if as_json else "table")


def unread(*words: str) -> int:
    """The exit code where nobody reads stdout: the other end of the pipe is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe, contextlib.redirect_stdout(pipe):
        return frame.answer(world(), list(words))


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("explain", "workload"), ("store", "--help")])
def test_who_has_seen_enough_ends_a_command_without_a_word(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert unread(*words) == frame.OK
    assert capfd.readouterr().err == ""


def test_a_change_that_nobody_reads_of_did_not_end_well(capfd: pytest.CaptureFixture[str], api: FakeApi) -> None:
    for name in ("a", "b"):
        api.put("workloads", name, "risk", spec={"replicas": 3})
    words = ("scale", "wl/a", "wl/b", "--replicas", "4")
    assert unread(*words, "--dry-run", "client") == frame.OK
    assert capfd.readouterr().err == ""
    assert unread(*words) == frame.ERROR
    assert "nobody reads the output, so it stopped" in capfd.readouterr().err
    assert unread("get", "wl") == frame.OK


def test_another_pipe_that_breaks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(version, "installed", broken)
    ran = fairlead("--version")
    assert (ran.code, ran.err) == (frame.ERROR, "error: a connection was closed by its other end\n")


@pytest.mark.parametrize(("words", "code"), [("explain workload --recursive", "0"), ("explain nope 2>&1", "3")])
def test_in_a_pipe_that_closes_early_the_program_itself_is_quiet(words: str, code: str) -> None:
    # The reader is gone before anything is written: beside it the program would sometimes be first.
    script = f"{{ sleep 0.3; {sys.executable} -m fairlead.main {words}; }} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert (done.stdout.strip(), done.stderr) == (code, "")
