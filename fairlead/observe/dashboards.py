"""The dashboards of deploy/dashboards, as data: five for Grafana, one for each part of a replica's way. `python -m
fairlead.observe.dashboards` writes them; a test fails when they are out of date or ask for a metric that does not exist.

Owns which question is on which dashboard. Grafana's own defaults are left alone. Called by `make docs`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "dashboards"
_WIDTH, _HEIGHT = 12, 8  # of a panel, on Grafana's grid of 24
_PLANE: Final = 'plane=~"$plane"'


class Panel(NamedTuple):
    title: str
    unit: str  # Grafana's: s, ops, short, percentunit
    asks: dict[str, str]  # legend -> expression
    says: str = ""  # how to read it


class Dashboard(NamedTuple):
    name: str
    title: str
    says: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str, filters: str = "") -> str:
    return f"sum by ({by}) (rate(fairlead_{metric}{{{_and(filters)}}}[5m]))"


def _grown(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase(fairlead_{metric}{{{_PLANE}}}[30m]))"


def _quantile(share: float, metric: str, by: str = "plane", filters: str = "") -> str:
    return f"histogram_quantile({share:g}, sum by ({by}, le) (rate(fairlead_{metric}_bucket{{{_and(filters)}}}[5m])))"


def _gauge(metric: str, by: str, filters: str = "", fold: str = "sum") -> str:
    return f"{fold} by ({by}) (fairlead_{metric}{{{_and(filters)}}})"


def _and(filters: str) -> str:
    return f"{_PLANE},{filters}" if filters else _PLANE


def _stage(stage: str) -> Panel:
    asks = {f"p{share:g} {{{{plane}}}}": _quantile(share / 100, "replica_stage_duration_seconds", filters=f'stage="{stage}"')
            for share in (50, 99)}  # fmt: skip
    return Panel(f"How long {stage} takes", "s", asks, "From the end of the step before until this one is done.")


_SCHEDULING: Final = Dashboard(
    "scheduling", "Fairlead: scheduling", "From wanted to a place: what waits, why, and how long.",
    (
        _stage("scheduling"),
        Panel("Oldest slot in the queue", "s", {"{{plane}}": _gauge("queue_oldest_age_seconds", "plane", fold="max")}),
        Panel("What waits, by reason", "short", {"{{plane}} {{reason}}": _gauge("pending_replicas", "plane, reason")},
              "A reason that capacity cannot cure is not cured by more nodes."),
        Panel("Queue, by state", "short", {"{{plane}} {{queue}}": _gauge("pending", "plane, queue")}),
        Panel("Slots tried", "ops", {"{{plane}} {{result}}": _rate("schedule_attempts_total", "plane, result")}),
        Panel("Parts of a cycle, p99", "s",
              {"{{extension_point}}": _quantile(0.99, "framework_extension_point_duration_seconds", "extension_point")}),
        Panel("Cannot meet their deadline", "short", {"{{plane}}": _gauge("pending_hopeless", "plane")}),
        Panel("Victims of claims, p99", "short", {"{{plane}}": _quantile(0.99, "preemption_victims")}),
    ),
)  # fmt: skip

_BINDING: Final = Dashboard(
    "binding", "Fairlead: binding", "From a place to a commit: what the authority says, and what the store costs.",
    (
        Panel("Proposed binds, by outcome", "ops", {"{{plane}} {{result}}": _rate("bind_commit_total", "plane, result")}),
        Panel("Decided on what is no longer so", "ops",
              {"{{plane}} {{reason}}": _rate("stale_commits_rejected_total", "plane, reason")},
              "Refused and tried again. Much of it: caches are late, or schedulers fight."),
        Panel("Commits", "s", {"p50 {{plane}}": _quantile(0.5, "commit_duration_seconds"),
                               "p99 {{plane}}": _quantile(0.99, "commit_duration_seconds")}),
        Panel("Commands and batches", "ops", {"commands {{plane}}": _rate("commands_total", "plane"),
                                              "batches {{plane}}": _rate("commits_total", "plane")}),
        Panel("In doubt, and refused by the store", "ops", {"in doubt {{plane}}": _rate("commit_unknown_total", "plane"),
                                                            "refused {{plane}}": _rate("store_unavailable_total", "plane")}),
        Panel("Fenced, repeated, turned away", "ops", {"fenced {{plane}}": _rate("fenced_writes_total", "plane"),
                                                       "repeated {{plane}}": _rate("idempotent_replays_total", "plane"),
                                                       "overload {{plane}}": _rate("overloaded_total", "plane")}),
        Panel("Who leads", "short", {"{{plane}} {{instance}}": _gauge("leader", "plane, instance", fold="max")}),
        Panel("Broken promises", "short", {"{{plane}} {{invariant}}": _gauge("invariant_violations_total", "plane, invariant")},
              "Anything but zero is an alarm."),
    ),
)  # fmt: skip

_STARTUP: Final = Dashboard(
    "startup", "Fairlead: startup", "From bound to started: agents and nodes.",
    (
        _stage("startup"),
        Panel("Starts", "ops", {"{{plane}}": _rate("agent_starts_total", "plane")},
              "Far more of them than binds: something starts again and again."),
        Panel("Nodes, by health", "short", {"{{plane}} {{health}}": _gauge("nodes", "plane, health")}),
        Panel("How long ago healthy nodes were heard", "s",
              {"{{plane}} {{of}}": _gauge("observation_age_seconds", "plane, of", fold="max")}),
        Panel("Agents connected", "short", {"{{plane}}": _gauge("agents", "plane")}),
        Panel("Heartbeats and handshakes", "ops", {"heartbeats {{plane}}": _rate("agent_heartbeats_total", "plane"),
                                                   "handshakes {{plane}}": _rate("agent_handshakes_total", "plane")}),
    ),
)  # fmt: skip

_READINESS: Final = Dashboard(
    "readiness", "Fairlead: readiness", "From started to ready, and the controllers that see to it.",
    (
        _stage("readiness"),
        _stage("draining"),
        Panel("Instances, by condition", "short", {"{{plane}} {{condition}}": _gauge("agent_instances", "plane, condition")}),
        Panel("Controllers that do not get on", "short",
              {"{{plane}} {{controller}}": _gauge("controller_stalled", "plane, controller", fold="max")}),
        Panel("Fights: what another kept undoing", "short",
              {"{{plane}} {{controller}}": _grown("controller_oscillation_total", "plane, controller")},
              "How often in half an hour two were found to undo each other. Its last error names both."),
        Panel("How late controllers are", "s",
              {"{{plane}} {{controller}}": _gauge("watch_lag_seconds", "plane, controller", fold="max")}),
        Panel("Keys that wait", "short", {"{{plane}} {{name}}": _gauge("workqueue_depth", "plane, name")}),
        Panel("Looks, p99", "s", {"{{name}}": _quantile(0.99, "workqueue_work_duration_seconds", "name")}),
        Panel("Progress that only a resync brought", "ops",
              {"{{plane}} {{controller}}": _rate("resync_only_progress_total", "plane, controller")}),
        Panel("Longest wait for a finalizer", "s",
              {"{{plane}} {{finalizer}}": _gauge("finalizer_age_seconds", "plane, finalizer", fold="max")}),
    ),
)  # fmt: skip

_SERVING: Final = Dashboard(
    "serving", "Fairlead: serving", "What users get, and whether a region could be lost now.",
    (
        Panel("Workloads below their minimum", "short", {"workloads": "max(fairlead_workloads_below_min_serving)"},
              "Users have less than was promised to them."),
        _stage("serving"),
        Panel("If this region were lost now: recovered?", "short",
              {"{{lost_region}}": "min by (lost_region) (fairlead_recovery_ready)"}),
        Panel("If this region were lost now: within", "s",
              {"{{lost_region}}": "max by (lost_region) (fairlead_recovery_time_predicted_seconds)"}),
        Panel("Room for recovery that could be claimed", "percentunit",
              {"{{region}}": "min by (region) (fairlead_recovery_budget_remaining_ratio)"}),
        Panel("Workloads being recovered", "short", {"workloads": "max(fairlead_recovering)"}),
        Panel("Planes that reach each other", "short",
              {"{{plane}} - {{peer}}": _gauge("peer_connected", "plane, peer", fold="min")}),
        Panel("API requests, by code", "ops", {"{{plane}} {{code}}": _rate("api_requests_total", "plane, code")}),
        Panel("API requests, p99", "s", {"{{verb}}": _quantile(0.99, "api_request_duration_seconds", "verb")}),
    ),
)  # fmt: skip

DASHBOARDS: Final = (_SCHEDULING, _BINDING, _STARTUP, _READINESS, _SERVING)


def pages() -> dict[str, bytes]:
    """File name -> what is in it."""
    return {f"{one.name}.json": _json(_grafana(one)) for one in DASHBOARDS}


def _grafana(board: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"fairlead-{board.name}",
        "title": board.title,
        "description": board.says,
        "tags": ["fairlead"],
        "schemaVersion": 38,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": [_source(), _plane()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _plane() -> dict[str, Any]:
    return {
        "name": "plane", "type": "query", "label": "Plane", "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": "label_values(fairlead_leader, plane)", "multi": True, "includeAll": True, "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": source,
        "gridPos": {"x": _WIDTH * (number % 2), "y": _HEIGHT * (number // 2), "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "legendFormat": legend, "expr": expression}
            for at, (legend, expression) in enumerate(panel.asks.items())
        ],
    }


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def out_of_date(folder: Path = FOLDER) -> list[str]:
    return [name for name, text in pages().items() if not (folder / name).exists() or (folder / name).read_bytes() != text]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in out_of_date():
        (FOLDER / name).write_bytes(pages()[name])
        sys.stdout.write(f"deploy/dashboards/{name} written\n")


if __name__ == "__main__":
    main()
