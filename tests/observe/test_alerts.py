"""The alert rules of deploy/alerts.yml: each fires when it should and is silent when it should be, as the real promtool sees it;
each asks for metrics that exist and names a runbook and a command that exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from fairlead.cli import frame
from fairlead.cli.reference_cli import commands
from fairlead.observe.metrics import METRICS, PREFIX

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "alerts.yml"
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
SUFFIXES = ("_bucket", "_count", "_sum")
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: `make setup` brings it")


class Case(NamedTuple):
    alert: str
    fires: dict[str, str]  # series -> values, a minute apart
    silent: dict[str, str]
    labels: dict[str, str]
    value: str = ""  # as its words show it
    at: str = "10m"


HOURS = "400m"
GROWS, STILL = "0+1x100", "7+0x100"
EAST = {"plane": "us-east"}


def of(metric: str, plane: str = "us-east", **labels: str) -> str:
    """A series."""
    told = ",".join(f'{name}="{value}"' for name, value in {"plane": plane, **labels}.items())
    return f"{metric if metric == 'up' else PREFIX + metric}{{{told}}}"


def simply(alert: str, series: str, fires: str, silent: str, labels: dict[str, str], value: str = "", at: str = "10m") -> Case:
    """One that looks at one series."""
    return Case(alert, {series: fires}, {series: silent}, labels, value, at)


def grows(alert: str, metric: str, at: str = "10m", **labels: str) -> Case:
    """One that fires when a counter grows."""
    return simply(alert, of(metric, **labels), GROWS, STILL, {**EAST, **labels}, at=at)


def first_seen(alert: str, metric: str, **labels: str) -> Case:
    """A counter that was not there before somebody had looked, and then was not zero."""
    return simply(alert, of(metric, **labels), "_x5 1+0x10", "_x5 0+0x10", {**EAST, **labels})


def gauge(alert: str, metric: str, high: str, low: str, **labels: str) -> Case:
    return simply(alert, of(metric, **labels), f"{high}+0x20", f"{low}+0x20", {**EAST, **labels}, high)


def global_gauge(alert: str, metric: str, fires: str, silent: str, value: str = "", **labels: str) -> Case:
    return simply(alert, of(metric, "global", **labels), fires, silent, labels or {"plane": "global"}, value)


def burn(alert: str, metric: str, fires: str, silent: str, at: str, **labels: str) -> Case:
    """An objective of the global plane's, about minutes that were not as promised."""
    return simply(alert, of(metric, "global", **labels), fires, silent, labels, at=at)


def spent(objective: str, series: str, fires: str, silent: str) -> Case:
    return simply("FairleadErrorBudgetSpent", series, fires, silent, {"slo": objective}, at="60m")


def requests(turned_away: str) -> dict[str, str]:
    asked = {"verb": "create", "resource": "workloads"}
    return {of("api_requests_total", **asked, code="201"): "0+100x20", of("api_requests_total", **asked, code="429"): turned_away}


def slots(bound_in_time: str) -> dict[str, str]:
    stage = {"stage": "scheduling"}
    return {
        of("replica_stage_duration_seconds_bucket", **stage, le="5.0"): bound_in_time,
        of("replica_stage_duration_seconds_count", **stage): "0+10x400",
    }


def commits(in_half_a_second: str) -> dict[str, str]:
    counts = {"0.5": in_half_a_second, "1.0": "0+10x20", "+Inf": "0+10x20"}
    return {of("commit_duration_seconds_bucket", le=le): values for le, values in counts.items()}


def leaders(other: str) -> dict[str, str]:
    return {of("leader", instance="a"): "0+0x20", of("leader", instance="b"): f"{other}+0x20"}


def nodes(ready: int, silent: int) -> dict[str, str]:
    return {of("nodes", health="Ready"): f"{ready}+0x20", of("nodes", health="Unknown"): f"{silent}+0x20"}


def queue(ready: int) -> dict[str, str]:
    return {of("queue_oldest_age_seconds"): "301+0x20", of("pending", queue="ready"): f"{ready}+0x20"}


def repairs(state: str) -> dict[str, str]:
    return {of("repairs", problem="OverGrant", state=state): "2+0x20"}


def overrides(state: str) -> dict[str, str]:
    return {of("overrides", kind="hold", state=state): "1+0x20"}


def ends(alert: str, certificate: str, days: float, later_days: float, value: str = "") -> Case:
    """Of two servers, one whose certificate lasts."""
    kind = {"certificate": certificate}
    of_two = {at: of("certificate_expiry_seconds", **kind, instance=at) for at in ("a", "b")}
    fires, silent = ({of_two["a"]: "8640000+0x20", of_two["b"]: f"{left * 86400:g}+0x20"} for left in (days, later_days))
    return Case(alert, fires, silent, {**EAST, **kind}, value)


def dropped(decisions: str) -> dict[str, str]:
    return {of("decisions_dropped_total"): decisions, of("events_dropped_total"): STILL}


def plugins(failed: str) -> dict[str, str]:
    """Of two servers: what one has left out, the other may have loaded."""
    counted = {("a", "loaded"): "2", ("a", "failed"): "0", ("b", "loaded"): "1", ("b", "failed"): failed}
    return {of("plugins", instance=at, state=state): f"{count}+0x20" for (at, state), count in counted.items()}


def up(*values: str) -> dict[str, str]:
    return {of("up", job="fairlead", instance=str(at)): f"{value}+0x20" for at, value in enumerate(values)}


def fought(again: str, once: str) -> Case:
    """Within two hours: once may be a person who changed their mind."""
    labels, before = {"controller": "node"}, "0+0x30 1+0x30"
    series = of("controller_oscillation_total", **labels)
    return simply("FairleadWritersFight", series, f"{before} {again}", f"{before} {once}", {**EAST, **labels}, at="120m")


OUTLOOK = {"lost_region": "eu-central"}
CASES = (
    grows("FairleadInvariantViolated", "invariant_violations_total", invariant="S1"),
    first_seen("FairleadInvariantViolated", "invariant_violations_total", invariant="S1"),
    global_gauge("FairleadServingBelowMin", "workloads_below_min_serving", "2+0x20", "0+0x20", "2"),
    global_gauge("FairleadRecoveryNotReady", "recovery_ready", "0+0x20", "1 1 1 1 1 1 1 1 0 0 0", **OUTLOOK),
    global_gauge("FairleadRecoveryTooSlow", "recovery_time_predicted_seconds", "400+0x20", "300+0x20", "400", **OUTLOOK),
    global_gauge("FairleadRecoveryBudgetExhausted", "recovery_budget_remaining_ratio", "0+0x20", "0.5+0x20", region="us-east"),
    Case("FairleadQueueOld", queue(1), queue(0), EAST, "301"),
    gauge("FairleadHopeless", "pending_hopeless", "3", "0"),
    Case("FairleadSchedulingBudgetBurns", slots("0+8x200"), slots("0+9x200"), EAST, at="2h"),
    Case("FairleadNoLeader", leaders("0"), leaders("1"), EAST),
    Case("FairleadPlaneUnseen", up("0", "0"), up("0", "1"), EAST),
    grows("FairleadStoreRefuses", "store_unavailable_total"),
    simply("FairleadCommitsInDoubt", of("commit_unknown_total"), GROWS, "0 0 0 0 1 1 1 1 1 1 1", EAST),
    Case("FairleadSchedulingBudgetBurnsSlowly", slots("0+9x400"), slots("0+9.5x400"), EAST, at=HOURS),
    Case("FairleadSchedulingBudgetBurnsSlowly", slots("0+9x400"), slots("0+9x300 2710+10x100"), EAST, at=HOURS),
    burn("FairleadRecoveryBudgetBurns", "recovery_ready", "0+0x120", "1+0x115 0+0x5", "120m", **OUTLOOK),
    burn("FairleadRecoveryBudgetBurns", "recovery_ready", "1+0x60 0+0x60", "1+0x60 0+0x50 1+0x10", "120m", **OUTLOOK),
    burn("FairleadRecoveryBudgetBurnsSlowly", "recovery_ready", "1+0x380 0+0x20", "1+0x391 0+0x9", HOURS, **OUTLOOK),
    burn("FairleadRecoveryBudgetBurnsSlowly", "recovery_ready", "0+0x400", "0+0x360 1+0x40", HOURS, **OUTLOOK),
    burn("FairleadServingBudgetBurns", "workloads_below_min_serving", "0+0x380 1+0x20", "0+0x400", HOURS),
    burn("FairleadServingBudgetBurns", "workloads_below_min_serving", "2+0x400", "2+0x360 0+0x40", HOURS),
    spent("serving", of("workloads_below_min_serving", "global"), "1+0x60", "0+0x60"),
    spent("recovery", of("recovery_ready", "global", **OUTLOOK), "0+0x60", "1+0x60"),
    Case("FairleadErrorBudgetSpent", slots("0+9x60"), slots("0+9.95x60"), {"slo": "queue"}, at="60m"),
    Case("FairleadCommitsSlow", commits("0+0x20"), commits("0+10x20"), EAST, "0.995"),
    grows("FairleadHistoryNotKept", "history_failures_total", at="15m"),
    Case("FairleadOverloaded", requests("0+10x20"), requests("0+4x20"), EAST, "9.091%"),
    gauge("FairleadPeerUnreachable", "peer_connected", "0", "1", peer="global"),
    gauge("FairleadControllerStalled", "controller_stalled", "1", "0", controller="repair"),
    grows("FairleadWakeUpsMissed", "resync_only_progress_total", at="30m", controller="node"),
    fought(again="2+0x60", once="1+0x60"),
    gauge("FairleadFinalizerStuck", "finalizer_age_seconds", "901", "900", finalizer="orphan"),
    Case("FairleadRepairOverdue", repairs("overdue"), repairs("open"), {**EAST, "problem": "OverGrant"}, "2"),
    grows("FairleadLedgerDrifted", "ledger_drifts_total"),
    Case("FairleadOverrideInForce", overrides("in-force"), overrides("awaiting-approval"), {**EAST, "kind": "hold"}),
    Case("FairleadOverrideInForce", overrides("ends-soon"), overrides("ended"), {**EAST, "kind": "hold"}),
    Case("FairleadOverrideEndsSoon", overrides("ends-soon"), overrides("in-force"), {**EAST, "kind": "hold"}),
    Case("FairleadOverrideEnded", overrides("ended"), overrides("ends-soon"), {**EAST, "kind": "hold"}),
    ends("FairleadCertificateEndsSoon", "server", 6, 8, "6d 0h 0m 0s"),
    ends("FairleadCertificateEndsSoon", "authority", 80, 91, "80d 0h 0m 0s"),
    ends("FairleadCertificateEnds", "agent", 0.9, 1.1),
    ends("FairleadCertificateEnds", "authority", -1, 89),
    Case("FairleadPluginFailed", plugins("1"), plugins("0"), {**EAST, "instance": "b"}, "1"),
    grows("FairleadBreakGlassUsed", "break_glass_requests_total"),
    grows("FairleadReservationLeaked", "reservation_leaked_total"),
    Case("FairleadNodesLost", nodes(6, 4), nodes(9, 1), EAST),
    simply("FairleadObservationsOld", of("observation_age_seconds", of="oldest"), "13+0x20", "5+0x20", EAST, "13"),
    Case("FairleadRecordsDropped", dropped(GROWS), dropped(STILL), EAST),
    grows("FairleadRecordsDropped", "events_dropped_total"),  # the global plane decides nothing and has events all the same
)


def rendered(text: str, case: Case) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels[found[1]], text)
    return re.sub(r"\{\{ \$value( \| humanize(Percentage|Duration))? \}\}", case.value, text)


def promtool_case(case: Case, series: dict[str, str], fires: bool) -> dict[str, Any]:
    rule = ALERTS[case.alert]
    expected = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {name: rendered(text, case) for name, text in rule["annotations"].items()},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"alertname": case.alert, "eval_time": case.at, "exp_alerts": [expected] if fires else []}],
    }


@NEEDS_PROMTOOL
@pytest.mark.parametrize("step", ["1m", "5m"])
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path, step: str) -> None:
    """Those that look back for hours are looked at every five minutes: they cost as much as all others together."""
    cases = [case for case in CASES if (case.at == HOURS) == (step == "5m")]
    tests = [promtool_case(case, case.fires, True) for case in cases]
    tests += [promtool_case(case, case.silent, False) for case in cases]
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": step, "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == set(ALERTS)


def asked_for(expression: str) -> set[str]:
    found = set(re.findall(r"\b(fairlead[a-z0-9_:]+|up)\b(?=[{\[ )]|$)", expression))
    return found - RECORDED


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.get("alert") or rule.get("record")))
def test_every_rule_asks_for_metrics_that_exist_with_labels_that_they_have(rule: dict[str, Any]) -> None:
    names = asked_for(rule["expr"])
    assert names or any(record in rule["expr"] for record in RECORDED)
    for name in names - {"up"}:
        base = name.removeprefix(PREFIX)
        for suffix in SUFFIXES:
            base = base.removesuffix(suffix) if METRICS.get(base) is None else base
        assert base in METRICS, f"there is no metric {name}"
        for labels in re.findall(re.escape(name) + r"\{([^}]*)\}", rule["expr"]):
            used = set(re.findall(r"(\w+)\s*[=!]~?", labels))
            assert used <= {*METRICS[base].labels, "le", "plane", "job"}, f"{name} has no labels {used}"


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_every_alert_says_what_it_means_who_is_called_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    said = rule["annotations"]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description", "runbook", "command"} == set(said)
    assert (ROOT / said["runbook"]).exists(), f"{name}: there is no {said['runbook']}"
    words = shlex.split(said["command"].replace("{{ $labels.lost_region }}", "eu-central"))
    if words[0] != "fairlead":
        return
    known, path = dict(commands(frame.fairlead)), ()
    words = words[1:]
    while words and (*path, words[0]) in known:
        path = (*path, words.pop(0))  # type: ignore[assignment]
    assert path, f"{name}: there is no command {said['command']}"


def test_the_four_that_must_wake_somebody_do() -> None:
    must = ("FairleadInvariantViolated", "FairleadRecoveryNotReady", "FairleadRecoveryBudgetExhausted", "FairleadServingBelowMin")
    assert {ALERTS[name]["labels"]["severity"] for name in must} == {"page"}
