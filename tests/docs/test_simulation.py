"""docs/simulation-promises.md says which promises are checked, and by what: all of them, once, by files that speak of them. And
docs/simulation-campaigns.md says what each kind of world is directed at."""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.sim.profiles import PROFILES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulation-promises.md").read_text()
IDS = [f"S{number}" for number in range(1, 21)] + [f"L{number}" for number in range(1, 13)]


def rows() -> list[tuple[list[str], list[str]]]:
    """The ids of each row of the table, and the files it names."""
    table = PAGE[PAGE.index("| id | checked by |") :].split("\n\n")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    return [(re.findall(r"[SL][0-9]+", ids), re.findall(r"`([a-z_]+\.py)`", by)) for ids, by in cells]


def source_of(name: str) -> str:
    found = [path for path in (ROOT / "fairlead/observe" / name, ROOT / "fairlead/sim" / name) if path.exists()]
    assert found, f"there is no {name}"
    return found[0].read_text()


def test_every_promise_has_one_row() -> None:
    named = [one for ids, _ in rows() for one in ids]
    assert sorted(named) == sorted(IDS)


def test_a_file_that_is_said_to_check_a_promise_speaks_of_it() -> None:
    for ids, files in rows():
        sources = [source_of(name) for name in files]
        for one in ids:
            said = any(re.search(rf'"{one}"|"{one}:|{one} ', source) for source in sources)
            assert said or not files, f"{one}: none of {files} does"


def test_what_nothing_checks_says_so_in_its_row() -> None:
    unchecked = {one for ids, files in rows() if not files for one in ids}
    assert unchecked == {"L8", "L9", "L10", "L11"}, "a checker was added or lost: say so in the table"


def test_every_profile_is_said_to_be_directed_at_something_once() -> None:
    page = (ROOT / "docs" / "simulation-campaigns.md").read_text()
    table = page[page.index("| profile | directed at |") :].split("\n\n")[0]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", line.split("|")[1])]
    assert sorted(named) == sorted(PROFILES)
