"""Every class of error has its exit code, its words and its hint; data and the rest never mix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import frame
from fairlead.cli.session import told_of
from fairlead.client import contexts, rest_errors
from tests.cli.runs import fairlead, world
from tests.cli.talks import talk, workload
from tests.client.fake_api import FakeApi, Fault


def answer_with(api: FakeApi, code: int, reason: str, causes: list[dict[str, str]] | None = None) -> None:
    def refuse(request: Any) -> None:
        raise Fault(code, reason, f"because {reason}", causes)

    api._admit = refuse  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("code", "reason", "causes", "end", "hint"),
    [
        (400, "BadRequest", None, frame.ERROR, ""),
        (401, "Unauthorized", None, frame.DENIED, "fairlead config view"),
        (403, "Forbidden", None, frame.DENIED, "fairlead auth can-i"),
        (403, "Forbidden", [{"reason": "FencedOut", "message": "m", "field": ""}], frame.DENIED, "somebody else acts"),
        (404, "NotFound", None, frame.NOT_FOUND, "check the name"),
        (409, "Conflict", None, frame.CONFLICT, "read it again"),
        (409, "Conflict", [{"reason": "Conflict", "message": "m", "field": ""}], frame.CONFLICT, "read it again"),
        (409, "Conflict", [{"reason": "StaleEvidence", "message": "m", "field": ""}], frame.STALE, ""),
        (410, "Expired", None, frame.ERROR, "no longer kept"),
        (422, "Invalid", [{"reason": "x", "message": "at most 3", "field": "spec.a"}], frame.ERROR, "spec.a: at most 3"),
        (429, "TooManyRequests", None, frame.ERROR, "try again shortly"),
        (500, "InternalError", None, frame.ERROR, ""),
        (503, "ServiceUnavailable", None, frame.ERROR, "try again shortly"),
    ],
)
def test_the_exit_code_of_each_answer(api: FakeApi, code: int, reason: str, causes: Any, end: int, hint: str) -> None:
    answer_with(api, code, reason, causes)
    ran = talk("get", "wl/a", "-o", "json")
    assert (ran.code, ran.out) == (end, "")
    assert ran.err.startswith(f"error: because {reason}")
    assert hint in ran.err


def test_a_refusal_that_reading_again_does_not_cure_gives_no_such_hint(api: FakeApi) -> None:
    answer_with(api, 409, "Conflict", [{"reason": "InUse", "message": "n1 still carries 4 slots; drain it first", "field": ""}])
    ran = talk("delete", "node/n1", "--yes")
    assert ran.code == frame.CONFLICT
    assert "hint: read it again" not in ran.err


def test_a_field_that_the_message_names_is_not_told_twice() -> None:
    cause = rest_errors.Cause("spec.scope", "name some")
    said = told_of(rest_errors.Invalid(422, "Invalid", 'Override "x" is invalid: spec.scope: name some', (cause,)))
    assert str(said) == 'Override "x" is invalid: spec.scope: name some'


def test_a_server_that_cannot_answer_for_a_version_is_too_stale(api: FakeApi) -> None:
    answer_with(api, 504, "Timeout", [{"reason": "ResourceVersionTooLarge", "message": "m", "field": ""}])
    assert talk("get", "wl").code == frame.STALE


def test_a_slot_without_a_log_is_not_taken_for_a_wrong_name(api: FakeApi) -> None:
    answer_with(api, 404, "NotFound")
    assert "hint: check the name, -n TENANT" in talk("logs", "wl/a").err
    for more in (("--slot", 99), ("--previous",)):
        ran = talk("logs", "wl/a", *more)
        assert ran.code == frame.NOT_FOUND
        assert "hint:" not in ran.err


def test_a_field_manager_conflict_names_the_fields_and_the_flag(api: FakeApi) -> None:
    answer_with(
        api, 409, "Conflict", [{"reason": "FieldManagerConflict", "message": 'conflict with "ops"', "field": ".spec.replicas"}]
    )
    ran = talk("scale", "wl/a", "--replicas", 2)
    assert ran.code == frame.CONFLICT
    assert '.spec.replicas: conflict with "ops"' in ran.err
    assert "--force-conflicts" in ran.err


def test_nobody_listens_is_one_error_with_a_hint(config_file: Path) -> None:
    gone = contexts.Context(name="gone", server="http://127.0.0.1:9")
    contexts.save(contexts.ClientConfig(current_context="gone", contexts=(gone,)))
    ran = talk("get", "wl")
    assert (ran.code, ran.out) == (frame.ERROR, "")
    assert "cannot be reached" in ran.err
    assert "fairlead config get-contexts" in ran.err


def test_a_token_is_never_shown_to_another_server(api: FakeApi, config_file: Path) -> None:
    api.token = "secret"
    mine = contexts.Context(name="mine", server="http://127.0.0.1:9", token="secret")
    contexts.save(contexts.ClientConfig(current_context="mine", contexts=(mine,)), config_file)
    ran = talk("get", "wl", "--server", api.url)
    assert ran.code == frame.DENIED
    assert "Authorization" not in api.requests[-1][3]


def test_the_servers_warnings_go_to_stderr_once(api: FakeApi) -> None:
    """Such as: a region is away, and what is shown of it is old."""
    api.warning = "region eu is unreachable; shown as of 40 s ago"
    api.put("workloads", "a", "risk", **workload())
    ran = talk("get", "wl,nodes", "-o", "name")
    assert (ran.code, ran.out) == (0, "workload/a\n")
    assert ran.err == "warning: region eu is unreachable; shown as of 40 s ago\n"


def test_an_interrupted_watch_is_code_130(api: FakeApi) -> None:
    def interrupted(work: Any) -> None:
        work.close()
        raise KeyboardInterrupt

    ran = fairlead("get", "wl", "-w", within=world()._replace(run=interrupted))
    assert (ran.code, ran.out) == (frame.INTERRUPTED, "")


def test_a_region_that_is_away_is_not_blamed_on_the_server(api: FakeApi) -> None:
    api.away = "eu"
    ran = talk("get", "nodes", "n1")
    assert ran.code == frame.ERROR
    assert "eu cannot be reached" in ran.err
    assert "a region behind it is away" in ran.err
