"""docs/simulation-planted-bugs.md has a row for every planted bug, and for no other, with its profile and its guard."""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.sim.mutants import MUTANTS

PAGE = (Path(__file__).parents[2] / "docs" / "simulation-planted-bugs.md").read_text()


def rows() -> list[tuple[str, str, str, str]]:
    table = PAGE[PAGE.index("| profile | planted bug |") :].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return [(bug.strip("`"), profile, guard, found) for profile, bug, guard, found, _ in cells]


def test_every_planted_bug_has_one_row_and_every_row_a_planted_bug() -> None:
    assert sorted(name for name, *_ in rows()) == sorted(MUTANTS)


def test_a_row_has_the_profile_and_the_guard_of_its_bug_and_a_promise_it_breaks() -> None:
    for name, profile, guard, found in rows():
        mutant = MUTANTS[name]
        assert (profile, guard) == (mutant.profile, mutant.guard), name
        assert found in mutant.invariants, name


def test_bugs_that_the_rules_name_are_planted_or_of_the_model() -> None:
    table = PAGE[PAGE.index("| rule | planted bugs") :].split("\n\n")[0]
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table))
    assert named <= set(MUTANTS), sorted(named - set(MUTANTS))
