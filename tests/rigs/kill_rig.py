"""Kills a plane's server, and the store below it, at random moments while clients write, and asks afterwards what was lost.

`python -m tests.rigs.kill_rig --engine sqlite|postgres|etcd --kills N --commands N [--store-kills N] [--seed S] --json`.
Owns the processes of one run and the moments they die; verify.py owns the verdict. Exits with 1 when a promise was broken or
when the run proves too little. Called by test_kill.py in short and by `make soak` at length.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.rigs.clients import Progress
from tests.rigs.plane_server import open_store
from tests.rigs.rig_stores import RigStore, rig_store
from tests.rigs.stories import Story, now_ns, read_stories
from tests.rigs.verify import Verdict, verify

ROOT = Path(__file__).resolve().parents[2]
STALL_S = 150.0  # without one acknowledged command; a takeover on a busy machine takes seconds
POLL_S = 0.005
REFUSALS = ("NoFit", "GrantExceeded", "AlreadyBound", "AlreadyExists", "Conflict", "IdReused")
EARLY_EVERY = 10  # every tenth kill hits a server that is still starting


class Plan(msgspec.Struct, frozen=True):
    engine: str
    kills: int
    commands: int  # acknowledged, at least
    store_kills: int = 0
    clients: int = 16
    seed: int = 1
    ttl_s: float = 2.0
    mutant: str = ""


class Report(msgspec.Struct):
    engine: str
    seed: int
    seconds: float
    kills: int
    kills_in_flight: int
    store_kills: int
    takeover_p50_s: float
    takeover_p99_s: float
    verdict: Verdict


def python(module: str, *args: str, mutant: str = "", log: Path) -> subprocess.Popen[bytes]:
    """A child that dies with us; its standard input is ours to close."""
    setpriv = shutil.which("setpriv")
    words = [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), sys.executable, "-m", module, *args]
    environment = {**os.environ, "FAIRLEAD_RIG_MUTANT": mutant}
    with log.open("ab") as out:
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=ROOT, env=environment)


class KillRig:
    def __init__(self, plan: Plan, folder: Path, store: RigStore) -> None:
        self._plan = plan
        self._folder = folder
        self._store = store
        self._rng = random.Random(f"kill {plan.seed}")
        self._progress = Progress(folder / "progress")
        self._server: subprocess.Popen[bytes] | None = None
        self._clients: subprocess.Popen[bytes] | None = None
        self.kills: list[int] = []  # when, in nanoseconds
        self.store_kills = 0

    def run(self) -> None:
        plan, socket = self._plan, str(self._folder / "plane.sock")
        try:
            self._start_server()
            words = ("--socket", socket, "--folder", str(self._folder), "--clients", str(plan.clients), "--seed", str(plan.seed))
            self._clients = python("tests.rigs.clients", *words, log=self._folder / "clients.txt")
            self._wait_accepted(1)
            for victim in self._victims():
                if victim == "store":
                    self._wait_accepted(self._some())
                    self._store.kill(self._rng)
                    self.store_kills += 1
                else:
                    self._kill_server()
            self._wait_accepted(max(1, plan.commands - self._progress.read()[0]))
            self._stop_clients()
        finally:
            for process in (self._clients, self._server):
                if process is not None:
                    process.kill()
                    process.wait()
                    assert process.stdin is not None
                    process.stdin.close()

    def _victims(self) -> list[str]:
        victims = ["server"] * self._plan.kills + ["store"] * self._plan.store_kills
        self._rng.shuffle(victims)
        return victims

    def _some(self) -> int:
        """How many commands until the next kill: from none to twice what it takes to reach the total."""
        events = self._plan.kills + self._plan.store_kills
        return self._rng.randrange(1, 2 + 2 * self._plan.commands // max(1, events))

    def _kill_server(self) -> None:
        early = self._rng.randrange(EARLY_EVERY) == 0
        some, pause_s = self._some(), self._rng.random() * (0.5 if early else 0.01)
        if not early:
            self._wait_accepted(some)
        time.sleep(pause_s)  # not a wait: where inside a batch the kill falls
        assert self._server is not None
        self.kills.append(now_ns())
        self._server.kill()
        self._server.wait()
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._start_server()

    def _start_server(self) -> None:
        words = ("--store", self._store.address, "--socket", str(self._folder / "plane.sock"), "--ttl", str(self._plan.ttl_s))
        self._server = python("tests.rigs.plane_server", *words, mutant=self._plan.mutant, log=self._folder / "server.txt")

    def _wait_accepted(self, more: int) -> None:
        seen = self._progress.read()[0]
        wanted, moved = seen + more, time.monotonic()
        while seen < wanted:
            time.sleep(POLL_S)
            now = self._progress.read()[0]
            if now != seen:
                seen, moved = now, time.monotonic()
            for process, log in ((self._server, "server.txt"), (self._clients, "clients.txt")):
                if process is not None and process.poll() is not None:
                    raise RuntimeError(f"a process ended by itself:\n{self._end_of(log)}")
            if time.monotonic() - moved > STALL_S:
                raise RuntimeError(f"nothing was acknowledged for {STALL_S:.0f} s:\n{self._end_of('server.txt')}")

    def _stop_clients(self) -> None:
        assert self._clients is not None
        assert self._clients.stdin is not None
        self._clients.stdin.close()
        if self._clients.wait(STALL_S) != 0:
            raise RuntimeError(f"the clients failed:\n{self._end_of('clients.txt')}")

    def _end_of(self, log: str) -> str:
        return (self._folder / log).read_text()[-4000:]


def in_flight(kills: list[int], stories: dict[str, Story]) -> int:
    """Kills at whose moment some command was sent and not answered, and then was unknown."""
    spans = sorted((s.sent.ns, s.unknown.ns) for s in stories.values() if s.unknown is not None)
    return sum(any(sent < kill < unknown for sent, unknown in spans) for kill in kills)


def takeovers(kills: list[int], stories: dict[str, Story]) -> list[float]:
    """From a kill to the first command that the next server accepted: restart, load and takeover in one."""
    # Accepted at `end`, by a server that began after `since`: what was unknown once was settled by a later one.
    served = [
        (story.end.ns, story.unknown.ns if story.unknown is not None else story.sent.ns)
        for story in stories.values()
        if story.end is not None and story.end.event == "accepted"
    ]
    served.sort()
    out: list[float] = []
    for kill, following in zip(kills, [*kills[1:], 1 << 62], strict=True):
        first = next((end for end, since in served if since > kill), following)
        if first < following:  # else the next kill came before anybody was served
            out.append((first - kill) / 1e9)
    return out


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) if ordered else 0.0


@contextlib.contextmanager
def rig_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fairlead-kill-rig-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_rig(plan: Plan, keep: Path | None = None) -> Report:
    """`keep` names where logs (and a SQLite file) of a run with faults go, for whoever has to explain them."""
    started = time.monotonic()
    with rig_folder() as folder, rig_store(plan.engine, folder) as store:
        rig = KillRig(plan, folder, store)
        rig.run()
        store.settle()
        stories = read_stories(folder)
        verdict = asyncio.run(_verify(store.address, stories))
        if verdict.faults and keep is not None:
            ignored = shutil.ignore_patterns("*.sock")
            shutil.copytree(folder, keep, ignore=ignored, dirs_exist_ok=True)
    times = takeovers(rig.kills, stories)
    seconds = round(time.monotonic() - started, 1)
    p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
    hit = in_flight(rig.kills, stories)
    return Report(plan.engine, plan.seed, seconds, len(rig.kills), hit, rig.store_kills, p50, p99, verdict)


async def _verify(address: str, stories: dict[str, Story]) -> Verdict:
    store = open_store(address)
    await store.open()
    try:
        return await verify(store, stories)
    finally:
        await store.close()


def proves_too_little(report: Report) -> list[str]:
    """A run that hit nothing proves nothing."""
    verdict = report.verdict
    wanted = {
        f"{report.kills_in_flight} of {report.kills} kills in flight": report.kills_in_flight * 5 >= report.kills,
        "no unknown command was committed": verdict.unknown_committed > 0,
        "no unknown command was absent": verdict.unknown_absent > 0,
        **{f"no {reason}": verdict.refused.get(reason, 0) > 0 for reason in REFUSALS},
    }
    return [what for what, enough in wanted.items() if not enough]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("sqlite", "postgres", "etcd"), required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--commands", type=int, default=5000)
    parser.add_argument("--store-kills", type=int, default=0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where to keep the logs of a run with faults")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    plan = Plan(args.engine, args.kills, args.commands, args.store_kills, args.clients, args.seed)
    report = run_rig(plan, keep=args.keep)
    said: dict[str, Any] = {**msgspec.to_builtins(report), "too_little": proves_too_little(report)}
    print(msgspec.json.format(msgspec.json.encode(said), indent=2 if args.json else 0).decode())
    if report.verdict.faults or said["too_little"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
