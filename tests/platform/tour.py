"""The five-minute tour of README.md, run as it is written there on a platform of its own, and its transcript.

`make tour` runs it and writes docs/tour-transcript.md; tests/platform/test_tour.py runs it and compares. Whatever differs from
one run to the next (ages, times, ports, identifiers, paths) is replaced by a word.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TRANSCRIPT: Final = ROOT / "docs" / "tour-transcript.md"
PATIENCE_S: Final = 180.0  # for one command; a busy machine starts forty processes slowly
START: Final = "make run"
STARTED_AS: Final = "fairlead up --detach"  # what `make run` does, without keeping a terminal
ENDS: Final = {"fairlead get nodes -w": (re.compile(r"^us-east-general-b +(Lost|Unknown)\b", re.M), 130)}
CODES: Final = {command: code for command, (_, code) in ENDS.items()} | {"fairlead plan --lose-region eu-central": 2}
HEAD: Final = f"""# Transcript of the tour

What the commands of the [README](../README.md#start)'s tour print, written by `make tour`; `tests/platform/test_tour.py` runs
them in every build. `{START}` stands for `{STARTED_AS}` here. Ages, times, ports, identifiers and paths are replaced: they are
others each time.
"""

_REPLACED: Final = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "2026-01-31T12:00:00Z"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"(?m)^(Version: +)\d+$"), r"\1VERSION"),
    (re.compile(r"(?m)^(Uid: +)\S+$"), r"\1UID"),
    (re.compile(r"after \d+\.\d s"), "after 5.0 s"),
]
_READY: Final = re.compile(r"^ready after (\d+\.\d) s: ", re.M)
_AGE: Final = re.compile(r"(?<![\w.-])(?<!cpu: )(?<!cpu )(\d+[smhd])+(?![\w-])")


class Step(NamedTuple):
    command: str
    output: str
    code: int


def blocks_of(readme: str) -> list[list[str]]:
    """The commands of the tour, block by block, without their comments."""
    section = readme.partition("\n## Start\n")[2].partition("\n## ")[0]
    found = re.findall(r"(?ms)^```\n(.*?)^```", section)
    return [[re.sub(r"\s+# .*$", "", line) for line in block.splitlines() if line.strip()] for block in found]


def commands_of(readme: str) -> list[str]:
    return [command for block in blocks_of(readme) for command in block]


class Tour:
    """A directory in which the tour is taken; stands for the checkout that a newcomer has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir(parents=True)
        (folder / ".venv").symlink_to(sys.prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLEAD_", "XDG_", "KUBE"))}
        self._environment = {**kept, "HOME": str(folder / "home"), "NO_COLOR": "1", "COLUMNS": "120"}
        self.ready_s = 0.0  # how long it took until the platform was ready, as it says itself
        self._kept = folder / "home" / "environment"  # what a command exports is there for the next ones, as in one terminal

    def run(self, commands: list[str]) -> Iterator[Step]:
        for command in commands:
            code, output = self._run(STARTED_AS if command == START else command)
            if command == START and (ready := _READY.search(output)):
                self.ready_s = float(ready[1])
            yield Step(command, self.replaced(output), code)
            if command == START:
                self._wait_until_all_serve()

    def stop(self) -> None:
        self._run("source .venv/bin/activate; fairlead down")

    def _run(self, command: str) -> tuple[int, str]:
        kept = shlex.quote(str(self._kept))
        script = f"[ ! -e {kept} ] || source {kept}\n{command}\ncode=$?\nexport -p > {kept}\nexit $code\n"
        if command == STARTED_AS:
            script = f"source .venv/bin/activate\n{script}"
        ends = ENDS.get(command)
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        if ends is None:
            output, _ = process.communicate(timeout=PATIENCE_S)
            return process.returncode, output.decode()
        return self._run_until(process, *ends)

    @staticmethod
    def _run_until(process: subprocess.Popen[bytes], wanted: re.Pattern[str], code: int) -> tuple[int, str]:
        """A command without an end: interrupted, as by Ctrl-C, once it has shown what it was started for."""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        until, output = time.monotonic() + PATIENCE_S, b""
        while process.poll() is None and time.monotonic() < until and not wanted.search(output.decode()):
            output += process.stdout.read() or b""
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=30)
        return process.returncode if wanted.search(output.decode()) else code + 1, output.decode()

    def _wait_until_all_serve(self) -> None:
        """A newcomer reads for a moment; the sample workloads need it."""
        path = "jsonpath={range .items[*]}{.spec.replicas}={.status.replicas.serving}{.status.replicas.succeeded} {end}"
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            code, said = self._run(f"source .venv/bin/activate; fairlead get workloads -A -o {shlex.quote(path)}")
            pairs = [pair.partition("=") for pair in said.split()]
            if code == 0 and pairs and sum(wanted + "0" == got for wanted, _, got in pairs) >= len(pairs) - 1:
                return  # all but the batch job, which serves nobody
            time.sleep(0.5)
        raise AssertionError(f"the sample workloads do not serve: {said}")

    def replaced(self, text: str) -> str:
        for path, word in ((str(self.folder), "."), (str(ROOT), "."), (sys.prefix, ".venv"), (sys.executable, "python")):
            text = text.replace(path, word)
        for pattern, word in _REPLACED:
            text = pattern.sub(word, text)
        text = _AGE.sub(lambda found: "1m".ljust(len(found[0])), text)  # so that columns stay columns
        return "".join(line.rstrip() + "\n" for line in text.splitlines())


def outline(step: Step) -> tuple[str, ...]:
    """What of an output is the same each time: of a table its headings and the names in it, of a text its first words."""
    lines = [line for line in step.output.splitlines() if line]
    heads = [n for n, line in enumerate(lines) if line.upper() == line and line.split()[0] in ("NAME", "NAMESPACE")]
    if heads:
        rows = lines[heads[0] :]
        return (" ".join(rows[0].split()), *sorted({line.split()[0] for line in rows[1:] if line[0].isalpha() and " " in line}))
    return tuple(re.sub(r"\d+", "N", word) for word in (lines[0].split()[:3] if lines else ()))


def written(steps: list[Step]) -> str:
    out = [HEAD]
    for step in steps:
        code = f"[exit code {step.code}]\n" if step.code else ""
        out.append(f"```\n$ {step.command}\n{step.output}{code}```\n")
    return "\n".join(out)


def read(transcript: str) -> list[Step]:
    steps = []
    for block in re.findall(r"(?ms)^```\n\$ (.*?)^```", transcript):
        command, _, output = block.partition("\n")
        code = re.search(r"\[exit code (\d+)\]\n\Z", output)
        steps.append(Step(command, output[: code.start()] if code else output, int(code[1]) if code else 0))
    return steps


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fairlead-tour-") as folder:
        tour = Tour(Path(folder))
        try:
            steps = []
            for step in tour.run(commands_of((ROOT / "README.md").read_text())):
                print(f"{step.command}: {step.code}", flush=True)
                assert step.code == CODES.get(step.command, 0), step.output
                steps.append(step)
        finally:
            tour.stop()
    TRANSCRIPT.write_text(written(steps))


if __name__ == "__main__":
    main()
