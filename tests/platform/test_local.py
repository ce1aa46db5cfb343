"""The local platform as a newcomer meets it: real processes, real sockets, the real command line and the real kubectl.

One platform for the whole module: it takes seconds to start, and what is tested is one story.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 90.0  # a busy machine starts forty processes slowly
WORKLOADS = {"analytics": 3, "billing-api": 3, "risk-api": 6, "search-index": 2}


class Platform:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.environment = {
            **os.environ, "FAIRLEAD_CONFIG": str(state / "client.json"), "KUBECONFIG": str(state / "kubeconfig"),
            "HOME": str(state),
        }  # fmt: skip

    def run(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fairlead(self, *words: str, check: bool = True) -> str:
        return self.run(sys.executable, "-m", "fairlead.main", *words, check=check)

    def start(self) -> None:
        self.fairlead("up", "--state", str(self.state), "--detach")

    def stop(self) -> None:
        self.fairlead("down", "--state", str(self.state), check=False)

    def workload(self, tenant: str, name: str) -> Any:
        return json.loads(self.fairlead("get", f"workload/{name}", "-n", tenant, "-o", "json"))

    def serving(self) -> dict[str, int]:
        found = json.loads(self.fairlead("get", "workloads", "-A", "-o", "json"))["items"]
        return {one["metadata"]["name"]: one.get("status", {}).get("replicas", {}).get("serving", 0) for one in found}

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if condition():
                return
            time.sleep(0.5)
        logs = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-300:]}" for p in sorted(self.state.glob("logs/*.log")))
        raise AssertionError(f"{what} did not come about: {self.serving()}\n{logs}")

    def all_serve(self) -> bool:
        serving = self.serving()
        return all(serving.get(name) == count for name, count in WORKLOADS.items())


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    made = Platform(tmp_path_factory.mktemp("platform") / "state")
    try:
        made.start()
        made.wait(made.all_serve, "every sample workload serving")
        yield made
    finally:
        made.stop()


def test_every_sample_workload_serves_and_kubectl_sees_the_same(platform: Platform) -> None:
    table = platform.run("kubectl", "get", "workloads", "-A")
    assert "risk-api" in table
    nodes = platform.run("kubectl", "get", "nodes", "-o", "name").split()
    assert len(nodes) == 11
    assert "yes" in platform.run("kubectl", "auth", "can-i", "create", "workloads", "-n", "risk")


def test_a_tenant_sees_its_own_work_and_nobody_elses(platform: Platform) -> None:
    assert "risk-api" in platform.run("kubectl", "--context", "risk-admin", "get", "workloads", "-n", "risk")
    for words in (("get", "workloads"), ("get", "workload", "billing-api"), ("get", "workloads", "-A")):
        asked = subprocess.run(
            ["kubectl", "--context", "risk-admin", *words, *(() if "-A" in words else ("-n", "billing"))],
            env=platform.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "billing-api" not in asked.stdout
        assert "-A" in words or "Forbidden" in asked.stderr


def test_what_a_process_wrote_comes_through_the_front_door(platform: Platform) -> None:
    assert "risk-api slot" in platform.fairlead("logs", "wl/risk-api", "-n", "risk", "--tail", "5")


def test_what_runs_can_be_seen_with_kubectl_and_with_a_scraper(platform: Platform) -> None:
    some = ("workload", "us-east.assignment", "us-west.scheduler-0", "eu-central.narrator")
    for listed in (platform.run("kubectl", "get", "controllers"), platform.fairlead("get", "controllers")):
        assert [name for name in some if name not in listed] == []

    def told(*words: str) -> bool:
        shown = platform.run(*words).partition("Events:")[2]
        return all(reason in shown for reason in ("Scheduled", "Started", "Serving"))

    platform.wait(lambda: told("kubectl", "describe", "workload", "risk-api", "-n", "risk"), "events of risk-api")
    assert "Scheduled" in platform.fairlead("events", "--for", "wl/risk-api", "-n", "risk")
    trusted = ssl.create_default_context(cafile=str(platform.state / "pki" / "ca.pem"))
    token = (platform.state / "run" / "metrics.token").read_text().strip()
    planes = json.loads(platform.run("kubectl", "get", "planes", "-o", "json"))["items"]
    assert len(planes) == 4
    for plane in planes:
        asked = urllib.request.Request(f"{plane['spec']['address']}/metrics", headers={"Authorization": f"Bearer {token}"})

        def shows(line: str, asked: urllib.request.Request = asked) -> bool:
            with urllib.request.urlopen(asked, context=trusted, timeout=30) as answer:
                return line in answer.read().decode()

        assert shows("fairlead_leader 1.0")
        if plane["spec"]["plane"] == "region":
            agents = {"us-east": 5, "us-west": 3, "eu-central": 3}[plane["spec"]["region"]]
            platform.wait(lambda n=agents: shows(f"fairlead_agents {n}.0"), "every agent's figures")  # type: ignore[misc]


def test_scaling_up_and_down_is_carried_out(platform: Platform) -> None:
    platform.fairlead("scale", "wl/billing-api", "-n", "billing", "--replicas", "5")
    platform.wait(lambda: platform.serving()["billing-api"] == 5, "five replicas of billing-api")
    platform.run("kubectl", "scale", "workload/billing-api", "-n", "billing", "--replicas=3")
    platform.wait(lambda: platform.serving()["billing-api"] == 3, "three replicas of billing-api")


def test_the_work_of_a_machine_that_dies_comes_back_elsewhere(platform: Platform) -> None:
    name = "us-east-general-b"
    (pid_file,) = platform.state.glob(f"run/agent-{name}.pid")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    for process in Path("/proc").glob("[0-9]*/environ"):  # the whole machine, not only the agent: what it runs dies with it
        try:
            if name.encode() in process.read_bytes() and str(platform.state).encode() in process.read_bytes():
                os.kill(int(process.parent.name), signal.SIGKILL)
        except OSError:
            continue

    def moved() -> bool:
        bindings = json.loads(platform.run("kubectl", "get", "bindings", "-A", "-o", "json"))["items"]
        return not any(one["spec"]["node"].endswith(name) for one in bindings) and platform.all_serve()

    platform.wait(moved, f"everything that ran on {name} elsewhere")


def test_the_platform_goes_on_from_its_state(platform: Platform) -> None:
    before = platform.workload("risk", "risk-api")["metadata"]["uid"]
    platform.stop()
    assert not list(platform.state.glob("run/*.pid"))
    platform.start()
    platform.wait(platform.all_serve, "every workload serving again")
    assert platform.workload("risk", "risk-api")["metadata"]["uid"] == before
