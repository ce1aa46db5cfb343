"""A local platform for tests: started by the real command line, asked over its real API.

Questions that are asked over and over go straight over HTTP: starting a command for each would cost more than what is tested.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from fairlead.compose.layout import Layout
from fairlead.compose.processes import Processes
from fairlead.main import main
from fairlead.ports import SystemClock
from fairlead.serving.prober import ProbeOptions, Prober, through_dns
from tests.servers.etcd import shared_cluster
from tests.servers.postgres import shared_server

PATIENCE_S = 150.0  # a busy machine starts forty processes slowly
PYTHON = sys.executable
GROUP = "/apis/fairlead.dev/v1alpha1"
SAMPLES = {"analytics": 3, "billing-api": 3, "risk-api": 6, "search-index": 2}  # how many of each serve; a batch job never does
SMALL = {"requests": {"cpu": "50m", "memory": "32Mi"}}
LEASE_S = 8.0  # short, and still longer than a busy machine takes to start an agent


def service(command: str = "billing_api", **env: str) -> dict[str, Any]:
    """Lingers for longer than any client here takes to see that it was withdrawn."""
    settings = {"LINGER_S": "5", **env}
    return {
        "driver": "process",
        "command": [PYTHON, "-m", f"fairlead.samples.{command}"],
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "ports": [{"name": "http"}],
        "probes": {"readiness": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 0.3}},
        "stopGraceSeconds": 10,
    }


# One plane on each engine: global and us-west on SQLite, which is the default.
NUMBER = random.Random().randrange(1 << 30)  # the servers are shared with other tests
STORES: dict[str, Callable[[], str]] = {
    "us-east": lambda: f"{shared_server().dsn()}?plane=local{NUMBER}",
    "eu-central": lambda: f"etcd://{','.join(shared_cluster().endpoints)}/local{NUMBER}",
}
ROLLOUT = {"maxSurge": 1, "maxUnavailable": 0, "progressDeadlineSeconds": 60}


def business() -> float:
    """By how much everything takes longer than on a machine of one's own: who shares each core, at least oneself."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Platform:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.environment = {
            **os.environ, "FAIRLEAD_CONFIG": str(state / "client.json"), "KUBECONFIG": str(state / "kubeconfig"),
            "HOME": str(state),
        }  # fmt: skip
        self.processes = Processes(Layout(state, PYTHON), SystemClock())

    # --- commands --------------------------------------------------------------------------------------------------------

    def call(self, *words: str, patience_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=patience_s, check=False)

    def run(self, *words: str, check: bool = True) -> str:
        done = self.call(*words)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fairlead(self, *words: str, check: bool = True) -> str:
        return self.run(PYTHON, "-m", "fairlead.main", *words, check=check)

    def inside(self, *words: str, code: int = 0) -> str:
        """The same in this process: a command that is run many times costs a second each to import otherwise. What it said."""
        ended, said = self.code_of(*words)
        assert ended == code, f"{words}: {ended}\n{said}"
        return said

    def code_of(self, *words: str) -> tuple[int, str]:
        """Its exit code, and what it said."""
        out, before, ended = io.StringIO(), sys.argv, None
        with mock.patch.dict(os.environ, self.environment), redirect_stdout(out), redirect_stderr(out):
            sys.argv = ["fairlead", *words]
            try:
                main()
            except SystemExit as end:
                ended = end.code
            finally:
                sys.argv = before
        assert isinstance(ended, int), f"{words}: {ended}"
        return ended, out.getvalue()

    def start(self, *more: str) -> None:
        self.fairlead("up", "--state", str(self.state), "--detach", *more)

    def stop(self) -> None:
        self.fairlead("down", "--state", str(self.state), check=False)

    def chaos(self, *words: str) -> str:
        return self.inside("chaos", *words, *(() if words[0] in ("heal", "status", "drop-watch") else ("--yes",)))

    # --- the API ---------------------------------------------------------------------------------------------------------

    def contexts(self) -> dict[str, dict[str, str]]:
        found = json.loads((self.state / "client.json").read_text())["contexts"]
        return {one["name"]: one for one in found}

    def ask(self, path: str, body: Any = None, method: str = "GET", media: str = "application/json", who: str = "admin") -> Any:
        """None: not found. Raises PermissionError."""
        context = self.contexts()[who]
        headers = {"Authorization": f"Bearer {Path(context['tokenFile']).read_text().strip()}", "Content-Type": media}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(context["server"] + GROUP + path, data, headers, method=method)
        tls = ssl.create_default_context(cafile=context["certificateAuthority"])
        try:
            with urllib.request.urlopen(request, context=tls, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code == 403:
                raise PermissionError(path) from error
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error

    def readiness(self, plane: str) -> str:
        """What the plane's server says of itself where it is not ready; empty: it is."""
        tls = ssl.create_default_context(cafile=self.contexts()["admin"]["certificateAuthority"])
        try:
            with urllib.request.urlopen(f"{Layout(self.state, PYTHON).address_of(plane)}/readyz", context=tls, timeout=60):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def items(self, path: str) -> list[Any]:
        found: list[Any] = self.ask(path)["items"]
        return found

    def create(self, tenant: str, name: str, **spec: Any) -> None:
        body = {"apiVersion": GROUP.removeprefix("/apis/"), "kind": "Workload", "metadata": {"name": name}, "spec": spec}
        self.ask(f"/namespaces/{tenant}/workloads", body, "POST")

    def patch(self, tenant: str, name: str, **spec: Any) -> None:
        path = f"/namespaces/{tenant}/workloads/{name}"
        self.ask(path, {"spec": spec}, "PATCH", "application/merge-patch+json")

    def workload(self, tenant: str, name: str) -> Any:
        return self.ask(f"/namespaces/{tenant}/workloads/{name}")

    def condition(self, tenant: str, name: str, kind: str) -> tuple[str, str]:
        """(status, reason) for the present generation; empty while that is not known."""
        found = self.workload(tenant, name)
        for one in found.get("status", {}).get("conditions", ()):
            if one["type"] == kind and one.get("observedGeneration") == found["metadata"]["generation"]:
                return one["status"], one["reason"]
        return "", ""

    def counts(self, tenant: str, name: str) -> dict[str, int]:
        found: dict[str, int] = self.workload(tenant, name).get("status", {}).get("replicas", {})
        return found

    def serving(self) -> dict[str, int]:
        found = self.items("/workloads")
        return {one["metadata"]["name"]: one.get("status", {}).get("replicas", {}).get("serving", 0) for one in found}

    def all_serve(self, *more: str) -> bool:
        """Every sample workload, and two of each that is named."""
        serving = self.serving()
        return all(serving.get(name) == count for name, count in {**SAMPLES, **dict.fromkeys(more, 2)}.items())

    def rolled_out(self, tenant: str, name: str, count: int) -> bool:
        counts = self.counts(tenant, name)
        complete = self.condition(tenant, name, "Progressing") == ("True", "Complete")
        return complete and (counts.get("serving"), counts.get("updated"), counts.get("bound")) == (count, count, count)

    def nodes(self) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in self.items("/nodes")}

    def takes_work(self, node: str) -> bool:
        status = self.nodes()[node].get("status", {})
        return bool(status.get("health") == "Ready" and status.get("schedulable"))

    def node_of(self, tenant: str, slot: str) -> str:
        found = self.ask(f"/namespaces/{tenant}/bindings/{slot}")
        return str(found["spec"]["node"]) if found is not None else ""

    def bound_to(self, node: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.items("/bindings") if one["spec"]["node"].endswith(node)]

    # --- what clients see ------------------------------------------------------------------------------------------------

    @property
    def dns(self) -> tuple[str, int]:
        host, _, port = json.loads((self.state / "config" / "endpoints.json").read_text())["dns"].rpartition(":")
        return host, int(port)

    def document(self, tenant: str, name: str) -> list[dict[str, Any]]:
        path = self.state / "endpoints" / tenant / f"{name}.json"
        found: list[dict[str, Any]] = json.loads(path.read_text())["endpoints"] if path.exists() else []
        return found

    # --- patience --------------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if condition():
                return
            time.sleep(0.2)
        logs = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-300:]}" for p in sorted(self.state.glob("logs/*.log")))
        raise AssertionError(f"{what} did not come about: {self.serving()}\n{logs}")


class Probing:
    """A prober that asks a workload in the background, from its beginning to its end."""

    def __init__(self, platform: Platform, tenant: str, workload: str, rate_per_s: float = 20.0) -> None:
        options = ProbeOptions(workload, tenant, rate_per_s, duration_s=600.0, timeout_s=10.0)
        self._prober = Prober(options, through_dns(options, platform.dns, random.Random(1)), SystemClock())
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.run_until_complete(self._prober.run(self._stop))

    def __enter__(self) -> Probing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()

    @property
    def succeeded(self) -> int:
        return self._prober.measures.all.succeeded

    @property
    def results(self) -> dict[str, Any]:
        return self._prober.measures.results()


def kill(platform: Platform, process: str) -> None:
    assert platform.processes.signal(process, signal.SIGKILL)
