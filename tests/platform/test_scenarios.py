"""What happens to real processes when something goes wrong: rollouts, crashes, lost machines, cut links, a lost region.

The platform is the one of conftest.py, and this is one story: each test leaves it healed. What serves is what the outside prober
sees.
"""

from __future__ import annotations

import asyncio
import json
import random
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fairlead.decide.nodes import NodeRules
from fairlead.model.registry import GLOBAL
from fairlead.observe.audit import CHECKED
from fairlead.serving.dns_client import Found, ask, find
from fairlead.serving.dns_wire import A, name_of
from tests.docs.runbooks import RUNBOOKS, lines_of
from tests.platform.platforms import LEASE_S, PYTHON, ROLLOUT, STORES, Platform, Probing, business, kill, service
from tests.platform.scraping import PLANES, prometheus

RETURN_S = 15.0  # from the moment a node can reach its region again until it takes new work, where it does not flap
ALWAYS = ("S9", "S18")  # which every plane's history is asked, whatever happens
WHERE_WORK_RUNS = ("S1", "S2", "S4", "S6", "S7")
BILLING = "/namespaces/billing"


def made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def who_answers(endpoint: dict[str, Any]) -> dict[str, str]:
    url = f"http://{endpoint['address']}:{endpoint['ports']['http']}/"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return dict(line.partition("=")[::2] for line in answer.read().decode().splitlines())


def tokens(platform: Platform, tenant: str, name: str) -> set[tuple[str, str]]:
    """(slot, token) of whoever answers: another token would be another life of the slot."""
    return {(said["slot"], said["token"]) for said in map(who_answers, platform.document(tenant, name))}


def settled(platform: Platform) -> set[tuple[str, str]]:
    """The same of both replicas of steady, once clients are told of both and of nobody else: they learn it a moment later."""
    found: set[tuple[str, str]] = set()

    def both() -> bool:
        nonlocal found
        try:
            found = tokens(platform, "billing", "steady")
        except OSError:  # one that clients are still told of is gone
            return False
        return len(found) == 2

    platform.wait(both, "both replicas of steady told")
    return found


def resolved(platform: Platform, tenant: str, name: str) -> list[Found]:
    return list(asyncio.run(find(platform.dns, tenant, name, "http", random.Random(2))))


def test_dns_documents_and_prober_tell_what_really_answers(platform: Platform) -> None:
    platform.wait(lambda: len(platform.document("risk", "risk-api")) == 6, "six endpoints in the document")
    found = resolved(platform, "risk", "risk-api")
    document = platform.document("risk", "risk-api")
    assert {(f.region, f.slot, f.port) for f in found} == {(e["region"], e["slot"], e["ports"]["http"]) for e in document}
    for endpoint in document:
        said = who_answers(endpoint)
        assert (said["region"], said["slot"], said["node"]) == (endpoint["region"], str(endpoint["slot"]), endpoint["node"])
    one = document[0]
    name = f"{one['slot']}.{one['region']}.risk-api.risk.svc.fairlead.local"
    reply = asyncio.run(ask(platform.dns, name_of(name), A, random.Random(3)))
    assert reply.addresses[name_of(name)] == [one["address"]]
    table = platform.inside("probe", "risk-api", "-n", "risk", "--duration", "2s", "--rate", "12")
    assert all(region in table for region in ("us-east", "us-west", "eu-central")), table


def test_everybody_has_a_context_and_sees_what_is_theirs(platform: Platform) -> None:
    tenants = ("risk", "billing", "search", "fraud", "analytics")
    assert set(platform.contexts()) >= {"admin", "approver", *(f"{tenant}-admin" for tenant in tenants)}
    kubectl = platform.run("kubectl", "config", "get-contexts", "-o", "name").split()
    assert sorted(kubectl) == sorted(platform.contexts())
    for who in ("admin", "approver"):
        assert len(platform.ask("/workloads", who=who)["items"]) >= 5
    for tenant in tenants:
        assert platform.contexts()[f"{tenant}-admin"]["namespace"] == tenant
        assert platform.ask(f"/namespaces/{tenant}/workloads", who=f"{tenant}-admin")["items"]
        other = tenants[tenants.index(tenant) - 1]
        with pytest.raises(PermissionError):
            platform.ask(f"/namespaces/{other}/workloads", who=f"{tenant}-admin")


def test_each_plane_has_the_store_it_was_given_and_the_platform_is_started_once(platform: Platform) -> None:
    for plane, url in STORES.items():
        assert f"{plane}-server" in platform.inside("store", "status", url())
        assert "stop it yourself" in platform.inside("chaos", "stop-store", plane, "--yes", code=1)
    again = platform.inside("up", "--state", str(platform.state), "--detach", code=1)
    assert "runs already; `fairlead down` stops it" in again


def test_a_rolling_update_costs_no_request(platform: Platform) -> None:
    before = settled(platform)
    with Probing(platform, "billing", "steady") as probing:
        platform.wait(lambda: probing.succeeded > 10, "answers before the update")
        platform.patch("billing", "steady", template=service(VERSION="2"))
        platform.wait(lambda: platform.rolled_out("billing", "steady", 2), "the update rolled out")
        so_far = probing.succeeded
        platform.wait(lambda: probing.succeeded > so_far + 10, "answers after the update")
    assert probing.results["errors"] == {}, probing.results
    platform.wait(lambda: not before & settled(platform), "every process replaced")


def told_since(platform: Platform, workload: str, tenant: str, began: float) -> str:
    """Everything that happened to a workload since a moment, as people are told."""
    seconds = int(time.monotonic() - began) + 1
    return platform.inside("timeline", workload, "-n", tenant, "--since", f"{seconds}s", "--state", str(platform.state))


def test_a_rollout_that_never_gets_ready_stops_and_its_undo_reuses_what_still_runs(platform: Platform) -> None:
    broken, stopped = {**ROLLOUT, "progressDeadlineSeconds": 4}, ("False", "ProgressDeadlineExceeded")
    for _ in range(3):
        began, before = time.monotonic(), settled(platform)
        with Probing(platform, "billing", "steady") as probing:
            platform.patch("billing", "steady", template=service(START_DELAY_S="3600"), rollout=broken)
            platform.wait(lambda: platform.condition("billing", "steady", "Progressing") == stopped, "the rollout stopped")
            meanwhile = settled(platform)
            platform.inside("rollout", "undo", "wl/steady", "-n", "billing")
            platform.wait(lambda: platform.rolled_out("billing", "steady", 2), "the undo carried out")
        after = settled(platform)
        happened = told_since(platform, "steady", "billing", began)
        if "-> Unknown" not in happened:
            break
        # So slow was this machine that a node's lease ran out: its work was replaced elsewhere, and rightly so. Again.
    assert meanwhile == before, f"the old replicas did not serve on: {happened}"
    assert after == before, f"a process was started for the undo: {happened}"
    assert probing.results["errors"] == {}, f"{probing.results}: {happened}"


def test_a_crash_loop_is_visible_and_started_again(platform: Platform) -> None:
    def instance() -> dict[str, Any]:
        found = platform.ask("/namespaces/analytics/instances/crasher-0")
        status: dict[str, Any] = found.get("status", {}) if found is not None else {}  # none before the first report
        return status

    platform.wait(lambda: instance().get("restarts", 0) >= 2, "two restarts")
    platform.wait(lambda: "exited with code 3" in instance().get("message", ""), "why it ended, in its status")

    def told() -> bool:
        events = platform.items("/namespaces/analytics/events")
        return any(one["spec"]["reason"] == "BackOff" and "crasher" in one["spec"]["regarding"] for one in events)

    platform.wait(told, "an event that says BackOff")


def restart_agent(platform: Platform, node: str) -> float:
    """Kills the agent alone and starts another; how long its node was silent at most."""
    agent, session = f"agent-{node}", platform.nodes()[node]["status"]["session"]
    began = time.monotonic()
    kill(platform, agent)
    platform.wait(lambda: platform.processes.pid(agent) is None, "the agent gone")
    platform.processes.start(agent)
    platform.wait(lambda: platform.nodes()[node]["status"]["session"] > session, "the new agent registered")
    silent_s = time.monotonic() - began
    platform.wait(lambda: platform.takes_work(node), "the new agent taking work")
    return silent_s


def test_an_agent_that_is_killed_leaves_its_work_serving_and_the_next_one_adopts_it(platform: Platform) -> None:
    with Probing(platform, "billing", "steady") as probing:
        for _ in range(3):
            node = platform.document("billing", "steady")[0]["node"]
            agent = f"agent-{node}"
            before = {one for one in platform.processes.work_of([agent])[agent].items() if "steady" in one[1]}
            silent_s = restart_agent(platform, node)
            after = set(platform.processes.work_of([agent])[agent].items())
            if before <= after or silent_s < 0.6 * LEASE_S:
                break
            # So slow was this machine that the node's lease ran out: its work was replaced elsewhere, and rightly so. Again.
            platform.wait(lambda: platform.rolled_out("billing", "steady", 2), "two serving again")
        assert before
        assert before <= after, "the same processes, by their pids"
        so_far = probing.succeeded
        platform.wait(lambda: probing.succeeded > so_far + 10, "answers afterwards")
    assert probing.results["errors"] == {}, probing.results


def lives(witness: Path) -> dict[str, tuple[float, float]]:
    """By token: from when to when its process was seen to run."""
    out: dict[str, tuple[float, float]] = {}
    for line in witness.read_text().splitlines():
        token, _, at = line.split()
        first, last = out.get(token, (float(at), float(at)))
        out[token] = (min(first, float(at)), max(last, float(at)))
    return out


def test_exclusive_work_on_a_node_that_is_cut_off_never_runs_twice_and_the_node_comes_back(platform: Platform) -> None:
    witness = platform.state.parent / "witness"
    platform.wait(lambda: witness.exists() and len(lives(witness)) == 1, "the job running")
    node = platform.node_of("analytics", "witness-0")
    platform.chaos("cut", node)
    platform.wait(lambda: len(lives(witness)) == 2, "the job running elsewhere")
    assert platform.node_of("analytics", "witness-0") != node
    (_, ended), (began, _) = sorted(lives(witness).values())
    assert ended < began, f"two at once: the first was seen until {ended}, the second from {began}"
    busy, healed = business(), time.monotonic()
    platform.chaos("heal")
    platform.wait(lambda: platform.takes_work(node), f"{node} taking work")
    took_s, flaps = time.monotonic() - healed, platform.nodes()[node]["status"].get("flaps", 0)
    held_s = NodeRules().steady_s * 2**flaps if flaps else 0.0  # where an earlier test has made it fall silent too
    assert took_s < RETURN_S * max(busy, business()) + held_s, f"{took_s:.1f} s after {flaps} flaps"
    after = sorted(lives(witness).values())
    assert len(after) == 2
    assert after[0][1] == ended, "what was superseded did not go on when its node came back"


def test_broken_connections_a_held_store_and_a_stopped_agent_are_got_over(platform: Platform) -> None:
    platform.wait(lambda: platform.rolled_out("billing", "steady", 2), "two replicas of steady")
    node = "us-east-memory-a"
    platform.chaos("pause", node)
    platform.chaos("stop-store", "us-west")
    platform.patch("billing", "steady", replicas=3)
    status = platform.chaos("status")
    assert "paused" in status
    assert "store stopped" in status
    platform.wait(lambda: not platform.takes_work(node), f"{node} silent")
    assert platform.counts("billing", "steady")["serving"] == 2, "a plane that cannot write places nothing"
    platform.wait(lambda: "[-]store" in platform.readiness("us-west"), "us-west telling of its store")
    assert int(platform.chaos("drop-watch").split()[1]) > 10
    kill(platform, "links")  # with the network that held all of it
    platform.wait(lambda: platform.processes.pid("links") is None, "the relays gone")
    platform.chaos("heal")
    assert platform.takes_work(node)
    platform.wait(lambda: platform.counts("billing", "steady")["serving"] == 3, "three replicas of steady")


def test_a_drill_checks_what_it_promises_puts_everything_back_and_is_kept(platform: Platform) -> None:
    whole = {"risk-api": 6, "billing-api": 3}
    platform.wait(lambda: platform.serving() | whole == platform.serving(), "what drills watch serving")
    said = platform.fairlead("drill", "watch-loss", "--state", str(platform.state), "--json", check=False)
    result = json.loads(said)
    failed = [check for check in result["results"]["checks"] if not check["passed"]]
    assert not failed, said
    assert result["results"]["passed"]
    assert result["params"]["platform"] == "running"
    audited = result["results"]["audit"]
    assert audited.keys() == set(PLANES)
    for plane, told in audited.items():
        assert told["checked"].keys() == set(CHECKED), plane
        assert not told["violations"], plane
        assert all(told["checked"][name] for name in ALWAYS), f"{plane}: {told['checked']}"
    assert all(audited[plane]["checked"]["S1"] for plane in PLANES if plane != GLOBAL), "the history was really read"
    assert platform.chaos("status").strip() == "nothing is broken"
    assert platform.workload("billing", "drill-watch") is None
    known = json.loads(platform.inside("drill", "list", "--state", str(platform.state), "--json"))["drills"]
    assert next(one for one in known if one["name"] == "watch-loss")["last"]["passed"] is True


def audited(platform: Platform) -> dict[str, Any]:
    """What `fairlead audit verify` says of each plane."""
    said = json.loads(platform.inside("audit", "verify", "--state", str(platform.state), "--json"))
    return {Path(directory).parent.name: told for directory, told in said["results"]["planes"].items()}


def was_asked(told: dict[str, Any]) -> set[str]:
    return {name for name, row in told["invariants"].items() if row["checked"]}


def rooms_held(platform: Platform, path: str) -> int:
    regions = platform.ask(path).get("status", {}).get("regions", ())
    return sum(shape.get("held", 0) for region in regions for shape in region.get("shapes", ()))


def test_the_history_of_every_plane_keeps_every_promise_that_can_be_asked_of_it(platform: Platform) -> None:
    """What other tests of this file did to the platform is in it, and what is rare: an exception, a gang, a room that is kept."""
    asks = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    platform.create("billing", "together", replicas=2, gang=True, template=service(), resources=asks)
    platform.wait(lambda: platform.rolled_out("billing", "together", 2), "a gang of two")
    hold = {"kind": "hold", "reason": "to be seen", "ttlSeconds": 30, "scope": {"workloads": ["together"]}}
    platform.ask(f"{BILLING}/overrides", made("Override", "seen", hold), "POST")
    room = {"shapes": [{**asks, "count": 1}]}
    platform.ask(f"{BILLING}/recoverybudgets", made("RecoveryBudget", "seen", room), "POST")
    platform.wait(lambda: rooms_held(platform, f"{BILLING}/recoverybudgets/seen"), "a room that is kept")
    platform.ask(f"{BILLING}/recoverybudgets/seen", method="DELETE")
    platform.ask(f"{BILLING}/workloads/together", method="DELETE")
    rare = {"S8", "S11", "S20"}
    platform.wait(lambda: set().union(*map(was_asked, audited(platform).values())) >= rare, "its history")
    planes = audited(platform)
    assert planes.keys() == set(PLANES)
    for plane, told in planes.items():
        assert told["invariants"].keys() == set(CHECKED), plane
        assert {name: row["violations"] for name, row in told["invariants"].items() if row["violations"]} == {}, plane
        assert (told["unread"], told["revisions"] > 0) == ([], True), plane
        expected = {*ALWAYS, *(WHERE_WORK_RUNS if plane != GLOBAL else ())}
        assert was_asked(told) >= expected, f"{plane}: {was_asked(told)}"


def test_a_drill_that_is_interrupted_puts_everything_back(platform: Platform) -> None:
    words = [PYTHON, "-m", "fairlead.main", "drill", "stale-cache", "--state", str(platform.state)]
    drill = subprocess.Popen(words, env=platform.environment, stderr=subprocess.PIPE, text=True)
    assert drill.stderr is not None
    for line in drill.stderr:
        if "loses power" in line:
            break
    platform.wait(lambda: "paused" in platform.chaos("status"), "the failure in force")
    drill.send_signal(signal.SIGINT)
    rest = drill.stderr.read()
    assert drill.wait(180) == 130, rest
    assert "interrupted: putting everything back" in rest
    assert platform.chaos("status").strip() == "nothing is broken"
    assert platform.workload("billing", "drill-stale") is None


MAY_SAY = {"plan": (2,), "rollback": (0, 4), "close": (0, 8)}  # something runs there; nothing to go back to; not cleaned up yet


@pytest.mark.parametrize("name", RUNBOOKS)
def test_the_commands_of_a_runbook_work_as_they_stand(platform: Platform, name: str) -> None:
    for line in lines_of(name):
        words = shlex.split(line.replace("$STATE", str(platform.state)))[1:]
        if words[:3] == ["override", "approve", "give-up-eu"]:
            words.append("--dry-run=server")  # a whole region's work would move, and back a minute later
        allowed = next((codes for word, codes in MAY_SAY.items() if word in words), (0,))
        code, said = platform.code_of(*words)
        assert code in allowed, f"{line}: {code}\n{said}"


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus: `make setup` brings it")
def test_a_real_prometheus_scrapes_every_plane_and_understands_the_alerts(platform: Platform, tmp_path: Path) -> None:
    with prometheus(platform, tmp_path) as seen:
        platform.wait(lambda: seen.values("fairlead_leader == 1", "plane").keys() == set(PLANES), "four leaders scraped")
        platform.wait(lambda: seen.values("up", "plane") == dict.fromkeys(PLANES, 1.0), "every server scraped")

        def rules() -> list[dict[str, Any]]:
            groups = (seen.ask("rules") or {"groups": []})["groups"]
            return [rule for group in groups for rule in group["rules"]]

        platform.wait(lambda: rules() and all(rule["health"] == "ok" for rule in rules()), "every rule evaluated")
        firing = [rule["name"] for rule in rules() if rule.get("state") == "firing"]
        assert "FairleadNoLeader" not in firing
        assert "FairleadInvariantViolated" not in firing


def test_of_a_machine_that_dies_no_client_is_told_any_more(platform: Platform) -> None:
    victim = next(e for e in platform.document("risk", "risk-api") if e["region"] == "us-east")
    node, address = victim["node"], (victim["address"], victim["ports"]["http"])
    gone = {(e["slot"], e["ports"]["http"]) for e in platform.document("risk", "risk-api") if e["node"] == node}

    def told_by_dns() -> bool:
        return any((f.slot, f.port) in gone for f in resolved(platform, "risk", "risk-api"))

    def told_by_document() -> bool:
        return any((e["slot"], e["ports"]["http"]) in gone for e in platform.document("risk", "risk-api"))

    with Probing(platform, "risk", "risk-api") as probing:
        platform.chaos("kill-node", node)
        assert "killed" in platform.chaos("status")
        platform.wait(lambda: not told_by_document() and not told_by_dns(), f"{address} withdrawn")
        for _ in range(20):
            assert not told_by_dns(), "once withdrawn, never told again"
            assert not told_by_document()
            for endpoint in platform.document("risk", "risk-api"):
                said = who_answers(endpoint)
                assert (said["workload"], said["slot"], said["node"]) == ("risk-api", str(endpoint["slot"]), endpoint["node"])
    assert set(probing.results["errors"]) <= {"Refused", "Broken", "Timeout"}
    others = [slot for slot in probing.results["slots"] if (slot["region"], slot["slot"]) != ("us-east", victim["slot"])]
    assert all(slot["errors"] == {} for slot in others if (slot["slot"]) not in {s for s, _ in gone}), probing.results
    platform.wait(lambda: not platform.bound_to(node) and platform.all_serve(), f"everything that ran on {node} elsewhere")
    platform.chaos("heal")
    platform.wait(lambda: len(platform.document("risk", "risk-api")) == 6, "six told again")


def test_a_lost_region_costs_its_own_part_and_european_work_waits_for_europe(platform: Platform) -> None:
    platform.chaos("kill-region", "eu-central")
    platform.wait(lambda: platform.ask("/regions/eu-central")["status"]["health"] == "Lost", "eu-central lost")

    def blocked() -> bool:
        pending = platform.workload("fraud", "fraud-batch")["status"].get("pending", ())
        return any(one["reason"] == "ResidencyBlocked" and "eu-central is lost" in one["detail"] for one in pending)

    platform.wait(blocked, "fraud-batch blocked by residency")

    def four_and_two() -> bool:
        counts = platform.counts("risk", "risk-api")
        return (counts["serving"], counts["unknown"]) == (4, 2)

    def told_elsewhere() -> bool:
        found = resolved(platform, "risk", "risk-api")
        best = min((one.priority for one in found), default=0)
        return {one.region for one in found if one.priority == best} == {"us-east", "us-west"}

    platform.wait(four_and_two, "four of risk-api serving and two unknown")
    platform.wait(told_elsewhere, "clients told of the other regions first")
    with Probing(platform, "risk", "risk-api") as probing:
        platform.wait(lambda: probing.succeeded > 40, "answers from the other regions")
    assert probing.results["errors"] == {}, probing.results
    assert set(probing.results["regions"]) == {"us-east", "us-west"}
    platform.chaos("heal")
    platform.wait(lambda: platform.serving()["risk-api"] == 6, "six serving again")
    platform.wait(lambda: platform.counts("fraud", "fraud-batch")["bound"] > 0, "fraud-batch running again")
    assert json.loads(platform.fairlead("chaos", "status", "--json")) == {"faults": []}


def test_the_platform_goes_on_from_its_state(platform: Platform) -> None:
    before = platform.workload("risk", "risk-api")["metadata"]["uid"]
    platform.stop()
    assert not list(platform.state.glob("run/*.pid"))
    platform.start()
    platform.wait(platform.all_serve, "every workload serving again")
    assert platform.workload("risk", "risk-api")["metadata"]["uid"] == before
