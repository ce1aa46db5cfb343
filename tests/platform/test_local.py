"""The local platform as a newcomer meets it: real processes, real sockets, the real command line and the real kubectl."""

from __future__ import annotations

import json
import ssl
import urllib.request

from fairlead.api.steps import STEPS
from tests.platform.platforms import Platform


def test_every_sample_workload_serves_and_kubectl_sees_the_same(platform: Platform) -> None:
    table = platform.run("kubectl", "get", "workloads", "-A")
    assert "risk-api" in table
    nodes = platform.run("kubectl", "get", "nodes", "-o", "name").split()
    assert len(nodes) == 11
    assert "yes" in platform.run("kubectl", "auth", "can-i", "create", "workloads", "-n", "risk")


def test_of_what_all_serves_the_way_of_the_last_one_is_told_step_by_step(platform: Platform) -> None:
    told = platform.fairlead("why", "wl/risk-api", "-n", "risk").splitlines()
    assert told[0].startswith("workload/risk-api: nothing waits")
    steps = dict(line.split()[:2] for line in told if line.split()[:1] and line.split()[0] in STEPS)
    done = {"desired", "queued", "bound", "started", "ready", "serving"}
    assert {name for name, state in steps.items() if state == "done"} == done


def test_a_tenant_sees_its_own_work_and_nobody_elses(platform: Platform) -> None:
    assert "risk-api" in platform.run("kubectl", "--context", "risk-admin", "get", "workloads", "-n", "risk")
    for words in (("get", "workloads"), ("get", "workload", "billing-api"), ("get", "workloads", "-A")):
        asked = platform.call("kubectl", "--context", "risk-admin", *words, *(() if "-A" in words else ("-n", "billing")))
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

        platform.wait(lambda shows=shows: shows("fairlead_leader 1.0"), "a leader's figures")  # type: ignore[misc]
        if plane["spec"]["plane"] == "region":
            agents = {"us-east": 5, "us-west": 3, "eu-central": 3}[plane["spec"]["region"]]
            platform.wait(lambda n=agents: shows(f"fairlead_agents {n}.0"), "every agent's figures")  # type: ignore[misc]


def test_scaling_up_and_down_is_carried_out(platform: Platform) -> None:
    platform.fairlead("scale", "wl/billing-api", "-n", "billing", "--replicas", "5")
    platform.wait(lambda: platform.serving()["billing-api"] == 5, "five replicas of billing-api")
    platform.run("kubectl", "scale", "workload/billing-api", "-n", "billing", "--replicas=3")
    platform.wait(lambda: platform.serving()["billing-api"] == 3, "three replicas of billing-api")
