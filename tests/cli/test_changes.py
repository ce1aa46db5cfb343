"""Verbs that change what is there: edit, patch, scale, delete, cordon, drain, rollout."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import frame, writing
from fairlead.decide import disruption
from fairlead.model.lifecycle import SlotState
from tests.cli.talks import talk, talk_until, workload
from tests.client.fake_api import FakeApi


def replicas(api: FakeApi, name: str = "a") -> Any:
    return api.objects["workloads", "risk", name]["spec"]["replicas"]


@pytest.fixture
def filled(api: FakeApi) -> FakeApi:
    api.put("workloads", "a", "risk", **workload(3, replicas={"bound": 3, "serving": 2}, regions=[{"region": "eu"}]))
    return api


# --- edit


def editor(folder: Path, script: str) -> Path:
    """An editor that is a program: it gets the file's path and changes it."""
    path = folder / "editor.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_without_a_terminal_no_editor_is_opened_unless_one_is_named(filled: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "false")
    assert "no terminal" not in talk("edit", "wl/a").err
    monkeypatch.delenv("EDITOR")
    monkeypatch.setattr("click.edit", lambda *words, **more: pytest.fail("it would wait for keys that nobody presses"))
    ran = talk("edit", "wl/a")
    assert ran.code == frame.ERROR
    assert "this is no terminal, so no editor can be opened" in ran.err
    assert "fairlead patch" in ran.err


def test_an_edit_is_written(filled: FakeApi, tmp_path: Path) -> None:
    ran = talk("edit", "wl/a", "--editor", editor(tmp_path, "sed -i 's/replicas: 3/replicas: 4/' $1"))
    assert (ran.code, ran.out) == (0, "workload/a edited\n")
    assert replicas(filled) == 4


def test_an_unchanged_text_changes_nothing(filled: FakeApi, tmp_path: Path) -> None:
    ran = talk("edit", "wl/a", "--editor", editor(tmp_path, "true"))
    assert (ran.code, ran.out) == (0, "")
    assert filled.sent("PUT") == []


def test_what_is_not_taken_comes_back_with_the_reason_and_can_be_mended(filled: FakeApi, tmp_path: Path) -> None:
    script = (
        f"cp $1 {tmp_path}/seen; grep -q 'not taken' $1 && sed -i 's/9999/7/' $1 || sed -i 's/replicas: 3/replicas: 9999/' $1"
    )
    ran = talk("edit", "wl/a", "--editor", editor(tmp_path, script))
    assert (ran.code, ran.out) == (0, "workload/a edited\n")
    assert replicas(filled) == 7
    assert "spec.replicas: at most 1000" in (tmp_path / "seen").read_text()


def test_somebody_elses_change_wins_and_the_text_is_kept(filled: FakeApi, tmp_path: Path) -> None:
    def meanwhile(method: str, plural: str, name: str) -> None:
        filled.on_write = None
        filled.put("workloads", "a", "risk", **workload(50))

    filled.on_write = meanwhile
    ran = talk("edit", "wl/a", "--editor", editor(tmp_path, "sed -i 's/replicas: 3/replicas: 4/' $1"))
    assert ran.code == frame.CONFLICT
    kept = Path(ran.err.rpartition("kept in ")[2].strip())
    assert "replicas: 4" in kept.read_text()
    kept.unlink()
    assert replicas(filled) == 50


def test_a_name_cannot_be_edited(filled: FakeApi, tmp_path: Path) -> None:
    ran = talk("edit", "wl/a", "--editor", editor(tmp_path, "sed -i 's/name: a/name: b/' $1"))
    assert ran.code == frame.ERROR
    assert "cannot be changed by an edit" in ran.err
    Path(ran.err.rpartition("kept in ")[2].strip()).unlink()


# --- patch and scale


def test_patch_takes_json_or_yaml(filled: FakeApi, tmp_path: Path) -> None:
    assert talk("patch", "wl/a", "-p", '{"spec": {"replicas": 8}}').out == "workload/a patched\n"
    assert talk("patch", "wl/a", "-p", "spec: {replicas: 8}").out == "workload/a patched (no change)\n"
    (tmp_path / "p.yaml").write_text("spec:\n  replicas: 9\n")
    assert talk("patch", "wl/a", "--patch-file", tmp_path / "p.yaml", "-o", "jsonpath={.spec.replicas}").out == "9"
    assert filled.sent("PATCH")[0][2]["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["patch", "wl/a"], "with -p or with --patch-file"),
        (["patch", "wl/a", "-p", "{"], "the patch is not YAML"),
        (["patch", "wl/a", "-p", "[1]"], "a merge patch is an object"),
        (["patch", "wl/a", "-p", "{}", "--type", "json"], "a json patch is a list"),
        (["patch", "wl", "-p", "{}"], "patch needs exactly one object"),
        (["patch", "wl/a", "-p", "spec: {image: \udcff}"], "the patch is not UTF-8"),
        (["drain", "n1", "--reason", "x", "--deadline", "-5m"], "'-5m' is no time at all"),
        (["drain", "n1", "--reason", "x", "--deadline", "99999999999h"], "more than a hundred years"),
        (["plan", "drain", "n1", "--deadline", "-5m"], "'-5m' is no time at all"),
        (["override", "create", "hold", "x", "--reason", "x", "--for", "-"], "'-' is not a duration"),
        (["override", "extend", "x", "--for", "0s"], "'0s' is no time at all"),
        (["export", "x.history", "--plane", "us-east", "--since", "0"], "'0' is no time at all"),
        (["timeline", "x", "-n", "risk", "--since", "-5m"], "'-5m' is no time at all"),
        (["decisions", "x", "--since", "-5m"], "'-5m' is no time at all"),
    ],
)
def test_a_change_that_cannot_be_one_is_not_sent(filled: FakeApi, arguments: list[str], said: str) -> None:
    ran = talk(*arguments)
    assert ran.code == frame.ERROR
    assert said in ran.err
    assert filled.sent("PATCH") == []


def test_a_patch_in_a_file_of_something_else_is_told_so(filled: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"\xff\xfe\x00spec")
    ran = talk("patch", "wl/a", "--patch-file", tmp_path / "p")
    assert (ran.code, "the patch is not UTF-8" in ran.err) == (frame.ERROR, True), ran


def test_scale_says_what_it_moves(filled: FakeApi) -> None:
    assert talk("scale", "wl/a", "--replicas", 5).out == "workload/a scaled from 3 to 5, 2 to start\n"
    assert talk("scale", "a", "--replicas", 1).out == "workload/a scaled from 5 to 1, 4 to drain\n"
    assert talk("scale", "workloads", "a", "--replicas", 1).out == "workload/a unchanged\n"
    assert filled.sent("PATCH")[0][0].endswith("/workloads/a/scale")


def test_scale_with_an_expectation_is_refused_when_it_does_not_hold(filled: FakeApi) -> None:
    ran = talk("scale", "wl/a", "--replicas", 5, "--current-replicas", 2)
    assert (ran.code, replicas(filled)) == (frame.CONFLICT, 3)
    assert "has 3 replicas, not 2" in ran.err


# --- delete


def test_delete_says_what_goes_and_without_yes_off_a_terminal_does_nothing(filled: FakeApi) -> None:
    ran = talk("delete", "wl/a")
    assert ran.code == frame.DENIED
    assert "workload/a of tenant risk: stops 3 slots, 2 of them serving in eu" in ran.err
    assert "say --yes" in ran.err
    assert ("workloads", "risk", "a") in filled.objects


def test_delete_with_yes_deletes_exactly_what_was_shown(filled: FakeApi) -> None:
    ran = talk("delete", "wl/a", "--yes")
    assert (ran.code, ran.out) == (0, "workload/a deleted\n")
    assert filled.objects == {}


def test_a_new_object_under_the_old_name_is_not_hit(filled: FakeApi) -> None:
    def replaced(method: str, plural: str, name: str) -> None:
        filled.on_write = None
        filled.remove("workloads", "a", "risk")
        filled.put("workloads", "a", "risk", **workload(1))

    filled.on_write = replaced
    assert talk("delete", "wl/a", "--yes").code == frame.CONFLICT
    assert ("workloads", "risk", "a") in filled.objects


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_at_a_terminal_somebody_is_asked(filled: FakeApi, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    class Stdin:
        def readline(self) -> str:
            return answer

    monkeypatch.setattr(writing, "is_terminal", lambda: True)
    monkeypatch.setattr(sys, "stdin", Stdin())
    ran = talk("delete", "wl/a")
    assert "Delete 1 object? [y/N]" in ran.err
    assert (ran.code, len(filled.objects)) == (frame.DENIED if left else 0, left)


def test_a_late_finalizer_is_named_with_its_owner(filled: FakeApi) -> None:
    filled.objects["workloads", "risk", "a"]["metadata"]["finalizers"] = ["fairlead.dev/slots-released"]
    ran = talk_until("slots-released", "delete", "wl/a", "--yes")
    assert ran.code == frame.TIMED_OUT
    assert "fairlead.dev/slots-released, removed by workload-controller" in ran.err


def test_deleting_many_needs_to_be_said(filled: FakeApi) -> None:
    filled.put("workloads", "b", "risk", labels={"x": "y"}, **workload())
    assert "which workloads?" in talk("delete", "wl", "--yes").err
    assert talk("delete", "wl", "-l", "x=y", "--yes", "--no-wait").out == "workload/b deleted\n"
    assert talk("delete", "wl", "--all", "--yes", "--dry-run", "server").out == "workload/a deleted (server dry run)\n"
    assert ("workloads", "risk", "a") in filled.objects
    assert talk("delete", "wl", "zzz", "--yes").code == frame.NOT_FOUND
    assert talk("delete", "wl", "zzz", "--yes", "--ignore-not-found").code == 0


def test_the_radius_of_nodes_and_tenants(filled: FakeApi) -> None:
    filled.put("nodes", "n1", spec={})
    filled.put("tenants", "risk", spec={})
    filled.put("bindings", "a-0", "risk", spec={"node": "n1", "slot": {"workload": "a", "index": 0}}, status={"state": "Serving"})
    filled.put(
        "bindings", "a-1", "risk", spec={"node": "n1", "slot": {"workload": "a", "index": 1}}, status={"state": "Released"}
    )
    assert "node/n1: 1 slot on it: risk/a (1)" in talk("delete", "no/n1").err
    assert "tenant/risk: 1 workload of this tenant" in talk("delete", "tenant/risk").err


# --- nodes


@pytest.fixture
def node(filled: FakeApi) -> FakeApi:
    filled.put("nodes", "n1", spec={"region": "eu"}, status={})
    filled.put("bindings", "a-0", "risk", spec={"node": "n1", "slot": {"workload": "a", "index": 0}}, status={"state": "Serving"})
    return filled


def spec_of(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.objects["nodes", "", "n1"]["spec"]
    return found


def test_cordon_and_uncordon(node: FakeApi) -> None:
    assert talk("cordon", "n1").out == "node/n1 cordoned\n"
    assert talk("cordon", "node/n1").out == "node/n1 cordoned already\n"
    assert talk("uncordon", "n1").out == "node/n1 uncordoned\n"
    assert spec_of(node)["unschedulable"] is False
    assert talk("cordon", "-l", "a=b").code == frame.NOT_FOUND
    assert talk("cordon").code == frame.ERROR


def test_a_node_of_a_region_that_is_away_is_neither_cordoned_nor_drained_and_the_region_is_named(node: FakeApi) -> None:
    node.objects["nodes", "", "n1"]["evidence"] = {"plane": "eu", "ageSeconds": 12.0}
    node.objects["nodes", "", "n1"]["spec"]["unschedulable"] = True
    for verb in (("cordon", "n1"), ("uncordon", "n1"), ("drain", "n1", "--reason", "disk", "--yes")):
        ran = talk(*verb)
        assert (ran.code, ran.out) == (frame.ERROR, ""), "what was so 12 s ago is not known to be so"
        assert "eu cannot be reached; it was last heard of 12 s ago" in ran.err
        assert "the server itself is well" in ran.err
    assert "drain" not in spec_of(node)


def test_a_drain_needs_a_reason_and_a_yes(node: FakeApi) -> None:
    assert "--reason" in talk("drain", "n1", "--yes").err
    assert "--reason is empty" in talk("drain", "n1", "--yes", "--reason", " ").err
    ran = talk("drain", "n1", "--reason", "disk")
    assert ran.code == frame.DENIED
    assert "node/n1: 1 slot on it: risk/a (1)" in ran.err
    assert "drain" not in spec_of(node)


def drained(api: FakeApi, status: str, reason: str, message: str = "", generation: int = 99) -> None:
    one = {"type": "Drained", "status": status, "reason": reason, "message": message, "observedGeneration": generation}
    api.objects["nodes", "", "n1"]["status"] = {"conditions": [one]}


def test_a_drain_is_ordered_with_a_deadline_and_followed_until_nothing_is_left(node: FakeApi) -> None:
    looks = 0

    def leaving() -> None:
        drained(node, "False", "Evicting")

    node.on_write = lambda *_: leaving()
    original = node._matches

    def matches(request: Any, namespace: str, each: Any) -> bool:
        nonlocal looks
        looks += 1
        if looks == 4:
            node.remove("bindings", "a-0", "risk")
            drained(node, "True", "Empty")
        return original(request, namespace, each)

    node._matches = matches  # type: ignore[method-assign]
    ran = talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "60s")
    assert ran.code == 0, ran
    assert ran.out == "node/n1 draining until 2027-01-15T08:01:00Z\nnode/n1 drained\n"
    order = spec_of(node)
    assert order["unschedulable"] is True
    assert order["drain"] == {"reason": "disk", "deadlineTime": "2027-01-15T08:01:00Z"}
    assert talk("uncordon", "n1").code == 0
    assert "drain" not in spec_of(node)


@pytest.mark.parametrize(("apart_s", "end"), [(3600, "2027-01-15T09:00:20Z"), (-86_400, "2027-01-14T08:00:20Z")])
def test_a_drains_deadline_is_by_the_clock_of_the_server_who_keeps_it(node: FakeApi, apart_s: int, end: str) -> None:
    node.wall_s += apart_s
    assert talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "20s", "--no-wait").code == 0
    assert spec_of(node)["drain"]["deadlineTime"] == end


def test_a_drain_that_somebody_else_ends_is_not_waited_for_and_ends_with_four(node: FakeApi) -> None:
    looks, original = 0, node._matches

    def matches(request: Any, namespace: str, each: Any) -> bool:
        nonlocal looks
        looks += 1
        if looks == 4:
            stored = node.objects["nodes", "", "n1"]
            stored["spec"] = {"region": "eu", "unschedulable": False}
            stored["metadata"]["generation"] = stored["metadata"].get("generation", 0) + 1
        return original(request, namespace, each)

    node._matches = matches  # type: ignore[method-assign]
    ran = talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "60s")
    assert ran.code == frame.CONFLICT, ran
    assert "node/n1 is not drained any more: somebody has ended it; still on it: risk/a (1)" in ran.err
    assert ran.out == "node/n1 draining until 2027-01-15T08:01:00Z\n"


def test_a_drain_that_is_blocked_names_the_budget_and_ends_with_six(node: FakeApi) -> None:
    why = disruption.blocked(SlotState.SERVING, 3, disruption.Budget("risk/a", 3, 3))  # in the words of who says it
    said = f"1 slots are still here; blocked: risk/a-0: {why}"
    node.on_write = lambda *_: drained(node, "False", "Blocked", said)
    ran = talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "20s")
    assert ran.code == frame.TIMED_OUT
    assert f"node/n1: {said}" in ran.err
    assert f"node/n1 is not empty at its deadline: {said}" in ran.err
    assert "disruption.minServing" in ran.err
    assert ran.err.count(f"node/n1: {said}\n") == 1, "said once, not every second"


def test_what_blocked_a_drain_is_still_told_when_its_time_is_over(node: FakeApi) -> None:
    said = "1 slots are still here; blocked: risk/a-0: disruption budget of risk/a: 3 serve, minServing is 3"
    node.on_write = lambda *_: drained(node, "False", "Blocked", said)
    original, looks = node._matches, 0

    def matches(request: Any, namespace: str, each: Any) -> bool:
        nonlocal looks
        looks += 1
        if looks == 4:
            drained(node, "False", "DeadlinePassed", "1 slots are still here")
        return original(request, namespace, each)

    node._matches = matches  # type: ignore[method-assign]
    ran = talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "20s")
    assert ran.code == frame.TIMED_OUT
    assert f"error: node/n1 is not empty at its deadline: {said}" in ran.err
    assert "disruption.minServing" in ran.err


def test_a_drain_that_no_budget_blocks_names_what_is_left_and_where_to_look(node: FakeApi) -> None:
    node.on_write = lambda *_: drained(node, "False", "DeadlinePassed", "1 slots are still here")
    ran = talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "20s")
    assert "1 slots are still here; here: risk/a (1)" in ran.err, "what is left is named"
    assert "disruption.minServing" not in ran.err
    assert "fairlead override list" in ran.err


def test_what_was_said_of_an_earlier_drain_is_not_believed(node: FakeApi) -> None:
    node.on_write = lambda *_: drained(node, "False", "DeadlinePassed", "blocked last year", generation=0)
    ran = talk("drain", "n1", "--reason", "disk", "--yes", "--deadline", "20s")
    assert ran.code == frame.TIMED_OUT
    assert "last year" not in ran.err
    assert "1 slots left: risk/a (1)" in ran.err
    assert talk("drain", "n1", "--reason", "disk", "--yes", "--no-wait").code == 0
