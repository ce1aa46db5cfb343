"""Every history kept here is judged and decided again by this build, and comes out as it did when it was kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.replays.keep import BYTES_MAX, HERE, outcome_of

KEPT = sorted(HERE.glob("*.fairlead"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_history_comes_out_as_it_did(path: Path) -> None:
    assert path.stat().st_size <= BYTES_MAX
    assert outcome_of(path) == msgspec.json.decode(path.with_suffix(".json").read_bytes())


def test_there_is_an_example_and_it_has_placements_that_come_out_as_recorded() -> None:
    placed = outcome_of(HERE / "example.fairlead")["placements"]
    assert placed["decided"] == placed["same"] == 6
    assert placed["waits"] == placed["waits_same"] == 1
