"""The README's tour works as it is written, and its transcript is what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.platform.platforms import business
from tests.platform.tour import CODES, ROOT, START, TRANSCRIPT, Step, Tour, commands_of, outline, read, written

READY_S = 10.0  # from the start of the first process until every node takes work
README = (ROOT / "README.md").read_text()


def test_the_transcript_is_of_the_tour_that_the_readme_tells() -> None:
    assert [step.command for step in read(TRANSCRIPT.read_text())] == commands_of(README), "run `make tour`"


def test_a_transcript_is_read_as_it_was_written() -> None:
    steps = [Step("fairlead get nodes", "NAME   STATUS\nn1     Ready\n", 0), Step("fairlead get nodes -w", "NAME\n", 130)]
    assert read(written(steps)) == steps


def test_the_tour_has_the_commands_without_their_comments() -> None:
    start = "## Start\n```\nmake run\n```\ntext\n```\nfairlead get nodes   # all\nfairlead why a\n```\n"
    readme = f"x\n{start}## Test\n```\nmake test\n```\n"
    assert commands_of(readme) == ["make run", "fairlead get nodes", "fairlead why a"]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("ready   3m12s ago\n", "ready   1m    ago\n"),
        ("NAME   AGE\nn1     40s\n", "NAME   AGE\nn1     1m\n"),
        ("  cpu: 200m\n  asks for cpu 200m, memory 1Gi\n", "  cpu: 200m\n  asks for cpu 200m, memory 1Gi\n"),
    ],
)
def test_ages_are_replaced_and_amounts_are_not(output: str, shown: str, tmp_path: Path) -> None:
    assert Tour(tmp_path / "checkout").replaced(output) == shown


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("NAME   STATUS\nn2     Ready\nn1     Lost\nn1   Ready\n", ("NAME STATUS", "n1", "n2")),
        ("Warning: x\nNAMESPACE   NAME\nrisk   api\n", ("NAMESPACE NAME", "risk")),
        ("risk-api slot 3 generation 1\nmore\n", ("risk-api", "slot", "N")),
        ("", ()),
    ],
)
def test_what_is_compared_is_what_is_the_same_each_time(output: str, told: tuple[str, ...]) -> None:
    assert outline(Step("c", output, 0)) == told


def test_every_command_of_the_tour_works_and_prints_what_the_transcript_says(tmp_path: Path) -> None:
    kept = {step.command: step for step in read(TRANSCRIPT.read_text())}
    tour = Tour(tmp_path / "checkout")
    busy = business()
    try:
        for step in tour.run(commands_of(README)):
            if step.command == START:
                busy = max(busy, business())
                assert 0 < tour.ready_s < READY_S * busy, f"{tour.ready_s} s at {busy:.1f} times the load"
            expected = CODES.get(step.command, 0)
            assert step.code == expected, f"$ {step.command}\n{step.output}[exit code {step.code}]"
            assert outline(step) == outline(kept[step.command]), f"run `make tour`\n$ {step.command}\n{step.output}"
    finally:
        tour.stop()
