"""wait and rollout: what is waited for, for how long, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cli import frame
from fairlead.cli.rollout import undone
from tests.cli.talks import talk, talk_until, workload
from tests.client.fake_api import FakeApi


def condition(kind: str, status: str, reason: str = "R", generation: int = 1) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "m", "observedGeneration": generation}


def with_conditions(*conditions: dict[str, Any], count: int = 3, observed: int = 1) -> dict[str, Any]:
    return workload(count, conditions=list(conditions), observedGeneration=observed)


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ("condition=Serving", condition("Serving", "True")),
        ("condition=serving=true", condition("Serving", "True")),
        ("condition=Serving=False", condition("Serving", "False")),
        ("jsonpath={.status.conditions[0].reason}=MinServingMet", condition("Serving", "True", "MinServingMet")),
        ("jsonpath=.status.conditions[0].reason=MinServingMet", condition("Serving", "True", "MinServingMet")),
        ("jsonpath={.status.conditions}", condition("Serving", "True")),
        ("create", condition("Serving", "False")),
    ],
)
def test_a_wait_ends_when_it_holds(api: FakeApi, wanted: str, status: dict[str, Any]) -> None:
    api.put("workloads", "a", "risk", **with_conditions(status))
    ran = talk("wait", "wl/a", f"--for={wanted}", "--timeout", "60s")
    assert ran.code == 0, ran
    assert ran.out.startswith("workload/a ")


def test_a_wait_follows_changes_over_lost_watches_and_expired_history(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", **with_conditions(condition("Serving", "False")))
    api.end_after = [1, 0]

    def serves() -> None:
        api.put("workloads", "a", "risk", **with_conditions(condition("Serving", "True")))
        api.compact()

    api.on_watch = {1: lambda: api.put("workloads", "a", "risk", **workload(4)), 2: serves}
    ran = talk("wait", "wl/a", "--for=condition=Serving", "--timeout", "60s")
    assert (ran.code, ran.out) == (0, "workload/a condition met\n")


def test_what_was_said_of_an_older_generation_does_not_count(api: FakeApi) -> None:
    made = api.put("workloads", "a", "risk", **with_conditions(condition("Serving", "True", generation=1)))
    made["metadata"]["generation"] = 2
    ran = talk("wait", "wl/a", "--for=condition=Serving", "--timeout", "0.2s")
    assert ran.code == frame.TIMED_OUT


def test_a_wait_that_takes_too_long_says_what_the_object_says(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", **with_conditions(condition("Serving", "False", "BelowMinServing")))
    ran = talk_until("BelowMinServing", "wait", "wl/a", "--for=condition=Serving")
    assert (ran.code, ran.out) == (frame.TIMED_OUT, "")
    assert "workload/a: not Serving=True after" in ran.err
    assert "Serving=False (BelowMinServing: m)" in ran.err
    ran = talk_until("it has", "wait", "wl/a", "--for=condition=Srving")
    assert "hint: it has no condition Srving; it has Serving; Serving=False" in ran.err


def test_waiting_for_what_is_gone_and_for_what_never_was(api: FakeApi) -> None:
    assert talk("wait", "wl/a", "--for=delete").out == "workload/a gone\n"
    ran = talk("wait", "wl/a", "--for=condition=Serving")
    assert ran.code == frame.NOT_FOUND
    api.put("workloads", "a", "risk", **workload())
    api.on_watch = {1: lambda: api.remove("workloads", "a", "risk")}
    assert talk("wait", "wl/a", "--for=delete").code == 0
    assert talk("wait", "wl", "-l", "x=y", "--for=delete").code == frame.NOT_FOUND
    assert talk("wait", "wl", "--for=delete").code == frame.ERROR


@pytest.mark.parametrize("wanted", ["", "delete=x", "condition", "jsonpath={.a", "ready"])
def test_a_wait_for_nothing_sensible_is_an_error(api: FakeApi, wanted: str) -> None:
    assert talk("wait", "wl/a", f"--for={wanted}").code == frame.ERROR


# --- rollout


def test_a_rollout_is_followed_until_it_is_complete(api: FakeApi) -> None:
    going = with_conditions(condition("Progressing", "True", "RollingOut"))
    going["status"]["replicas"] = {"desired": 3, "updated": 1, "bound": 3, "ready": 3, "serving": 3}
    api.put("workloads", "a", "risk", **going)
    done = with_conditions(condition("Progressing", "True", "Complete"))
    done["status"]["replicas"] = {"desired": 3, "updated": 3, "bound": 3, "ready": 3, "serving": 3}
    api.on_watch = {1: lambda: api.put("workloads", "a", "risk", **done)}
    ran = talk("rollout", "status", "wl/a")
    assert ran.out.splitlines() == [
        "3 wanted: 1 updated, 3 bound, 3 ready, 3 serving",
        "3 wanted: 3 updated, 3 bound, 3 ready, 3 serving",
        "workload/a rolled out",
    ]
    assert talk("rollout", "status", "a").code == 0


def test_a_rollout_nobody_has_looked_at_is_not_complete(api: FakeApi) -> None:
    made = api.put("workloads", "a", "risk", **with_conditions(condition("Progressing", "True", "Complete")))
    made["metadata"]["generation"] = 2
    ran = talk_until("generation 2", "rollout", "status", "a")
    assert ran.code == frame.TIMED_OUT
    assert "generation 2 has not been looked at yet" in ran.out


def test_a_rollout_that_stands_still_is_an_error_with_the_way_back(api: FakeApi) -> None:
    api.put("workloads", "a", "risk", **with_conditions(condition("Progressing", "False", "ProgressDeadlineExceeded")))
    ran = talk("rollout", "status", "a")
    assert ran.code == frame.ERROR
    assert "fairlead rollout undo workload/a" in ran.err


def revision(api: FakeApi, generation: int, command: str, uid: str, **more: Any) -> None:
    spec = {"workload": "a", "workloadUid": uid, "generation": generation, "template": {"command": [command]},
            "ask": {"requests": {"cpu": "1"}, **more}}  # fmt: skip
    api.put("revisions", f"a.g{generation}", "risk", spec=spec)


@pytest.fixture
def rolled(api: FakeApi) -> FakeApi:
    made = api.put("workloads", "a", "risk", spec={"replicas": 3, "template": {"command": ["three"], "image": "x"}},
                   status={"revision": "a.g3", "observedGeneration": 1})  # fmt: skip
    uid = made["metadata"]["uid"]
    for generation, command in ((1, "one"), (2, "two"), (3, "three")):
        revision(api, generation, command, uid)
    revision(api, 9, "of another workload of that name", "old")
    return api


def test_history_lists_the_revisions_of_this_life_and_marks_the_present_one(rolled: FakeApi) -> None:
    out = talk("rollout", "history", "wl/a").out.splitlines()
    assert [line.split()[0] for line in out] == ["REVISION", "1", "2", "3*"]
    assert "command:\n    - two" in talk("rollout", "history", "a", "--revision", 2).out
    assert talk("rollout", "history", "a", "--revision", 9).code == frame.NOT_FOUND


def test_undo_goes_back_one_or_to_the_one_named(rolled: FakeApi) -> None:
    assert talk("rollout", "undo", "wl/a").out == "workload/a goes back to revision 2\n"
    stored = rolled.objects["workloads", "risk", "a"]["spec"]
    assert stored["template"] == {"command": ["two"]}, "and not the image that came later"
    assert stored["replicas"] == 3
    assert talk("rollout", "undo", "a", "--to-revision", 1).out == "workload/a goes back to revision 1\n"
    assert talk("rollout", "undo", "a", "--to-revision", 7).code == frame.NOT_FOUND


def test_undo_to_the_present_one_or_before_the_first_is_refused(rolled: FakeApi) -> None:
    assert talk("rollout", "undo", "a", "--to-revision", 3).code == frame.CONFLICT
    rolled.objects["workloads", "risk", "a"]["status"]["revision"] = "a.g1"
    assert talk("rollout", "undo", "a").code == frame.NOT_FOUND
    assert rolled.sent("PUT") == []


def test_an_undo_writes_what_the_revision_was_made_from() -> None:
    """Checked against the controller's own function: the spec that comes out makes the same Revision again."""
    import msgspec

    from fairlead.decide.folding import revision_spec, same_content
    from fairlead.model.kinds.intent import Workload
    from fairlead.wire.json_codec import to_plain
    from fairlead.wire.manifest import Decoded, decode_plain

    old = {
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "Workload",
        "metadata": {"name": "a", "namespace": "risk", "uid": "u", "labels": {"tier": "gold"}},
        "spec": {
            "replicas": 3, "workloadClass": "critical", "execution": "Exclusive", "exclusive": "global",
            "isolation": "TenantExclusive",
            "startTargetSeconds": 5, "freshness": {"maxObservationAgeSeconds": 4}, "template": {"command": ["old"], "image": "i"},
            "resources": {"requests": {"cpu": "2"}},
            "placement": {"zones": ["z1"], "regions": {"allowed": ["eu"], "perRegionMinimum": 2}},
        },
    }  # fmt: skip
    decoded = decode_plain(old)
    assert isinstance(decoded, Decoded)
    assert isinstance(decoded.record, Workload)
    wanted = revision_spec(decoded.record, 7)
    newer = {**old, "metadata": {"name": "a", "namespace": "risk", "uid": "u", "labels": {"tier": "new"}},
             "spec": {"replicas": 9, "template": {"command": ["new"]}, "resources": {"requests": {"memory": "1Gi"}},
                      "placement": {"regions": {"perRegionMinimum": 2}}}}  # fmt: skip
    back = decode_plain(undone(newer, to_plain(wanted)))
    assert isinstance(back, Decoded), back
    assert isinstance(back.record, Workload)
    assert same_content(revision_spec(back.record, 1), wanted)
    assert back.record.spec.replicas == 9
    assert back.record.spec.placement == msgspec.structs.replace(decoded.record.spec.placement)


def test_pause_and_resume(rolled: FakeApi) -> None:
    assert talk("rollout", "pause", "a").out == "workload/a paused\n"
    assert talk("rollout", "pause", "a").out == "workload/a is paused already\n"
    assert rolled.objects["workloads", "risk", "a"]["spec"]["rollout"] == {"paused": True}
    assert talk("rollout", "resume", "a").out == "workload/a resumed\n"


def test_a_real_process_leaves_a_watch_without_a_word(api: FakeApi) -> None:
    """What is left in the middle of an endless answer ends with the loop, and says nothing about it."""
    import subprocess
    import sys

    api.put("workloads", "a", "risk", **with_conditions(condition("Serving", "False")))
    api.on_watch = {1: lambda: api.put("workloads", "a", "risk", **with_conditions(condition("Serving", "True")))}
    words = [sys.executable, "-m", "fairlead.main", "wait", "wl/a", "--for=condition=Serving", "--timeout", "50s"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "workload/a condition met\n", "")


def test_a_wait_for_a_region_s_readiness_ends_when_it_is_said(api: FakeApi) -> None:
    for status, timeout, code in (("False", "0.2s", frame.TIMED_OUT), ("True", "60s", frame.OK)):
        said = {"conditions": [condition("RecoveryReady", status)]}
        api.put("regionoutlooks", "us-east", spec={"region": "us-east"}, status=said)
        assert talk("wait", "--for=condition=RecoveryReady", "regionoutlooks/us-east", "--timeout", timeout).code == code
