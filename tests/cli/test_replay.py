"""`fairlead replay` over the history kept as an example: judged again, decided again, and forked under other policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cli.frame import ERROR, OK, World, answer
from fairlead.main import decided_again
from tests.replays.keep import HERE

EXAMPLE = str(HERE / "example.fairlead")  # api-0..2 under the built-in policy, worker-0..2 under r1, which balances; huge-0 waits


def run(*words: str) -> int:
    nothing: Any = None
    return answer(
        World(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, decided_again=decided_again),
        ("replay", EXAMPLE, *words),
    )


def forked(capsys: pytest.CaptureFixture[str], policy: str) -> dict[str, Any]:
    assert run("--fork", f"policy={policy}", "--json") == OK
    found: dict[str, Any] = msgspec.json.decode(capsys.readouterr().out)["results"]["placements"]["fork"]
    return found


def test_the_scheduler_decides_again_what_it_decided_then(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--verify", "--json") == OK
    results = msgspec.json.decode(capsys.readouterr().out)["results"]
    assert results["identical"]
    placed = results["placements"]
    assert (placed["decided"], placed["same"], placed["not_same"]) == (6, 6, [])
    assert placed["recorded_hash"] == placed["now_hash"]
    assert "fork" not in placed


def test_a_fork_tells_slot_by_slot_what_would_have_differed_and_by_which_score(capsys: pytest.CaptureFixture[str]) -> None:
    fork = forked(capsys, "built-in")
    assert {one["slot"].rpartition("-")[0] for one in fork["differences"]} == {"risk/worker"}
    assert fork["moved"] == fork["different"] > 0
    assert fork["by"] == {"score packing": fork["different"]}
    other = forked(capsys, "1")
    assert {one["slot"].rpartition("-")[0] for one in other["differences"]} == {"risk/api"}
    assert other["by"] == {"score balance": other["different"]}


def test_a_fork_may_be_a_file_and_says_in_words_what_would_wait(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "strict.yaml"
    rule = "residency: [{tenants: [risk], areas: [eu]}]"
    file.write_text(
        f"apiVersion: fairlead.dev/v1alpha1\nkind: SchedulerPolicy\nmetadata: {{name: r9}}\nspec: {{revision: 9, {rule}}}\n"
    )
    assert run("--fork", f"policy={file}") == OK
    out = capsys.readouterr().out
    assert "7 of 7 decisions would have been other ones: 0 elsewhere, 6 would wait, 0 would be placed." in out
    assert "-> waits: ResidencyBlocked" in out
    assert "gate residency" in out


@pytest.mark.parametrize(
    ("fork", "told"),
    [
        ("policy=7", "the history has no policy revision 7; it has r1"),
        ("nodes=7", "say policy=REVISION"),
        ("policy=none.yaml", "none.yaml"),
    ],
)
def test_a_fork_of_nothing_is_told_in_words(capsys: pytest.CaptureFixture[str], fork: str, told: str) -> None:
    assert run("--fork", fork) == ERROR
    assert told in capsys.readouterr().err


def test_a_policy_that_cannot_be_used_is_told_with_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    text = "apiVersion: fairlead.dev/v1alpha1\nkind: SchedulerPolicy\nmetadata: {name: r9}\n"
    file.write_text(text + "spec: {revision: 9, scores: [{name: nobody.knows/this, weight: 1}]}\n")
    assert run("--fork", f"policy={file}") == ERROR
    assert "nobody.knows/this" in capsys.readouterr().err
