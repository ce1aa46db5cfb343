"""Poison input (F19): whatever it is, it is refused cleanly, and nothing of it is done."""

from __future__ import annotations

import pytest

from fairlead.observe.answers import AnswerChecker
from fairlead.sim.asking import Asking, Told
from fairlead.sim.campaign import scenario_of
from fairlead.sim.poison import DOSES, KINDS
from fairlead.sim.profiles import PROFILES
from fairlead.sim.world import run_scenario
from fairlead.wire.limits import BODY_BYTES_MAX

SAYS = {413: {"huge request"}, 404: {"unknown resource"}, 400: {"too deep", "no UTF-8", "cut short", "unknown kind"}}


def test_every_kind_of_poison_is_refused_with_what_is_wrong_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: dict[str, set[int]] = {}
    send = Asking.send

    async def noted(self: Asking, address: str, method: str, path: str, body: bytes, key: str, token: str = "") -> Told | None:
        told = await send(self, address, method, path, body, key, token)
        kind = next((kind for kind in DOSES if body in {DOSES[kind](tenant).body for tenant in ("risk", "search")}), "")
        if key.startswith("poison") and told is not None:
            statuses.setdefault(kind or "reused", set()).add(told.status)
        return told

    monkeypatch.setattr(Asking, "send", noted)
    verdict = run_scenario(scenario_of(1, "meddlers", 8.0))
    assert not verdict.findings
    assert verdict.counts["F19"] >= 60
    assert len(statuses) == len(KINDS), f"of {KINDS} only {sorted(statuses)} were sent"
    wanted = {kind: {status} for status, kinds in SAYS.items() for kind in kinds}
    assert statuses == {kind: wanted.get(kind, {422}) for kind in statuses}


def test_poison_that_is_answered_with_yes_or_done_all_the_same_is_found() -> None:
    found: list[tuple[str, str]] = []
    answers = AnswerChecker(lambda invariant, detail: found.append((invariant, detail)))
    answers.refused(answers.send("poison-1"), 422)
    assert not found
    answers.refused(answers.send("poison-2"), 201)
    assert [invariant for invariant, _ in found] == ["S13"]


def test_only_one_profile_has_it() -> None:
    assert [name for name in PROFILES if scenario_of(1, name, 1.0).work.poison] == ["meddlers"]


def test_the_largest_is_beyond_what_is_read_and_the_other_is_not() -> None:
    assert len(DOSES["huge object"]("risk").body) < BODY_BYTES_MAX < len(DOSES["huge request"]("risk").body)
