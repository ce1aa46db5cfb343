"""apply, create and diff: all faults before the first request, nothing half done without saying so, done once."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from fairlead.cli import frame
from tests.cli.talks import talk, workload
from tests.client.fake_api import FakeApi


def document(name: str, replicas: int = 2, kind: str = "Workload", more: str = "") -> str:
    return (
        f"apiVersion: fairlead.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        + (f"spec: {{replicas: {replicas}{more}}}\n" if kind == "Workload" else "")
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def test_apply_creates_changes_and_leaves_alone(api: FakeApi, files: Path) -> None:
    file = files / "w.yaml"
    file.write_text(document("risk-api"))
    assert talk("apply", "-f", file).out == "workload/risk-api created\n"
    assert talk("apply", "-f", file).out == "workload/risk-api unchanged\n"
    file.write_text(document("risk-api", 5))
    assert talk("apply", "-f", file).out == "workload/risk-api configured\n"
    assert api.objects["workloads", "risk", "risk-api"]["spec"]["replicas"] == 5
    path, query, headers = api.sent("PATCH")[0]
    assert path.endswith("/namespaces/risk/workloads/risk-api")
    assert query == {"fieldManager": "fairlead", "force": "false", "fieldValidation": "Strict"}
    assert headers["Content-Type"] == "application/apply-patch+yaml"


def test_one_bad_document_of_several_is_told_with_its_place_and_nothing_is_sent(api: FakeApi, files: Path) -> None:
    file = files / "all.yaml"
    bad = document("b", more=", replicsa: 3, gang: maybe")
    file.write_text("---\n".join([document("a"), bad, document("c", kind="Wrkload"), "kind: [", document("d")][:3]))
    ran = talk("apply", "-f", file)
    assert (ran.code, ran.out) == (frame.ERROR, "")
    assert "5 faults; nothing was sent" in ran.err
    assert "document 2: spec.replicsa" in ran.err
    assert "did you mean replicas" in ran.err or "replicas" in ran.err
    assert "document 2: spec.gang: expected true or false" in ran.err
    assert "document 3: kind: there is no kind 'Wrkload'; did you mean 'Workload'?" in ran.err
    assert api.requests == []


def test_faults_of_form_hide_no_others(api: FakeApi, files: Path) -> None:
    file = files / "w.yaml"
    file.write_text("""
apiVersion: fairlead.dev/v1alpha1
kind: Workload
metadata: {name: Hello_X}
spec:
  replicas: -2
  template: {command: [run], ports: [{name: http, port: 99999}, {name: x, port: many}]}
  resources: {requests: {cpu: 5xx}}
""")
    ran = talk("apply", "-f", file)
    told = [line.split(": ")[1] for line in ran.err.splitlines() if line.startswith("  ")]
    ports = [f"spec.template.ports[{index}].port" for index in (0, 1)]
    assert sorted(told) == ["metadata.name", "spec.replicas", "spec.resources.requests.cpu", *ports]
    assert api.requests == []


def test_what_only_the_server_can_see_is_found_before_the_first_write(api: FakeApi, files: Path) -> None:
    file = files / "all.yaml"
    file.write_text("---\n".join([document("a"), document("b", 5000), document("c", 6000)]))
    ran = talk("apply", "-f", file)
    assert ran.code == frame.ERROR
    assert "2 faults; nothing was changed" in ran.err
    assert "document 2: spec.replicas: at most 1000" in ran.err
    assert "document 3: spec.replicas: at most 1000" in ran.err
    assert api.objects == {}


def test_what_still_goes_wrong_is_told_object_by_object(api: FakeApi, files: Path) -> None:
    api.denied = {"b"}
    (files / "1.yaml").write_text(document("a") + "---\n" + document("b"))
    (files / "2.json").write_text('{"apiVersion":"fairlead.dev/v1alpha1","kind":"Workload","metadata":{"name":"c"},"spec":{}}')
    ran = talk("apply", "-f", files)
    assert ran.code == frame.DENIED
    assert ran.out == "workload/a created\nworkload/c created\n"
    assert "workload/b: " in ran.err
    assert "2 of 3 applied; not: workload/b" in ran.err


def test_what_others_live_in_is_made_first(api: FakeApi, files: Path) -> None:
    (files / "1.yaml").write_text(document("a"))
    (files / "2.yaml").write_text(document("risk", kind="Tenant"))
    assert talk("apply", "-f", files).out == "tenant/risk created\nworkload/a created\n"


def test_stdin_lists_and_files_made_by_get_can_be_applied(api: FakeApi, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.put("workloads", "a", "risk", **workload(3))
    saved = talk("get", "wl", "-o", "yaml").out
    api.remove("workloads", "a", "risk")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(saved.encode())))
    assert talk("apply", "-f", "-").out == "workload/a created\n"
    assert "status" not in api.objects["workloads", "risk", "a"]


def test_a_lost_answer_is_no_error_and_is_done_once(api: FakeApi, files: Path) -> None:
    api.drop_writes = 1
    (files / "w.yaml").write_text(document("a"))
    ran = talk("apply", "-f", files / "w.yaml")
    assert (ran.code, ran.out) == (0, "workload/a created\n")
    assert [entry[1] for entry in api.history] == ["ADDED"]


def test_an_unknown_outcome_is_code_seven_with_its_receipt_and_asking_again_settles_it(api: FakeApi, files: Path) -> None:
    """The server commits, loses the connection and answers nothing more until somebody asks later."""
    api.drop_writes, api.lose_receipts = 1, True
    api.on_write = lambda *_: api.answers.extend([("POST", 504, {})] * 20)
    (files / "w.yaml").write_text(document("a"))
    ran = talk("create", "-f", files / "w.yaml", "--idempotency-key", "mine")
    assert (ran.code, ran.out) == (frame.UNKNOWN, "receipt/mine\n")
    assert "the outcome is unknown" in ran.err
    assert "fairlead receipt mine" in ran.err
    api.answers.clear()
    assert talk("receipt", "mine").code == frame.NOT_FOUND
    api.lose_receipts = False
    settled = talk("receipt", "receipt/mine")
    assert (settled.code, settled.out) == (0, "receipt/mine Accepted\n")
    again = talk("create", "-f", files / "w.yaml", "--idempotency-key", "mine")
    assert (again.code, again.out) == (0, "workload/a created\n"), "the same key is the same write"
    assert [entry[1] for entry in api.history] == ["ADDED"]


def test_an_unknown_outcome_among_several_is_what_the_exit_code_tells(api: FakeApi, files: Path) -> None:
    api.lose_receipts = True
    api.put("workloads", "a", "risk", **workload(1))
    (files / "w.yaml").write_text(document("a") + "---\n" + document("b") + "---\n" + document("c"))

    def drop_b(method: str, plural: str, name: str) -> None:
        if name == "b":
            api.drop_writes = 1
            api.answers = [("POST", 504, {})] * 3

    api.on_write = drop_b
    ran = talk("create", "-f", files / "w.yaml", "--idempotency-key", "k")
    assert ran.code == frame.UNKNOWN
    assert ran.out == "receipt/k-2\nworkload/c created\n"
    assert "1 of 3 created; not: workload/a, workload/b" in ran.err


def test_the_receipt_of_a_refusal_is_a_conflict(api: FakeApi) -> None:
    api.receipts["k"] = {"kind": "Receipt", "status": {"outcome": "Refused", "reason": "NoGrant", "message": "ask"}}
    ran = talk("receipt", "k")
    assert (ran.code, ran.out) == (frame.CONFLICT, "receipt/k Refused: NoGrant ask\n")
    api.receipts["k"] = {"kind": "Receipt", "status": {}}
    assert talk("receipt", "k").code == frame.UNKNOWN


@pytest.mark.parametrize(("mode", "requests"), [("client", 0), ("server", 2)])
def test_a_dry_run_stores_nothing(api: FakeApi, files: Path, mode: str, requests: int) -> None:
    (files / "w.yaml").write_text(document("a", more=", template: {command: [run]}, resources: {requests: {cpu: 1}}"))
    ran = talk("apply", "-f", files / "w.yaml", "--dry-run", mode)
    assert (ran.code, api.objects) == (0, {})
    assert f"({mode} dry run)" in ran.out
    assert len(api.requests) == requests


def test_a_client_dry_run_applies_the_rules_of_admission(api: FakeApi, files: Path) -> None:
    (files / "w.yaml").write_text(document("Not_A_Name", -3))
    ran = talk("apply", "-f", files / "w.yaml", "--dry-run", "client")
    assert ran.code == frame.ERROR
    assert "metadata.name" in ran.err
    assert "spec.replicas" in ran.err


def test_created_objects_can_be_printed(api: FakeApi, files: Path) -> None:
    (files / "w.yaml").write_text(document("a"))
    assert talk("create", "-f", files / "w.yaml", "-o", "name").out == "workload/a\n"
    ran = talk("create", "-f", files / "w.yaml")
    assert (ran.code, ran.out) == (frame.CONFLICT, "")
    assert "change it with 'fairlead apply'" in ran.err


def test_files_that_are_not_there_or_hold_nothing(api: FakeApi, files: Path) -> None:
    assert talk("apply", "-f", files / "no.yaml").code == frame.NOT_FOUND
    assert "there is no .yaml" in talk("apply", "-f", files).err
    (files / "empty.yaml").write_text("---\n")
    assert talk("apply", "-f", files / "empty.yaml").code == frame.NOT_FOUND
    (files / "bad.yaml").write_text("a: [")
    ran = talk("apply", "-f", files / "bad.yaml")
    assert ran.code == frame.ERROR
    assert "is not YAML: line" in ran.err
    assert talk("apply").code == frame.ERROR


def test_diff_shows_what_would_change_and_says_so_with_its_exit_code(api: FakeApi, files: Path) -> None:
    api.put("workloads", "a", "risk", spec={"replicas": 3}, status={"replicas": {"desired": 3}})
    (files / "w.yaml").write_text(document("a", 3))
    same = talk("diff", "-f", files / "w.yaml")
    assert (same.code, same.out) == (0, "")
    (files / "w.yaml").write_text(document("a", 4))
    ran = talk("diff", "-f", files / "w.yaml")
    assert ran.code == frame.CHANGES
    assert "--- live/workload/a" in ran.out
    assert "-  replicas: 3\n+  replicas: 4\n" in ran.out
    assert "\x1b" not in ran.out, "no colour off a terminal"
    (files / "w.yaml").write_text(document("new", 4))
    assert talk("diff", "-f", files / "w.yaml").code == frame.CHANGES
    assert api.objects["workloads", "risk", "a"]["spec"] == {"replicas": 3}


def test_a_client_dry_run_needs_no_server_and_everything_else_says_how_to_get_one(config_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        "apiVersion: fairlead.dev/v1alpha1\nkind: Workload\nmetadata: {name: x, namespace: risk}\n"
        "spec: {template: {command: [/bin/x]}, resources: {requests: {cpu: 1, memory: 1Gi}}}\n"
    )
    for verb in ("apply", "create"):
        ran = talk(verb, "-f", file, "--dry-run=client")
        assert (ran.code, ran.err) == (0, ""), ran
        missing = talk(verb, "-f", file)
        assert missing.code == frame.ERROR
        assert "`fairlead up`" in missing.err
        assert "set-context NAME --server URL" in missing.err
    assert talk("apply", "-f", file, "--dry-run=client", "--context", "nowhere").code == frame.ERROR


def test_a_tenant_on_the_command_line_and_another_in_the_file_is_refused(api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "svc.yaml"
    file.write_text(
        "apiVersion: fairlead.dev/v1alpha1\nkind: Workload\nmetadata: {name: a, namespace: demo}\n"
        "spec: {template: {command: [x]}}\n"
    )
    for verb in ("apply", "create", "diff", "delete"):
        ran = talk(verb, "-f", file, "-n", "billing")
        assert ran.code == frame.ERROR
        assert "workload/a says namespace demo" in ran.err
    assert ("workloads", "demo", "a") not in api.objects
    assert talk("apply", "-f", file, "-n", "demo").code == 0


def test_a_file_that_is_not_there_is_not_found_whoever_is_to_read_it(api: FakeApi) -> None:
    for verb in (("apply", "-f", "/no/such"), ("replay", "/no/such"), ("agent", "--config", "/no/such")):
        assert talk(*verb).code == frame.NOT_FOUND
