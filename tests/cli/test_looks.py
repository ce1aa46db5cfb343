"""Verbs that only look: describe, events, logs, top, explain, api-resources, version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect as shapes

from fairlead.cli import frame
from fairlead.cli.ages import age
from fairlead.cli.explain import _about, _struct
from fairlead.model.kinds.capacity import NodeSpec
from fairlead.model.kinds.intent import PendingReason, QuotaSpec, WorkloadSpec
from fairlead.model.kinds.policy import OverrideScope, OverrideSpec
from fairlead.model.registry import BY_KIND
from fairlead.wire.meanings import meaning
from tests.cli.talks import talk, workload
from tests.client.fake_api import FakeApi


def happened(api: FakeApi, name: str, about: str, when: str, kind: str = "Normal", count: int = 1) -> None:
    about_object = {"kind": "Workload", "name": about, "namespace": "risk"}
    api.put("events", name, "risk", involvedObject=about_object, type=kind, reason="Bound", message=f"slot {name}",
            lastTimestamp=when, count=count)  # fmt: skip


def test_describe_tells_all_parts(api: FakeApi) -> None:
    conditions = [{"type": "Serving", "status": "False", "reason": "BelowMinServing", "message": "1 of 3 serve",
                   "lastTransitionTime": "2027-01-15T07:59:00Z"}]  # fmt: skip
    pending = [{"reason": "WaitingForQuota", "count": 2, "nextOwner": "quota-controller", "detail": "asks 2 GPU, 1 left"}]
    api.put("workloads", "a", "risk", labels={"tier": "gold"},
            **workload(3, replicas={"desired": 3}, conditions=conditions, pending=pending))  # fmt: skip
    out = talk("describe", "wl/a").out
    for part in ("Name:", "Tenant:", "tier=gold", "Spec:\n  replicas: 3", "Conditions:", "BelowMinServing", "60s",
                 "Pending:", "WaitingForQuota", "quota-controller", "Events: none"):  # fmt: skip
        assert part in out, part
    assert talk("describe", "wl", "-l", "tier=gold", "--no-show-events").code == 0
    assert talk("describe", "wl", "-l", "tier=tin").code == frame.NOT_FOUND


def test_describe_shows_the_objects_own_events(api: FakeApi) -> None:
    made = api.put("workloads", "a", "risk", **workload())
    happened(api, "e1", "a", "2027-01-15T07:58:00Z", count=4)
    api.objects["events", "risk", "e1"]["involvedObject"]["uid"] = made["metadata"]["uid"]
    happened(api, "e2", "b", "2027-01-15T07:59:00Z")
    out = talk("describe", "wl/a").out
    assert "2m (x4)" in out
    assert "slot e1" in out
    assert "slot e2" not in out


def test_events_of_a_deleted_namesake_are_not_shown_and_those_of_one_that_is_gone_are(api: FakeApi) -> None:
    made = api.put("workloads", "a", "risk", **workload())
    happened(api, "before", "a", "2027-01-15T07:58:00Z")
    api.objects["events", "risk", "before"]["involvedObject"]["uid"] = "another"
    happened(api, "now", "a", "2027-01-15T07:59:00Z")
    api.objects["events", "risk", "now"]["involvedObject"]["uid"] = made["metadata"]["uid"]
    assert [line.split()[-1] for line in talk("events", "--for", "wl/a", "--no-headers").out.splitlines()] == ["now"]
    del api.objects["workloads", "risk", "a"]
    assert [line.split()[-1] for line in talk("events", "--for", "wl/a", "--no-headers").out.splitlines()] == ["before", "now"]


def test_the_list_of_commands_says_that_top_shows_requests(api: FakeApi) -> None:
    (line,) = [line for line in talk("--help").out.splitlines() if line.split()[:1] == ["top"]]
    assert "asked for" in line


def test_events_come_newest_last_and_can_be_chosen(api: FakeApi) -> None:
    happened(api, "late", "a", "2027-01-15T07:59:30Z", "Warning")
    happened(api, "early", "b", "2027-01-15T07:00:00Z")
    out = talk("events").out.splitlines()
    assert out[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert [line.split()[-1] for line in out[1:]] == ["early", "late"]
    assert [line.split()[-1] for line in talk("events", "--for", "wl/b", "--no-headers").out.splitlines()] == ["early"]
    assert "early" not in talk("events", "--types", "Warning").out
    assert talk("events", "-n", "nobody").err == "no events found\n"


def test_events_are_asked_of_the_region_that_is_named(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", **workload())
    for words in (("events",), ("events", "-A"), ("events", "--for", "wl/a")):
        talk(*words, "--region", "us-east")
        path, query, _ = api.sent("GET")[-1]
        assert path.endswith("/events")
        assert query.get("region") == "us-east", words


def test_events_are_followed(api: FakeApi) -> None:
    api.watches_allowed = 1
    api.on_watch = {1: lambda: happened(api, "new", "a", "2027-01-15T07:59:30Z")}
    assert talk("events", "-w").out.splitlines()[-1].endswith("slot new")


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5s"), (119, "119s"), (120, "2m"), (3600, "1h"), (3600 * 3 + 60 * 20, "3h20m"), (3600 * 30, "30h"),
                           (86400 * 3, "3d"), (-5, "0s")],
)  # fmt: skip
def test_ages(seconds: int, words: str) -> None:
    assert age("1970-01-01T00:00:00Z", float(seconds)) == words
    assert age("", 0.0) == "<unknown>"


def test_logs_are_passed_on_as_they_are(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", **workload())
    api.log_chunks = [b"one\ntw", b"o\n", "ümlaut".encode()]
    ran = talk("logs", "wl/a", "--slot", 2, "-f", "--tail", 10, "--since", "5m", "--previous", "--timestamps")
    assert (ran.code, ran.out) == (0, "one\ntwo\nümlaut")
    path, query, _ = api.sent("GET")[-1]
    assert path == "/apis/fairlead.dev/v1alpha1/namespaces/risk/workloads/a/log"
    assert query == {
        "slot": "2",
        "follow": "true",
        "tailLines": "10",
        "sinceSeconds": "300",
        "previous": "true",
        "timestamps": "true",
    }
    assert talk("logs", "a").code == 0
    assert talk("logs", "nodes/n").code == frame.ERROR


def test_top_adds_up_what_is_bound(api: FakeApi) -> None:
    api.put("nodes", "n1", spec={"allocatable": {"cpu": "4", "memory": "8Gi"}}, status={"health": "Ready"})
    api.put("nodes", "n2", spec={})
    asks = {"cpu": "1500m", "memory": "1Gi"}
    for index, state in enumerate(("Serving", "Ready", "Released")):
        api.put("bindings", f"a-{index}", "risk", spec={"node": "n1", "requests": asks}, status={"state": state})
    out = talk("top", "nodes").out.splitlines()
    assert out[1].split() == ["n1", "2", "3000m", "75%", "2048Mi", "25%", "Ready"]
    assert out[2].split() == ["n2", "0", "0m", "<unknown>", "0Mi", "<unknown>", "<unknown>"]
    api.put("workloads", "a", "risk", spec={"resources": {"requests": asks}}, status={"replicas": {"desired": 3, "bound": 2}})
    api.put("workloads", "b", "risk", spec={}, status={"replicas": {"desired": 9, "bound": 8}})
    api.objects["nodes", "", "n1"]["evidence"] = {"plane": "eu", "ageSeconds": 12.0}
    assert talk("top", "nodes").out.splitlines()[1].endswith("Unknown (12s old)")
    assert "Shown:" in talk("describe", "nodes/n1").out
    lines = talk("top", "workloads", "--sort-by", "bound").out.splitlines()
    assert [line.split()[1] for line in lines] == ["NAME", "b", "a"]
    assert lines[2].split()[-2:] == ["3000m", "2048Mi"]
    assert talk("top", "wl").out == talk("top", "workloads").out
    slip = talk("top", "nodes", "--sort-by", "foo")
    assert (slip.code, "there are name, slots, cpu" in slip.err) == (frame.ERROR, True)
    assert talk("top", "nodes", "-o", "json").json["items"][0]["slots"] == 2


def test_explain_walks_the_fields_and_needs_no_server(config_file: object) -> None:
    out = talk("explain", "wl.spec.placement.spread").out
    assert "FIELD:      placement.spread" not in out
    assert "FIELD:      spec.placement.spread <[]Object>" in out
    assert "whenUnsatisfiable" in out
    assert "DoNotSchedule|ScheduleAnyway" in out
    assert "-required-" in talk("explain", "workload.metadata").out
    assert "      topologyKey <string>" in talk("explain", "workload.spec", "--recursive").out
    assert talk("explain", "nope").code == talk("explain", "workload.spec.nope").code == frame.NOT_FOUND
    ran = talk("explain", "workload.spec.replica")
    assert ran.code == frame.NOT_FOUND
    assert "did you mean 'replicas'?" in ran.err


def test_api_resources_are_the_servers(api: FakeApi) -> None:
    out = talk("api-resources").out
    assert out.splitlines()[0].split() == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert "gadgets" in out
    assert "gadgets" not in talk("api-resources", "--no-namespaced", "-o", "name").out


def test_the_servers_version_is_asked_for_only_when_wanted(api: FakeApi) -> None:
    assert talk("version", "--remote", "--json").json["server"] == "v1.32.0+fairlead.9"
    assert len(api.requests) == 1
    talk("version")
    assert len(api.requests) == 1


def test_why_tells_slot_by_slot_who_is_next_and_what_was_decided(capsys: pytest.CaptureFixture[str]) -> None:
    from fairlead.cli.why import _tell

    decision = {
        "time": "2027-01-15T07:59:50Z", "scheduler": "scheduler-0", "policyRevision": 3, "outcome": "WaitingForCapacity",
        "detail": "no node has room", "ask": {"cpu": "2"},
        "nodes": {"lookedAt": 3, "feasible": 0, "ruledOut": {"capacity": 2, "taints": 1},
                  "reasons": {"n1": "needs 2 CPU, 1 free"}},
    }  # fmt: skip
    slot = {
        "name": "api-1", "region": "eu", "state": "Pending", "reason": "WaitingForCapacity", "sinceTime": "2027-01-15T07:59:00Z",
        "nextOwner": "scheduler", "nextAttemptTime": "2027-01-15T08:00:05Z", "lastDecision": decision,
    }  # fmt: skip
    waits = {**slot, "name": "api-2", "state": "Starting", "reason": "WaitingForProbes", "nextOwner": "agent"}
    del waits["nextAttemptTime"], waits["lastDecision"]
    status = {"summary": "1 of 3 wait", "slots": [slot, waits], "slotsLeftOut": 4,
              "conditions": [{"type": "Serving", "status": "False", "reason": "BelowMinServing", "message": "1 of 2"}],
              }  # fmt: skip
    _tell("workload/api", status, 1_800_000_000.0)
    assert (
        capsys.readouterr().out
        == """workload/api: 1 of 3 wait

SLOT    REGION   STATE      REASON               SINCE   NEXT OWNER   NEXT TRY
api-1   eu       Pending    WaitingForCapacity   60s     scheduler    in 5s
api-2   eu       Starting   WaitingForProbes     60s     agent        when something changes
and 4 more

CONDITION   STATUS   REASON            MESSAGE
Serving     False    BelowMinServing   1 of 2

api-1: last decided 10s ago by scheduler-0, policy 3
  WaitingForCapacity: no node has room
  asks for cpu 2
  3 nodes looked at, 0 would do
    2 ruled out by capacity
    1 ruled out by taints
    n1: needs 2 CPU, 1 free
"""
    )


def test_why_puts_slots_that_wait_alike_into_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    from fairlead.cli.why import _tell

    waits = {"region": "eu", "state": "Pending", "reason": "WaitingForQuota", "nextOwner": "quota-controller"}
    slots = [{**waits, "name": f"api-{index}"} for index in (1, 2, 3, 7)]
    slots.append({**waits, "name": "api-8", "region": "us"})
    _tell("workload/api", {"summary": "5 wait", "slots": slots}, 1_800_000_000.0)
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[3:]]
    assert lines == [["api-1..3", "eu"], ["api-7", "eu"], ["api-8", "us"]]


def test_why_tells_what_each_score_gave_the_node_that_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    from fairlead.cli.why import _tell

    scores = {"packing": {"weight": 2, "rate": 40}, "spread": {"weight": 3, "rate": -30}, "cost": {"weight": 1, "rate": 0}}
    decision = {
        "time": "2027-01-15T07:59:50Z", "outcome": "Bound", "node": "n2", "nodes": {"lookedAt": 3, "feasible": 2},
        "candidates": [{"node": "n2", "total": -10, "scores": scores}, {"node": "n1", "total": -20, "scores": {}}],
    }  # fmt: skip
    _tell("binding/api-0", {"summary": "it starts", "slots": [{"name": "api-0", "lastDecision": decision}]}, 1_800_000_000.0)
    assert capsys.readouterr().out.splitlines()[-2:] == ["    n2: -10 (spread -90, packing +80), chosen", "    n1: -20"]


def test_a_decision_is_one_row() -> None:
    from fairlead.cli.decisions import _row

    bound = {
        "time": "2027-01-15T07:59:50Z", "slot": "risk/api-3", "generation": 2, "region": "eu", "outcome": "Bound", "node": "n1",
        "nodes": {"lookedAt": 5, "feasible": 3}, "policyRevision": 7,
    }  # fmt: skip
    assert _row(bound, 1_800_000_000.0) == ["10s ago", "api-3", "2", "eu", "Bound", "n1", "3 of 5", "7", ""]


def test_every_field_that_people_write_into_a_workload_is_explained() -> None:
    silent, todo, seen = list[str](), [shapes.type_info(WorkloadSpec)], set[type]()
    while todo:
        struct = _struct(todo.pop())
        if struct is None or struct.cls in seen:
            continue
        seen.add(struct.cls)
        silent += [f"{struct.cls.__name__}.{f.name}" for f in struct.fields if not meaning(struct.cls, f.name, f.encode_name)]
        todo += [field.type for field in struct.fields]
    assert len(seen) > 15
    assert not silent, "say beside the field, in a comment, what it means"
    out = talk("explain", "wl.spec.placement.regions").out
    assert "At least so many replicas in each of them." in out


def test_every_kind_says_what_it_is_to_fairlead_and_to_kubectl() -> None:
    silent = [kind for kind, described in BY_KIND.items() if not _about(described.record)]
    assert not silent, "say in the docstring of the record what the kind is"
    assert talk("explain", "quota").out.splitlines()[3] == "The most that a tenant may use in all regions together."


@pytest.mark.parametrize("record", [NodeSpec, OverrideSpec, OverrideScope, PendingReason, QuotaSpec])
def test_the_fields_of_nodes_overrides_and_quotas_are_explained(record: type[Any]) -> None:
    shape = shapes.type_info(record)
    assert isinstance(shape, shapes.StructType)
    assert not [field.name for field in shape.fields if not meaning(record, field.name, field.encode_name)]


def test_probe_takes_a_workload_as_other_verbs_do_and_knows_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "risk").mkdir()
    (tmp_path / "risk" / "api.json").write_text("{}")
    quick = ("-n", "risk", "--documents", tmp_path, "--rate", 50, "--duration", "0.1s")
    assert talk("probe", "wl/api", *quick).code == frame.CHECK_FAILED, "it is there, and nothing of it answers"
    gone = talk("probe", "wl/nope", *quick)
    assert (gone.code, "no workload nope in tenant risk" in gone.err) == (frame.NOT_FOUND, True)
    assert "is no workload" in talk("probe", "nodes/api", *quick).err
