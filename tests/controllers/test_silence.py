"""What is written down of somebody who is heard, silent or lost."""

from __future__ import annotations

import pytest

from fairlead.controllers.silence import Heard, conditions_of
from fairlead.model.meta import Condition


def told(heard: Heard, before: tuple[Condition, ...] = (), changed: bool = True) -> dict[str, tuple[str, str]]:
    found = conditions_of(before, heard, "MassSilence", changed=changed, generation=3, now_ms=1000)
    return {c.type: (c.status, c.reason) for c in found}


@pytest.mark.parametrize(
    ("well", "lost", "ready"),
    [(True, False, ("True", "Heard")), (False, True, ("False", "Lost")), (False, False, ("Unknown", "Silent"))],
)
def test_ready_says_heard_lost_or_that_nobody_knows(well: bool, lost: bool, ready: tuple[str, str]) -> None:
    assert told(Heard(well, lost, suspect=False, why="")) == {"Ready": ready}


def test_a_suspicion_comes_and_goes_by_itself_and_what_did_not_change_is_not_written_again() -> None:
    silent = Heard(well=False, lost=False, suspect=True, why="seven of ten fell silent at once")
    first = conditions_of((), silent, "MassSilence", changed=True, generation=3, now_ms=1000)
    assert {c.type: c.status for c in first} == {"Ready": "Unknown", "MassSilence": "True"}
    assert {c.message for c in first} == {silent.why}
    assert conditions_of(first, silent, "MassSilence", changed=False, generation=3, now_ms=2000) == first
    longer = silent._replace(why="the same, said later")
    assert conditions_of(first, longer, "MassSilence", changed=False, generation=3, now_ms=2000) == first, "no news, no write"
    over = told(silent._replace(suspect=False), first, changed=False)
    assert over == {"Ready": ("Unknown", "Silent"), "MassSilence": ("False", "Explained")}
