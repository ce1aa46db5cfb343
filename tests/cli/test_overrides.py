"""`fairlead override` and `fairlead policy` against the real resource API."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.cli import frame, override
from fairlead.cli.policy_words import changes, left_s
from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.model.kinds.intent import LabelExpression
from fairlead.model.kinds.policy import Canary, PriorityClass, ResidencyRule, SchedulerPolicySpec, ScoreWeight
from tests.cli.runs import Ran, fairlead
from tests.cli.test_real_door import applied as applied
from tests.cli.test_real_door import contexts_file as contexts_file
from tests.cli.test_real_door import door as door
from tests.client.fake_api import FakeApi

POLICY = """
apiVersion: fairlead.dev/v1alpha1
kind: SchedulerPolicy
metadata: {{name: r{revision}}}
spec: {{revision: {revision}, probeSize: {probes}}}
---
"""
CHANNEL = """
apiVersion: fairlead.dev/v1alpha1
kind: PolicyChannel
metadata: {name: default}
spec: {current: 1}
"""
QUOTA = """
apiVersion: fairlead.dev/v1alpha1
kind: Quota
metadata: {name: default, namespace: risk}
spec: {limits: {cpu: "6", memory: 6Gi}}
"""


def run(*arguments: object) -> Ran:
    return fairlead(*arguments)


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (("--of", "*", "--in-region", "us-east"), "no node is added or let go in us-east"),
        (("--of", "*"), "no node is added or let go"),
        (("--of", "risk"), "no node is added for what waits of them"),
        (("--workload", "api", "--in-region", "us-east"), "no node is added in us-east for what waits of them"),
    ],
)
def test_a_pause_says_what_it_means_for_nodes(applied: Path, scope: tuple[str, ...], said: str) -> None:
    asked = ("override", "create", "autoscaler-pause", "still", "--reason", "incident 7", *scope)
    line = f"warning: the replicas of services among them stay as they are; {said}\n"
    assert line in run(*asked).err, "before anybody is asked"
    assert line in run(*asked, "--dry-run", "server").err


def test_an_override_is_ordered_after_its_reach_is_told_then_extended_and_revoked(applied: Path) -> None:
    asked = ("override", "create", "hold", "stop", "--reason", "incident 7", "--for", "10m", "--workload", "risk-api")
    denied = run(*asked)
    assert denied.code == frame.DENIED, "nobody was there to agree"
    assert "warning: this override touches 1 workload of risk with 0 slots" in denied.err
    assert "risk/risk-api" in denied.err
    foreseen = run(*asked, "--dry-run", "server")
    assert foreseen.out == "override/stop created (server dry run)\n"
    assert foreseen.err.count("this override touches 1 workload of risk with 0 slots") == 1
    assert "touches" not in run(*asked, "--dry-run", "client").err.replace("what it touches is the server's to say", "")
    assert run("get", "overrides/stop").code == frame.NOT_FOUND
    made = run(*asked, "--yes", "--idempotency-key", "k-stop")
    assert made.out == "override/stop created\n"
    assert made.err.count("this override touches") == 1, "the trial and the write say it once"
    assert run(*asked, "--yes", "--idempotency-key", "k-stop").out == made.out, "it is the same request"
    again = run(*asked, "--yes")
    assert (again.code, again.out) == (frame.CONFLICT, "")
    lines = run("override", "list").out.splitlines()
    assert lines[0].split()[:4] == ["NAME", "TENANT", "KIND", "ACTIVE"]
    assert lines[1].split()[:3] == ["stop", "risk", "hold"]
    assert "incident 7" in lines[1]
    assert run("override", "extend", "stop", "--for", "20m").out == "override/stop lasts 1200 s from now\n"
    ttl = int(run("get", "overrides/stop", "-o", "jsonpath={.spec.ttlSeconds}").out)
    assert 1200 <= ttl < 1500
    too_long = run("override", "extend", "stop", "--for", "5h")
    assert too_long.code == frame.ERROR
    assert "spec.ttlSeconds" in too_long.err
    assert run("override", "revoke", "stop").out == "override/stop revoked\n"
    # Its finalizer is its controller's, and none runs here: the mark is what ends its effect.
    assert run("get", "overrides/stop", "-o", "jsonpath={.metadata.deletionTimestamp}").out


def test_what_is_wrong_with_an_override_is_told_and_what_needs_a_second_person_says_so(applied: Path) -> None:
    silent = run("override", "create", "hold", "x", "--reason", " ", "--yes")
    assert "spec.reason" in silent.err
    zone = run("override", "create", "zone-avoidance", "dry", "--reason", "flood", "--of", "*", "--zone", "a", "--yes")
    assert zone.code == 0, zone
    assert "nodes in a take nothing new of them" in zone.err
    quota = run("override", "create", "emergency-quota", "more", "--reason", "flood", "--of", "risk", "--set", "cpu=20", "--yes")
    assert quota.code == 0, quota
    assert "no effect until another person says 'fairlead override approve more" in quota.err


def test_a_policy_is_tried_promoted_and_gone_back_from(contexts_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(POLICY.format(revision=1, probes=4) + POLICY.format(revision=2, probes=8) + CHANNEL)
    assert run("apply", "-f", file).code == 0
    assert run("policy", "promote").code == frame.CONFLICT
    assert run("policy", "canary", "2").code == frame.ERROR, "on whom?"
    assert run("policy", "canary", "7", "--share", "10").code == frame.NOT_FOUND
    tried = run("policy", "canary", "2", "--share", "10", "--in-region", "eu", "--for", "20m")
    assert tried.out == "revision 2 is tried on 10 % of tenants; regions eu for 1200 s\n"
    rows = {line.split()[0]: line for line in run("policy", "list").out.splitlines()}
    assert "canary" in rows["r2"]
    assert "decides" in rows["r1"]
    denied = run("policy", "promote")
    assert denied.code == frame.DENIED, "nobody was there to agree"
    assert "from revision 1 to 2:\n  probeSize 4 -> 8\n" in denied.err
    assert run("policy", "promote", "--yes").out == "revision 2 decides\n"
    changed = run("policy", "diff", "1", "2")
    assert changed.code == frame.CHANGES
    assert '+  "probeSize": 8' in changed.out
    assert run("policy", "diff", "2", "2").code == 0
    assert run("policy", "rollback").out == "revision 1 decides\n"
    channel = msgspec.json.decode(run("get", "policychannels/default", "-o", "json").out)
    assert (channel["spec"]["current"], channel["spec"].get("history", [])) == (1, [])
    assert run("policy", "rollback", "--to", "2").out == "revision 2 decides\n"
    already = run("policy", "rollback", "--to", "2")
    assert (already.code, already.out) == (frame.CONFLICT, "")
    assert "revision 2 decides already" in already.err
    assert "probeSize: 8" in run("policy", "show", "2").out


def test_a_canary_that_is_ordered_again_is_said_to_last_as_long_as_it_will() -> None:
    first = Canary(revision=2, share_percent=1, ttl_seconds=3600)
    status = {"canaryRevision": 2, "canaryStartTime": "2026-01-01T12:00:00Z", "canaryEndTime": "2026-01-01T13:00:00Z"}
    found = {"status": {**status, "canary": msgspec.to_builtins(first)}}
    wall = datetime(2026, 1, 1, 12, 50, tzinfo=UTC).timestamp()
    assert left_s({}, first, wall) == 3600
    assert left_s(found, first, wall) == 600, "the same again changes nothing"
    assert left_s(found, replace(first, share_percent=50), wall) == 3600
    assert left_s(found, replace(first, ttl_seconds=14_400), wall) == 14_400 - 3000, "four hours in all"


def test_a_revision_that_could_be_gone_back_to_is_kept_and_one_that_went_all_the_same_is_missed_by_name(
    contexts_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(POLICY.format(revision=1, probes=4) + POLICY.format(revision=2, probes=8) + CHANNEL)
    assert run("apply", "-f", file).code == 0
    assert run("policy", "canary", "2", "--share", "100").code == 0
    assert run("policy", "promote", "--yes").code == 0
    kept = run("delete", "schedulerpolicies/r1", "--yes")
    assert kept.code == frame.CONFLICT
    assert "can still be rolled back to revision 1: take it out of its spec.history first" in kept.err
    file.write_text(CHANNEL.replace("current: 1", "current: 2, history: []"))
    assert run("apply", "-f", file).code == 0
    assert run("delete", "schedulerpolicies/r1", "--yes").code == 0
    file.write_text(CHANNEL.replace("current: 1", "current: 2, history: [1]"))
    assert run("apply", "-f", file).code == 0
    back = run("policy", "rollback")
    assert back.code == frame.NOT_FOUND
    assert "revision 1 is not there any more" in back.err
    file.write_text(CHANNEL)
    named = run("apply", "-f", file)
    assert named.code == frame.NOT_FOUND
    assert 'schedulerpolicies.fairlead.dev "r1" not found' in named.err


def test_on_whom_a_canary_is_tried_is_said_and_that_it_is_nobody(applied: Path, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(POLICY.format(revision=1, probes=4) + POLICY.format(revision=2, probes=8) + CHANNEL)
    assert run("apply", "-f", file).code == 0
    typo = run("policy", "canary", "2", "--of", "rissk")
    assert "warning: it is tried on nobody: none of 1 tenants is among those it names; there is no tenant rissk" in typo.err
    assert "warning: it is tried on nobody" in run("policy", "promote", "--dry-run", "server").err
    named = run("policy", "canary", "2", "--of", "risk")
    assert "tried on 1 of 1 tenants: risk" in named.err
    elsewhere = run("policy", "canary", "2", "--in-region", "mars")
    assert "there is no region mars" in elsewhere.err


def test_what_another_revision_changes_is_said_line_by_line_what_is_lost_first() -> None:
    eu = ResidencyRule(tenants=("risk",), areas=("eu",))
    us = ResidencyRule(labels=(LabelExpression(key="pii", operator="Exists"),), areas=("us", "ca"))
    classes = [one for one in BUILT_IN.workload_classes if one.name != "batch"]
    night = (*BUILT_IN.priority_classes, PriorityClass(name="night", value=150))
    before = SchedulerPolicySpec(revision=1, residency=(eu,), gates=("example.power",), priority_classes=night, probe_size=4)
    after = SchedulerPolicySpec(
        revision=2,
        residency=(us,),
        workload_classes=(*classes[:-1], replace(classes[-1], may_borrow=False)),
        scores=(*BUILT_IN.scores[:-1], ScoreWeight(name="image", weight=20)),
        probe_size=8,
    )
    assert changes(before, after) == [
        "drops the residency rule: tenants risk only in eu",
        "drops the gate example.power",
        "drops the workload class batch: work of it waits as Misconfigured, and is not recovered",
        "drops the priority class night: a workload that names it waits as Misconfigured, and is not recovered",
        "adds the residency rule: labels pii Exists only in us, ca",
        "workload class best-effort: mayBorrow true -> false",
        "score image: weight 10 -> 20",
        "probeSize 4 -> 8",
    ]
    assert changes(before, replace(before, revision=9, scores=BUILT_IN.scores)) == [], "what is left out is built in"


def test_what_follows_an_approved_override_says_whether_it_is_in_force(api: FakeApi) -> None:
    for kind, said in (("hold", "is in force at once, approved by nobody"), ("emergency-quota", "has no effect until another")):
        name = f"{kind}-1"
        api.put("overrides", name, "default", spec={"kind": kind, "approver": "eve", "requester": "ann", "reason": "x"})
        ran = run("override", "extend", name, "--for", "20m", "--dry-run", "client", "-n", "default")
        assert ran.out.startswith(f"override/{kind}-2 created")
        assert said in ran.err


def asked_for_more(name: str) -> None:
    words = (
        "emergency-quota",
        name,
        "--reason",
        "flood",
        "--for",
        "30m",
        "--of",
        "risk",
        "--set",
        "cpu=20",
        "--set",
        "memory=4Gi",
    )
    assert run("override", "create", *words, "--yes").code == frame.OK


@pytest.fixture
def eve(monkeypatch: pytest.MonkeyPatch) -> None:
    async def me(session: object) -> str:
        return "eve"

    monkeypatch.setattr(override, "_me", me)


def while_asked(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Somebody acts between the question and its answer, which is yes."""

    def confirmed(yes: bool, question: str) -> None:
        with ThreadPoolExecutor() as others:
            others.submit(act).result()

    monkeypatch.setattr(override, "confirmed", confirmed)


def test_what_is_approved_is_told_first_and_needs_a_yes(applied: Path, eve: None) -> None:
    asked_for_more("flood")
    silent = run("override", "approve", "flood")
    assert silent.code == frame.DENIED, "nobody was there to agree"
    for said in ("risk/flood, emergency-quota, asked for by", "flood", "tenants risk", "cpu=20 memory=4Gi", "in 29m"):
        assert said in silent.err, said
    assert run("get", "overrides/flood", "-o", "jsonpath={.spec.approver}").out == ""
    foreseen = run("override", "approve", "flood", "--dry-run", "client")
    assert (foreseen.code, foreseen.out) == (frame.OK, "override/flood approved by eve (client dry run)\n")
    done = run("override", "approve", "flood", "--yes")
    assert (done.code, done.out) == (frame.OK, "override/flood approved by eve\n"), done
    assert "cpu=20 memory=4Gi" in done.err
    assert run("override", "approve", "flood", "--yes").code == frame.OK, "as it is"
    listed = run("override", "list").out.splitlines()
    assert listed[0].split()[-2:] == ["PARAMETERS", "REASON"]
    assert "cpu=20 memory=4Gi" in next(line for line in listed if line.startswith("flood"))
    assert run("override", "approve", "none", "--yes").code == frame.NOT_FOUND


def test_what_was_changed_since_it_was_told_is_not_approved(applied: Path, eve: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for_more("surge")
    more = ("patch", "overrides/surge", "-p", '{"spec": {"parameters": {"cpu": "9000"}}}')
    while_asked(monkeypatch, lambda: run(*more))
    ran = run("override", "approve", "surge")
    assert ran.code == frame.CONFLICT, ran
    assert "was changed while you read it; nothing was approved" in ran.err
    assert run("get", "overrides/surge", "-o", "jsonpath={.spec.parameters.cpu} {.spec.approver}").out == "9000 "


def test_a_mark_on_it_is_no_change_of_what_was_told(applied: Path, eve: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for_more("tide")
    marked = ("patch", "overrides/tide", "-p", '{"metadata": {"labels": {"seen": "yes"}}}')
    while_asked(monkeypatch, lambda: run(*marked))
    ran = run("override", "approve", "tide")
    assert (ran.code, ran.out) == (frame.OK, "override/tide approved by eve\n"), ran


def test_an_emergency_quota_counts_in_the_report_from_its_approval_until_it_is_revoked(
    applied: Path, eve: None, tmp_path: Path
) -> None:
    file = tmp_path / "quota.yaml"
    file.write_text(QUOTA)
    assert run("apply", "-f", file).code == frame.OK
    before = cpu_told()  # other tests have exceptions of their own in force
    asked_for_more("swell")
    assert cpu_told() == before, "nobody has agreed yet"
    assert run("override", "approve", "swell", "--yes").code == frame.OK
    assert cpu_told() == before + 20
    assert run("override", "revoke", "swell").code == frame.OK
    assert cpu_told() == before


def cpu_told() -> int:
    ran = run("budget", "report", "-n", "risk", "--json")
    (row,) = [row for row in msgspec.json.decode(ran.out)["results"]["rows"] if row["kind"] == "Quota"]
    return int(row["limit"]["cpu"])
