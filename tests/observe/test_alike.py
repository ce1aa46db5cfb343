"""Rows of a timeline: what many slots did alike is one, nothing else is, and no step is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.cli.frame import OK
from fairlead.observe.alike import PAUSE_MS, Row, rows_of
from fairlead.observe.timeline import Step
from tests.cli.test_history import config, run

__all__ = ["config"]  # a history that a real authority wrote


def step(time_ms: int, of: str, what: str, owner: str = "scheduler s0", plane: str = "us", evidence: str = "") -> Step:
    return Step(time_ms, plane, time_ms, of, what, owner, evidence)


def bound(time_ms: int, slot: int, node: str, **more: str) -> Step:
    return step(time_ms, f"binding/api-{slot}", f"Bound to {node}, token 1.{slot}.1, policy 1, grant 3", **more)


def test_a_wave_of_slots_is_a_row_for_each_change_with_its_count_and_how_long_it_took() -> None:
    steps = [step(0, "workload/api", "created: 40 replicas of class critical", "user user:ada")]
    for slot in range(40):
        steps.append(step(10, f"schedulingrequest/api-{slot}", "queued, epoch 1", "assignment-controller a"))
        steps.append(bound(100 + 10 * slot, slot, f"n{slot % 4}"))
        steps.append(step(105 + 10 * slot, f"binding/api-{slot}", f"Bound -> Starting on n{slot % 4}", f"agent n{slot % 4}"))
    rows = rows_of(sorted(steps, key=lambda one: one.time_ms))
    assert sum(row.steps for row in rows) == len(steps) == 121
    assert rows == [
        Row(0, 0, "us", "workload/api", "created: 40 replicas of class critical", "user user:ada", "", 1),
        Row(10, 10, "us", "schedulingrequest/api-0 and 39 more", "queued, epoch 1", "assignment-controller a", "", 40),
        Row(100, 490, "us", "binding/api-0 and 39 more", "Bound on 4 nodes", "scheduler s0", "", 40),
        Row(105, 495, "us", "binding/api-0 and 39 more", "Bound -> Starting on 4 nodes", "4 of agent", "", 40),
    ]


def test_what_differs_in_plane_kind_change_or_role_or_comes_after_a_pause_stands_apart() -> None:
    alone = [
        bound(1, 0, "n0"),
        bound(2, 1, "n0", plane="eu"),
        bound(3, 2, "n0", owner="authority"),
        step(4, "binding/api-3", "Reserved to n0, token 1.1.1, policy 1, grant 3"),
        step(5, "evictionrequest/api-0", "eviction asked for: drain"),
        step(6, "evictionrequest/api-1", "eviction asked for: rollout"),
        step(7, "schedulingrequest/api-4", "waits: WaitingForQuota: asks 2 cpu, 1 left"),
        step(8, "schedulingrequest/api-5", "waits: NoMatchingCapacity: none"),
        step(9, "workload/api", "Serving is True: MinServingMet"),
        step(10, "workload/api", "Serving is True: MinServingMet"),
        bound(2 + PAUSE_MS, 6, "n0"),
    ]
    assert [row.steps for row in rows_of(alone)] == [1] * len(alone)


def test_what_is_a_slot_s_own_does_not_keep_it_apart() -> None:
    waits = [step(n, f"schedulingrequest/api-{n}", f"waits: WaitingForQuota: asks 2 cpu, {n} left") for n in range(3)]
    ended = [step(n, f"instance/api-{n}", f"restarted, {n} times so far: exit {n}", f"agent n{n}") for n in range(3, 6)]
    twice = [step(n, "instance/api-9", "ended with code 1: no", "agent n9") for n in (7, 8)]
    assert [(row.object, row.what, row.owner, row.steps) for row in rows_of(waits + ended + twice)] == [
        ("schedulingrequest/api-0 and 2 more", "waits: WaitingForQuota", "scheduler s0", 3),
        ("instance/api-3 and 2 more", "restarted", "3 of agent", 3),
        ("instance/api-9", "ended with code 1: no", "agent n9", 2),
    ]


async def test_the_command_line_gathers_unless_it_is_asked_for_all(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("timeline", "api", "-n", "risk", "--config", str(config))
    assert run(config, *words) == OK
    head, queued, *rest = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["TIME", "TAKES", "PLANE", "COUNT", "OBJECT"]
    assert "schedulingrequest/api-0 and 1 more" in queued
    assert len(rest) == 3
    assert run(config, *words, "--all") == OK
    head, *each = capsys.readouterr().out.splitlines()
    assert "COUNT" not in head
    assert len(each) == 5
